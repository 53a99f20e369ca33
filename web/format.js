// Numbers, times and sizes as people read them. Nothing known is a dash.

export const NOTHING = "–";

const known = (value) => typeof value === "number" && Number.isFinite(value);

/** Four significant digits: 4.118, 0.0008500, 1.2e-7. */
export function number(value) {
    if (!known(value)) return NOTHING;
    if (value === 0) return "0";
    const size = Math.abs(value);
    if (size < 1e-4 || size >= 1e7) return value.toExponential(2);
    return size >= 1000 ? String(Math.round(value)) : String(Number(value.toPrecision(4)));
}

/** 12,345 */
export function whole(value) {
    return known(value) ? Math.round(value).toLocaleString("en") : NOTHING;
}

/** Of a share between 0 and 1: 3.4 %. */
export function share(value) {
    if (!known(value)) return NOTHING;
    const percent = value * 100;
    return `${percent > 0 && percent < 10 ? percent.toFixed(1) : Math.round(percent)} %`;
}

/** A number of seconds: 840 ms, 12.3 s, 4 min 05 s, 2 h 03 min, 3 d 4 h. */
export function duration(seconds) {
    if (!known(seconds) || seconds < 0) return NOTHING;
    if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
    if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
    const two = (value) => String(value).padStart(2, "0");
    const total = Math.round(seconds);
    if (total < 3600) return `${Math.floor(total / 60)} min ${two(total % 60)} s`;
    if (total < 86400) return `${Math.floor(total / 3600)} h ${two(Math.floor((total % 3600) / 60))} min`;
    return `${Math.floor(total / 86400)} d ${Math.floor((total % 86400) / 3600)} h`;
}

/** 1.5k tok/s, or samples/s, as the command line has it. */
export function rate(progress) {
    const value = progress?.tokens_per_second;
    if (!known(value)) return NOTHING;
    const unit = progress.of_samples ? "samples/s" : "tok/s";
    if (value >= 1e6) return `${(value / 1e6).toFixed(1)}M ${unit}`;
    return value >= 1000 ? `${(value / 1000).toFixed(1)}k ${unit}` : `${Math.round(value)} ${unit}`;
}

/** 12.3 MiB */
export function bytes(value) {
    if (!known(value)) return NOTHING;
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let at = 0;
    let left = value;
    while (left >= 1024 && at + 1 < units.length) {
        left /= 1024;
        at += 1;
    }
    return `${at === 0 || left >= 100 ? Math.round(left) : left.toFixed(1)} ${units[at]}`;
}

const pad = (value) => String(value).padStart(2, "0");

/** A time of the service in the reader's zone: 2026-11-23 14:05:09. */
export function moment(text) {
    if (!text) return NOTHING;
    const time = new Date(text);
    if (Number.isNaN(time.getTime())) return text;
    const clock = `${pad(time.getHours())}:${pad(time.getMinutes())}:${pad(time.getSeconds())}`;
    return `${time.getFullYear()}-${pad(time.getMonth() + 1)}-${pad(time.getDate())} ${clock}`;
}

/**
 * What the loss of training is, by the share of distillation in it (docs/losses.md): "training loss (KD)". Unit: nats per
 * token.
 */
export function lossName(spec) {
    const share = spec?.training?.kd_ratio;
    if (!known(share)) return "training loss";
    const what = share === 1 ? "KD" : share === 0 ? "cross entropy" : "KD and cross entropy";
    return `training loss (${what})`;
}

/** Any value of a spec in one line. */
export function valueText(value) {
    if (value === undefined) return NOTHING;
    return typeof value === "string" ? value : JSON.stringify(value);
}
