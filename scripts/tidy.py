#!/usr/bin/env python3
"""Runs clang-tidy over translation units, several at a time, and remembers what passed.

    tidy.py BUILD_DIR [--checks LIST] [--only-with REGEX] [FILE…]

BUILD_DIR holds compile_commands.json. Without files: all of the repository's. A header stands for a file that includes
it, and a source that is compiled in a batch stands for the batch. What passed is not looked at again until it, a file
of ours that it includes, the settings or the compiler's command change. Exit code 1 if anything was found.
scripts/lint.sh calls it.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = "clang-tidy-19"
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


class Units:
    """The translation units of a build folder, by path from the root: sources, and CMake's batches of them."""

    def __init__(self, build):
        self.commands = {}
        for entry in json.loads((build / "compile_commands.json").read_text()):
            path = pathlib.Path(entry["directory"], entry["file"]).resolve()
            ours = not path.is_relative_to(build) or path.parent.name == "Unity"
            if path.is_relative_to(ROOT) and ours and "cmake" not in path.parts:
                command = entry.get("command") or " ".join(entry["arguments"])
                self.commands[str(path.relative_to(ROOT))] = command.replace(str(ROOT), "")
        self._closures = {}

    @staticmethod
    def text(path):
        """The file's text, with paths from the root: batches include their sources by absolute paths."""
        return (ROOT / path).read_text().replace(f"{ROOT}/", "")

    def closure(self, path):
        """The file and all files of ours that it includes, which are written from the root."""
        if path not in self._closures:
            seen, todo = set(), [path]
            while todo:
                name = todo.pop()
                file = ROOT / name
                if name not in seen and file.is_file():
                    seen.add(name)
                    todo += INCLUDE.findall(self.text(name))
            self._closures[path] = sorted(seen)
        return self._closures[path]

    def sources(self, unit):
        """The unit's sources: itself, or those of a batch."""
        return [path for path in self.closure(unit) if path.endswith(".cpp")]

    def for_file(self, path):
        """The unit that shows what is in the file: itself, its own .cpp, or one that includes it; None for none."""
        if path in self.commands:
            return path
        own = str(pathlib.PurePath(path).with_suffix(".cpp"))
        if own in self.commands:
            return own
        return next((unit for unit in self.commands if path in self.closure(unit)), None)

    def key(self, unit, settings):
        digest = hashlib.sha256("\0".join([*settings, self.commands[unit]]).encode())
        for path in self.closure(unit):
            digest.update(self.text(path).encode())
        return digest.hexdigest()


def folder_of_passed(build):
    if shutil.which("ccache") is None:
        return build / "tidy"
    asked = ["ccache", "--get-config", "cache_dir"]
    return pathlib.Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip(), "tidy")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--checks", default="")
    parser.add_argument("--only-with", type=re.compile)
    parser.add_argument("files", nargs="*")
    arguments = parser.parse_intermixed_args()
    build = arguments.build.resolve()
    units = Units(build)
    if not units.commands:
        sys.exit(f"tidy: {build}/compile_commands.json names no file of the repository")
    chosen, left_out = set(), []
    for path in arguments.files or units.commands:
        unit = units.for_file(path)
        if unit is None:
            left_out.append(path)
        else:
            chosen.add(unit)
    if arguments.only_with:
        has = arguments.only_with.search
        chosen = {unit for unit in chosen if any(has(units.text(path)) for path in units.sources(unit))}

    version = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True).stdout
    configs = [ROOT / ".clang-tidy", *sorted(ROOT.glob("*/.clang-tidy"))]
    settings = [version, *(config.read_text() for config in configs), arguments.checks]
    passed = folder_of_passed(build)
    passed.mkdir(parents=True, exist_ok=True)
    command = [PROGRAM, "-p", build, "--quiet", *([f"--checks={arguments.checks}"] if arguments.checks else [])]

    def check(unit):
        stamp = passed / units.key(unit, settings)
        if stamp.exists():
            return "", False
        done = subprocess.run([*command, unit], cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            stamp.touch()
            return "", True
        return done.stdout + (done.stderr if not done.stdout else ""), True

    # The longest ones first, so that none is left to run alone at the end.
    order = sorted(chosen, key=lambda unit: -sum((ROOT / path).stat().st_size for path in units.closure(unit)))
    bad = looked_at = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for found, ran in pool.map(check, order):
            looked_at += ran
            if found:
                bad += 1
                print(found, end="")
    without = f"; not part of this build: {' '.join(left_out)}" if left_out else ""
    print(f"clang-tidy: {len(order)} translation units, {looked_at} checked again, {bad} with findings{without}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
