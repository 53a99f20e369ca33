// What a student writes to the prompts of its job, in figures.

import { number, rate, share, whole } from "./format.js";

/** The smallest length in `lengths` that this share of the answers does not exceed. */
export function lengthOf(lengths, wanted) {
    const all = lengths.reduce((sum, one) => sum + one.answers, 0);
    let sum = 0;
    return lengths.find((one) => (sum += one.answers) >= wanted * all)?.up_to;
}

/** Tokens per second over the run: written by the student, graded by its teacher, trained on. */
function rates(progress, rollout) {
    const graded = (progress.fetch?.endpoints ?? []).reduce((sum, one) => sum + one.tokens, 0);
    return [rollout.tokens, graded, progress.tokens]
        .map((tokens) => rate({ tokens_per_second: tokens / progress.seconds_elapsed }))
        .join(", ");
}

/** [caption, text of a job and its progress or null], as job_head.js shows them. */
export const rolloutFacts = [
    ["answers of the student", (rollout) => `${whole(rollout.answers)}, ${share(rollout.cut / rollout.answers)} cut`],
    [
        "tokens of an answer",
        (rollout) =>
            `mean ${number(rollout.mean_length)}, half up to ${whole(lengthOf(rollout.lengths, 0.5))}, ` +
            `90 % up to ${whole(lengthOf(rollout.lengths, 0.9))}`,
    ],
    ["entropy of the answers, nats/token", (rollout) => number(rollout.entropy)],
    [
        "reverse KL at the answers, nats/token",
        (rollout) => (typeof rollout.reverse_kl === "number" ? number(rollout.reverse_kl) : null),
    ],
    ["written, graded, trained on", (rollout, progress) => rates(progress, rollout)],
].map(([caption, textOf]) => [
    caption,
    (_, progress) => (progress.rollout?.answers > 0 ? textOf(progress.rollout, progress) : null),
]);
