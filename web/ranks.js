// The ranks of a job: workers that train one student. The slowest rank waits least for the others.

import { h, makeTable, setHidden } from "./dom.js";
import { duration, rate, whole } from "./format.js";

/** The cells of each rank's row. */
export function rankRows(progress) {
    return (progress?.ranks ?? []).map((rank) => [
        whole(rank.rank),
        rank.host,
        rate({ ...rank, of_samples: progress.of_samples }),
        duration(rank.busy_seconds?.student ?? 0),
        duration(rank.wait_input_seconds),
        duration(rank.wait_ranks_seconds),
    ]);
}

/** {element, show(job)}; hidden for one rank. */
export function makeRanks() {
    const table = makeTable("Ranks of the job", [
        { title: "Rank" },
        { title: "Host" },
        { title: "Rate", number: true },
        { title: "Student at work", number: true },
        { title: "Waited for input", number: true },
        { title: "Waited for other ranks", number: true },
    ]);
    const element = h("div", { "data-part": "ranks", hidden: true }, h("h3", {}, "Ranks"), table.element);
    return {
        element,
        show(job) {
            const rows = rankRows(job.progress);
            setHidden(element, rows.length === 0);
            table.show(rows);
        },
    };
}
