// One job, live: asked for every two seconds, its events and curves from a stream.

import { getJson, isAbort, jobPath, messageOf, Problem } from "./api.js";
import { h, setHidden, setText } from "./dom.js";
import { makeEndpoints } from "./endpoints.js";
import { lossName } from "./format.js";
import { makeCurves } from "./job_curves.js";
import { makeJobHead } from "./job_head.js";
import { makeCheckpoints, makeEvents, makeLog } from "./job_history.js";
import { makeResult, makeSamples } from "./job_result.js";
import { makeRanks } from "./ranks.js";
import { SeriesSet } from "./series.js";
import { makeStageGraph } from "./stage_graph.js";
import { StageHistory } from "./stages.js";
import { followEvents } from "./stream.js";
import { repeat } from "./timing.js";

const INTERVAL = 2000;
const SLOW_INTERVAL = 15000;
const POINTS = 1000;
/** The curves are drawn so often at most, however fast steps come in. */
const DRAW_INTERVAL = 500;

function panel(title, ...content) {
    const id = `panel-${title.toLowerCase().replace(/[^a-z]+/g, "-")}`;
    return h("section", { class: "panel", "aria-labelledby": id }, h("h2", { id }, title), ...content);
}

function specPart() {
    const text = h("pre", { class: "log", tabindex: "0", "aria-label": "The spec with all defaults" });
    const element = h("details", {}, h("summary", {}, "Spec, with all defaults"), text);
    return { element, show: (job) => setText(text, JSON.stringify(job.resolved_spec ?? job.spec, null, 2) ?? "") };
}

/** Redraws the curves, not more often than is of use. */
function makePainter(draw, signal) {
    let timer = null;
    signal.addEventListener("abort", () => clearTimeout(timer), { once: true });
    return () => {
        timer ??= setTimeout(() => {
            timer = null;
            draw();
        }, DRAW_INTERVAL);
    };
}

export function makeJobView(id, signal) {
    const series = new SeriesSet();
    const stages = new StageHistory();
    const trouble = h("p", { class: "trouble", role: "alert", hidden: true });
    const live = h("p", { class: "hint" });
    const head = makeJobHead(id, onVerb);
    const graph = makeStageGraph("graph");
    const ranks = makeRanks();
    const curves = makeCurves();
    const endpoints = makeEndpoints();
    const checkpoints = makeCheckpoints();
    const result = makeResult(id, signal);
    const samples = [makeSamples("evaluation"), makeSamples("rollout")];
    const events = makeEvents(id, signal, (event) => samples.forEach((one) => one.add(event)));
    const spec = specPart();
    let loss;
    const drawCurves = () => curves.show(series, loss);
    const paint = makePainter(drawCurves, signal);
    signal.addEventListener("abort", () => curves.stop(), { once: true });
    const measured = h("div", {}, panel("Stages", graph.element, ranks.element), curves.element);
    const body = h(
        "div",
        {},
        result.element,
        measured,
        ...samples.map((one) => one.element),
        panel("Teacher", endpoints.element),
        panel("Checkpoints", checkpoints.element),
        panel("Events", live, events.element),
        panel("More", makeLog(id, signal), spec.element),
    );
    const element = h("article", { "aria-labelledby": "title" }, trouble, head.element, body);
    let running = null;

    function onError(error) {
        if (signal.aborted || isAbort(error)) return undefined;
        const gone = error instanceof Problem && error.status === 404;
        setText(trouble, messageOf(error));
        setHidden(trouble, false);
        setHidden(body, gone);
        return gone ? false : undefined;
    }

    async function refresh() {
        const job = await getJson(jobPath(id), signal);
        setHidden(trouble, true);
        head.show(job);
        spec.show(job);
        checkpoints.show(job);
        endpoints.show(job);
        ranks.show(job);
        result.show(job);
        loss = lossName(job.resolved_spec);
        // One that ended before it began has nothing to show there.
        setHidden(measured, job.terminal && !job.progress);
        if (job.progress) stages.add(job.progress.stages ?? [], performance.now());
        graph.show(stages.now(job.terminal), job.progress?.bottleneck);
        return !job.terminal;
    }

    async function follow(from, within) {
        await followEvents(id, from, {
            signal: within,
            onLive: (stands) => setText(live, stands ? "" : "The stream of events is interrupted; trying again."),
            onEvent: (type, data) => {
                if (type === "metrics" || type === "evaluation" || type === "figures") {
                    series.add(type, data.data);
                    paint();
                }
                if (type === "done" || type === "state" || type === "checkpoint") refresh().catch(onError);
                if (type !== "done" && type !== "gap") events.add(data);
                if (type !== "done" && type !== "gap") position = data.sequence;
            },
        });
    }

    /** A job that has ended may be resumed by somebody else. */
    async function lookAgain() {
        const ended = await refresh().then((goesOn) => !goesOn);
        if (!ended) begin();
        return ended;
    }

    let position = null;
    /** From the state of things to the end of the job; again, when it was resumed. */
    function begin() {
        running?.abort();
        running = new AbortController();
        const within = AbortSignal.any([signal, running.signal]);
        repeat(refresh, INTERVAL, within, onError).then(() => repeat(lookAgain, SLOW_INTERVAL, within, onError));
        (async () => {
            position ??= await events.begin();
            const figures = await getJson(jobPath(id, `/metrics?max_points=${POINTS}`), within);
            series.load(figures.data);
            drawCurves();
            await follow(position, within);
        })().catch(onError);
    }

    function onVerb(name) {
        if (name === "delete") {
            location.hash = "#/";
        } else {
            begin();
        }
    }

    begin();
    return { title: "Job", element };
}
