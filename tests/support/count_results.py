"""Counts what scripts/test.sh left in its folder of results; prints a table and "N passed, N failed".

Of a program that ctest ran, its GoogleTest cases count; of any other, the program itself. A program that ctest calls
failed although none of its cases is (a crash, a sanitizer's report at the end) counts as one failure. Exit code 0 only
if something passed and nothing failed.
"""

import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree


class Count:
    def __init__(self):
        self.passed = 0
        self.failed = 0
        self.skipped = 0
        self.failures = []

    def add(self, outcome, name):
        if outcome == "failed":
            self.failed += 1
            self.failures.append(name)
        elif outcome == "skipped":
            self.skipped += 1
        else:
            self.passed += 1

    def merge(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.failures += other.failures


def outcome_of(case):
    """passed, failed or skipped of one <testcase> of GoogleTest, ctest or pytest."""
    status = case.get("status", "")
    if case.find("failure") is not None or case.find("error") is not None or status == "fail":
        return "failed"
    if case.find("skipped") is not None or status in ("notrun", "disabled") or case.get("result") == "skipped":
        return "skipped"
    return "passed"


def count_cases(file):
    count = Count()
    for case in ElementTree.parse(file).getroot().iter("testcase"):
        count.add(outcome_of(case), f"{case.get('classname')}.{case.get('name')}")
    return count


def last_words(case):
    """When and in which case a program died, and what a sanitizer or the system said about that."""
    output = case.findtext("system-out") or ""
    begun = re.findall(r"^\[ RUN      \] (.*)$", output, re.MULTILINE)[-1:]
    said = re.findall(r"^(?:SUMMARY: .*|terminate called .*|.*: Assertion .*)$", output, re.MULTILINE)[:1]
    words = [f"after {float(case.get('time')):.0f} s"] + [f"in {name}" for name in begun] + said
    return "".join(f", {word}" for word in words)


def count_phase(folder):
    count = Count()
    for file in sorted(folder.glob("broken.txt")):
        count.add("failed", file.read_text().strip())
    for _ in folder.glob("passed.txt"):
        count.add("passed", folder.name)
    for file in sorted(folder.glob("pytest*.xml")):
        count.merge(count_cases(file))
    if not (folder / "ctest.xml").exists():
        if (folder / "cases").exists():
            count.add("failed", "ctest left no results")
        return count
    by_program = {}
    for file in sorted((folder / "cases").glob("*.xml")):
        program = file.stem
        try:
            cases = count_cases(file)
        except ElementTree.ParseError:
            continue  # the program died while it wrote
        # A program that is started twice writes name.xml and name_1.xml.
        trunk, _, number = program.rpartition("_")
        program = trunk if number.isdigit() and trunk in by_program else program
        by_program.setdefault(program, Count()).merge(cases)
    for case in ElementTree.parse(folder / "ctest.xml").getroot().iter("testcase"):
        name, outcome = case.get("name"), outcome_of(case)
        cases = by_program.pop(name, None)
        if cases is None:
            count.add(outcome, f"{name}{last_words(case)}" if outcome == "failed" else name)
            continue
        count.merge(cases)
        if outcome == "failed" and cases.failed == 0:
            count.add("failed", f"{name} (its cases passed, the program failed)")
    for cases in by_program.values():
        count.merge(cases)
    return count


def main(folder):
    total = Count()
    for phase in sorted((path for path in folder.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime):
        count = count_phase(phase)
        skipped = f", {count.skipped} skipped" if count.skipped else ""
        print(f"{phase.name:8} {count.passed} passed, {count.failed} failed{skipped}")
        for failure in count.failures:
            print(f"    failed: {failure}")
        total.merge(count)
    print(f"{total.passed} passed, {total.failed} failed")
    return 0 if total.failed == 0 and total.passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
