// The machines that run jobs, and which jobs: as GET /v1/nodes lists them.

import { getJson, messageOf } from "./api.js";
import { h, makeTable, setHidden, setText } from "./dom.js";
import { whole } from "./format.js";
import { repeat } from "./timing.js";

const INTERVAL = 5000;

const COLUMNS = [
    { title: "Node" },
    { title: "State" },
    { title: "Cores", number: true },
    { title: "Memory, GiB", number: true },
    { title: "GPUs", number: true },
    { title: "Jobs" },
];

function linksTo(jobs) {
    const links = jobs.map((id) => h("a", { href: `#/jobs/${encodeURIComponent(id)}` }, id));
    return h("span", {}, ...links.flatMap((link, at) => (at === 0 ? [link] : [" ", link])));
}

function rowOf(node) {
    const memory = (node.memory_mb / 1024).toFixed(1);
    return [node.name, node.state, whole(node.cores), memory, whole(node.gpus), linksTo(node.jobs)];
}

export function makeNodesView(signal) {
    const trouble = h("p", { class: "trouble", role: "alert", hidden: true });
    const summary = h("p", { class: "hint" });
    const table = makeTable("Nodes", COLUMNS);
    const element = h(
        "section",
        { "aria-labelledby": "title" },
        h("div", { class: "head" }, h("h1", { id: "title" }, "Nodes")),
        trouble,
        summary,
        table.element,
    );
    let shown = "";

    async function refresh() {
        const { data } = await getJson("/v1/nodes", signal);
        setHidden(trouble, true);
        const busy = data.filter((node) => node.jobs.length > 0).length;
        setText(summary, `${whole(busy)} of ${whole(data.length)} run jobs of this service.`);
        const text = JSON.stringify(data);
        if (text === shown) return; // a link in it may have the focus
        shown = text;
        table.show(data.map(rowOf));
    }

    function onError(error) {
        if (signal.aborted) return;
        setText(trouble, messageOf(error));
        setHidden(trouble, false);
    }

    repeat(refresh, INTERVAL, signal, onError);
    return { title: "Nodes", element };
}
