"""All C++ is as clang-format 19 leaves it. Skipped (exit code 77) where that program is missing."""

import shutil
import subprocess
import sys

import tree


def main():
    program = shutil.which("clang-format-19")
    if program is None:
        print("skipped: clang-format-19 is not installed")
        return 77
    sources = [path for path in tree.files() if path.endswith((".hpp", ".cpp"))]
    if not sources:
        print("no C++ files were found")
        return 1
    bad = [
        path
        for path in sources
        if subprocess.run([program, "--dry-run", "--Werror", path], cwd=tree.ROOT, capture_output=True).returncode != 0
    ]
    for path in bad:
        print(f"{path}: not formatted; run: clang-format-19 -i {path}")
    print(f"{len(sources)} files, {len(bad)} not formatted")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
