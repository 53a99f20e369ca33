// What a job has made: its folder, the files to take away, and what its student says.

import { ask, getJson, isAbort, jobPath, key, messageOf } from "./api.js";
import { h, setHidden, setText } from "./dom.js";
import { number, whole } from "./format.js";
import { generates } from "./verbs.js";

/** A link to a download. One that needs a key is fetched with it first: a link alone cannot send one. */
function download(path, name, label, signal, onError) {
    async function fetched(event) {
        if (!key.get()) return;
        event.preventDefault();
        try {
            const url = URL.createObjectURL(await (await ask("GET", path, { signal })).blob());
            h("a", { href: url, download: name }).click();
            setTimeout(() => URL.revokeObjectURL(url), 60000);
        } catch (error) {
            if (!isAbort(error)) onError(error);
        }
    }
    return h("a", { href: path, download: name, onclick: (event) => void fetched(event) }, label);
}

/** Where the job writes, and once it has succeeded the files. {element, show(job)} */
export function makeResult(id, signal) {
    const folder = h("p");
    const files = h("ul", { class: "files", hidden: true });
    const trouble = h("p", { class: "trouble", hidden: true });
    const next = h("p", { class: "hint", hidden: true });
    const element = h(
        "section",
        { class: "panel", "aria-labelledby": "panel-result", "data-part": "result" },
        h("h2", { id: "panel-result" }, "Result"),
        folder,
        files,
        next,
        trouble,
    );
    let shown = "";

    function onError(error) {
        setText(trouble, messageOf(error));
        setHidden(trouble, false);
    }

    async function showFiles(job) {
        const path = (name) => jobPath(id, `/artifacts?path=${encodeURIComponent(name)}`);
        const link = (url, name, label) => h("li", {}, download(url, name, label, signal, onError));
        files.replaceChildren(link(jobPath(id, "/artifacts"), `${id}.tar`, "everything, as a tar"));
        setHidden(files, false);
        if (generates(job)) return;
        // The export names its files there. The service of another key's job, or of a folder that is gone, says so.
        const owner = await getJson(path("distilld.json"), signal);
        const names = (Array.isArray(owner.files) ? owner.files : []).filter((name) => typeof name === "string");
        files.append(...names.sort().map((name) => link(path(name), name.split("/").at(-1), name)));
    }

    return {
        element,
        show(job) {
            const text = `${job.state} ${job.output}`;
            if (text === shown) return;
            shown = text;
            const done = job.state === "succeeded";
            const what = generates(job) ? "answers" : "student";
            const coming = job.terminal ? "The output folder of this job: " : `The ${what} will be in `;
            const before = done ? `The ${what} of this job: ` : coming;
            folder.replaceChildren(before, h("code", {}, job.output || "–"), " on the service's machine.");
            setHidden(files, true);
            setHidden(trouble, true);
            setText(
                next,
                generates(job)
                    ? "Jobs whose teacher.store is that folder train on it (docs/store.md)."
                    : "transformers and vLLM load it (docs/use-the-student.md); " +
                          `distilld jobs download ${id} --to FOLDER brings it over.`,
            );
            setHidden(next, !done);
            if (done) {
                showFiles(job).catch((error) => {
                    if (!isAbort(error) && !signal.aborted) onError(error);
                });
            }
        },
    };
}

/** What is shown of an event with samples, by its type. */
const SAMPLES = {
    evaluation: {
        title: "Samples",
        part: "samples",
        when: (data) => `What the student says after each prompt, at step ${whole(data.step)}.`,
        about: () => null,
    },
    rollout: {
        title: "Answers that the student trains on",
        part: "rollouts",
        when: (data) => `Some of those of step ${whole(data.step)}, written after ${whole(data.version)} steps.`,
        about: (one) =>
            `${whole(one.tokens)} tokens${one.cut ? ", cut at max_tokens" : ""}, ` +
            `mean log-probability ${number(one.log_probability)}`,
    },
};

/** The texts of the newest event of `type` that has some. {element, add(event)} */
export function makeSamples(type) {
    const { title, part, when: whenOf, about } = SAMPLES[type];
    const id = `panel-${part}`;
    const when = h("p", { class: "hint" });
    const list = h("dl", { class: "samples" });
    const element = h(
        "section",
        { class: "panel", "aria-labelledby": id, "data-part": part, hidden: true },
        h("h2", { id }, title),
        when,
        list,
    );
    let newest = -1;
    return {
        element,
        add(event) {
            const samples = event.type === type ? (event.data?.samples ?? []) : [];
            if (samples.length === 0 || event.sequence < newest) return;
            newest = event.sequence;
            setText(when, whenOf(event.data));
            list.replaceChildren(
                ...samples.flatMap((one) => {
                    const said = about(one);
                    const text = [h("dt", {}, one.prompt), h("dd", {}, one.text)];
                    return said === null ? text : [...text, h("dd", { class: "hint" }, said)];
                }),
            );
            setHidden(element, false);
        },
    };
}
