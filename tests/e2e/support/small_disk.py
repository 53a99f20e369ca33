"""A file system of its own that a test can fill up."""

import contextlib
import os
import subprocess

import pytest


@contextlib.contextmanager
def small_disk_at(folder, megabytes):
    """Mounts one; the test is skipped where that is not allowed."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(folder, left=0):
    """A file that leaves no space, or so many bytes."""
    name = folder / "ballast"
    with open(name, "ab", buffering=0) as ballast, contextlib.suppress(OSError):
        while True:
            ballast.write(bytes(4096))
    os.truncate(name, name.stat().st_size - left)
    return name
