"""Fixtures of the end-to-end tests. DISTILLD_BIN_DIR names the folder of the programs (default build/release/bin)."""

import os
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def programs():
    folder = pathlib.Path(os.environ.get("DISTILLD_BIN_DIR", ROOT / "build" / "release" / "bin"))
    if not folder.is_dir():
        pytest.fail(f"{folder} is no folder: build first, or set DISTILLD_BIN_DIR")
    return folder
