// Which curves of loss a job has, and what each is called.

const LOSSES = [
    ["loss", "training loss"],
    ["kd_loss", "KD: from the teacher"],
    ["ce_loss", "cross entropy with the data"],
    ["eval_loss", "held-out cross entropy"],
];

const varies = (series) => series.values.some((value) => value !== null && value !== 0);

/** Losses with points, the first under the `name` of what it is. Parts that are all zero, or it itself, say nothing. */
export function lossesOf(series, name = LOSSES[0][1]) {
    const same = (a, b) => a.values.length === b.values.length && a.values.every((value, at) => value === b.values[at]);
    const loss = series.get("loss");
    const named = LOSSES.map(([key, label]) => ({
        name: key,
        label: key === "loss" ? name : label,
        ...series.get(key),
    }));
    return named.filter(
        (one) => one.steps.length > 0 && (one.name === "loss" || (varies(one) && !same(one, loss))),
    );
}
