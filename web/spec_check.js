// Asks the service what it thinks of a spec, a moment after the last key: the same validation as that of a submission.

import { isAbort, messageOf, Problem, send } from "./api.js";
import { debounce } from "./timing.js";

const QUIET = 400;

/**
 * check(text of the spec) asks soon; `onVerdict({valid, errors, message, resolved})` follows the newest answer only.
 * `onAsking()` comes before it.
 */
export function makeSpecCheck(signal, { onAsking, onVerdict }) {
    let text = "";
    let running = null;

    async function ask() {
        running?.abort();
        running = new AbortController();
        const mine = running;
        const either = AbortSignal.any([signal, mine.signal]);
        try {
            const answer = await send("POST", "/v1/jobs?dry_run=true", { body: text, signal: either });
            if (!mine.signal.aborted)
                onVerdict({ valid: true, errors: [], message: null, resolved: answer.resolved_spec });
        } catch (error) {
            if (isAbort(error) || mine.signal.aborted || signal.aborted) return;
            const errors = error instanceof Problem ? error.errors : [];
            onVerdict({ valid: false, errors, message: errors.length > 0 ? null : messageOf(error), resolved: null });
        }
    }
    const soon = debounce(() => void ask(), QUIET);

    return function check(spec) {
        text = spec;
        running?.abort();
        onAsking();
        soon();
    };
}
