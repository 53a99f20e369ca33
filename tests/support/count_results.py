"""Counts what scripts/test.sh left in its folder of results; prints a table and "N passed, N failed".

Of a program that ctest ran, its GoogleTest cases count; of any other, the program itself. A program that ctest calls
failed although none of its cases is (a crash, a sanitizer's report at the end) counts as one failure. Exit code 0 only
if something passed and nothing failed.
"""

import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

MAX_REPORTS = 2
MAX_REPORT_LINES = 60
MAX_REASON_LINES = 4  # of the start and of the end
MAX_REASON_WIDTH = 200


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


def reason(case):
    """The first and the last lines of what a failed case said."""
    said = next((part for kind in ("failure", "error") for part in case.findall(kind)), None)
    lines = [] if said is None else [line.strip() for line in said.get("message", "").splitlines() if line.strip()]
    kept = lines if len(lines) <= 2 * MAX_REASON_LINES else [*lines[:MAX_REASON_LINES], *lines[-MAX_REASON_LINES:]]
    return "".join(f"\n        {line[:MAX_REASON_WIDTH]}" for line in kept)


def count_cases(file):
    count = Count()
    for case in ElementTree.parse(file).getroot().iter("testcase"):
        count.add(outcome_of(case), f"{case.get('classname')}.{case.get('name')}{reason(case)}")
    return count


def last_words(output):
    """In which case a program died, and what the system said about that."""
    begun = re.findall(r"^\[ RUN      \] (.*)$", output, re.MULTILINE)[-1:]
    said = re.findall(r"^(?:terminate called .*|.*: Assertion .*)$", output, re.MULTILINE)[:1]
    return "".join(f", {word}" for word in [f"in {name}" for name in begun] + said)


def reports(output):
    """The first reports of sanitizers, each with the case that ran when it was written."""
    kept = []
    case, report = "no case", None
    for line in output.splitlines():
        if begun := re.match(r"\[ RUN      \] (.*)", line):
            case = begun[1]
        if re.search(r"(WARNING|ERROR|FATAL): \w+Sanitizer|runtime error: ", line):
            report = [f"in {case}: {line}"]
            kept.append(report)
        elif report is not None and len(report) < MAX_REPORT_LINES:
            report.append(line)
        if line.startswith("SUMMARY: "):
            report = None
    return "".join("\n        " + line for report in kept[:MAX_REPORTS] for line in report)


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
        output = case.findtext("system-out") or ""
        cases = by_program.pop(name, None)
        if cases is None:
            after = f", after {float(case.get('time')):.0f} s"
            count.add(outcome, f"{name}{after}{last_words(output)}{reports(output)}" if outcome == "failed" else name)
            continue
        count.merge(cases)
        if outcome == "failed" and cases.failed == 0:
            count.add("failed", f"{name} (its cases passed, the program failed){reports(output)}")
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
