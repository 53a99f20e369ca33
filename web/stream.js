// Follows the events of a job. By fetch() and not EventSource, which cannot send a key.

import { ask, jobPath, Problem } from "./api.js";
import { SseParser } from "./sse.js";
import { pause } from "./timing.js";

/** The service says something at least every 15 s: three times as long without a byte, and the connection is dead. */
const SILENCE = 45000;
const FIRST_PAUSE = 1000;
const LONGEST_PAUSE = 15000;

/** One connection. Resolves to true when the job has ended, to false when the connection did. */
async function follow(id, position, onEvent, signal) {
    const silence = new AbortController();
    let timer = setTimeout(() => silence.abort(), SILENCE);
    try {
        const headers = { Accept: "text/event-stream", "Last-Event-ID": String(position.last) };
        const both = AbortSignal.any([signal, silence.signal]);
        const response = await ask("GET", jobPath(id, "/events"), { headers, signal: both });
        const parser = new SseParser();
        const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
        for (;;) {
            const { value, done } = await reader.read();
            if (done) return false;
            clearTimeout(timer);
            timer = setTimeout(() => silence.abort(), SILENCE);
            for (const event of parser.push(value)) {
                if (event.id !== null) position.last = Number(event.id);
                const data = JSON.parse(event.data);
                onEvent(event.type, data);
                if (event.type === "done") return true;
            }
        }
    } finally {
        clearTimeout(timer);
    }
}

/**
 * Calls onEvent(type, data) for each event behind `after`, through lost connections, until `done` or the signal.
 * `onLive(true or false)` says whether a connection stands. Throws a Problem that a retry cannot fix.
 */
export async function followEvents(id, after, { onEvent, onLive, signal }) {
    const position = { last: after };
    let wait = FIRST_PAUSE;
    while (!signal.aborted) {
        const before = position.last;
        try {
            onLive(true);
            if (await follow(id, position, onEvent, signal)) return;
        } catch (error) {
            if (signal.aborted) return;
            if (error instanceof Problem && error.status < 500 && error.status !== 401 && error.status !== 429)
                throw error;
        }
        onLive(false);
        wait = position.last > before ? FIRST_PAUSE : Math.min(2 * wait, LONGEST_PAUSE);
        await pause(wait, signal);
    }
}
