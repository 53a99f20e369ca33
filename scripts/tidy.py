#!/usr/bin/env python3
"""Runs clang-tidy over translation units, several at a time, and remembers what passed.

    tidy.py BUILD_DIR [--checks LIST] [--only-with REGEX] [--batch N] [FILE…]

BUILD_DIR holds compile_commands.json. Without files: all of the repository's. A header stands for a file that includes
it. What passed is not looked at again until it, a file of ours that it includes, the settings or the compiler's command
change. Exit code 1 if anything was found. scripts/lint.sh calls it.

--batch: up to N sources with the same options in one run, which parses the headers of libraries once. The settings are
those of the root. The sources of a batch with findings are looked at again, each alone: two may only define the same
name.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = "clang-tidy-19"
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
MAIN = re.compile(r"^int main\(", re.MULTILINE)


class Units:
    """The translation units of a build folder, by path from the root."""

    def __init__(self, build):
        self.commands = {}
        for entry in json.loads((build / "compile_commands.json").read_text()):
            path = pathlib.Path(entry["directory"], entry["file"]).resolve()
            if path.is_relative_to(ROOT) and not path.is_relative_to(build) and "cmake" not in path.parts:
                command = entry.get("command") or shlex.join(entry["arguments"])
                self.commands[str(path.relative_to(ROOT))] = command
        self._closures = {}

    @staticmethod
    def text(path):
        return (ROOT / path).read_text()

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

    def options(self, unit):
        """The compiler's options, without its own path, a cache's, the source and the object."""
        words = shlex.split(self.commands[unit])
        compiler = next(at for at, word in enumerate(words) if not word.endswith("ccache"))
        output = words.index("-o")
        left_out = ("-c", str(ROOT / unit))
        return tuple(word for word in words[compiler + 1 : output] + words[output + 2 :] if word not in left_out)

    def batches(self, units, most):
        """Lists of up to `most` units with the same options. Programs stay alone, because of main."""
        batches, last = [], {}
        for unit in sorted(units):
            kind = (self.options(unit), unit if MAIN.search(self.text(unit)) else None)
            batch = last.get(kind)
            if batch is None or len(batch) == most:
                batch = last[kind] = []
                batches.append(batch)
            batch.append(unit)
        return batches

    def for_file(self, path):
        """The unit that shows what is in the file: itself, its own .cpp, or one that includes it; None for none."""
        if path in self.commands:
            return path
        own = str(pathlib.PurePath(path).with_suffix(".cpp"))
        if own in self.commands:
            return own
        return next((unit for unit in self.commands if path in self.closure(unit)), None)

    def key(self, unit, settings):
        command = self.commands[unit].replace(str(ROOT), "")
        digest = hashlib.sha256("\0".join([*settings, command]).encode())
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
    parser.add_argument("--batch", type=int, default=1)
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
        chosen = {unit for unit in chosen if arguments.only_with.search(units.text(unit))}

    version = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True).stdout
    configs = [ROOT / ".clang-tidy", *sorted(ROOT.glob("*/.clang-tidy"))]
    settings = [version, *(config.read_text() for config in configs), arguments.checks]
    passed = folder_of_passed(build)
    passed.mkdir(parents=True, exist_ok=True)
    stamps = {unit: passed / units.key(unit, settings) for unit in chosen}
    checks = [f"--checks={arguments.checks}"] if arguments.checks else []

    def check(batch):
        """What clang-tidy found, by source."""
        # In the build folder, because clang-tidy reads the settings of the folders above a source.
        with tempfile.NamedTemporaryFile("w", suffix=".cpp", dir=build) as together:
            source = batch[0]
            if len(batch) > 1:
                together.write("".join(f'#include "{ROOT / unit}"\n' for unit in batch))
                together.flush()
                source = together.name
            done = subprocess.run(
                [PROGRAM, "--quiet", *checks, source, "--", *units.options(batch[0])],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
            )
        if done.returncode == 0:
            for unit in batch:
                stamps[unit].touch()
            return {}
        if len(batch) == 1:
            return {batch[0]: done.stdout or done.stderr}
        found = {name: text for unit in batch for name, text in check([unit]).items()}
        if not found:
            reason = next((line for line in done.stdout.splitlines() if "error:" in line), "")
            print(f"clang-tidy: {len(batch)} sources took longer, because they cannot share a batch: {reason}")
        return found

    todo = [unit for unit in chosen if not stamps[unit].exists()]

    def work(batch):
        return sum((ROOT / path).stat().st_size for path in {path for unit in batch for path in units.closure(unit)})

    # The longest ones first, so that none is left to run alone at the end.
    order = sorted(units.batches(todo, arguments.batch), key=work, reverse=True)
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for found in pool.map(check, order):
            bad += len(found)
            print("".join(found.values()), end="")
    without = f"; not part of this build: {' '.join(left_out)}" if left_out else ""
    print(f"clang-tidy: {len(chosen)} translation units, {len(todo)} checked again, {bad} with findings{without}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
