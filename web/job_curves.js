// The curves of a job: its losses, and one more figure at a choice.

import { makeChart } from "./chart.js";
import { h, setHidden } from "./dom.js";
import { number } from "./format.js";
import { lossesOf } from "./losses.js";

/** Of the choice, when they have points: the likeliest first. */
const FIGURES = [
    ["tokens_per_second", "throughput (tokens or samples per second)"],
    ["stall_fraction", "share of time that the student waits"],
    ["grad_norm", "norm of the gradient"],
    ["learning_rate", "learning rate"],
    ["eval_kl", "KL from the teacher, held-out (nats per token)"],
    ["eval_top1_agreement", "same top token, held-out"],
    ["eval_acceptance_rate", "acceptance as a draft, held-out"],
    ["teacher_hidden_fraction", "share of the teacher's time that is hidden"],
    ["seconds_remaining", "seconds left"],
];

/** Of eval.command, whatever it calls them. */
const OF_A_PROGRAM = "figures/";

/** [name, label] of all that has points, and of the first. */
function figuresOf(series) {
    const known = FIGURES.filter(([name], at) => at === 0 || series.get(name).steps.length > 0);
    const printed = series.names().filter((name) => name.startsWith(OF_A_PROGRAM));
    return [...known, ...printed.map((name) => [name, `eval.command: ${name.slice(OF_A_PROGRAM.length)}`])];
}

/** {element, show(SeriesSet, what the training loss is called), stop()} */
export function makeCurves() {
    const losses = makeChart("Losses over the steps, in nats per token or per sample");
    const other = makeChart("The chosen figure over the steps", number);
    const choice = h("select", { id: "figure", onchange: showOther });
    const lossBox = h(
        "section",
        { class: "panel", "aria-labelledby": "loss-title" },
        h("h2", { id: "loss-title" }, "Losses (nats per token, or per sample)"),
        losses.element,
    );
    const element = h(
        "div",
        { class: "two" },
        lossBox,
        h(
            "section",
            { class: "panel", "aria-labelledby": "figure-title" },
            h(
                "div",
                { class: "head" },
                h("h2", { id: "figure-title" }, "Throughput and more"),
                h("span", {}, h("label", { for: "figure", class: "unseen" }, "Figure"), choice),
            ),
            other.element,
        ),
    );
    let last = null;
    let offered = "";

    function showOther() {
        const [name, label] = figuresOf(last).find(([one]) => one === choice.value) ?? FIGURES[0];
        other.show([{ label, ...last.get(name) }]);
    }

    return {
        element,
        show(series, lossName) {
            last = series;
            const all = lossesOf(series, lossName);
            setHidden(lossBox, all.length === 0 && series.names().length > 0);
            losses.show(all);
            const there = figuresOf(series);
            const kind = there.map(([name]) => name).join(" ");
            if (kind !== offered) {
                offered = kind;
                const before = choice.value;
                choice.replaceChildren(...there.map(([name, label]) => h("option", { value: name }, label)));
                if (there.some(([name]) => name === before)) choice.value = before;
            }
            showOther();
        },
        stop() {
            losses.stop();
            other.stop();
        },
    };
}
