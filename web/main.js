// The frame of the page: which view the address names, the key, whether the service answers.

import { happenings, key } from "./api.js";
import { makeCompareView } from "./compare_view.js";
import { announce, h, setText } from "./dom.js";
import { makeJobView } from "./job_view.js";
import { makeJobsView } from "./jobs_view.js";
import { makeNodesView } from "./nodes_view.js";
import { makeSubmitView } from "./submit_view.js";

const main = document.getElementById("main");
let leave = new AbortController();

/** #/jobs/ID?x=y as {path: ["jobs", "ID"], query}. */
function address() {
    const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
    const decoded = (part) => {
        try {
            return decodeURIComponent(part);
        } catch {
            return part;
        }
    };
    return { path: path.split("/").filter(Boolean).map(decoded), query: new URLSearchParams(query) };
}

/** {name: of the navigation, make(signal): {title, element}} */
function viewOf({ path, query }) {
    if (path.length === 0 || (path.length === 1 && path[0] === "jobs")) {
        return { name: "jobs", make: (signal) => makeJobsView(query, signal) };
    }
    if (path.length === 2 && path[0] === "jobs") return { name: "job", make: (signal) => makeJobView(path[1], signal) };
    if (path[0] === "nodes") return { name: "nodes", make: (signal) => makeNodesView(signal) };
    if (path[0] === "submit") return { name: "submit", make: (signal) => makeSubmitView(query, signal) };
    if (path[0] === "compare") return { name: "compare", make: (signal) => makeCompareView(query, signal) };
    const element = h("section", {}, h("h1", {}, "There is no such page"), h("a", { href: "#/" }, "All jobs"));
    return { name: "", make: () => ({ title: "No such page", element }) };
}

let first = true;

function show() {
    if (location.hash === "#main") return; // the skip link
    leave.abort();
    leave = new AbortController();
    const { name, make } = viewOf(address());
    const { title, element } = make(leave.signal);
    document.title = `${title} · distilld`;
    for (const link of document.querySelectorAll("[data-nav]")) {
        if (link.dataset.nav === name) link.setAttribute("aria-current", "page");
        else link.removeAttribute("aria-current");
    }
    main.replaceChildren(element);
    // Whoever follows a link with the keyboard or listens goes on at the new view.
    if (!first) {
        main.focus({ preventScroll: true });
        scrollTo(0, 0);
        announce(title);
    }
    first = false;
}

function makeKeyField() {
    const section = document.getElementById("key");
    const button = document.getElementById("key-button");
    const why = h("p", { class: "hint", id: "key-why" });
    const input = h("input", {
        id: "key-input",
        type: "password",
        autocomplete: "off",
        spellcheck: "false",
        "aria-describedby": "key-why",
    });
    const open = (reason) => {
        setText(why, reason);
        section.hidden = false;
        button.setAttribute("aria-expanded", "true");
        input.value = key.get();
    };
    const close = () => {
        section.hidden = true;
        button.setAttribute("aria-expanded", "false");
    };
    const take = (text) => {
        key.set(text);
        close();
        button.focus();
        show();
    };
    const form = h(
        "form",
        { class: "key-form" },
        h("label", { for: "key-input" }, "Key"),
        input,
        h("button", { type: "submit", class: "primary" }, "Use"),
        h("button", { type: "button", onclick: () => take("") }, "Forget"),
    );
    form.addEventListener("submit", (event) => {
        event.preventDefault();
        take(input.value.trim());
    });
    section.append(h("h2", { id: "key-title" }, "Key of the service"), why, form);
    button.addEventListener("click", () => {
        if (!section.hidden) {
            close();
        } else {
            open("Sent with each request as a bearer token, and forgotten when this tab is closed.");
            input.focus();
        }
    });
    happenings.addEventListener("unauthorized", () => {
        if (!section.hidden) return;
        open(
            key.get()
                ? "The service does not accept this key."
                : "The service needs a key: `distilld keys add NAME --role read` makes one.",
        );
        announce("The service needs a key.");
    });
}

function watchConnection() {
    const link = document.getElementById("link");
    happenings.addEventListener("reached", (event) => {
        setText(link, event.detail ? "" : "The service cannot be reached; trying again.");
    });
}

makeKeyField();
watchConnection();
addEventListener("hashchange", show);
show();
