// A job spec as a document: fields by JSON pointer, what a text in a field means, the differences between two.

const parts = (pointer) =>
    pointer
        .split("/")
        .slice(1)
        .map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"));

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

export function valueAt(spec, pointer) {
    return parts(pointer).reduce(
        (place, name) => (isObject(place) && Object.hasOwn(place, name) ? place[name] : undefined),
        spec,
    );
}

/** A copy with the field set, or without it (undefined). Objects that become empty so go too. */
export function withValue(spec, pointer, value) {
    const [name, ...rest] = parts(pointer);
    const copy = { ...(isObject(spec) ? spec : {}) };
    const below = rest.length > 0 ? withValue(copy[name], `/${rest.join("/")}`, value) : value;
    if (below === undefined || (rest.length > 0 && value === undefined && Object.keys(below).length === 0)) {
        delete copy[name];
    } else {
        Object.defineProperty(copy, name, { value: below, enumerable: true, configurable: true, writable: true });
    }
    return copy;
}

/** The kinds of values that a schema takes, such as Set {"integer", "string"}. */
export function typesOf(schema) {
    if (schema.oneOf) return new Set(schema.oneOf.flatMap((one) => [...typesOf(one)]));
    if (schema.const !== undefined) return new Set([typeof schema.const]);
    return new Set([schema.type].flat());
}

/** The values of a field that has few; null for others. */
export function choicesOf(schema) {
    if (schema.enum) return schema.enum;
    if (schema.type === "boolean") return [true, false];
    if (!schema.oneOf) return null;
    const all = schema.oneOf.map(choicesOf);
    return all.every((one) => one !== null) ? all.flat() : null;
}

/**
 * What was typed, as a value of the field; undefined for nothing. What is not of the field's kind stays a text, about
 * which the service says what is wrong.
 */
export function parsed(text, schema) {
    const typed = text.trim();
    if (typed === "") return undefined;
    const types = typesOf(schema);
    if ((types.has("integer") || types.has("number")) && /^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/.test(typed)) {
        return Number(typed);
    }
    if (types.has("object") || (types.has("array") && typed.startsWith("["))) {
        try {
            return JSON.parse(typed);
        } catch {
            return typed;
        }
    }
    if (types.has("array")) {
        const lines = typed
            .split("\n")
            .map((line) => line.trim())
            .filter(Boolean);
        return types.has("string") && lines.length === 1 ? lines[0] : lines;
    }
    return typed;
}

/** A value as it is typed. */
export function typedText(value) {
    if (value === undefined) return "";
    if (Array.isArray(value) && value.every((one) => typeof one === "string")) return value.join("\n");
    return typeof value === "string" ? value : JSON.stringify(value, null, isObject(value) ? 1 : 0);
}

/**
 * The fields of the table of specs: [{pointer, section, name, schema, required}] in its order, sections in place. What
 * jobs that train need is required, too.
 */
export function fieldsOf(schema, section = "") {
    const required = new Set([...(schema.required ?? []), ...(schema.else?.required ?? [])]);
    return Object.entries(schema.properties).flatMap(([name, one]) => {
        const pointer = `${section}/${name}`;
        if (one.properties) return fieldsOf(one, pointer);
        return [{ pointer, section, name, schema: one, required: required.has(name) }];
    });
}

/** {pointer: value} of all leaves; lists and empty objects are leaves. */
export function flattened(spec, pointer = "") {
    if (!isObject(spec) || Object.keys(spec).length === 0) return { [pointer]: spec };
    return Object.assign({}, ...Object.entries(spec).map(([name, value]) => flattened(value, `${pointer}/${name}`)));
}

/** Fields in which two specs differ: [{pointer, a, b}], undefined where one lacks it. */
export function differences(a, b) {
    const left = flattened(a ?? {});
    const right = flattened(b ?? {});
    const pointers = [...new Set([...Object.keys(left), ...Object.keys(right)])].filter(Boolean).sort();
    return pointers
        .filter((pointer) => JSON.stringify(left[pointer]) !== JSON.stringify(right[pointer]))
        .map((pointer) => ({ pointer, a: left[pointer], b: right[pointer] }));
}
