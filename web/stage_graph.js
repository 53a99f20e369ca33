// The stages as a picture: a bar of busy (solid), waiting for input (stripes) and for output (dots) in each, the
// bottleneck with a frame of its own. The same in words is a table below it.

import { h, makeTable, setAttribute, setText, svg } from "./dom.js";
import { duration, share } from "./format.js";
import { bottleneckOf, STATES, WORDS } from "./stages.js";

const BOX = { width: 152, height: 78, gap: 14, bar: 12 };
const NARROW = 700;

function patterns(id) {
    return svg(
        "defs",
        {},
        svg(
            "pattern",
            { id: `${id}-input`, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
            svg("rect", { width: 6, height: 6, class: "stage-ground" }),
            svg("rect", { width: 3, height: 6, class: "stage-input" }),
        ),
        svg(
            "pattern",
            { id: `${id}-output`, width: 6, height: 6, patternUnits: "userSpaceOnUse" },
            svg("rect", { width: 6, height: 6, class: "stage-ground" }),
            svg("circle", { cx: 3, cy: 3, r: 1.8, class: "stage-output" }),
        ),
        svg(
            "marker",
            {
                id: `${id}-arrow`,
                viewBox: "0 0 8 8",
                refX: 7,
                refY: 4,
                markerWidth: 6,
                markerHeight: 6,
                orient: "auto",
            },
            svg("path", { d: "M0 0 8 4 0 8z", class: "stage-arrow" }),
        ),
    );
}

function bar(id, stage, x, y, width) {
    const parts = [svg("rect", { x, y, width, height: BOX.bar, class: "stage-ground" })];
    let left = x;
    for (const state of STATES) {
        const size = stage.shares === null ? 0 : stage.shares[state] * width;
        const fill = state === "busy" ? {} : { fill: `url(#${id}-${state})` };
        if (size > 0) {
            parts.push(
                svg("rect", { x: left, y, width: size, height: BOX.bar, class: `stage-${state}-part`, ...fill }),
            );
        }
        left += size;
    }
    parts.push(svg("rect", { x, y, width, height: BOX.bar, class: "stage-bar" }));
    return parts;
}

/** Below the name; the share stands behind that. */
function mainWords(stage) {
    return stage.main === null ? "idle" : WORDS[stage.main];
}

function inWords(stage) {
    return stage.main === null ? "idle" : `${WORDS[stage.main]} ${share(stage.shares[stage.main])}`;
}

function box(id, stage, x, y, width, isBottleneck) {
    const classes = `stage-box${isBottleneck ? " bottleneck" : ""}${stage.main === null ? " idle" : ""}`;
    return svg(
        "g",
        { "data-stage": stage.name, "data-state": stage.main ?? "idle" },
        svg("rect", { x, y, width, height: BOX.height, rx: 8, class: classes }),
        svg("text", { x: x + 10, y: y + 21, class: "stage-name" }, stage.name),
        stage.main !== null &&
            svg("text", { x: x + width - 10, y: y + 21, class: "stage-share" }, share(stage.shares[stage.main])),
        svg("text", { x: x + 10, y: y + 41, class: "stage-words" }, mainWords(stage)),
        ...bar(id, stage, x + 10, y + 52, width - 20),
        isBottleneck && svg("text", { x: x + width - 8, y: y - 6, class: "stage-flag" }, "▼ bottleneck"),
    );
}

/** Where the boxes go: a row, or on a narrow screen a column; what is beside the chain below or behind it. */
function placed(stages, narrow, fullWidth) {
    const chain = stages.filter((stage) => !stage.aside);
    const aside = stages.filter((stage) => stage.aside);
    const top = 22;
    if (narrow) {
        const pitch = BOX.height + BOX.gap;
        const at = (stage, place) => ({ stage, x: 1, y: top + place * pitch, width: fullWidth - 2 });
        return { chain: chain.map(at), aside: aside.map((stage, place) => at(stage, chain.length + place)) };
    }
    const pitch = BOX.width + BOX.gap;
    const at = (row) => (stage, place) => ({ stage, x: 1 + place * pitch, y: row, width: BOX.width });
    return { chain: chain.map(at(top)), aside: aside.map(at(top + BOX.height + 2 * BOX.gap)) };
}

function arrow(id, from, to, narrow) {
    const ends = narrow
        ? { x1: from.x + 24, y1: from.y + BOX.height, x2: from.x + 24, y2: to.y - 2 }
        : { x1: from.x + from.width, y1: from.y + BOX.height / 2, x2: to.x - 2, y2: to.y + BOX.height / 2 };
    return svg("line", { ...ends, class: "stage-edge", "marker-end": `url(#${id}-arrow)` });
}

function legend() {
    const one = (state) =>
        h("li", {}, h("span", { class: `swatch swatch-${state}`, "aria-hidden": "true" }), WORDS[state]);
    return h("ul", { class: "legend" }, ...STATES.map(one), h("li", {}, "the rest of a bar: idle"));
}

/** {element, show(view of StageHistory, the service's word for the bottleneck)} */
export function makeStageGraph(id) {
    const picture = svg("svg", { class: "stages", role: "img", "aria-label": "Stage graph" });
    const span = h("p", { class: "hint" });
    const table = makeTable("Shares of time of each stage", [
        { title: "Stage" },
        ...STATES.map((state) => ({ title: WORDS[state], number: true })),
    ]);
    const holder = h("div", { class: "stages-holder" }, picture);
    const element = h(
        "div",
        {},
        legend(),
        holder,
        span,
        h("details", {}, h("summary", {}, "As a table"), table.element),
    );
    let last = null;

    function draw() {
        if (last === null) return;
        const { view, word } = last;
        const narrow = holder.clientWidth > 0 && holder.clientWidth < NARROW;
        const width = narrow ? holder.clientWidth : 7 * BOX.width + 6 * BOX.gap + 2;
        const bottleneck = bottleneckOf(view, word);
        const { chain, aside } = placed(view.stages, narrow, width);
        const all = [...chain, ...aside];
        const height = Math.max(...all.map((one) => one.y), 0) + BOX.height + 2;
        setAttribute(picture, "viewBox", `0 0 ${width} ${height}`);
        picture.replaceChildren(
            patterns(id),
            ...chain.slice(1).map((to, at) => arrow(id, chain[at], to, narrow)),
            ...all.map((one) => box(id, one.stage, one.x, one.y, one.width, one.stage.name === bottleneck)),
        );
        const words = view.stages.map((stage) => `${stage.name}: ${inWords(stage)}`).join("; ");
        setAttribute(picture, "aria-label", `Stage graph; the bottleneck is ${bottleneck ?? "unknown"}. ${words}`);
        const when = view.span === null ? "Over the whole run." : `Over the last ${duration(view.span)}.`;
        setText(span, view.stages.length === 0 ? "Nothing has run yet." : when);
    }

    new ResizeObserver(draw).observe(holder);
    return {
        element,
        show(view, word) {
            last = { view, word };
            draw();
            const shares = (stage) => STATES.map((state) => share(stage.shares?.[state]));
            table.show(view.stages.map((stage) => [stage.name, ...shares(stage)]));
        },
    };
}
