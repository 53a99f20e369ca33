// What was measured over the steps of a job: what the service had when the page asked, and what came in since.

/** Of a series in this page; above it, it is thinned to half as many. */
const MOST_POINTS = 4000;
/** A program may name its figures differently each time; those beyond are not shown. */
const MOST_SERIES = 128;
/** Of the names of series, by the type of the event that has their numbers. */
const PREFIXES = { evaluation: "eval_", figures: "figures/" };

/**
 * At most `most` of the points: the first, the last, and of what is between them, in parts of as many points each, the
 * smallest and the greatest, as the service thins them. A value that was not finite (null) is greater than any other.
 */
export function thinned(series, most) {
    const count = series.steps.length;
    if (count <= most) return series;
    const size = (at) => (series.values[at] === null ? Infinity : series.values[at]);
    const kept = [0];
    const parts = Math.floor((most - 2) / 2);
    for (let part = 0; part < parts; part += 1) {
        const first = 1 + Math.floor((part * (count - 2)) / parts);
        const last = 1 + Math.floor(((part + 1) * (count - 2)) / parts);
        let low = first;
        let high = first;
        for (let at = first + 1; at < last; at += 1) {
            if (size(at) < size(low)) low = at;
            if (size(at) >= size(high)) high = at;
        }
        kept.push(Math.min(low, high));
        if (low !== high) kept.push(Math.max(low, high));
    }
    kept.push(count - 1);
    return { steps: kept.map((at) => series.steps[at]), values: kept.map((at) => series.values[at]) };
}

/** The series of one job, by name. */
export class SeriesSet {
    #series = new Map();

    /** `data` of GET …/metrics. */
    load(data) {
        this.#series = new Map(data.map((one) => [one.name, { steps: [...one.steps], values: [...one.values] }]));
    }

    /** The numbers of an event of type metrics, evaluation or figures. */
    add(type, data) {
        const prefix = PREFIXES[type] ?? "";
        for (const [name, value] of Object.entries(type === "figures" ? (data.figures ?? {}) : data)) {
            if (name === "step" || (value !== null && typeof value !== "number")) continue;
            // Null in an event is also what an object says that is not there: only a number begins a series.
            const known = this.#series.has(prefix + name);
            const room = known || type !== "figures" || this.#series.size < MOST_SERIES;
            if (room && (value !== null || known)) this.#put(prefix + name, data.step, value);
        }
    }

    #put(name, step, value) {
        const series = this.#series.get(name) ?? { steps: [], values: [] };
        // A run that went on from a checkpoint does steps again: what it says last stands.
        while (series.steps.length > 0 && series.steps.at(-1) >= step) {
            series.steps.pop();
            series.values.pop();
        }
        series.steps.push(step);
        series.values.push(value);
        this.#series.set(name, series.steps.length > MOST_POINTS ? thinned(series, MOST_POINTS / 2) : series);
    }

    /** {steps, values}; empty where nothing was measured. */
    get(name) {
        return this.#series.get(name) ?? { steps: [], values: [] };
    }

    /** Names of series that have points, in the order of the service. */
    names() {
        return [...this.#series.keys()].filter((name) => this.#series.get(name).steps.length > 0);
    }
}

/** One table [steps, values of each…] for a plot. A step that a series lacks is undefined there, a gap is null. */
export function aligned(all) {
    const steps = [...new Set(all.flatMap((one) => one.steps))].sort((a, b) => a - b);
    const at = new Map(steps.map((step, place) => [step, place]));
    const columns = all.map((one) => {
        const column = new Array(steps.length).fill(undefined);
        one.steps.forEach((step, place) => (column[at.get(step)] = one.values[place]));
        return column;
    });
    return [steps, ...columns];
}

/** What a curve says in words: "2.21 to 0.1198 over steps 1 to 60, minimum 0.1102". */
export function inWords(series, number) {
    const finite = series.values.filter((value) => typeof value === "number");
    if (finite.length === 0) return "nothing measured yet";
    const least = finite.reduce((a, b) => Math.min(a, b));
    return (
        `${number(finite[0])} to ${number(finite.at(-1))} over steps ${series.steps[0]} to ${series.steps.at(-1)}, ` +
        `minimum ${number(least)}`
    );
}
