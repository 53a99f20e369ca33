// A plot of some series over the steps, with a legend of its own: names of jobs stand in it, as text.

import uPlot from "uplot";

import { h, setText } from "./dom.js";
import { NOTHING, number, whole } from "./format.js";
import { aligned, inWords } from "./series.js";

const HEIGHT = 240;
const DASHES = [[], [6, 4], [2, 3], [10, 3, 2, 3]];

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function axes(format) {
    const common = {
        stroke: colour("--quiet"),
        grid: { stroke: colour("--line"), width: 1 },
        ticks: { stroke: colour("--line"), width: 1 },
        font: "12px system-ui, sans-serif",
    };
    const short = (value) => (value >= 1e6 ? `${value / 1e6}M` : value >= 1e4 ? `${value / 1e3}k` : String(value));
    return [
        {
            ...common,
            space: 60,
            values: (_, ticks) => ticks.map((step) => (Number.isInteger(step) ? short(step) : "")),
        },
        { ...common, size: 62, values: (_, ticks) => ticks.map(format) },
    ];
}

/**
 * {element, show([{label, steps, values}]), stop()}. `title` says what is plotted. Curves differ by colour and dashes.
 */
export function makeChart(title, format = number) {
    const legend = h("ul", { class: "legend" });
    const readout = h("p", { class: "hint readout" });
    const holder = h("div", { class: "chart", role: "img", "aria-label": title });
    const element = h("div", { class: "chart-box" }, legend, holder, readout);
    let shown = [];
    let plot = null;
    let drawn = "";

    const points = () => shown.reduce((most, one) => Math.max(most, one.steps.length), 0);

    function tell(at) {
        if (points() === 0) {
            setText(readout, "Nothing measured yet.");
            return;
        }
        const [steps, ...columns] = plot.data;
        // At the end, what each was last: not all are measured at each step.
        const value = (one, column) => (at === null ? one.values.at(-1) : columns[column][at]) ?? NaN;
        const values = shown.map((one, column) => `${one.label} ${number(value(one, column))}`);
        const place = at === null ? `Last (step ${whole(steps.at(-1))})` : `Step ${whole(steps[at])}`;
        setText(readout, `${place}: ${values.join(" · ")}`);
    }

    function make(data) {
        plot?.destroy();
        const moves = !matchMedia("(prefers-reduced-motion: reduce)").matches;
        plot = new uPlot(
            {
                width: Math.max(holder.clientWidth, 200),
                height: HEIGHT,
                legend: { show: false },
                cursor: { drag: { x: true, y: false }, points: { show: moves } },
                scales: { x: { time: false } },
                axes: axes(format),
                series: [
                    {},
                    ...shown.map((one, at) => ({
                        label: one.label,
                        stroke: colour(`--curve-${at + 1}`),
                        width: 2,
                        dash: DASHES[at],
                        points: { show: one.steps.length < 3, size: 6 },
                    })),
                ],
                hooks: { setCursor: [(self) => tell(self.cursor.idx ?? null)] },
            },
            data,
            holder,
        );
    }

    function draw(again) {
        if (!holder.isConnected || holder.clientWidth === 0) return;
        const kind = shown.map((one) => `${one.label}|${one.steps.length < 3}`).join("\n");
        const data = aligned(shown);
        if (again || plot === null || kind !== drawn) {
            make(data);
            drawn = kind;
        } else {
            plot.setData(data);
        }
        tell(plot.cursor.idx ?? null);
    }

    const resized = new ResizeObserver(() => {
        if (plot && plot.width !== holder.clientWidth && holder.clientWidth > 0) {
            plot.setSize({ width: holder.clientWidth, height: HEIGHT });
        } else if (!plot) {
            draw(true);
        }
    });
    resized.observe(holder);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    const recolour = () => draw(true);
    scheme.addEventListener("change", recolour);

    return {
        element,
        show(all) {
            shown = all;
            legend.replaceChildren(
                ...all.map((one, at) =>
                    h("li", {}, h("span", { class: `stroke stroke-${at + 1}`, "aria-hidden": "true" }), one.label),
                ),
            );
            const words = all.map((one) => `${one.label}: ${inWords(one, number)}`).join("; ");
            holder.setAttribute("aria-label", `${title}. ${words || "nothing measured yet"}`);
            draw(false);
        },
        stop() {
            resized.disconnect();
            scheme.removeEventListener("change", recolour);
            plot?.destroy();
        },
    };
}
