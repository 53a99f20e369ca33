"""Rules of style that no tool checks: #pragma once, columns, lines of a file, what must not be named."""

import collections
import pathlib
import re
import sys
import unittest

from rules import CPP, RuleTest, broken, cpp_files, header, line_of, repository, without_comments

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

# A folder is taken in at a glance; more files than this want subfolders.
FOLDER_FILES = 40

# The one place that turns JSON into text.
JSON_WRITER = "base/json_text.cpp"

# A namespace's beginning (with its name, none when it is anonymous, and what follows on the line) or its end.
NAMESPACE = re.compile(r"^(?:inline )?namespace(?: ([\w:]+))? \{(.*)$|^\}  // namespace", re.MULTILINE)
FORWARD_DECLARATIONS = re.compile(r"\s*((class|struct) \w+;\s*)+\}")


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
        if path.endswith(COUNTED) and count > LINES:
            yield f"{path}:{LINES}: {count} lines, {LINES} are allowed: split the file"


def folders_rule(files):
    counts = collections.Counter(str(pathlib.PurePath(path).parent) for path in cpp_files(files))
    for folder, count in sorted(counts.items()):
        if count > FOLDER_FILES:
            yield f"{folder}: {count} source files, {FOLDER_FILES} are allowed: give it subfolders"


def json_text_rule(files):
    for path, text in cpp_files(files).items():
        if path != JSON_WRITER and not path.startswith("tests/"):
            for match in re.finditer(r"json::serialize\(", text):
                yield f"{path}:{line_of(text, match.start())}: JSON is written with to_text() (base/json_text.hpp)"


def namespaces(text):
    """(line number, full name) of each named namespace that is opened for more than to declare foreign classes."""
    within = []
    for match in NAMESPACE.finditer(text):
        if match.group(0).startswith("}"):
            if within:
                within.pop()
            continue
        name, rest = match.group(1), match.group(2)
        if FORWARD_DECLARATIONS.match(text, match.start(2)):
            continue
        within.append(name)
        if name:
            yield line_of(text, match.start()), "::".join(filter(None, within))
        if rest.endswith("}"):
            within.pop()


def words_of(path):
    """The names of the folders and of the file on a path."""
    *folders, name = path.split("/")
    return {*folders, name.split(".")[0]}


def namespace_rule(files):
    for path, text in cpp_files(files).items():
        allowed = words_of(path)
        if path.endswith(".hpp"):
            allowed.add("detail")
        if path.startswith("tests/"):
            allowed.add("test")
            # The room that is tested.
            allowed.update(*(words_of(name) for name in re.findall(r'^#include "([^"]+)"', text, re.MULTILINE)))
        opened = set()
        for line, name in namespaces(text):
            opened.add(name)
            outer, *inner = name.split("::")
            if outer != "distilld" or len(inner) > 1 or not allowed.issuperset(inner):
                yield f"{path}:{line}: namespace {name}: distilld, or below it the name of a folder or file on the path"
        if "distilld::detail" not in opened:
            for match in re.finditer(r"(?<!::)\bdetail::", without_comments(text)):
                yield f"{path}:{line_of(text, match.start())}: detail:: is for the header that has it"


def const_data_rule(files):
    """A libtorch that GCC built has const_data_ptr<T>() under a name that Clang 18 and newer do not look for."""
    for path, text in cpp_files(files).items():
        for match in re.finditer(r"const_data_ptr<", without_comments(text)):
            yield f"{path}:{line_of(text, match.start())}: static_cast<const T*>(….const_data_ptr()) links everywhere"


def conditional_await_rule(files):
    """GCC 13 evaluates the arguments of both calls: what is moved for one is lost for the other."""
    for path, text in cpp_files(files).items():
        for match in re.finditer(r"co_await \([^;?]*\?[^;]*:", without_comments(text)):
            yield f"{path}:{line_of(text, match.start())}: co_await awaits a conditional expression: use if"


RULES = [
    *[pragma_rule, columns_rule, lines_rule, folders_rule, places_rule, json_text_rule, namespace_rule],
    *[const_data_rule, conditional_await_rule],
]


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

    def test_folders(self):
        files = {f"base/{number}.cpp": "" for number in range(FOLDER_FILES)}
        self.accept(folders_rule, files)
        self.refuse(folders_rule, {**files, "base/one_more.hpp": "", "base/files/other.cpp": ""}, "base")

    def test_json_text(self):
        text = "\nauto text = boost::json::serialize(value);"
        self.refuse(json_text_rule, {"api/a.cpp": text}, "api/a.cpp:2")
        self.accept(json_text_rule, {"base/json_text.cpp": text, "tests/a_test.cpp": text, "docs/a.md": text})

    def test_const_data(self):
        self.refuse(const_data_rule, {"models/a.cpp": "\nauto* a = b.const_data_ptr<float>();"}, "models/a.cpp:2")
        self.accept(const_data_rule, {"models/a.cpp": "// const_data_ptr<T>\nauto* a = b.const_data_ptr();"})

    def test_conditional_await(self):
        text = "\nco_await (a ? f(std::move(x)) :\n g(std::move(x)));"
        self.refuse(conditional_await_rule, {"net/a.cpp": text}, "net/a.cpp:2")
        self.accept(
            conditional_await_rule, {"net/a.cpp": "// co_await (a ? b : c);\nco_await (*f)(x);\nx = a ? b : c;"}
        )

    def test_namespaces(self):
        def inside(*names):
            ends = "".join("}  // namespace" + (" " + name if name else "") + "\n" for name in reversed(names))
            return "".join(f"namespace {name + ' ' if name else ''}{{\n" for name in names) + ends

        self.refuse(namespace_rule, {"api/a.cpp": inside("dist")}, "api/a.cpp:1")
        self.refuse(namespace_rule, {"api/a.cpp": inside("distilld::http")}, "api/a.cpp:1")
        self.refuse(namespace_rule, {"api/a.cpp": inside("distilld", "", "b")}, "api/a.cpp:3")
        self.refuse(namespace_rule, {"api/b/a.cpp": inside("distilld::api::b")}, "api/b/a.cpp:1")
        self.refuse(namespace_rule, {"api/a.cpp": inside("distilld::test")}, "api/a.cpp:1")
        self.refuse(namespace_rule, {"tests/a_test.cpp": inside("distilld::api")}, "tests/a_test.cpp:1")
        self.refuse(namespace_rule, {"api/a.cpp": inside("distilld::detail")}, "api/a.cpp:1")
        self.refuse(namespace_rule, {"api/a.cpp": "\ndetail::Shape shape;"}, "api/a.cpp:2")
        foreign = "namespace CLI {\nclass App;\n}\n"
        self.refuse(namespace_rule, {"api/a.hpp": foreign + inside("distilld::b")}, "api/a.hpp:4")
        self.accept(
            namespace_rule,
            {
                "api/a.hpp": foreign + inside("distilld", "detail") + "detail::Shape shape;",
                "api/b/c.cpp": inside("distilld::b", "") + inside("distilld::c") + inside("distilld", "api", ""),
                "api/d.cpp": "namespace json = boost::json;\nnamespace distilld {}\nboost::asio::detail::x y;",
                "tests/a_test.cpp": '#include "api/b.hpp"\n' + inside("distilld::api") + inside("distilld", "test"),
            },
        )


class Repository(unittest.TestCase):
    def test_keeps_the_rules(self):
        files = repository()
        self.assertIn("base/error.hpp", files, "the tree was not found")
        found = broken(RULES, files)
        self.assertEqual(found, [], "\n" + "\n".join(found))


if __name__ == "__main__":
    sys.exit(unittest.main())
