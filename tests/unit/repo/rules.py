"""What the tests of rules share: the texts of the repository, and how a rule is tested.

A rule is a function over {path: text} that yields "path:line: what is wrong". Tests show of each rule, on a small tree
made up for it, that it fails when it should; one test applies them all to the repository.
"""

import re
import unittest

import tree

CPP = (".hpp", ".cpp")


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def without_comments(text):
    """The text with comments blanked, line for line. String literals are left alone, which suits the checks here."""
    pattern = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)

    def blank(match):
        found = match.group(0)
        return found if found.startswith('"') else re.sub(r"[^\n]", " ", found)

    return pattern.sub(blank, text)


def cpp_files(files):
    return {path: text for path, text in files.items() if path.endswith(CPP)}


def header(*lines):
    return "#pragma once\n" + "".join(line + "\n" for line in lines)


class RuleTest(unittest.TestCase):
    def refuse(self, rule, files, *expected):
        self.assertEqual([message.split(": ")[0] for message in rule(files)], list(expected))

    def accept(self, rule, files):
        self.assertEqual(list(rule(files)), [])


def repository():
    """{path: text} of all that is text."""
    files = {}
    for path in tree.files():
        try:
            files[path] = (tree.ROOT / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # binary: fixtures
    return files


def broken(rules, files):
    return [message for rule in rules for message in rule(files)]
