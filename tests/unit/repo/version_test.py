"""The version stands in CMakeLists.txt; what cannot take it from there says the same."""

import re
import unittest

import tree

NUMBER = r"\d+\.\d+\.\d+"


def project_version(files):
    return re.search(rf"^project\(distilld VERSION ({NUMBER})\b", files["CMakeLists.txt"], re.MULTILINE).group(1)


def version_rule(files):
    version = project_version(files)
    contract = re.search(r"^info:\n(?:  .*\n)*?  version: (\S+)$", files["api/openapi.yaml"], re.MULTILINE)
    if contract is None or contract.group(1) != version:
        yield f"api/openapi.yaml: info.version is not {version}"
    headings = re.findall(r"^## (.+)$", files["CHANGELOG.md"], re.MULTILINE)
    if headings[:1] != ["Unreleased"] and headings[:1] != [version]:
        yield f"CHANGELOG.md: begins with '{headings[:1]}', neither with Unreleased nor with {version}"
    if version not in headings:
        yield f"CHANGELOG.md: has no section {version}"
    for path, text in files.items():
        if path.endswith((".cpp", ".hpp", ".cmake", ".sh", ".service.in")) and not path.startswith("tests/"):
            for match in re.finditer(rf"[\"' /-]v?{re.escape(version)}[\"' \n]", text):
                yield f"{path}:{text.count(chr(10), 0, match.start()) + 1}: names the version {version}"


MADE_UP = {
    "CMakeLists.txt": "cmake_minimum_required(VERSION 3.25)\nproject(distilld VERSION 1.2.3 LANGUAGES CXX)\n",
    "api/openapi.yaml": "openapi: 3.1.0\ninfo:\n  title: distilld\n  version: 1.2.3\n",
    "CHANGELOG.md": "# Changelog\n\n## Unreleased\n\n## 1.2.3\n",
}


class RuleCanFail(unittest.TestCase):
    def test_each(self):
        self.assertEqual(list(version_rule(MADE_UP)), [])
        for path, text in [
            ("api/openapi.yaml", "info:\n  title: distilld\n  version: 1.2.2\n"),
            ("CHANGELOG.md", "## Unreleased\n\n## 1.2.2\n"),
            ("CHANGELOG.md", "## Next\n\n## 1.2.3\n"),
            ("scripts/package.sh", 'name="distilld-1.2.3"\nversion="1.2.3"\n'),
        ]:
            self.assertEqual(len(list(version_rule({**MADE_UP, path: text}))), 1 if path != "scripts/package.sh" else 2)


class Repository(unittest.TestCase):
    def test_one_version(self):
        files = {}
        for path in tree.files():
            try:
                files[path] = (tree.ROOT / path).read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue
        broken = list(version_rule(files))
        self.assertEqual(broken, [], "\n" + "\n".join(broken))


if __name__ == "__main__":
    unittest.main()
