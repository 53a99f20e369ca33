// Waiting and asking again.

import { isAbort } from "./api.js";

/** Resolves after so many milliseconds, or at once when the signal is aborted. */
export function pause(milliseconds, signal) {
    return new Promise((resolve) => {
        if (signal?.aborted) {
            resolve();
            return;
        }
        const timer = setTimeout(resolve, milliseconds);
        signal?.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
    });
}

function shown(signal) {
    return new Promise((resolve) => {
        if (!document.hidden || signal.aborted) {
            resolve();
            return;
        }
        const look = () => {
            if (!document.hidden || signal.aborted) {
                document.removeEventListener("visibilitychange", look);
                resolve();
            }
        };
        document.addEventListener("visibilitychange", look);
        signal.addEventListener("abort", look, { once: true });
    });
}

/**
 * Calls the asynchronous `action` again and again, `milliseconds` between an end and the next begin, while the page can
 * be seen. It goes on until the signal, or until the action gives false. What it throws goes to `onError`.
 */
export async function repeat(action, milliseconds, signal, onError) {
    while (!signal.aborted) {
        try {
            if ((await action()) === false) return;
        } catch (error) {
            if (signal.aborted || isAbort(error)) return;
            if (onError(error) === false) return;
        }
        await pause(milliseconds, signal);
        await shown(signal);
    }
}

/** Calls `action` once nothing was asked for so long. */
export function debounce(action, milliseconds) {
    let timer = null;
    return () => {
        clearTimeout(timer);
        timer = setTimeout(action, milliseconds);
    };
}
