import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";

const root = new URL("../../../", import.meta.url);

test("CMake makes the page anew when any of its files changes", () => {
    const cmake = readFileSync(new URL("cmake/DistilldPage.cmake", root), "utf8");
    const listed = /set\(names ([^)]*)\)/.exec(cmake)[1].split(/\s+/).sort();
    const there = readdirSync(new URL("web/", root)).filter((name) => /\.(js|mjs|css|html)$/.test(name));
    assert.deepEqual(listed, [...there, "package-lock.json"].sort());
});

test("nothing in the page makes markup of texts, or scripts of them", () => {
    for (const name of readdirSync(new URL("web/", root)).filter((one) => one.endsWith(".js"))) {
        const source = readFileSync(new URL(`web/${name}`, root), "utf8");
        assert.doesNotMatch(
            source,
            /innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function/,
            name,
        );
    }
});

test("a picture has its label from the start, not only when there is something to draw", () => {
    let pictures = 0;
    for (const name of readdirSync(new URL("web/", root)).filter((one) => one.endsWith(".js"))) {
        const source = readFileSync(new URL(`web/${name}`, root), "utf8");
        for (const [picture] of source.matchAll(/\{[^{}]*role: "img"[^{}]*\}/g)) {
            assert.match(picture, /"aria-label": /, name);
            ++pictures;
        }
    }
    assert.equal(pictures, 2);
});
