// What a job has been through: checkpoints, events, and what its workers said.

import { getJson, getText, jobPath, messageOf } from "./api.js";
import { h, makeTable, setHidden, setText } from "./dom.js";
import { bytes, duration, moment, whole } from "./format.js";
import { repeat } from "./timing.js";

const MOST_EVENTS = 500;
const PAGE = 100;
/** So many lines are looked for at first, in so many events at most: those of type metrics stand in the curves. */
const FIRST_LINES = 20;
const FIRST_LOOK = 3000;
const LOG_LINES = 300;
const LOG_INTERVAL = 4000;

/** {element, show(job)} */
export function makeCheckpoints() {
    const table = makeTable("Checkpoints", [
        { title: "Step", number: true },
        { title: "Written", tight: true },
        { title: "Took", number: true },
        { title: "Size", number: true },
        { title: "Folder" },
    ]);
    const none = h("p", { class: "hint" }, "None written yet.");
    const older = h("p", { class: "hint", hidden: true });
    let shown = "";
    return {
        element: h("div", { "data-part": "checkpoints" }, none, table.element, older),
        show(job) {
            const kind = JSON.stringify([job.checkpoints, job.checkpoints_total]);
            if (kind === shown) return;
            shown = kind;
            setHidden(none, job.checkpoints.length > 0);
            setHidden(table.element, job.checkpoints.length === 0);
            setHidden(older, job.checkpoints_total <= job.checkpoints.length);
            setText(older, `The newest of ${whole(job.checkpoints_total)} checkpoints.`);
            table.show(
                [...job.checkpoints]
                    .reverse()
                    .map((one) => [
                        whole(one.step),
                        moment(one.created_at),
                        duration(one.seconds),
                        bytes(one.bytes),
                        h("code", {}, one.folder),
                    ]),
            );
        },
    };
}

const LEVELS = { warn: "⚠ ", error: "✕ " };

/**
 * Events but those of type metrics, newest first. {element, add(event), begin()}: begin() resolves to the number of the
 * newest event that there is, from which a stream goes on. `onEvent(event)` follows each that is shown.
 */
export function makeEvents(id, signal, onEvent) {
    const list = h("ol", { class: "events", "aria-label": "Events, newest first", tabindex: "0" });
    const trouble = h("p", { class: "trouble", hidden: true });
    const older = h("button", { type: "button", hidden: true, onclick: () => void showOlder() }, "Older events");
    let oldest = null;
    let newest = null;

    function line(event) {
        return h(
            "li",
            { "data-level": event.level },
            h("time", { datetime: event.created_at }, moment(event.created_at)),
            " ",
            h("span", { class: "tag" }, event.type),
            " ",
            `${LEVELS[event.level] ?? ""}${event.message}`,
        );
    }

    /** The next older events, and of them those that are shown; whether there are more. */
    async function page(size) {
        const after = oldest === null ? "" : `&after=${oldest}`;
        const answer = await getJson(jobPath(id, `/events?order=desc&limit=${size}${after}`), signal);
        const events = answer.data;
        newest ??= events[0]?.sequence ?? 0;
        if (events.length > 0) oldest = events.at(-1).sequence;
        setHidden(older, !answer.has_more);
        const shown = events.filter((event) => event.type !== "metrics");
        list.append(...shown.map(line));
        shown.forEach(onEvent);
        return answer.has_more;
    }

    async function showOlder() {
        older.disabled = true;
        try {
            // A page of nothing but metrics would look as if the button did not work.
            const before = list.children.length;
            while ((await page(PAGE * 10)) && list.children.length === before);
            setHidden(trouble, true);
        } catch (error) {
            setText(trouble, messageOf(error));
            setHidden(trouble, false);
        } finally {
            older.disabled = false;
        }
    }

    return {
        element: h("div", { "data-part": "events" }, list, trouble, older),
        async begin() {
            let more = await page(PAGE);
            for (let looked = PAGE; more && list.children.length < FIRST_LINES && looked < FIRST_LOOK; looked += 1000) {
                more = await page(1000);
            }
            return newest;
        },
        add(event) {
            if (event.type === "metrics") return;
            list.prepend(line(event));
            onEvent(event);
            while (list.children.length > MOST_EVENTS) list.lastElementChild.remove();
        },
    };
}

/** The last lines, asked for while they are looked at. */
export function makeLog(id, signal) {
    const text = h("pre", { class: "log", tabindex: "0", "aria-label": `The last ${LOG_LINES} lines of the log` });
    const trouble = h("p", { class: "trouble", hidden: true });
    const details = h("details", { "data-part": "log" }, h("summary", {}, "Log of the workers"), trouble, text);
    let look = null;

    async function refresh() {
        const lines = await getText(jobPath(id, `/logs?tail=${LOG_LINES}`), look.signal);
        setHidden(trouble, true);
        if (text.textContent === lines) return;
        const atEnd = text.scrollHeight - text.scrollTop - text.clientHeight < 20;
        text.textContent = lines || "Nothing yet: no worker has started.";
        if (atEnd) text.scrollTop = text.scrollHeight;
    }

    details.addEventListener("toggle", () => {
        look?.abort();
        look = new AbortController();
        if (!details.open) return;
        repeat(refresh, LOG_INTERVAL, AbortSignal.any([signal, look.signal]), (error) => {
            setText(trouble, messageOf(error));
            setHidden(trouble, false);
        });
    });
    return details;
}
