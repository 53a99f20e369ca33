// A new job: a form, or the spec as JSON, checked by the service as it is typed.

import { getJson, isAbort, messageOf, Problem, send } from "./api.js";
import { announce, h, setHidden, setText } from "./dom.js";
import { oneJob } from "./jobs_view.js";
import { makeSpecCheck } from "./spec_check.js";
import { withValue } from "./spec_doc.js";
import { makeSpecForm } from "./spec_form.js";

const DRAFT = "distilld.draft";

/** A key by which the service knows a submission that is sent again. (crypto.randomUUID wants https.) */
function idempotencyKey() {
    const random = crypto.getRandomValues(new Uint8Array(16));
    return `page-${[...random].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

function draft() {
    try {
        const spec = JSON.parse(sessionStorage.getItem(DRAFT));
        return typeof spec === "object" && spec !== null && !Array.isArray(spec) ? spec : {};
    } catch {
        return {};
    }
}

/** A switch between the form and the text. */
function makeModes(onMode) {
    const radio = (value, label, checked) =>
        h(
            "label",
            { class: "mode" },
            h("input", { type: "radio", name: "mode", value, checked, onchange: () => onMode(value) }),
            ` ${label}`,
        );
    return h(
        "fieldset",
        { class: "modes" },
        h("legend", { class: "unseen" }, "How the spec is written"),
        radio("form", "Form", true),
        radio("json", "JSON", false),
    );
}

export function makeSubmitView(query, signal) {
    let spec = {};
    let form = null;
    let mode = "form";
    let sentAs = { text: null, key: null };
    let formErrors = [];
    let submitted = false;

    const text = h("textarea", {
        id: "spec-text",
        class: "spec-text",
        rows: 24,
        spellcheck: "false",
        "aria-label": "The spec as JSON",
        "aria-describedby": "verdict",
        oninput: textChanged,
    });
    const textBox = h("div", { hidden: true }, text);
    const formBox = h("div", { class: "spec-form" }, h("p", { class: "hint" }, "Asking the service for the fields…"));
    const verdict = h("p", { id: "verdict", class: "verdict", role: "status" });
    const complaints = h("ul", { class: "complaints" });
    const trouble = h("p", { class: "trouble", role: "alert", hidden: true });
    const button = h("button", { type: "submit", class: "primary" }, "Submit the job");
    const element = h(
        "section",
        { "aria-labelledby": "title" },
        h("div", { class: "head" }, h("h1", { id: "title" }, "New job"), makeModes(modeChanged)),
        h(
            "form",
            { novalidate: true, class: "submit", onsubmit: submit },
            h("div", { class: "submit-fields" }, formBox, textBox),
            h("div", { class: "submit-side" }, verdict, complaints, trouble, h("div", { class: "verbs" }, button)),
        ),
    );
    const check = makeSpecCheck(signal, {
        onAsking: () => setText(verdict, "Checking…"),
        onVerdict: show,
    });

    const specText = () => (mode === "json" ? text.value : JSON.stringify(spec));

    function changed() {
        sessionStorage.setItem(DRAFT, JSON.stringify(spec));
        setHidden(trouble, true);
        check(specText());
    }

    function fieldChanged(pointer, value) {
        spec = withValue(spec, pointer, value);
        changed();
    }

    function textChanged() {
        try {
            const read = JSON.parse(text.value);
            if (typeof read === "object" && read !== null && !Array.isArray(read)) spec = read;
        } catch {
            // The service says where it is wrong.
        }
        changed();
    }

    function modeChanged(next) {
        mode = next;
        if (mode === "json") text.value = JSON.stringify(spec, null, 2);
        else form?.write(spec);
        setHidden(formBox, mode !== "form");
        setHidden(textBox, mode !== "json");
        changed();
    }

    function complaint(error) {
        const label = error.pointer || "the whole spec";
        const name =
            mode === "form" && form !== null
                ? h("button", { type: "button", class: "as-link", onclick: () => form.focus(error.pointer) }, label)
                : h("code", {}, label);
        return h("li", {}, name, `: ${error.detail}`);
    }

    function show({ valid, errors, message, resolved }) {
        formErrors = errors;
        form?.complain(errors, submitted);
        complaints.replaceChildren(...errors.map(complaint));
        verdict.dataset.valid = String(valid);
        const things = errors.length === 1 ? "One thing" : `${errors.length} things`;
        if (valid) {
            setText(verdict, `✓ The service accepts this job. It writes to ${resolved?.output ?? "its store"}.`);
        } else {
            setText(verdict, `✕ ${message ?? `${things} to fix:`}`);
        }
    }

    async function submit(event) {
        event.preventDefault();
        setHidden(trouble, true);
        button.disabled = true;
        submitted = true;
        const body = specText();
        if (sentAs.text !== body) sentAs = { text: body, key: idempotencyKey() };
        try {
            const job = await send("POST", "/v1/jobs", { body, headers: { "Idempotency-Key": sentAs.key }, signal });
            sessionStorage.removeItem(DRAFT);
            announce("The job was submitted.");
            location.hash = `#/jobs/${encodeURIComponent(job.id)}`;
        } catch (error) {
            if (isAbort(error) || signal.aborted) return;
            const errors = error instanceof Problem ? error.errors : [];
            if (errors.length > 0) show({ valid: false, errors, message: null });
            else setText(trouble, messageOf(error));
            setHidden(trouble, errors.length > 0);
            if (mode !== "form" || errors.length === 0 || !form?.focus(errors[0].pointer)) button.focus();
        } finally {
            button.disabled = false;
        }
    }

    async function begin() {
        const from = query.get("from");
        spec = from ? ((await oneJob(from, signal)).spec ?? {}) : draft();
        const schema = await getJson("/v1/spec", signal);
        form = makeSpecForm(schema, fieldChanged);
        form.write(spec);
        form.complain(formErrors, submitted);
        formBox.replaceChildren(form.element);
        if (mode === "json") text.value = JSON.stringify(spec, null, 2);
        if (Object.keys(spec).length > 0) check(specText());
        else setText(verdict, "Nothing is filled in yet.");
    }

    begin().catch((error) => {
        if (isAbort(error) || signal.aborted) return;
        setText(trouble, messageOf(error));
        setHidden(trouble, false);
    });
    return { title: "New job", element };
}
