"""Names that belong to one room stand in their name table and there, nowhere else: whoever writes `if protocol is …`
elsewhere has made a second place to edit for the next one.

The rules are functions over {path: text} as in include_rules_test.py, with tests that show that they can fail.
"""

import re
import sys
import unittest

import tree
from include_rules_test import cpp_files, line_of, without_comments

PROTOCOL_TABLE = "pipeline/core/teacher_protocol.hpp"
PROTOCOLS = "pipeline/teacher/protocols/"
# Where protocols may be named: their table, the registry, servers that speak them, tests.
PROTOCOL_ROOMS = (
    PROTOCOL_TABLE,
    PROTOCOLS + "registry.cpp",
    "server/teacher/",
    "bench/loopback_teacher.cpp",
    "tests/",
)
# Words that mean something else as well (that of a random number): only what can mean the protocol alone counts.
AMBIGUOUS = {"seed"}


def protocol_names(files):
    return re.findall(r'TeacherProtocolName\{"(\w+)"', files.get(PROTOCOL_TABLE, ""))


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


RULES = [protocol_names_rule]


class RulesCanFail(unittest.TestCase):
    TABLE = {PROTOCOL_TABLE: 'TeacherProtocolName{"kserve", 0},\nTeacherProtocolName{"seed", 1},\n'}

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
            for path in ["pipeline/teacher/endpoint_probe.cpp", "api/spec_names.hpp", "bench/scenario.cpp"]:
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
        self.accept("pipeline/teacher/endpoint_probe.cpp", "// as kserve does\n")
        self.accept("docs/teacher-protocols.md", "kserve\n")


class Repository(unittest.TestCase):
    def test_keeps_the_rules(self):
        cpp = [path for path in tree.files() if path.endswith((".hpp", ".cpp"))]
        files = {path: (tree.ROOT / path).read_text(encoding="utf-8") for path in cpp}
        self.assertGreaterEqual(len(protocol_names(files)), 2, "the table of protocol names was not found")
        broken = [message for rule in RULES for message in rule(files)]
        self.assertEqual(broken, [], "\n" + "\n".join(broken))


if __name__ == "__main__":
    sys.exit(unittest.main())
