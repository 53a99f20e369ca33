// A form of the fields of a job spec, made from the service's own table of them (GET /v1/spec).

import { freshId, h, setAttribute, setText } from "./dom.js";
import { choicesOf, fieldsOf, parsed, typedText, typesOf, valueAt } from "./spec_doc.js";

/** What most jobs give: in sight at once, the others behind "more". */
const USUAL = new Set([
    "/name",
    "/kind",
    "/student/model",
    "/student/init",
    "/student/config",
    "/teacher/endpoints",
    "/teacher/protocol",
    "/teacher/top_k",
    "/teacher/max_concurrent",
    "/dataset/train",
    "/dataset/eval",
    "/dataset/sequence_length",
    "/training/batch_size",
    "/training/micro_batches",
    "/training/max_steps",
    "/training/learning_rate",
    "/output",
]);

/** What the table of fields says of each alone does not tell that one of several is needed. */
const NEEDED = {
    "/student/model": "required, unless init is random",
    "/dataset/train": "required, unless rollout is given",
    "/training/max_steps": "required, or epochs",
};

const TITLES = { "": "Job", "/student": "Student", "/teacher": "Teacher", "/dataset": "Data", "/training": "Training" };

const titleOf = (section) => TITLES[section] ?? section.slice(1).replaceAll("/", " / ");
/** Help is Markdown of one line: code type is all that it has. */
const plain = (text) => (text ?? "").replaceAll("`", "");

function makeControl(field, id, described) {
    const common = { id, "data-pointer": field.pointer, "aria-describedby": described, spellcheck: "false" };
    const initial = field.schema.default;
    const choices = choicesOf(field.schema);
    if (choices) {
        const nothing = initial === undefined ? "" : `default: ${initial}`;
        const options = choices.map((value) => h("option", { value: JSON.stringify(value) }, String(value)));
        return h("select", common, h("option", { value: "" }, nothing), ...options);
    }
    const types = typesOf(field.schema);
    const placeholder = initial === undefined ? null : `default: ${typedText(initial)}`;
    if (types.has("array") || types.has("object")) {
        const hint = types.has("object") ? "JSON" : "one per line";
        return h("textarea", { ...common, rows: types.has("object") ? 3 : 2, placeholder: placeholder ?? hint });
    }
    const numeric = types.has("integer") ? "numeric" : types.has("number") ? "decimal" : null;
    return h("input", { ...common, type: "text", inputmode: numeric, placeholder, autocomplete: "off" });
}

function makeField(field, onInput) {
    const id = freshId("field");
    const help = h("p", { class: "hint", id: `${id}-help` }, plain(field.schema.description));
    const wrong = h("p", { class: "wrong", id: `${id}-wrong` });
    const control = makeControl(field, id, `${id}-wrong ${id}-help`);
    const isChoice = control.tagName === "SELECT";
    const needed = NEEDED[field.pointer] ?? (field.required ? "required" : null);
    if (needed === "required") control.setAttribute("aria-required", "true");
    const element = h(
        "div",
        { class: "field" },
        h("label", { for: id }, field.name, needed && h("span", { class: "hint" }, ` (${needed})`)),
        control,
        wrong,
        help,
    );
    let touched = false;
    const read = () =>
        isChoice ? (control.value === "" ? undefined : JSON.parse(control.value)) : parsed(control.value, field.schema);
    control.addEventListener("input", () => {
        touched = true;
        onInput(field.pointer, read());
    });
    return {
        ...field,
        element,
        control,
        write(value) {
            const text = isChoice ? (value === undefined ? "" : JSON.stringify(value)) : typedText(value);
            // What is typed right now is left as it is.
            if (document.activeElement !== control && control.value !== text) control.value = text;
        },
        /** That a field is empty is no mistake before anybody was there. */
        isNew: () => !touched,
        complain(text) {
            setText(wrong, text);
            setAttribute(control, "aria-invalid", text ? "true" : null);
        },
    };
}

/** Fields of one section: the usual ones, and the others behind a switch. */
function makeSection(section, fields) {
    const usual = fields.filter((one) => USUAL.has(one.pointer));
    const others = fields.filter((one) => !USUAL.has(one.pointer));
    const grid = (some) => h("div", { class: "fields" }, ...some.map((one) => one.element));
    const title = titleOf(section);
    if (usual.length === 0) {
        return h("details", { class: "section" }, h("summary", {}, `More: ${title}`), grid(others));
    }
    return h(
        "fieldset",
        { class: "section" },
        h("legend", {}, title),
        grid(usual),
        others.length > 0 &&
            h("details", {}, h("summary", {}, `More of ${title.toLowerCase()} (${others.length})`), grid(others)),
    );
}

/**
 * {element, write(spec), complain([{pointer, code, detail}], everywhere: fields that nobody was in yet too),
 * focus(pointer): whether there is such a field}. `onInput(pointer, value or undefined)` follows each key.
 */
export function makeSpecForm(schema, onInput) {
    const fields = fieldsOf(schema).map((field) => makeField(field, onInput));
    const sections = new Map();
    for (const field of fields) {
        if (!sections.has(field.section)) sections.set(field.section, []);
        sections.get(field.section).push(field);
    }
    const named = [...sections].map(([section, own]) => makeSection(section, own));
    const element = h("div", {}, ...named);
    // "/teacher/endpoints/0" is about the field "/teacher/endpoints".
    const fieldFor = (pointer) =>
        fields.find((one) => pointer === one.pointer || pointer.startsWith(`${one.pointer}/`)) ?? null;
    return {
        element,
        write: (spec) => fields.forEach((field) => field.write(valueAt(spec, field.pointer))),
        complain(errors, everywhere) {
            const texts = new Map();
            for (const error of errors) {
                const field = fieldFor(error.pointer);
                if (field === null || (error.code === "required" && field.isNew() && !everywhere)) continue;
                texts.set(field, [...(texts.get(field) ?? []), error.detail]);
            }
            for (const field of fields) field.complain((texts.get(field) ?? []).join("; "));
        },
        focus(pointer) {
            // Of a section that is missing, its first field.
            const field = fieldFor(pointer) ?? fields.find((one) => one.pointer.startsWith(`${pointer}/`)) ?? null;
            if (field === null) return false;
            for (let up = field.element.parentElement; up; up = up.parentElement) {
                if (up.tagName === "DETAILS") up.open = true;
            }
            field.control.focus();
            return true;
        },
    };
}
