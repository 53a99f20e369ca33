// The list of jobs: newest first, filtered by state and name, kept up to date while it is looked at.

import { getJson, jobPath, messageOf } from "./api.js";
import { h, makeList, setAttribute, setHidden, setText } from "./dom.js";
import { duration, moment, number, rate, whole } from "./format.js";
import { generates, markOf, STATES } from "./verbs.js";
import { debounce, repeat } from "./timing.js";

const PAGE = 50;
const INTERVAL = 2000;

/** A caption and a value under it. */
function fact(caption) {
    const value = h("span", { class: "value" });
    return { element: h("span", { class: "fact" }, h("span", { class: "caption" }, caption), value), value };
}

/** The state with its sign. {element, show(job)} */
export function makeState() {
    const mark = h("span", { "aria-hidden": "true" });
    const word = h("span");
    const element = h("span", { class: "state" }, mark, " ", word);
    return {
        element,
        show(job) {
            setAttribute(element, "data-state", job.state);
            setText(mark, markOf(job.state));
            setText(word, job.cancel_requested && !job.terminal ? `${job.state}, being cancelled` : job.state);
        },
    };
}

function makeRow(chosen, onChoice) {
    return (first) => {
        const choice = h("input", {
            type: "checkbox",
            "aria-label": `Compare ${first.name}, ${first.id}`,
            checked: chosen.has(first.id),
            onchange: () => {
                if (choice.checked) chosen.add(first.id);
                else chosen.delete(first.id);
                onChoice();
            },
        });
        const link = h("a", { href: `#/jobs/${encodeURIComponent(first.id)}` }, first.name);
        const state = makeState();
        const bar = h("progress", { max: 100, "aria-label": `Progress of ${first.name}` });
        const done = h("span", { class: "hint" });
        const loss = fact("training loss");
        const speed = fact("speed");
        const left = fact("time left");
        const created = fact("created");
        const reason = h("p", { class: "reason" });
        const element = h(
            "li",
            { class: "job", "data-job": first.id },
            h("span", { class: "job-choice" }, choice),
            h("span", { class: "job-name" }, link, h("code", { class: "hint" }, first.id)),
            state.element,
            h("span", { class: "job-progress" }, bar, done),
            loss.element,
            speed.element,
            left.element,
            created.element,
            reason,
        );
        const update = (job) => {
            state.show(job);
            const progress = job.progress ?? {};
            setAttribute(bar, "value", progress.percent ?? 0);
            const steps = `${whole(progress.step ?? 0)} of ${whole(progress.total_steps)}`;
            setText(done, job.progress ? `${steps} ${generates(job) ? "rows" : "steps"}` : "not started");
            setText(loss.value, number(progress.loss));
            setText(speed.value, rate(progress));
            setText(left.value, job.state === "running" ? duration(progress.seconds_remaining) : "–");
            setText(created.value, moment(job.created_at));
            const place = job.queue_position ? `number ${job.queue_position} in the queue` : "";
            const why = job.status_reason && job.state !== "succeeded" ? job.status_reason.message : "";
            setText(reason, [place, why].filter(Boolean).join("; "));
            setHidden(reason, reason.textContent === "");
        };
        return { element, update };
    };
}

export function makeJobsView(query, signal) {
    const chosen = new Set();
    const older = new Map();
    let more = false;
    let last = null;
    let newest = [];

    const trouble = h("p", { class: "trouble", role: "alert", hidden: true });
    const empty = h("div", { class: "empty", hidden: true });
    const list = h("ul", { class: "jobs", "aria-label": "Jobs, newest first" });
    const compare = h("button", { type: "button", disabled: true, onclick: openComparison }, "Compare two");
    const loadMore = h("button", { type: "button", hidden: true, onclick: showOlder }, "Older jobs");
    const state = h(
        "select",
        { id: "filter-state", onchange: filterChanged },
        h("option", { value: "" }, "any"),
        ...STATES.map((name) => h("option", { value: name }, name)),
    );
    state.value = STATES.includes(query.get("state")) ? query.get("state") : "";
    const names = h("datalist", { id: "known-names" });
    const name = h("input", {
        id: "filter-name",
        type: "search",
        placeholder: "exact name",
        list: "known-names",
        autocomplete: "off",
        spellcheck: "false",
        value: query.get("name") ?? "",
        oninput: debounce(filterChanged, 300),
    });
    const element = h(
        "section",
        { "aria-labelledby": "title" },
        h(
            "div",
            { class: "head" },
            h("h1", { id: "title" }, "Jobs"),
            h("a", { class: "button", href: "#/submit" }, "New job"),
        ),
        h(
            "form",
            {
                class: "filters",
                role: "search",
                "aria-label": "Filter jobs",
                onsubmit: (event) => event.preventDefault(),
            },
            h("span", { class: "labelled" }, h("label", { for: "filter-state" }, "State"), state),
            h("span", { class: "labelled" }, h("label", { for: "filter-name" }, "Name"), name),
            names,
            compare,
        ),
        trouble,
        list,
        empty,
        loadMore,
    );
    const showRows = makeList(list, (job) => job.id, makeRow(chosen, onChoice));

    function onChoice() {
        compare.disabled = chosen.size !== 2;
        setText(compare, chosen.size === 2 ? "Compare these two" : "Compare two");
    }

    function openComparison() {
        const [a, b] = [...chosen];
        location.hash = `#/compare?a=${encodeURIComponent(a)}&b=${encodeURIComponent(b)}`;
    }

    function parameters() {
        const asked = new URLSearchParams({ limit: String(PAGE) });
        if (state.value) asked.set("state", state.value);
        if (name.value.trim()) asked.set("name", name.value.trim());
        return asked;
    }

    function filterChanged() {
        const asked = parameters();
        asked.delete("limit");
        const text = asked.toString();
        history.replaceState(null, "", `#/${text ? `?${text}` : ""}`);
        older.clear();
        refresh().catch(onError);
    }

    function show() {
        const seen = new Set(newest.map((job) => job.id));
        const jobs = [...newest, ...[...older.values()].filter((job) => !seen.has(job.id))];
        showRows(jobs);
        const filtered = state.value || name.value.trim();
        setHidden(empty, jobs.length > 0);
        empty.replaceChildren(
            ...(filtered
                ? [h("p", {}, "No job matches.")]
                : [
                      h("p", {}, "There are no jobs yet."),
                      h("a", { class: "button", href: "#/submit" }, "Submit the first"),
                  ]),
        );
        setHidden(loadMore, !more);
        const known = [...new Set(jobs.map((job) => job.name))];
        if (names.children.length !== known.length) {
            names.replaceChildren(...known.map((value) => h("option", { value })));
        }
    }

    let turn = 0;
    async function refresh() {
        turn += 1;
        const mine = turn;
        const page = await getJson(`/v1/jobs?${parameters()}`, signal);
        if (mine !== turn) return; // the filter has changed since
        setHidden(trouble, true);
        newest = page.data;
        if (older.size === 0) {
            more = page.has_more;
            last = page.last_id;
        }
        show();
    }

    async function showOlder() {
        loadMore.disabled = true;
        try {
            const asked = parameters();
            asked.set("after", last);
            const page = await getJson(`/v1/jobs?${asked}`, signal);
            page.data.forEach((job) => older.set(job.id, job));
            more = page.has_more;
            last = page.last_id ?? last;
            show();
        } catch (error) {
            onError(error);
        } finally {
            loadMore.disabled = false;
        }
    }

    function onError(error) {
        if (signal.aborted) return;
        setText(trouble, messageOf(error));
        setHidden(trouble, false);
    }

    repeat(refresh, INTERVAL, signal, onError);
    return { title: "Jobs", element };
}

/** Jobs for a choice, newest first: [{id, name, state}]. */
export async function recentJobs(signal) {
    return (await getJson("/v1/jobs?limit=100", signal)).data;
}

/** One job with its specs. */
export function oneJob(id, signal) {
    return getJson(jobPath(id), signal);
}
