// Two jobs side by side: curves over one another, their last figures, and where their specs differ.

import { getJson, isAbort, jobPath, messageOf } from "./api.js";
import { makeChart } from "./chart.js";
import { h, makeTable, setHidden, setText } from "./dom.js";
import { duration, lossName, number, rate, share, valueText, whole } from "./format.js";
import { oneJob, recentJobs } from "./jobs_view.js";
import { SeriesSet } from "./series.js";
import { differences } from "./spec_doc.js";

const POINTS = 1000;

const CHARTS = [
    ["Training loss, per token or sample", "loss"],
    ["Held-out loss, per token or sample", "eval_loss"],
    ["Tokens or samples per second", "tokens_per_second"],
    ["Share of time that the student waits", "stall_fraction"],
];

const FIGURES = [
    ["State", (job) => job.state],
    ["Steps", (job) => whole(job.progress?.step)],
    ["Training loss", (job) => lossName(job.resolved_spec)],
    ["Training loss at the end, per token or sample", (job) => number(job.progress?.loss)],
    ["Held-out loss, per token or sample", (job) => number(job.eval_loss)],
    ["Held-out cross entropy of the exported weights", (job) => number(job.exported_eval_loss)],
    ["KL from the teacher, held-out, nats/token", (job) => number(job.eval_kl)],
    ["Same top token", (job) => share(job.eval_top1_agreement)],
    ["Acceptance as a draft", (job) => share(job.eval_acceptance_rate)],
    ["Speed", (job) => rate(job.progress)],
    ["Time", (job) => duration(job.progress?.seconds_elapsed)],
    ["Student waits", (job) => share(job.progress?.stall_fraction)],
    ["Teacher's time hidden", (job) => share(job.progress?.teacher_hidden_fraction)],
    ["Arithmetic", (job) => job.dtype ?? "–"],
    ["Weights (SHA-256)", (job) => job.weights_sha256?.slice(0, 16) ?? "–"],
];

async function runOf(id, signal) {
    const names = CHARTS.map(([, name]) => name).join(",");
    const [job, measured] = await Promise.all([
        oneJob(id, signal),
        getJson(jobPath(id, `/metrics?names=${names}&max_points=${POINTS}`), signal),
    ]);
    const series = new SeriesSet();
    series.load(measured.data);
    return { job, series };
}

/** Names of two jobs that differ, be it by a part of their ids. */
export function labelsOf(a, b) {
    if (a.name !== b.name) return [`A: ${a.name}`, `B: ${b.name}`];
    return [`A: ${a.name} (${a.id.slice(-6)})`, `B: ${b.name} (${b.id.slice(-6)})`];
}

export function makeCompareView(query, signal) {
    const trouble = h("p", { class: "trouble", role: "alert", hidden: true });
    const result = h("div", { "data-part": "comparison" });
    const selects = ["a", "b"].map((side) => h("select", { id: `job-${side}`, onchange: chosen }));
    const element = h(
        "section",
        { "aria-labelledby": "title" },
        h("div", { class: "head" }, h("h1", { id: "title" }, "Compare two jobs")),
        h(
            "form",
            { class: "filters", "aria-label": "Jobs to compare", onsubmit: (event) => event.preventDefault() },
            ...["a", "b"].map((side, at) =>
                h("span", { class: "labelled" }, h("label", { for: `job-${side}` }, side.toUpperCase()), selects[at]),
            ),
        ),
        trouble,
        result,
    );
    let charts = [];
    const stopCharts = () => charts.forEach((chart) => chart.stop());
    signal.addEventListener("abort", stopCharts, { once: true });

    function show(runs) {
        stopCharts();
        const labels = labelsOf(runs[0].job, runs[1].job);
        const there = CHARTS.filter(([, name]) => runs.some((run) => run.series.get(name).steps.length > 0));
        charts = there.map(([title]) => makeChart(title));
        const figures = makeTable("Figures", [{ title: "Figure" }, { title: labels[0] }, { title: labels[1] }]);
        figures.show(FIGURES.map(([title, textOf]) => [title, ...runs.map((run) => textOf(run.job))]));
        const specs = runs.map((run) => run.job.resolved_spec ?? run.job.spec);
        const changes = differences(specs[0], specs[1]);
        const table = makeTable("Differences between the specs", [
            { title: "Field" },
            { title: labels[0] },
            { title: labels[1] },
        ]);
        table.show(changes.map((one) => [h("code", {}, one.pointer), valueText(one.a), valueText(one.b)]));
        const panel = (id, title, content) =>
            h("section", { class: "panel", "aria-labelledby": id }, h("h2", { id }, title), content);
        result.replaceChildren(
            h("div", { class: "two" }, ...there.map(([title], at) => panel(`chart-${at}`, title, charts[at].element))),
            panel("figures-title", "Figures", figures.element),
            panel(
                "changes-title",
                `Specs: ${changes.length === 1 ? "one difference" : `${changes.length} differences`}`,
                changes.length > 0 ? table.element : h("p", {}, "They are the same."),
            ),
        );
        // In the page by now, which gives them their width.
        there.forEach(([, name], at) =>
            charts[at].show(runs.map((run, side) => ({ label: labels[side], ...run.series.get(name) }))),
        );
    }

    let turn = 0;
    async function load() {
        turn += 1;
        const mine = turn;
        const ids = selects.map((select) => select.value);
        if (!ids[0] || !ids[1]) return;
        const runs = await Promise.all(ids.map((id) => runOf(id, signal)));
        if (mine !== turn || signal.aborted) return;
        setHidden(trouble, true);
        show(runs);
    }

    function chosen() {
        const [a, b] = selects.map((select) => encodeURIComponent(select.value));
        history.replaceState(null, "", `#/compare?a=${a}&b=${b}`);
        load().catch(onError);
    }

    function onError(error) {
        if (signal.aborted || isAbort(error)) return;
        setText(trouble, messageOf(error));
        setHidden(trouble, false);
    }

    async function begin() {
        const jobs = await recentJobs(signal);
        for (const [at, side] of ["a", "b"].entries()) {
            const wanted = query.get(side);
            const there = new Set(jobs.map((job) => job.id));
            // One that is asked for may be older than the list.
            const all = wanted && !there.has(wanted) ? [{ id: wanted, name: wanted, state: "" }, ...jobs] : jobs;
            selects[at].replaceChildren(
                h("option", { value: "" }, "choose a job"),
                ...all.map((job) => h("option", { value: job.id }, `${job.name} (${job.id.slice(-6)}, ${job.state})`)),
            );
            selects[at].value = wanted ?? "";
        }
        if (!query.get("a") || !query.get("b")) setText(result, "Choose two jobs.");
        await load();
    }

    begin().catch(onError);
    return { title: "Compare", element };
}
