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
    # One process for all: its start takes longer than a file.
    checked = subprocess.run(
        [program, "--dry-run", "--Werror", *sources], cwd=tree.ROOT, capture_output=True, text=True, check=False
    )
    print(checked.stderr, end="")
    print(f"{len(sources)} files" + ("; scripts/lint.sh --fix formats them" if checked.returncode else ""))
    return checked.returncode


if __name__ == "__main__":
    sys.exit(main())
