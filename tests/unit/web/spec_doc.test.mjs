import assert from "node:assert/strict";
import { test } from "node:test";

import { choicesOf, differences, fieldsOf, parsed, typedText, valueAt, withValue } from "../../../web/spec_doc.js";

test("fields are set and removed by pointer, and sections that become empty go", () => {
    const spec = withValue(withValue({ name: "a" }, "/training/max_steps", 3), "/student/lora/r", 8);
    assert.deepEqual(spec, { name: "a", training: { max_steps: 3 }, student: { lora: { r: 8 } } });
    assert.equal(valueAt(spec, "/student/lora/r"), 8);
    assert.equal(valueAt(spec, "/student/model"), undefined);
    assert.deepEqual(withValue(spec, "/student/lora/r", undefined), { name: "a", training: { max_steps: 3 } });
    assert.deepEqual(withValue({ training: 3 }, "/training/seed", 1), { training: { seed: 1 } });
});

test("no name reaches a prototype", () => {
    assert.equal(valueAt({}, "/constructor/name"), undefined);
    const spec = withValue({}, "/__proto__/polluted", true);
    assert.equal({}.polluted, undefined);
    assert.deepEqual(Object.keys(spec), ["__proto__"]);
});

test("what is typed has the kind that the field takes", () => {
    const count = { type: "integer", minimum: 1 };
    assert.equal(parsed("12", count), 12);
    assert.equal(parsed(" ", count), undefined);
    assert.equal(parsed("many", count), "many");
    assert.equal(parsed("1e-4", { type: "number" }), 1e-4);
    assert.equal(parsed("12", { type: "string" }), "12");
    const auto = { oneOf: [{ type: "integer" }, { const: "auto" }] };
    assert.equal(parsed("8", auto), 8);
    assert.equal(parsed("auto", auto), "auto");
    const urls = { type: "array", items: { type: "string" } };
    assert.deepEqual(parsed("http://a\n\n http://b ", urls), ["http://a", "http://b"]);
    assert.deepEqual(parsed("http://a", urls), ["http://a"]);
    assert.deepEqual(parsed('["a"]', urls), ["a"]);
    const files = { oneOf: [{ type: "string" }, urls] };
    assert.equal(parsed("data/*.jsonl", files), "data/*.jsonl");
    assert.deepEqual(parsed("a\nb", files), ["a", "b"]);
    assert.deepEqual(parsed('{"a": 1}', { type: "object" }), { a: 1 });
    assert.equal(parsed("{a", { type: "object" }), "{a");
});

test("what is shown is read again as it was", () => {
    for (const [value, schema] of [
        [["a", "b"], { type: "array", items: { type: "string" } }],
        [{ hidden_size: 32 }, { type: "object" }],
        [0.001, { type: "number" }],
        ["auto", { oneOf: [{ type: "integer" }, { const: "auto" }] }],
    ]) {
        assert.deepEqual(parsed(typedText(value), schema), value);
    }
});

test("fields with few values are choices", () => {
    assert.deepEqual(choicesOf({ type: "boolean" }), [true, false]);
    assert.deepEqual(choicesOf({ oneOf: [{ type: "boolean" }, { enum: ["off"] }] }), [true, false, "off"]);
    assert.equal(choicesOf({ oneOf: [{ type: "integer" }, { const: "auto" }] }), null);
});

test("the schema's sections become fields with pointers", () => {
    const schema = {
        required: ["output"],
        properties: {
            name: { type: "string" },
            student: { properties: { lora: { properties: { r: { type: "integer" } } } } },
            output: { type: "string" },
        },
    };
    const fields = fieldsOf(schema).map((one) => [one.pointer, one.section, one.required]);
    assert.deepEqual(fields, [
        ["/name", "", false],
        ["/student/lora/r", "/student/lora", false],
        ["/output", "", true],
    ]);
});

test("specs differ in leaves", () => {
    const a = { training: { seed: 1, max_steps: 3 }, dataset: { train: ["x"] } };
    const b = { training: { seed: 2, max_steps: 3 }, dataset: { train: ["x", "y"] }, name: "b" };
    assert.deepEqual(
        differences(a, b).map((one) => [one.pointer, one.a, one.b]),
        [
            ["/dataset/train", ["x"], ["x", "y"]],
            ["/name", undefined, "b"],
            ["/training/seed", 1, 2],
        ],
    );
    assert.deepEqual(differences(a, structuredClone(a)), []);
});
