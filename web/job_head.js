// The top of a job's page: what it is called, its state and why, what may be asked of it, and its figures.

import { jobPath, messageOf, send } from "./api.js";
import { announce, h, setAttribute, setHidden, setText } from "./dom.js";
import { duration, lossName, moment, number, rate, share, whole } from "./format.js";
import { makeState } from "./jobs_view.js";
import { rolloutFacts } from "./rollouts.js";
import { generates, verbsOf } from "./verbs.js";

const lossUnit = (job) => (job.progress?.of_samples ? "" : ", nats/token");

const linkTo = (id, text) => h("a", { href: `#/jobs/${encodeURIComponent(id)}` }, text);

/** Task 0 links to the others, and they to it. */
function taskLinks(job) {
    if (job.task_of) return [`${job.task} of `, linkTo(job.task_of, job.task_of)];
    return [`${job.task}; with `, ...job.tasks.slice(1).flatMap((id, at) => [at ? ", " : "", linkTo(id, `${at + 1}`)])];
}

/** [caption or what makes one of a job, text of a job]; one that is null is left out. Losses are in nats per token. */
const FACTS = [
    ["task", (job) => (typeof job.task === "number" ? taskLinks(job) : null)],
    ["time left", (job, progress) => (job.state === "running" ? duration(progress.seconds_remaining) : null)],
    ["speed", (_, progress) => rate(progress)],
    [
        (job) => `${lossName(job.resolved_spec)}${lossUnit(job)}`,
        (job, progress) => (generates(job) ? null : number(progress.loss)),
    ],
    [
        (job) => (job.progress?.of_samples ? "held-out loss" : "held-out cross entropy, nats/token"),
        (job) => (generates(job) ? null : number(job.eval_loss)),
    ],
    [
        "KL from the teacher, held-out, nats/token",
        (job) => (job.eval_kl === null || job.eval_kl === undefined ? null : number(job.eval_kl)),
    ],
    ["same top token", (job) => (typeof job.eval_top1_agreement === "number" ? share(job.eval_top1_agreement) : null)],
    [
        "acceptance as a draft",
        (job) => (typeof job.eval_acceptance_rate === "number" ? share(job.eval_acceptance_rate) : null),
    ],
    ["student waits", (job, progress) => (generates(job) ? null : share(progress.stall_fraction))],
    ["learning rate", (job, progress) => (generates(job) ? null : number(progress.learning_rate))],
    ["time so far", (_, progress) => duration(progress.seconds_elapsed)],
    [(job) => (job.progress?.of_samples ? "samples" : "tokens"), (_, progress) => whole(progress.tokens)],
    ...rolloutFacts,
    ["arithmetic", (job) => job.dtype ?? null],
    ["created", (job) => moment(job.created_at)],
    ["finished", (job) => (job.finished_at ? moment(job.finished_at) : null)],
];

function makeVerbs(id, onDone) {
    const buttons = h("div", { class: "verbs", role: "group", "aria-label": "Actions on this job" });
    const trouble = h("p", { class: "trouble", role: "alert", hidden: true });
    let shown = "";

    async function act(verb) {
        if (verb.question && !confirm(verb.question)) return;
        setHidden(trouble, true);
        for (const button of buttons.children) button.disabled = true;
        try {
            const removing = verb.name === "delete";
            const answer = await send(removing ? "DELETE" : "POST", jobPath(id, removing ? "" : `/${verb.name}`));
            announce(`${verb.label}: done`);
            shown = "";
            onDone(verb.name, answer);
        } catch (error) {
            setText(trouble, `${verb.label}: ${messageOf(error)}`);
            setHidden(trouble, false);
        } finally {
            for (const button of buttons.children) button.disabled = false;
        }
    }

    function show(job) {
        const verbs = verbsOf(job);
        const kind = verbs.map((verb) => verb.name).join(" ");
        if (kind === shown) return;
        shown = kind;
        const focused = buttons.contains(document.activeElement);
        const make = (verb) =>
            h("button", { type: "button", "data-verb": verb.name, onclick: () => act(verb) }, verb.label);
        buttons.replaceChildren(
            ...verbs.map(make),
            h("a", { class: "button", href: `#/submit?from=${encodeURIComponent(id)}` }, "Submit again"),
        );
        if (focused) buttons.firstElementChild.focus();
    }
    return { element: h("div", {}, buttons, trouble), show };
}

/** {element, show(job)}; `onDone(name of the verb, answer)` follows a verb that was taken. */
export function makeJobHead(id, onDone) {
    const title = h("h1", { id: "title" }, id);
    const state = makeState();
    const reason = h("p", { class: "reason", hidden: true });
    const bar = h("progress", { max: 100, "aria-label": "Progress" });
    const done = h("p", { class: "hint" });
    const facts = h("dl", { class: "facts" });
    const verbs = makeVerbs(id, onDone);
    const rows = FACTS.map(() => {
        const caption = h("dt", { class: "caption" });
        const value = h("dd");
        const element = h("div", { class: "fact" }, caption, value);
        facts.append(element);
        return { element, caption, value };
    });
    const element = h(
        "div",
        { class: "job-head" },
        h("p", { class: "crumbs" }, h("a", { href: "#/" }, "Jobs"), " / ", h("code", {}, id)),
        h("div", { class: "head" }, title, state.element),
        reason,
        verbs.element,
        h("div", { class: "job-bar" }, bar, done),
        facts,
    );
    let before = null;
    return {
        element,
        show(job) {
            setText(title, job.name);
            document.title = `${job.name} · distilld`;
            state.show(job);
            if (before !== null && before !== job.state) announce(`The job is ${job.state}.`);
            before = job.state;
            const progress = job.progress ?? {};
            const place = job.queue_position ? `Number ${job.queue_position} in the queue. ` : "";
            const why = job.status_reason ? `${job.status_reason.message} (${job.status_reason.code})` : "";
            const since = job.status_reason?.since ? `, since ${moment(job.status_reason.since)}` : "";
            setText(reason, `${place}${why}${since}`);
            setHidden(reason, reason.textContent === "");
            reason.classList.toggle("trouble", job.state === "failed");
            setAttribute(bar, "value", progress.percent ?? 0);
            const unit = generates(job) ? "row" : "step";
            setText(
                done,
                job.progress
                    ? `${unit} ${whole(progress.step)} of ${whole(progress.total_steps)}, ${number(progress.percent)} %`
                    : "not started",
            );
            FACTS.forEach(([caption, textOf], at) => {
                const text = textOf(job, progress);
                const parts = [text ?? ""].flat();
                setHidden(rows[at].element, text === null);
                setText(rows[at].caption, typeof caption === "string" ? caption : caption(job));
                const said = parts.map((part) => part.textContent ?? part).join("");
                if (rows[at].value.textContent !== said) rows[at].value.replaceChildren(...parts);
            });
            verbs.show(job);
        },
    };
}
