"""A name that stands for something people add has one place: the row of its table, and the files that the row names.

Elsewhere the program must ask the table, or a row would not be enough to add one.
"""

import re
import sys
import unittest

import tree

FAMILY_TABLE = "models/families/model_family.cpp"
FAMILY_ROW = re.compile(r'^    \{"(\w+)", parse_\w+, write_\w+, k\w+\},$', re.MULTILINE)
# The families' own folder, and what is not the program: tests, examples and documentation show real files.
FAMILY_FOLDER = "models/families/"
CODE_FOLDERS = ("api/", "base/", "bench/", "models/", "pipeline/", "server/")


def families(files):
    """The model_types of the table."""
    return FAMILY_ROW.findall(files[FAMILY_TABLE])


def family_names_elsewhere(files):
    """Lines of the program that name a model_type outside the families' folder."""
    pattern = re.compile('"(' + "|".join(families(files)) + ')"')
    for path, text in files.items():
        if not path.startswith(CODE_FOLDERS) or path.startswith(FAMILY_FOLDER) or not path.endswith((".cpp", ".hpp")):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if pattern.search(line):
                yield f"{path}:{number}: names a model_type; ask models/families"


class Families(unittest.TestCase):
    TABLE = """
    {"llama", parse_llama, write_llama, kLlamaNames},
    {"tower", parse_tower, write_tower, kTowerNames},
"""

    def test_the_table_is_found(self):
        self.assertEqual(families({FAMILY_TABLE: self.TABLE}), ["llama", "tower"])

    def test_a_name_elsewhere_is_found(self):
        files = {FAMILY_TABLE: self.TABLE, "models/network/a.cpp": '\nif (type == "tower") {\n'}
        self.assertEqual(len(list(family_names_elsewhere(files))), 1)
        for path in ["models/families/tower.cpp", "tests/unit/a.cpp", "README.md"]:
            files = {FAMILY_TABLE: self.TABLE, path: '"tower"'}
            self.assertEqual(list(family_names_elsewhere(files)), [], path)
        self.assertEqual(list(family_names_elsewhere({FAMILY_TABLE: self.TABLE, "api/a.cpp": '"llama3"'})), [])

    def test_the_repository(self):
        files = read_texts()
        self.assertIn("llama", families(files))
        self.assertEqual(list(family_names_elsewhere(files)), [])


def read_texts():
    sources = [path for path in tree.files() if path.endswith((".cpp", ".hpp"))]
    return {path: (tree.ROOT / path).read_text(encoding="utf-8") for path in sources}


if __name__ == "__main__":
    sys.exit(unittest.main())
