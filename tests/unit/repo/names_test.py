"""Names that belong to one room stand in their name table and there, nowhere else: whoever writes `if protocol is …`
elsewhere has made a second place to edit for the next one.

The rules are functions over {path: text} as in rules.py, with tests that show that they can fail.
"""

import re
import sys
import unittest
from typing import ClassVar

import tree
from rules import cpp_files, line_of, without_comments

PROTOCOL_TABLE = "pipeline/core/teacher_protocol.hpp"
PROTOCOLS = "pipeline/teacher/protocols/"
# Where protocols may be named: their table, the registry, servers that speak them, tests.
PROTOCOL_ROOMS = (
    PROTOCOL_TABLE,
    PROTOCOLS + "adapters.hpp",
    PROTOCOLS + "registry.cpp",
    "server/teacher/",
    "bench/decode_bodies.cpp",
    "bench/loopback_teacher.cpp",
    "tests/",
)
# Words that mean something else as well (the seed of a random number, setrlimit): only what can mean the protocol
# alone counts.
AMBIGUOUS = {"seed", "trl"}
# No protocol: it stands for whichever the endpoint speaks.
CHOICE = "auto"


def protocol_names(files):
    names = re.findall(r'EnumName<TeacherProtocol>\{"([\w-]+)"', files.get(PROTOCOL_TABLE, ""))
    return [name for name in names if name != CHOICE]


def protocol_pattern(name):
    if name not in AMBIGUOUS:
        return re.compile(re.escape(name), re.IGNORECASE)
    title = name.title()
    return re.compile(
        rf"TeacherProtocol::{name}\b|\b{title}[A-Z]\w*|\bmake_{name}_\w+|\b{name}_(?:protocol|adapter|codec|teacher)\w*"
        rf'|protocols/{name}\b|"{name}"[^\n;]*[pP]rotocol|[pP]rotocol[^\n;]*"{name}"'
    )


def protocol_names_rule(files):
    for name in protocol_names(files):
        pattern = protocol_pattern(name)
        own = (PROTOCOLS + name + "/", PROTOCOLS + name + ".")
        for path, text in cpp_files(files).items():
            if path.startswith(PROTOCOL_ROOMS + own):
                continue
            clean = without_comments(text)
            for match in pattern.finditer(clean):
                yield f"{path}:{line_of(clean, match.start())}: names the teacher protocol {name}: {match.group(0)}"


FAMILY_TABLE = "models/families/model_family.cpp"
FAMILY_ROW = re.compile(r'^    \{"(\w+)", parse_\w+, write_\w+, k\w+(?:, k\w+)?\},$', re.MULTILINE)
FAMILY_FOLDER = "models/families/"
# Not tests: they show real files.
PROGRAM_FOLDERS = ("api/", "base/", "bench/", "models/", "pipeline/", "server/")


def family_names(files):
    """The model_types of the table."""
    return FAMILY_ROW.findall(files.get(FAMILY_TABLE, ""))


def family_names_rule(files):
    pattern = re.compile('"(' + "|".join(family_names(files)) + ')"')
    for path, text in cpp_files(files).items():
        if not path.startswith(PROGRAM_FOLDERS) or path.startswith(FAMILY_FOLDER):
            continue
        clean = without_comments(text)
        for match in pattern.finditer(clean):
            yield f"{path}:{line_of(clean, match.start())}: names the model_type {match.group(1)}"


RULES = [protocol_names_rule, family_names_rule]


class RulesCanFail(unittest.TestCase):
    TABLE: ClassVar = {
        PROTOCOL_TABLE: 'EnumName<TeacherProtocol>{"kserve", 0},\nEnumName<TeacherProtocol>{"seed", 1},\n'
    }

    def refuse(self, path, text, line=1):
        found = list(protocol_names_rule({**self.TABLE, path: text}))
        self.assertEqual([message.split(": ")[0] for message in found], [f"{path}:{line}"], text)

    def accept(self, path, text):
        self.assertEqual(list(protocol_names_rule({**self.TABLE, path: text})), [], text)

    def test_a_name_outside_its_rooms(self):
        for text in [
            "if (protocol == TeacherProtocol::kserve) {}\n",
            "kserve::ModelMetadata metadata;\n",
            "class KserveDialect;\n",
            "std::optional<std::size_t> kserve_header_length;\n",
            'const char* name = "kserve";\n',
            '#include "pipeline/teacher/protocols/kserve/message.hpp"\n',
        ]:
            for path in ["pipeline/teacher/probe/endpoint_probe.cpp", "api/spec_names.hpp", "bench/scenario.cpp"]:
                self.refuse(path, text)
        self.refuse("pipeline/teacher/protocols/seed.cpp", "\n\nkserve::kJsonContentType;\n", line=3)

    def test_an_ambiguous_name(self):
        for text in [
            "if (protocol == TeacherProtocol::seed) {}\n",
            "auto adapter = make_seed_adapter(url);\n",
            "class SeedAdapter;\n",
            'row("seed", protocol);\n',
            'if (protocol_name == "seed") {}\n',
            '#include "pipeline/teacher/protocols/seed.hpp"\n',
        ]:
            self.refuse("pipeline/teacher/remote_teacher.cpp", text)
        for text in [
            "std::uint64_t seed = 42;\n",
            'reader.integer("seed", training.seed);\n',
            "seed_(seed), jitter_seed\n",
        ]:
            self.accept("pipeline/core/batch_plan.cpp", text)

    def test_its_own_rooms(self):
        for path in [
            "pipeline/teacher/protocols/registry.cpp",
            "pipeline/teacher/protocols/kserve/parse.cpp",
            "pipeline/teacher/protocols/kserve.cpp",
            "server/teacher/kserve_codec.cpp",
            "tests/unit/a.cpp",
        ]:
            self.accept(path, "TeacherProtocol::kserve\n")
        self.accept("pipeline/teacher/probe/endpoint_probe.cpp", "// as kserve does\n")
        self.accept("docs/teacher-protocols.md", "kserve\n")


class FamilyRuleCanFail(unittest.TestCase):
    TABLE: ClassVar = {
        FAMILY_TABLE: """
    {"llama", parse_llama, write_llama, kLlamaNames},
    {"tower", parse_tower, write_tower, kTowerNames, kTowerFields},
"""
    }

    def test_the_table_is_found(self):
        self.assertEqual(family_names(self.TABLE), ["llama", "tower"])

    def test_a_name_elsewhere_is_found(self):
        found = list(family_names_rule({**self.TABLE, "models/network/a.cpp": '\nif (type == "tower") {\n'}))
        self.assertEqual(found, ["models/network/a.cpp:2: names the model_type tower"])
        for path in ["models/families/tower.cpp", "tests/unit/a.cpp", "README.md"]:
            self.assertEqual(list(family_names_rule({**self.TABLE, path: '"tower"'})), [], path)
        self.assertEqual(list(family_names_rule({**self.TABLE, "api/a.cpp": '"llama3"'})), [])


class Repository(unittest.TestCase):
    def test_keeps_the_rules(self):
        cpp = [path for path in tree.files() if path.endswith((".hpp", ".cpp"))]
        files = {path: (tree.ROOT / path).read_text(encoding="utf-8") for path in cpp}
        self.assertGreaterEqual(len(protocol_names(files)), 2, "the table of protocol names was not found")
        self.assertIn("llama", family_names(files), "the table of families was not found")
        broken = [message for rule in RULES for message in rule(files)]
        self.assertEqual(broken, [], "\n" + "\n".join(broken))


if __name__ == "__main__":
    sys.exit(unittest.main())
