"""Fixtures of the end-to-end tests. DISTILLD_BIN_DIR names the folder of the programs (default build/release/bin)."""

import os
import pathlib

import pytest
from support import jobs
from support.processes import Programs
from support.rest import Rest


def pytest_configure(config):
    config.addinivalue_line("markers", "timing: asserts wall time, so it runs before all others and alone")


ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def programs():
    folder = pathlib.Path(os.environ.get("DISTILLD_BIN_DIR", ROOT / "build" / "release" / "bin"))
    if not folder.is_dir():
        pytest.fail(f"{folder} is not a folder: build first, or set DISTILLD_BIN_DIR")
    return folder


@pytest.fixture(scope="session")
def distilld_session(programs, tmp_path_factory):
    """Starts programs that may live as long as the tests."""
    started = Programs(programs, tmp_path_factory.mktemp("logs"))
    yield started
    started.stop_all()


@pytest.fixture
def distilld(programs, tmp_path_factory):
    """Starts programs that end with the test."""
    started = Programs(programs, tmp_path_factory.mktemp("logs"))
    yield started
    started.stop_all()


@pytest.fixture(scope="session")
def text_data(tmp_path_factory):
    """A JSONL file of {"text"} lines."""
    return jobs.write_text_data(tmp_path_factory.mktemp("data") / "train.jsonl", 120)


@pytest.fixture(scope="session")
def teacher_folder(distilld_session, text_data, tmp_path_factory):
    """A model folder that `distilld run` made: drawn at random, trained for a few steps."""
    folder = tmp_path_factory.mktemp("teacher")
    spec = jobs.changed(
        jobs.base_spec(text_data, folder / "model", steps=30),
        {
            "/student/config": jobs.llama_config(48),
            "/training/batch_size": 8,
            "/training/micro_batches": 1,
            "/training/learning_rate": 5e-3,
            "/training/seed": 7,
        },
    )
    distilld_session.run("run", jobs.write_spec(folder / "spec.json", spec))
    return folder / "model"


@pytest.fixture(scope="session")
def teacher(distilld_session, teacher_folder):
    """A running `distilld teacher`; its `url` is the endpoint."""
    return distilld_session.teacher(teacher_folder, "--dtype", "fp32")


@pytest.fixture(scope="module")
def module_service(request, programs, tmp_path_factory):
    """A `distilld serve` of the module, four jobs at a time, with its SERVICE_FLAGS; `rest` is a client."""
    started = Programs(programs, tmp_path_factory.mktemp("logs"))
    flags = ["--slots", "4", "--slots-by", "none", *getattr(request.module, "SERVICE_FLAGS", [])]
    process = started.service(tmp_path_factory.mktemp("service"), *flags)
    process.rest = Rest(process.url)
    yield process
    started.stop_all()
