// The teacher's side of a job: what is in flight, how long answers take, and each endpoint with its breaker.

import { h, makeTable, setHidden, setText } from "./dom.js";
import { bytes, duration, whole } from "./format.js";

const sum = (counts) => Object.values(counts ?? {}).reduce((a, b) => a + b, 0);

function failuresOf(endpoint) {
    const failed = Object.entries(endpoint.outcomes ?? {}).filter(
        ([name]) => name !== "success" && name !== "cancelled",
    );
    return failed.length === 0 ? "0" : failed.map(([name, count]) => `${whole(count)} ${name}`).join(", ");
}

function breakerOf(endpoint) {
    const times = endpoint.breaker_openings;
    const often = times > 0 ? `, opened ${times} time${times === 1 ? "" : "s"}` : "";
    return h(
        "span",
        { class: endpoint.open ? "breaker open" : "breaker" },
        endpoint.open ? `⚠ open: left out${often}` : `✓ closed${often}`,
    );
}

/** What there is to say before anything was asked. */
function beforeRequests(job) {
    const spec = job.resolved_spec ?? job.spec ?? {};
    if (job.progress?.fetch?.store) return "Answers come from a store.";
    if (spec.teacher?.model_dir) return "The job runs the teacher's model itself, without the network.";
    if (!spec.teacher && !spec.teachers) return "This job has no teacher.";
    if (job.state === "failed") return "The job failed before it trained on an answer; the reason is at the top.";
    return "The teacher has not been asked yet.";
}

/** {element, show(job)} */
export function makeEndpoints() {
    const line = h("p");
    const table = makeTable("Endpoints of the teacher", [
        { title: "Endpoint" },
        { title: "Breaker", tight: true },
        { title: "Latency", number: true },
        { title: "In flight", number: true },
        { title: "Answered", number: true },
        { title: "Failed" },
        { title: "Retries", number: true },
        { title: "Hedges (won)", number: true },
        { title: "Received", number: true },
    ]);
    const store = h("p", { hidden: true });
    const element = h("div", { "data-part": "endpoints" }, line, table.element, store);
    return {
        element,
        show(job) {
            const fetch = job.progress?.fetch;
            const endpoints = fetch?.endpoints ?? [];
            setHidden(table.element, endpoints.length === 0);
            if (!fetch || (fetch.requests === 0 && endpoints.length === 0)) {
                setText(line, beforeRequests(job));
            } else {
                setText(
                    line,
                    `Median latency ${duration(fetch.latency_p50_seconds)}, 95th percentile ` +
                        `${duration(fetch.latency_p95_seconds)}. ${whole(fetch.in_flight)} of ` +
                        `${whole(fetch.concurrency)} requests are in flight, ${whole(fetch.buffered)} micro-batches ` +
                        `wait (window ${whole(fetch.window)}); ${whole(sum(fetch.failures))} failures.`,
                );
            }
            table.show(
                endpoints.map((one) => [
                    h("code", {}, one.endpoint),
                    breakerOf(one),
                    // 0: not measured yet
                    duration(one.latency_seconds || undefined),
                    // Its own limit may be above what the whole job may ask for at once.
                    `${whole(one.in_flight)} of ${whole(Math.min(one.limit, fetch.concurrency))}`,
                    whole(one.outcomes?.success ?? 0),
                    failuresOf(one),
                    whole(one.retries),
                    `${whole(one.hedges)} (${whole(one.hedge_wins)})`,
                    bytes(one.bytes_received),
                ]),
            );
            setHidden(store, !fetch?.store);
            if (fetch?.store) {
                const { rows, held_rows: held, sealed_rows: sealed, sealed_bytes: size } = fetch.store;
                setText(
                    store,
                    `Store: ${whole(held)} of ${whole(rows)} rows, ${whole(sealed)} of them sealed (${bytes(size)}).`,
                );
            }
        },
    };
}
