"""Who may include whom, and some rules of style that no tool checks.

Each rule is a function over {path: text} that yields "path:line: what is wrong". The tests show of each rule, on a
small tree made up for it, that it fails when it should; the last test applies them all to the repository.
"""

import re
import sys
import unittest

import tree

# Which folders the files of a folder may include; the longest matching prefix counts.
LAYERS = {
    "base/": ["base/"],
    "pipeline/core/": ["base/", "pipeline/core/"],
    "pipeline/async/": ["base/", "pipeline/core/", "pipeline/async/"],
    "pipeline/teacher/": ["base/", "pipeline/core/", "pipeline/async/", "pipeline/teacher/"],
    "pipeline/store/": ["base/", "pipeline/core/", "pipeline/async/", "pipeline/store/"],
    "pipeline/data/": ["base/", "pipeline/core/", "pipeline/async/", "pipeline/data/"],
    "pipeline/graph/": ["base/", "pipeline/"],
    "models/": ["base/", "pipeline/", "models/"],
    "models/checkpoint/": ["base/", "pipeline/core/", "models/checkpoint/"],
    "api/": ["base/", "pipeline/core/", "api/"],
    "server/": ["base/", "pipeline/", "models/", "api/", "server/"],
    "bench/": ["base/", "pipeline/", "models/", "api/", "server/", "bench/"],
    "tests/": ["base/", "pipeline/", "models/", "api/", "server/", "bench/", "tests/"],
    "cmake/": [],
}
GENERATED = {"distilld_version.hpp"}

# What core must do without: it is given the time and everything else it needs.
IMPURE = re.compile(
    r"<(boost/(asio|beast)|torch/|ATen/|c10/|spdlog/|prometheus/|openssl/|fstream|iostream|cstdio|thread|mutex|future"
    r"|condition_variable|unistd\.h|fcntl\.h|sys/|netinet/|poll\.h)"
)

TORCH = re.compile(r"<(torch|ATen|c10)/")
TORCH_ALLOWED = ("models/", "server/worker/", "server/teacher/", "tests/")
BEAST = re.compile(r"<boost/beast")
BEAST_ALLOWED = (
    "server/http/",
    "server/cli/",
    "pipeline/teacher/transport/",
    "tests/",
    "bench/",
    "cmake/boost_beast_src.cpp",
)
LOGGER = re.compile(r"<(spdlog|fmt)/")
LOGGER_ALLOWED = ("server/support/",)

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"][^>"]+[>"])', re.MULTILINE)
CPP = (".hpp", ".cpp")
CODE = CPP + (".h", ".cc", ".py", ".sh", ".cmake", "CMakeLists.txt")
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


def without_comments(text):
    """The text with comments blanked, line for line. String literals are left alone, which suits the checks here."""
    pattern = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)

    def blank(match):
        found = match.group(0)
        return found if found.startswith('"') else re.sub(r"[^\n]", " ", found)

    return pattern.sub(blank, text)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def includes(text):
    """(line number, '<name>' or '"name"') of each include."""
    clean = without_comments(text)
    return [(line_of(clean, match.start(1)), match.group(1)) for match in INCLUDE.finditer(clean)]


def cpp_files(files):
    return {path: text for path, text in files.items() if path.endswith(CPP)}


def folders_rule(files):
    for path, text in cpp_files(files).items():
        layer = max((folder for folder in LAYERS if path.startswith(folder)), key=len, default=None)
        if layer is None:
            yield f"{path}:1: lies in no folder of design"
            continue
        for line, name in includes(text):
            if name.startswith("<"):
                continue
            target = name.strip('"')
            if target in GENERATED and not path.startswith("pipeline/core/"):
                continue
            if "/" not in target or target.startswith("."):
                yield f"{path}:{line}: {name} must be written from the repository's root"
            elif not any(target.startswith(folder) for folder in LAYERS[layer]):
                yield f"{path}:{line}: {layer} may not include {name}"


def core_is_pure_rule(files):
    for path, text in cpp_files(files).items():
        if not path.startswith("pipeline/core/"):
            continue
        for line, name in includes(text):
            if IMPURE.match(name):
                yield f"{path}:{line}: pipeline/core may not include {name}"
        clean = without_comments(text)
        for match in re.finditer(r"::now\s*\(", clean):
            yield f"{path}:{line_of(clean, match.start())}: pipeline/core may not read the clock"


def reach(files, pattern):
    """{path: how} of the files that include what matches, themselves or through headers of ours."""
    cpp = cpp_files(files)
    reached = {}
    for path, text in cpp.items():
        for line, name in includes(text):
            if pattern.match(name):
                reached.setdefault(path, (line, name))
    grown = True
    while grown:
        grown = False
        for path, text in cpp.items():
            if path in reached:
                continue
            for line, name in includes(text):
                if name.strip('"') in reached:
                    reached[path] = (line, name)
                    grown = True
                    break
    return reached


def confined(files, pattern, allowed, what):
    for path, (line, name) in reach(files, pattern).items():
        if not path.startswith(allowed):
            yield f"{path}:{line}: {name} brings {what} in here"


def torch_rule(files):
    return confined(files, TORCH, TORCH_ALLOWED, "libtorch")


def beast_rule(files):
    return confined(files, BEAST, BEAST_ALLOWED, "Beast")


def logger_rule(files):
    return confined(files, LOGGER, LOGGER_ALLOWED, "spdlog")


def torch_meets_logger_rule(files):
    torch, logger = reach(files, TORCH), reach(files, LOGGER)
    for path in sorted(torch.keys() & logger.keys()):
        yield f"{path}:{logger[path][0]}: libtorch and spdlog meet in one file"


def models_do_not_log_rule(files):
    for path, text in cpp_files(files).items():
        if path.startswith("models/"):
            for line, name in includes(text):
                if name.startswith('"server/') or LOGGER.match(name):
                    yield f"{path}:{line}: models/ may not include {name}"


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


RULES = [
    folders_rule,
    core_is_pure_rule,
    torch_rule,
    beast_rule,
    logger_rule,
    torch_meets_logger_rule,
    models_do_not_log_rule,
    pragma_rule,
    columns_rule,
    places_rule,
]


def header(*lines):
    return "#pragma once\n" + "".join(line + "\n" for line in lines)


class RulesCanFail(unittest.TestCase):
    def refuse(self, rule, files, *expected):
        self.assertEqual([message.split(": ")[0] for message in rule(files)], list(expected))

    def accept(self, rule, files):
        self.assertEqual(list(rule(files)), [])

    def test_folders(self):
        core = {"pipeline/core/a.hpp": header('#include "pipeline/core/b.hpp"', "#include <string>")}
        self.accept(folders_rule, core)
        for own, other in [
            ("pipeline/core", "pipeline/async"),
            ("pipeline/core", "api"),
            ("pipeline/async", "pipeline/data"),
            ("pipeline/data", "pipeline/teacher"),
            ("pipeline/data", "pipeline/graph"),
            ("pipeline/teacher", "pipeline/store"),
            ("pipeline/store", "pipeline/data"),
            ("pipeline/graph", "models"),
            ("pipeline/graph", "server"),
            ("models", "server"),
            ("models", "api"),
            ("api", "server"),
            ("api", "models"),
            ("api", "pipeline/graph"),
            ("server", "tests"),
            ("server", "bench"),
        ]:
            with self.subTest(own=own, other=other):
                self.refuse(folders_rule, {f"{own}/a.cpp": f'\n#include "{other}/b.hpp"\n'}, f"{own}/a.cpp:2")
        for own, other in [
            ("pipeline/data", "pipeline/async"),
            ("pipeline/graph", "pipeline/teacher"),
            ("models/network", "pipeline/graph"),
            ("api", "pipeline/core"),
            ("server/worker", "models/training"),
            ("tests/unit/core", "pipeline/core"),
        ]:
            with self.subTest(own=own, other=other):
                self.accept(folders_rule, {f"{own}/a.cpp": f'#include "{other}/b.hpp"\n'})
        self.refuse(folders_rule, {"api/a.cpp": '#include "b.hpp"\n'}, "api/a.cpp:1")
        self.refuse(folders_rule, {"api/a.cpp": '#include "../api/b.hpp"\n'}, "api/a.cpp:1")
        self.refuse(folders_rule, {"elsewhere/a.cpp": ""}, "elsewhere/a.cpp:1")
        self.accept(folders_rule, {"server/cli/a.cpp": '#include "distilld_version.hpp"\n'})
        self.accept(folders_rule, {"models/a.cpp": '// #include "server/b.hpp"\n/*\n#include "server/b.hpp"\n*/\n'})

    def test_core_is_pure(self):
        for name in ["boost/asio/awaitable.hpp", "boost/beast.hpp", "torch/torch.h", "fstream", "thread", "sys/stat.h"]:
            with self.subTest(name=name):
                self.refuse(core_is_pure_rule, {"pipeline/core/a.cpp": f"#include <{name}>\n"}, "pipeline/core/a.cpp:1")
        clock = "auto t =\n    std::chrono::steady_clock::now ();\n"
        self.refuse(core_is_pure_rule, {"pipeline/core/a.cpp": clock}, "pipeline/core/a.cpp:2")
        self.accept(core_is_pure_rule, {"pipeline/core/a.cpp": "#include <chrono>\n// ::now() is the caller's\n"})
        self.accept(core_is_pure_rule, {"pipeline/async/a.cpp": clock + "#include <boost/asio.hpp>\n"})

    def test_torch(self):
        for name in ["torch/torch.h", "ATen/ATen.h", "c10/util/Half.h"]:
            files = {"pipeline/graph/a.cpp": f"#include <{name}>\n"}
            self.refuse(torch_rule, files, "pipeline/graph/a.cpp:1")
        through = {
            "models/a.hpp": header("#include <torch/torch.h>"),
            "models/b.hpp": header('#include "models/a.hpp"'),
            "server/cli/c.cpp": '#include "models/b.hpp"\n',
        }
        self.refuse(torch_rule, through, "server/cli/c.cpp:1")
        self.accept(torch_rule, {**through, "server/cli/c.cpp": "", "server/worker/d.cpp": '#include "models/b.hpp"\n'})

    def test_beast(self):
        self.refuse(beast_rule, {"api/a.hpp": header("#include <boost/beast/http.hpp>")}, "api/a.hpp:2")
        self.refuse(beast_rule, {"server/jobs/a.cpp": "#include <boost/beast.hpp>\n"}, "server/jobs/a.cpp:1")
        through = {
            "server/http/a.hpp": header("#include <boost/beast/core.hpp>"),
            "server/jobs/b.cpp": '#include "server/http/a.hpp"\n',
        }
        self.refuse(beast_rule, through, "server/jobs/b.cpp:1")
        self.refuse(beast_rule, {"pipeline/teacher/a.cpp": "#include <boost/beast.hpp>\n"}, "pipeline/teacher/a.cpp:1")
        self.accept(beast_rule, {"pipeline/teacher/transport/a.cpp": "#include <boost/beast.hpp>\n"})

    def test_logger(self):
        self.refuse(logger_rule, {"server/jobs/a.cpp": "#include <spdlog/spdlog.h>\n"}, "server/jobs/a.cpp:1")
        self.accept(logger_rule, {"server/support/log.cpp": "#include <spdlog/spdlog.h>\n"})

    def test_torch_meets_logger(self):
        files = {
            "server/support/log_impl.hpp": header("#include <spdlog/spdlog.h>"),
            "models/a.hpp": header("#include <torch/torch.h>"),
            "server/worker/c.cpp": '#include "models/a.hpp"\n#include "server/support/log_impl.hpp"\n',
        }
        self.refuse(torch_meets_logger_rule, files, "server/worker/c.cpp:2")
        self.accept(torch_meets_logger_rule, {**files, "server/worker/c.cpp": '#include "models/a.hpp"\n'})

    def test_models_do_not_log(self):
        self.refuse(models_do_not_log_rule, {"models/a.cpp": '#include "server/support/log.hpp"\n'}, "models/a.cpp:1")
        self.refuse(models_do_not_log_rule, {"models/a.cpp": "#include <spdlog/spdlog.h>\n"}, "models/a.cpp:1")
        self.accept(models_do_not_log_rule, {"models/a.cpp": '#include "models/b.hpp"\n'})

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


class Repository(unittest.TestCase):
    def test_keeps_the_rules(self):
        files = {}
        for path in tree.files():
            try:
                files[path] = (tree.ROOT / path).read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue  # binary: fixtures
        self.assertIn("base/error.hpp", files, "the tree was not found")
        broken = [message for rule in RULES for message in rule(files)]
        self.assertEqual(broken, [], "\n" + "\n".join(broken))


if __name__ == "__main__":
    sys.exit(unittest.main())
