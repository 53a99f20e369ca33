"""Turns phases.tsv, which scripts/test.sh left in its folder of results, into phases.json, and prints it as a table.

phases.json has the wall-clock seconds of each phase and of the whole ("all": less than their sum, because some run at
the same time), the CPU-seconds of each ("cpu_seconds"), the ten tests that took longest ("slowest_tests"), and the ten
end-to-end tests with most CPU-seconds ("costliest_tests").
"""

import json
import pathlib
import sys
import xml.etree.ElementTree as ElementTree

SLOWEST_COUNT = 10


def test_seconds(folder):
    """(seconds, CPU-seconds or 0, phase, name) of every test case that left its result as XML."""
    for file in [*folder.glob("*/pytest*.xml"), *folder.glob("*/cases/*.xml")]:
        try:
            root = ElementTree.parse(file).getroot()
        except ElementTree.ParseError:
            continue  # the program died while it wrote
        phase = file.relative_to(folder).parts[0]
        for case in root.iter("testcase"):
            cpu = case.find("./properties/property[@name='cpu_seconds']")
            name = f"{case.get('classname')}.{case.get('name')}"
            yield float(case.get("time") or 0), float(cpu.get("value")) if cpu is not None else 0.0, phase, name


def main(folder):
    rows = [line.split("\t") for line in (folder / "phases.tsv").read_text().splitlines()]
    wall = {name: int(seconds) for name, seconds, _ in rows}
    cpu = {name: round(float(seconds)) for name, _, seconds in rows}
    cpu["all"] = sum(cpu.values())
    tests = list(test_seconds(folder))
    slowest = sorted(tests, reverse=True)[:SLOWEST_COUNT]
    costliest = sorted((test for test in tests if test[1] > 0), key=lambda test: -test[1])[:SLOWEST_COUNT]
    phases = {
        **wall,
        "cpu_seconds": cpu,
        "slowest_tests": [{"seconds": round(s, 1), "phase": phase, "test": name} for s, _, phase, name in slowest],
        "costliest_tests": [{"cpu_seconds": s, "phase": phase, "test": name} for _, s, phase, name in costliest],
    }
    (folder / "phases.json").write_text(json.dumps(phases, indent=1) + "\n")
    (folder / "phases.tsv").unlink()
    for name, seconds in wall.items():
        print(f"{name:24} {seconds // 60:3} min {seconds % 60:02} s  {cpu[name]:6} CPU-seconds")
    print("the slowest tests:")
    for test in phases["slowest_tests"]:
        print(f"{test['seconds']:8} s  {test['phase']}: {test['test']}")
    print("the tests with most CPU-seconds:")
    for test in phases["costliest_tests"]:
        print(f"{test['cpu_seconds']:8} CPU-seconds  {test['phase']}: {test['test']}")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
