"""The files of the repository."""

import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[3]
LEFT_OUT = {".git", ".deps", "node_modules", ".quickstart", ".whl", "build", "__pycache__", ".pytest_cache"}


def files():
    """Paths relative to the root: what git tracks, or all there is where this is no git checkout."""
    listing = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, check=False
    )
    if listing.returncode == 0:
        paths = [pathlib.PurePosixPath(name) for name in listing.stdout.decode().split("\0") if name]
    else:
        paths = [
            pathlib.PurePosixPath(path.relative_to(ROOT).as_posix())
            for path in ROOT.rglob("*")
            if not LEFT_OUT.intersection(path.relative_to(ROOT).parts)
        ]
    return sorted(str(path) for path in paths if (ROOT / path).is_file())
