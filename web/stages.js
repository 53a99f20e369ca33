// Which stage of the graph works and which waits. The service counts seconds since the run began; what goes on now is
// the difference to some seconds ago.

export const STATES = ["busy", "input", "output"];
export const WORDS = { busy: "busy", input: "waits for input", output: "waits for output" };

/** Stages beside the chain of training. */
const ASIDE = new Set(["evaluation", "snapshot"]);
const WINDOW = 10000;

const seconds = (stage) => ({
    busy: stage.busy_seconds ?? 0,
    input: stage.wait_input_seconds ?? 0,
    output: stage.wait_output_seconds ?? 0,
});

const added = (before, after) => STATES.map((state) => Math.max(0, after[state] - (before?.[state] ?? 0)));
const sum = (parts) => parts.reduce((a, b) => a + b, 0);

/**
 * Seconds that have passed, as the stages count them: those in which the student works or waits, and those in which it
 * stands still for an evaluation or a snapshot. Without a student, those of the stage that counts most.
 */
function passed(first, last) {
    const of = (name) => (last.has(name) ? added(first?.get(name), last.get(name)) : [0]);
    if (last.has("student")) return sum(of("student")) + sum([...ASIDE].map((name) => of(name)[0]));
    return Math.max(0, ...[...last.keys()].map((name) => sum(of(name))));
}

/** Shares of the three in the time that has passed, the rest being idle; null for a stage that did not do anything. */
export function sharesOf(before, after, seconds = 0) {
    const parts = added(before, after);
    const whole = Math.max(sum(parts), seconds);
    if (sum(parts) <= 0) return null;
    return Object.fromEntries(STATES.map((state, at) => [state, parts[at] / whole]));
}

/** The state that a stage is mostly in; null: it is idle. */
export function mainState(shares) {
    if (shares === null || sum(Object.values(shares)) < 0.5) return null;
    return STATES.reduce((best, state) => (shares[state] > shares[best] ? state : best));
}

/** Remembers the seconds of the stages for as long as is needed to say what they do now. */
export class StageHistory {
    #looks = [];

    add(stages, time) {
        const look = { time, stages: new Map(stages.map((stage) => [stage.stage, seconds(stage)])) };
        const last = this.#looks.at(-1);
        // A run that was started again counts from nothing.
        if (last && [...look.stages].some(([name, now]) => now.busy < (last.stages.get(name)?.busy ?? 0))) {
            this.#looks = [];
        }
        this.#looks.push(look);
        while (this.#looks.length > 2 && this.#looks[1].time <= time - WINDOW) this.#looks.shift();
    }

    /** {span: seconds or null for the whole run, stages: [{name, aside, shares, main}]} */
    now(ended) {
        const last = this.#looks.at(-1);
        if (!last) return { span: null, stages: [] };
        const first = this.#looks.length > 1 && !ended ? this.#looks[0] : null;
        const time = passed(first?.stages, last.stages);
        const stages = [...last.stages].map(([name, after]) => {
            const shares = sharesOf(first?.stages.get(name), after, time);
            return { name, aside: ASIDE.has(name), shares, main: mainState(shares) };
        });
        return { span: first ? (last.time - first.time) / 1000 : null, stages };
    }
}

/** As the service has them: shares of time from which a wait is noticed, and a stage counts as always busy. */
const NOTICEABLE_WAIT = 0.02;
const NEARLY_ALWAYS = 0.9;

/**
 * The stage that sets the pace, by the service's own rule over the time that the page has seen: the student, unless it
 * waits for its input; then of what comes before it the last that is always busy, else the teacher. The service's word
 * (since the run began) stands where the page has no more than that, and for jobs without a student.
 */
export function bottleneckOf(view, word) {
    const shares = (name) => view.stages.find((stage) => stage.name === name)?.shares ?? null;
    const student = shares("student");
    if ((view.span === null && word) || student === null) return word || null;
    if (student.input <= NOTICEABLE_WAIT) return "student";
    return ["staging", "decode"].find((name) => (shares(name)?.busy ?? 0) >= NEARLY_ALWAYS) ?? "teacher";
}
