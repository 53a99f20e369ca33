"""Rules of style that no tool checks: #pragma once, columns, lines of a file, what must not be named."""

import re
import sys
import unittest

from rules import CPP, RuleTest, broken, header, line_of, repository

CODE = (*CPP, ".h", ".cc", ".py", ".sh", ".cmake", "CMakeLists.txt")
COLUMNS = 120

# In two parts, so that this file passes its own test.
HOSTS = [
    first + "." + last
    for first, last in [
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("crates", "io"),
        ("deb.debian", "org"),
        ("security.debian", "org"),
        ("archive.ubuntu", "com"),
        ("download.pytorch", "org"),
        ("conda.anaconda", "org"),
        ("proxy.golang", "org"),
        ("rubygems", "org"),
    ]
]
MACHINE_PATH = re.compile(r"(?<![\w.}\])*-])/(" + "wo" + r"rk|" + "ro" + r"ot)(/[\w.]|\b(?!/))")

# A file has one job, and is read whole.
LINES = 450
COUNTED = (*CPP, ".py", ".sh")
# Longer than that at present, and to be split.
LONG_FILES = {
    "api/job_types.cpp",
    "models/families/llama_config.cpp",
    "models/network/llama_network.cpp",
    "pipeline/graph/training_graph.cpp",
    "pipeline/teacher/protocols/kserve/adapter.cpp",
    "pipeline/teacher/protocols/kserve/parse.cpp",
    "pipeline/teacher/transport/http_pool.cpp",
    "server/http/session.cpp",
    "server/jobs/job_manager.cpp",
    "server/worker/train_worker.cpp",
    "tests/unit/models/network/llama_network_test.cpp",
    "tests/unit/models/training/llama_student_test.cpp",
    "tests/unit/pipeline/teacher/remote_teacher_test.cpp",
    "tests/unit/server/http/server_test.cpp",
}


def pragma_rule(files):
    for path, text in files.items():
        if path.endswith(".hpp") and not text.startswith("#pragma once\n"):
            yield f"{path}:1: a header starts with #pragma once"


def columns_rule(files):
    for path, text in files.items():
        if path.endswith(CODE):
            for number, line in enumerate(text.split("\n"), 1):
                if len(line) > COLUMNS:
                    yield f"{path}:{number}: {len(line)} columns, {COLUMNS} are allowed"


def places_rule(files):
    for path, text in files.items():
        for host in HOSTS:
            for match in re.finditer(r"(?<![\w-])" + re.escape(host) + r"(?![\w-])", text):
                yield f"{path}:{line_of(text, match.start())}: names the package registry {host}"
        for match in MACHINE_PATH.finditer(text):
            yield f"{path}:{line_of(text, match.start())}: names the absolute path {match.group(0)}"


def lines_rule(files):
    for path, text in files.items():
        count = text.count("\n")
        if path.endswith(COUNTED) and count > LINES and path not in LONG_FILES:
            yield f"{path}:{LINES}: {count} lines, {LINES} are allowed: split the file"


RULES = [pragma_rule, columns_rule, lines_rule, places_rule]


class RulesCanFail(RuleTest):
    def test_pragma(self):
        self.refuse(pragma_rule, {"api/a.hpp": "// first\n#pragma once\n"}, "api/a.hpp:1")
        self.accept(pragma_rule, {"api/a.hpp": header(), "api/a.cpp": ""})

    def test_columns(self):
        self.refuse(columns_rule, {"api/a.cpp": "\n" + "x" * 121}, "api/a.cpp:2")
        self.refuse(columns_rule, {"cmake/CMakeLists.txt": "x" * 121}, "cmake/CMakeLists.txt:1")
        self.accept(columns_rule, {"api/a.cpp": "é" * 120, "README.md": "x" * 200})

    def test_places(self):
        for host in HOSTS:
            self.refuse(places_rule, {"scripts/a.sh": f"\ncurl https://{host}/x\n"}, "scripts/a.sh:2")
        for folder in ["wo" + "rk", "ro" + "ot"]:
            self.refuse(places_rule, {"docs/a.md": f"cd /{folder}/main"}, "docs/a.md:1")
            self.refuse(places_rule, {"docs/a.md": f"`/{folder}`"}, "docs/a.md:1")
            self.accept(places_rule, {"docs/a.md": f"a/{folder}/b ${{x}}/{folder}/b ../{folder} /{folder}space/x"})

    def test_lines(self):
        self.refuse(
            lines_rule, {"api/a.cpp": "\n" * 451, "scripts/a.sh": "\n" * 451}, "api/a.cpp:450", "scripts/a.sh:450"
        )
        self.accept(lines_rule, {"api/a.cpp": "\n" * 450, "docs/a.md": "\n" * 1000})


class Repository(unittest.TestCase):
    def test_keeps_the_rules(self):
        files = repository()
        self.assertIn("base/error.hpp", files, "the tree was not found")
        found = broken(RULES, files)
        self.assertEqual(found, [], "\n" + "\n".join(found))
        for path in sorted(LONG_FILES):
            if files.get(path, "").count("\n") <= LINES:
                print(f"{path} is not too long any more: take it off LONG_FILES")


if __name__ == "__main__":
    sys.exit(unittest.main())
