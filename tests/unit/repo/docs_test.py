"""What documents say of the tree holds: every link resolves, and every path that is named in code type is there."""

import re
import unittest

import tree

LINK = re.compile(r"(?<!!)\[[^\]\n]+\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
# `api/spec_fields.cpp`, `models/checkpoint/`, `pipeline/async/{condition,channel}.hpp`: from the repository's root.
FOLDERS = (
    "api base bench cmake docker docs examples grafana models packaging pipeline scripts server tests tools".split()
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


def links_rule(documents, exists):
    for path, text in documents.items():
        clean = without_fences(text)
        folder = path.rpartition("/")[0]
        for match in LINK.finditer(clean):
            target = match.group(1).split("#")[0]
            if not target or re.match(r"[a-z]+:", target):
                continue
            if not exists((folder + "/" if folder else "") + target):
                yield f"{path}:{line_of(clean, match.start())}: the link {target} leads nowhere"


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
            ["docs/a.md:1: the link c.md leads nowhere"],
        )
        self.assertEqual(
            list(links_rule({"README.md": "[b](docs/b.md), [w](https://x.example), [s](#s)"}, present)), []
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

        broken = [message for rule in (links_rule, paths_rule) for message in rule(documents, exists)]
        self.assertEqual(broken, [], "\n" + "\n".join(broken))


if __name__ == "__main__":
    unittest.main()
