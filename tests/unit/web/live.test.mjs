import assert from "node:assert/strict";
import { test } from "node:test";

import { bytes, duration, lossName, moment, number, rate, share } from "../../../web/format.js";
import { lossesOf } from "../../../web/losses.js";
import { rankRows } from "../../../web/ranks.js";
import { lengthOf, rolloutFacts } from "../../../web/rollouts.js";
import { aligned, SeriesSet, thinned } from "../../../web/series.js";
import { SseParser } from "../../../web/sse.js";
import { bottleneckOf, StageHistory } from "../../../web/stages.js";
import { verbsOf } from "../../../web/verbs.js";

test("events are whole however the stream is cut", () => {
    const text =
        'id: 7\nevent: state\ndata: {"a":1}\n\n: keep-alive\n\nevent: gap\r\ndata: 1\ndata: 2\r\n\r\ndata: x\n\n';
    const whole = new SseParser().push(text);
    assert.deepEqual(whole, [
        { type: "state", data: '{"a":1}', id: "7" },
        { type: "gap", data: "1\n2", id: null },
        { type: "message", data: "x", id: null },
    ]);
    const parser = new SseParser();
    assert.deepEqual(
        [...text].flatMap((letter) => parser.push(letter)),
        whole,
    );
    assert.deepEqual(new SseParser().push("data: not yet\n"), []);
});

test("steps that are done again replace those before", () => {
    const set = new SeriesSet();
    set.load([{ name: "loss", steps: [1, 2, 3], values: [3, 2, 1] }]);
    set.add("metrics", { step: 4, loss: 0.5, bottleneck: "student", generates: false, eval_kl: null });
    set.add("metrics", { step: 3, loss: null });
    assert.deepEqual(set.get("loss"), { steps: [1, 2, 3], values: [3, 2, null] });
    set.add("evaluation", { step: 3, loss: 4, kl: null });
    assert.deepEqual(set.get("eval_loss"), { steps: [3], values: [4] });
    assert.deepEqual(set.names(), ["loss", "eval_loss"], "null does not begin a series");
    set.add("figures", { step: 3, figures: { "arc/acc": 0.5 }, seconds: 2, problem: "" });
    set.add("figures", { step: 4, figures: {}, seconds: 2, problem: "it failed" });
    assert.deepEqual(set.names(), ["loss", "eval_loss", "figures/arc/acc"], "its seconds are no figure");
    assert.deepEqual(set.get("figures/arc/acc"), { steps: [3], values: [0.5] });
    for (let step = 5; step < 1000; step += 1) set.add("figures", { step, figures: { [`n${step}`]: 1, "arc/acc": 1 } });
    assert.equal(set.names().length, 128, "new names each time do not fill the page");
    assert.equal(set.get("figures/arc/acc").steps.at(-1), 999);
});

test("long series are thinned with their ends and peaks", () => {
    const steps = Array.from({ length: 1001 }, (_, at) => at);
    const values = steps.map((step) => (step === 500 ? 99 : step === 700 ? null : 1));
    const thin = thinned({ steps, values }, 100);
    assert.ok(thin.steps.length <= 100);
    assert.equal(thin.steps[0], 0);
    assert.equal(thin.steps.at(-1), 1000);
    assert.ok(thin.values.includes(99));
    assert.ok(thin.values.includes(null));
    assert.deepEqual(
        [...thin.steps].sort((a, b) => a - b),
        thin.steps,
    );
    const set = new SeriesSet();
    for (let step = 1; step <= 10000; step += 1) set.add("metrics", { step, loss: 1 });
    assert.ok(set.get("loss").steps.length <= 4000, "a page that stays open does not grow");
    assert.equal(set.get("loss").steps.at(-1), 10000);
});

test("series of other steps share one axis", () => {
    const table = aligned([
        { steps: [1, 3], values: [10, null] },
        { steps: [2], values: [5] },
    ]);
    assert.deepEqual(table, [
        [1, 2, 3],
        [10, undefined, null],
        [undefined, 5, undefined],
    ]);
});

const stage = (name, busy, input, output) => ({
    stage: name,
    busy_seconds: busy,
    wait_input_seconds: input,
    wait_output_seconds: output,
});

test("what a stage does now is what was added lately", () => {
    const history = new StageHistory();
    history.add([stage("student", 100, 0, 0), stage("evaluation", 0, 0, 0)], 0);
    assert.equal(history.now(false).span, null);
    assert.equal(history.now(false).stages[0].main, "busy");
    history.add([stage("student", 101, 3, 0), stage("evaluation", 0, 0, 0)], 4000);
    const now = history.now(false);
    assert.equal(now.span, 4);
    assert.deepEqual(now.stages[0].shares, { busy: 0.25, input: 0.75, output: 0 });
    assert.equal(now.stages[0].main, "input");
    assert.equal(now.stages[1].main, null);
    assert.ok(now.stages[1].aside);
    assert.equal(history.now(true).stages[0].main, "busy", "of a job that has ended, the whole run");
    history.add([stage("student", 1, 0, 0), stage("evaluation", 0, 0, 0)], 6000);
    assert.equal(history.now(false).span, null, "a run that was started again");
    for (let second = 7; second < 60; second += 1) {
        history.add([stage("student", second, 0, 0), stage("evaluation", 0, 0, 0)], second * 1000);
    }
    assert.ok(history.now(false).span <= 11);
});

test("a stage that has hardly worked is idle, be it all that it did", () => {
    const history = new StageHistory();
    const of = (seconds) => [
        stage("plan", 0.0002 * seconds, 0, 0),
        stage("student", 0.6 * seconds, 0.2 * seconds, 0),
        stage("evaluation", 0.2 * seconds, 0, 0),
        stage("snapshot", 0, seconds, 0),
    ];
    for (const second of [0, 30, 60]) history.add(of(second), second * 1000);
    for (const ended of [false, true]) {
        const [plan, student, evaluation, snapshot] = history.now(ended).stages;
        assert.equal(plan.main, null);
        assert.ok(plan.shares.busy < 0.01);
        assert.equal(student.main, "busy");
        assert.ok(Math.abs(student.shares.busy - 0.6) < 1e-9);
        assert.equal(evaluation.main, null, "idle for most of the time");
        assert.ok(Math.abs(evaluation.shares.busy - 0.2) < 1e-9);
        assert.equal(snapshot.main, "input", "beside the chain, and no part of its time");
    }
});

test("losses are called what they are", () => {
    const of = (share) => lossName({ training: { kd_ratio: share } });
    assert.deepEqual([1, 0, 0.5].map(of), [
        "training loss (KD)",
        "training loss (cross entropy)",
        "training loss (KD and cross entropy)",
    ]);
    assert.equal(lossName(undefined), "training loss");
    const set = new SeriesSet();
    set.load([
        { name: "loss", steps: [1, 2], values: [2, 1] },
        { name: "kd_loss", steps: [1, 2], values: [2, 1] },
        { name: "ce_loss", steps: [1, 2], values: [5, 4] },
    ]);
    assert.deepEqual(
        lossesOf(set, of(1)).map((one) => one.label),
        ["training loss (KD)", "cross entropy with the data"],
    );
});

test("the bottleneck is what the service would call it", () => {
    const view = (student, decode, span = 10) => ({
        span,
        stages: [
            { name: "teacher", shares: { busy: 1, input: 0, output: 0 } },
            { name: "decode", shares: { busy: decode, input: 1 - decode, output: 0 } },
            { name: "student", shares: { busy: student, input: 1 - student, output: 0 } },
        ],
    });
    assert.equal(bottleneckOf(view(0.99, 0.1), "teacher"), "student");
    assert.equal(bottleneckOf(view(0.5, 0.1), "student"), "teacher");
    assert.equal(bottleneckOf(view(0.5, 0.95), "student"), "decode");
    assert.equal(bottleneckOf(view(0.5, 0.1, null), "student"), "student", "no more than the whole run is known");
    assert.equal(bottleneckOf({ span: 4, stages: [] }, "teacher"), "teacher");
});

test("each state offers what can be asked in it", () => {
    const names = (job) => verbsOf({ kind: "train", ...job }).map((verb) => verb.name);
    assert.deepEqual(names({ state: "queued" }), ["pause", "cancel"]);
    assert.deepEqual(names({ state: "running" }), ["checkpoint", "pause", "cancel"]);
    assert.deepEqual(names({ state: "running", kind: "generate" }), ["pause", "cancel"]);
    assert.deepEqual(names({ state: "running", cancel_requested: true }), []);
    assert.deepEqual(names({ state: "paused" }), ["resume", "cancel"]);
    assert.deepEqual(names({ state: "failed" }), ["resume", "delete"]);
    assert.deepEqual(names({ state: "succeeded" }), ["delete"]);
    assert.deepEqual(names({ state: "what comes later" }), []);
});

test("figures are written as people read them", () => {
    assert.equal(number(4.117654), "4.118");
    assert.equal(number(0.00085), "0.00085");
    assert.equal(number(1.2e-7), "1.20e-7");
    assert.equal(number(null), "–");
    assert.equal(number(0), "0");
    assert.equal(share(0.0345), "3.5 %");
    assert.equal(duration(0.25), "250 ms");
    assert.equal(duration(245), "4 min 05 s");
    assert.equal(duration(90000), "1 d 1 h");
    assert.equal(rate({ tokens_per_second: 10900 }), "10.9k tok/s");
    assert.equal(rate({ tokens_per_second: 12, of_samples: true }), "12 samples/s");
    assert.equal(bytes(1536), "1.5 KiB");
    assert.match(moment(new Date().toISOString()), /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$/, "today, too");
    assert.equal(moment(null), "–");
    assert.equal(moment("soon"), "soon");
});

test("each rank has a row that says for whom it waits", () => {
    assert.deepEqual(rankRows(null), []);
    assert.deepEqual(rankRows({ step: 1, ranks: [] }), []);
    const slow = { rank: 1, host: "b", tokens_per_second: 1500, busy_seconds: { student: 9 } };
    assert.deepEqual(rankRows({ ranks: [{ ...slow, wait_input_seconds: 0.5, wait_ranks_seconds: 0 }] }), [
        ["1", "b", "1.5k tok/s", "9.0 s", "500 ms", "0 ms"],
    ]);
});

test("what a student writes has figures", () => {
    const lengths = [
        { up_to: 4, answers: 5 },
        { up_to: 8, answers: 4 },
        { up_to: 64, answers: 1 },
    ];
    assert.equal(lengthOf(lengths, 0.5), 4);
    assert.equal(lengthOf(lengths, 0.51), 8);
    assert.equal(lengthOf(lengths, 0.9), 8);
    assert.equal(lengthOf(lengths, 1), 64);
    assert.equal(lengthOf([], 0.5), undefined);
    const rollout = { answers: 10, tokens: 60, cut: 1, mean_length: 6, entropy: 1.25, lengths, reverse_kl: null };
    const progress = { rollout, tokens: 240, seconds_elapsed: 2, fetch: { endpoints: [{ tokens: 100 }, { tokens: 20 }] } };
    const facts = (of) => rolloutFacts.map(([, textOf]) => textOf({}, of));
    assert.deepEqual(facts(progress), [
        "10, 10 % cut",
        "mean 6, half up to 4, 90 % up to 8",
        "1.25",
        null,
        "30 tok/s, 60 tok/s, 120 tok/s",
    ]);
    assert.equal(facts({ ...progress, rollout: { ...rollout, reverse_kl: 0.5 } })[3], "0.5");
    for (const none of [{}, { rollout: null }, { rollout: { ...rollout, answers: 0 } }]) {
        assert.deepEqual(facts(none), [null, null, null, null, null]);
    }
});
