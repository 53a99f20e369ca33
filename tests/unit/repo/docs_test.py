"""What documents say of the tree holds: every link resolves, its section too, every path that is named in code type is
there, and the index names every page of docs/.
"""

import posixpath
import re
import unittest

import tree

LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")  # and images
IMAGE = re.compile(r"<img\b[^>]*\bsrc=\"([^\"]+)\"")
HEADING = re.compile(r"^#+ +(.*?) *#*$", re.MULTILINE)
INDEX = "docs/README.md"
CODE = re.compile(r"`([^`\n]+)`")
# `api/spec_fields.cpp`, `models/checkpoint/`, `pipeline/async/{condition,channel}.hpp`: from the repository's root.
FOLDERS = (
    "api base bench cmake docker docs examples grafana models packaging pipeline scripts server tests tools web".split()
)
FOLDERS += [".ci", ".github"]
PATH = re.compile(r"(?:" + "|".join(re.escape(folder) for folder in FOLDERS) + r")/[\w./{},-]*")
# Documents that tell of other times or other trees.
HISTORIC = ("CHANGELOG.md", "docs/decisions/")


def without_fences(text):
    """The text with fenced blocks blanked, line for line: they show sessions and made-up trees."""
    lines, fenced = [], False
    for line in text.split("\n"):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            lines.append("")
        else:
            lines.append("" if fenced else line)
    return "\n".join(lines)


def expanded(path):
    """`a/{b,c}.hpp` as [`a/b.hpp`, `a/c.hpp`]."""
    match = re.search(r"\{([^{}]*)\}", path)
    if match is None:
        return [path]
    return [
        one
        for choice in match.group(1).split(",")
        for one in expanded(path[: match.start()] + choice + path[match.end() :])
    ]


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def anchors_of(text):
    """The names that GitHub gives to the headings of a document."""
    made = []
    for heading in HEADING.findall(without_fences(text)):
        words = re.sub(r"\]\([^)]*\)", "", heading)  # of a link, its text
        name = re.sub(r"[^\w\- ]", "", words).strip().lower().replace(" ", "-")
        made.append(f"{name}-{made.count(name)}" if name in made else name)
    return set(made)


def resolved(path, target):
    """The path from the root that a link in the document leads to."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), target)) if target else path


def links_of(path, text):
    """(line, path from the root, section) of each link and image to something in the tree."""
    clean = without_fences(text)
    for pattern in (LINK, IMAGE):
        for match in pattern.finditer(clean):
            if not re.match(r"[a-z]+:", match.group(1)):
                target, _, section = match.group(1).partition("#")
                yield line_of(clean, match.start()), resolved(path, target), section


def links_rule(documents, exists):
    for path, text in documents.items():
        for line, target, section in links_of(path, text):
            if not exists(target):
                yield f"{path}:{line}: the link {target} leads nowhere"
            elif section and section not in anchors_of(documents.get(target, "")):
                yield f"{path}:{line}: {target} has no section #{section}"


def index_rule(documents, _):
    named = {target for _, target, _ in links_of(INDEX, documents.get(INDEX, ""))}
    for path in documents:
        if path.startswith("docs/") and path != INDEX and path not in named:
            yield f"{path}:1: {INDEX} does not name this page"


def paths_rule(documents, exists):
    for path, text in documents.items():
        if path.startswith(HISTORIC):
            continue
        clean = without_fences(text)
        for match in CODE.finditer(clean):
            code = match.group(1)
            if not PATH.fullmatch(code):
                continue
            for name in expanded(code):
                if not exists(name):
                    yield f"{path}:{line_of(clean, match.start())}: there is no {name}"


class RulesCanFail(unittest.TestCase):
    def test_links(self):
        present = {"docs/b.md", "README.md"}.__contains__
        self.assertEqual(
            list(links_rule({"docs/a.md": "see [b](b.md#x) and [r](c.md)"}, present)),
            ["docs/a.md:1: the link docs/c.md leads nowhere", "docs/a.md:1: docs/b.md has no section #x"][::-1],
        )
        self.assertEqual(
            list(links_rule({"docs/a.md": '![p](images/p.png)\n<img width=9 src="q.png">'}, present)),
            ["docs/a.md:1: the link docs/images/p.png leads nowhere", "docs/a.md:2: the link docs/q.png leads nowhere"],
        )
        good = "# S\n## The `b` and [c](docs/b.md), twice\n## S\n[b](docs/b.md), [w](https://x.example), [s](#s-1)"
        self.assertEqual(list(links_rule({"README.md": good}, present)), [])
        self.assertEqual(anchors_of(good), {"s", "the-b-and-c-twice", "s-1"})
        self.assertEqual(anchors_of("```\n# no\n```\n"), set())

    def test_index(self):
        documents = {"docs/README.md": "[a](a.md)", "docs/a.md": "", "docs/decisions/0001.md": "", "README.md": ""}
        self.assertEqual(
            list(index_rule(documents, None)), ["docs/decisions/0001.md:1: docs/README.md does not name this page"]
        )

    def test_paths(self):
        present = {"base/a.hpp", "base/b.hpp", "base/"}.__contains__
        text = (
            "in `base/a.hpp`\nand `base/{b,c}.hpp`, not `a/b` and `base/` or `x base/d.hpp`\n```\n`base/e.hpp`\n```\n"
        )
        self.assertEqual(list(paths_rule({"docs/a.md": text}, present)), ["docs/a.md:2: there is no base/c.hpp"])
        self.assertEqual(list(paths_rule({"CHANGELOG.md": text}, present)), [])


class Repository(unittest.TestCase):
    def test_documents_tell_the_truth(self):
        documents = {p: (tree.ROOT / p).read_text(encoding="utf-8") for p in tree.files() if p.endswith(".md")}
        self.assertIn("README.md", documents, "the tree was not found")

        def exists(path):
            return (tree.ROOT / path).exists()

        broken = [message for rule in (links_rule, paths_rule, index_rule) for message in rule(documents, exists)]
        self.assertEqual(broken, [], "\n" + "\n".join(broken))


if __name__ == "__main__":
    unittest.main()
