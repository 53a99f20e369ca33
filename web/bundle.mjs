// Makes the page one file that brings all it needs, and a C++ source that holds it: node bundle.mjs MODULES OUTPUT
// MODULES is the folder node_modules, OUTPUT takes page.html and page_bytes.cpp. The policy (Content-Security-Policy)
// lets run what is in the page and nothing else, by its hash.

import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { constants, gzipSync } from "node:zlib";

const here = dirname(fileURLToPath(import.meta.url));
const [modules, output] = process.argv.slice(2).map((path) => resolve(path));
if (!modules || !output) {
    console.error("usage: node bundle.mjs MODULES OUTPUT");
    process.exit(2);
}
const { buildSync } = createRequire(join(modules, "any"))("esbuild");

function bundled(options) {
    const result = buildSync({
        bundle: true,
        minify: true,
        charset: "utf8",
        legalComments: "inline",
        target: ["chrome116", "firefox124", "safari17.4"],
        absWorkingDir: here,
        nodePaths: [modules],
        write: false,
        logLevel: "warning",
        ...options,
    });
    return result.outputFiles[0].text.trim();
}

// Neither may end the element that it stands in.
const script = bundled({ entryPoints: ["main.js"], format: "esm" }).replaceAll("</script", "<\\/script");
const sheets = ["uplot/dist/uPlot.min.css", "./style.css", "./jobs.css", "./submit.css"];
const contents = sheets.map((sheet) => `@import "${sheet}";`).join(" ");
const style = bundled({ stdin: { contents, loader: "css", resolveDir: here } });
if (style.includes("</style")) throw new Error("the style ends its element");

const hashOf = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
const policy = [
    "default-src 'none'",
    `script-src ${hashOf(script)}`,
    `style-src ${hashOf(style)}`,
    "connect-src 'self'",
    "img-src data:",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
].join("; ");

// By functions: "$&" in the text has no meaning then.
const page = readFileSync(join(here, "index.html"), "utf8")
    .replace("<style></style>", () => `<style>${style}</style>`)
    .replace('<script type="module"></script>', () => `<script type="module">${script}</script>`);
if (!page.includes(style) || !page.includes(script)) throw new Error("index.html has no place for style and script");

const bytes = (buffer) =>
    [...buffer]
        .map((byte) => `${byte},`)
        .join("")
        .replace(/(.{1,110},)/g, "    $1\n");
const array = (name, buffer) => `constexpr unsigned char ${name}[] = {\n${bytes(buffer)}};\n`;
const html = Buffer.from(page);
// Nothing of the time or the machine stands in the head that zlib writes, but for the system's number.
const packed = gzipSync(html, { level: constants.Z_BEST_COMPRESSION });
packed[9] = 255;
const tag = createHash("sha256").update(html).digest("hex").slice(0, 32);

mkdirSync(output, { recursive: true });
writeFileSync(join(output, "page.html"), html);
writeFileSync(
    join(output, "page_bytes.cpp"),
    `// Made by web/bundle.mjs.
#include "api/page.hpp"

#include <cstddef>

namespace distilld::api {
namespace {

${array("kHtml", html)}
${array("kGzip", packed)}
std::string_view text(const unsigned char* bytes, std::size_t size) {
    return {reinterpret_cast<const char*>(bytes), size};
}

}  // namespace

const Page* built_in_page() {
    static const Page page{.html = text(kHtml, sizeof(kHtml)),
                           .gzip = text(kGzip, sizeof(kGzip)),
                           .etag = "\\"${tag}\\"",
                           .policy = "${policy}"};
    return &page;
}

}  // namespace distilld::api
`,
);
console.log(`page: ${html.length} bytes, ${packed.length} packed`);
