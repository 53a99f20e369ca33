// What may be asked of a job in each state; the service has the last word.

const ROWS = {
    queued: ["pause", "cancel"],
    running: ["checkpoint", "pause", "cancel"],
    pausing: ["resume", "cancel"],
    paused: ["resume", "cancel"],
    succeeded: ["delete"],
    failed: ["resume", "delete"],
    cancelled: ["resume", "delete"],
};

const LABELS = {
    checkpoint: "Checkpoint now",
    pause: "Pause",
    resume: "Resume",
    cancel: "Cancel",
    delete: "Delete",
};

/** Those that cannot be taken back ask first. */
const QUESTIONS = {
    cancel: "Cancel this job? It writes a checkpoint first, and can be resumed from it.",
    delete: "Remove this job with its history from the service? What it wrote stays on disk.",
};

/** [{name, label, question}] */
export function verbsOf(job) {
    const names = ROWS[job.state] ?? [];
    const possible = (name) =>
        !(name !== "delete" && job.cancel_requested) && !(name === "checkpoint" && generates(job));
    return names.filter(possible).map((name) => ({ name, label: LABELS[name], question: QUESTIONS[name] ?? null }));
}

/** A job that writes a store: its steps are rows, and it has no checkpoints. */
export function generates(job) {
    return job.kind === "generate";
}

const MARKS = {
    queued: "◷",
    running: "▶",
    pausing: "❚❚",
    paused: "❚❚",
    succeeded: "✓",
    failed: "✕",
    cancelled: "■",
};

/** A sign beside the state's name, so that colour is not all that tells them apart. */
export function markOf(state) {
    return MARKS[state] ?? "?";
}

export const STATES = Object.keys(ROWS);
