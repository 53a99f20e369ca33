"""Turns phases.tsv, which scripts/test.sh left in its folder of results, into phases.json, and prints it as a table.

phases.json has the wall-clock seconds of each phase and their sum ("all"), the CPU-seconds of each ("cpu_seconds"), and
the ten tests that took longest ("slowest_tests").
"""

import json
import pathlib
import sys
import xml.etree.ElementTree as ElementTree

SLOWEST_COUNT = 10


def test_seconds(folder):
    """(seconds, phase, name) of every test case that left its result as XML."""
    for file in [*folder.glob("*/pytest*.xml"), *folder.glob("*/cases/*.xml")]:
        try:
            root = ElementTree.parse(file).getroot()
        except ElementTree.ParseError:
            continue  # the program died while it wrote
        phase = file.relative_to(folder).parts[0]
        for case in root.iter("testcase"):
            yield float(case.get("time") or 0), phase, f"{case.get('classname')}.{case.get('name')}"


def main(folder):
    rows = [line.split("\t") for line in (folder / "phases.tsv").read_text().splitlines()]
    wall = {name: int(seconds) for name, seconds, _ in rows}
    slowest = sorted(test_seconds(folder), reverse=True)[:SLOWEST_COUNT]
    phases = {
        **wall,
        "all": sum(wall.values()),
        "cpu_seconds": {name: round(float(cpu)) for name, _, cpu in rows},
        "slowest_tests": [{"seconds": round(s, 1), "phase": phase, "test": name} for s, phase, name in slowest],
    }
    (folder / "phases.json").write_text(json.dumps(phases, indent=1) + "\n")
    (folder / "phases.tsv").unlink()
    for name, seconds in wall.items():
        print(f"{name:24} {seconds // 60:3} min {seconds % 60:02} s  {phases['cpu_seconds'][name]:6} CPU-seconds")
    print(f"{'all':24} {phases['all'] // 60:3} min {phases['all'] % 60:02} s")
    print("the slowest tests:")
    for test in phases["slowest_tests"]:
        print(f"{test['seconds']:8} s  {test['phase']}: {test['test']}")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
