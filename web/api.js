// The REST API: requests with the key that was given, problems (RFC 9457) as exceptions.

const KEY = "distilld.key";
const DEADLINE = 30000;

/** What the service answered that was no success. */
export class Problem extends Error {
    constructor(status, body, text) {
        super(body?.detail || body?.title || text || `the service answered ${status}`);
        this.name = "Problem";
        this.status = status;
        this.errors = Array.isArray(body?.errors) ? body.errors : [];
        this.code = body?.error?.code ?? null;
    }
}

/** Kept for this tab only, and gone with it. */
export const key = {
    get: () => sessionStorage.getItem(KEY) ?? "",
    set: (text) => (text ? sessionStorage.setItem(KEY, text) : sessionStorage.removeItem(KEY)),
};

/** Events: "unauthorized" (the service wants a key, or another), "reached" (detail: whether it answers). */
export const happenings = new EventTarget();

function say(type, detail) {
    happenings.dispatchEvent(new CustomEvent(type, { detail }));
}

async function problemOf(response) {
    const text = await response.text();
    let body = null;
    try {
        body = JSON.parse(text);
    } catch {
        // Of a proxy, say: the text is all that there is.
    }
    return new Problem(response.status, body, text.slice(0, 500));
}

/** A fetch with the key. Throws Problem for what is no success, TypeError where nobody answers. */
export async function ask(method, path, options = {}) {
    const headers = { ...options.headers };
    if (key.get()) headers.Authorization = `Bearer ${key.get()}`;
    if (options.body !== undefined) headers["Content-Type"] = "application/json";
    let response;
    try {
        response = await fetch(path, {
            method,
            headers,
            body: options.body,
            signal: options.signal,
            cache: "no-store",
        });
    } catch (error) {
        if (!options.signal?.aborted || options.signal.reason?.name === "TimeoutError") say("reached", false);
        throw error;
    }
    say("reached", true);
    if (response.ok) return response;
    if (response.status === 401) say("unauthorized");
    throw await problemOf(response);
}

function within(signal) {
    const deadline = AbortSignal.timeout(DEADLINE);
    return signal ? AbortSignal.any([signal, deadline]) : deadline;
}

export async function getJson(path, signal) {
    return (await ask("GET", path, { signal: within(signal) })).json();
}

export async function getText(path, signal) {
    return (await ask("GET", path, { signal: within(signal) })).text();
}

/** A POST, PATCH or DELETE; `body` is JSON text or undefined. */
export async function send(method, path, { body, headers, signal } = {}) {
    return (await ask(method, path, { body, headers, signal: within(signal) })).json();
}

/** The path of a job and what is below it. */
export function jobPath(id, rest = "") {
    return `/v1/jobs/${encodeURIComponent(id)}${rest}`;
}

export function isAbort(error) {
    return error?.name === "AbortError";
}

/** What to tell people of an exception. */
export function messageOf(error) {
    if (error instanceof Problem) return error.message;
    if (error?.name === "TimeoutError") return "The service did not answer in time.";
    if (error instanceof TypeError) return "The service cannot be reached.";
    return String(error?.message ?? error);
}
