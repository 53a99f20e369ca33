"""Fixtures of the end-to-end tests. DISTILLD_BIN_DIR names the folder of the programs (default build/release/bin)."""

import os
import pathlib
import socket

import pytest
from support import jobs
from support.processes import Programs
from support.rest import Rest
from support.slurm_cluster import SlurmCluster, missing

# distilld sets this for its workers. Without it the threads of transformers and of the probes burn the cores while they
# wait for each other (docs/decisions/0004). Set before anybody imports torch, which reads it once.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def pytest_configure(config):
    config.addinivalue_line("markers", "timing: asserts wall time, so it runs before all others and alone")


# These take longest (a minute or more of waiting or of computing), so they are begun first: scripts/test.sh gives each
# process of pytest whole files, and none is to compute alone at the end.
LONGEST = (
    "test_determinism.py",
    "test_resume_table.py",
    "test_network_parity.py",
    "test_out_of_memory.py",
    "test_quickstart.py",
    "test_docs.py",
    "test_page.py",
    "test_bench.py",
    "test_first_hour.py",
    "test_schemathesis.py",
    "test_generate.py",
    "test_crash_points.py",
    "test_dry_run.py",
    "test_grafana.py",
    "test_checkpoints.py",
    "test_training_choices.py",
    "test_slots.py",
    "test_evaluation.py",
    "test_generate_nodes.py",
    "test_lora.py",
    "test_ranks.py",
)


def pytest_collection_modifyitems(items):
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.name, len(place)))
    no_slurm = missing()
    for item in items:
        if no_slurm and "cluster" in item.fixturenames:  # before its other fixtures are made
            item.add_marker(pytest.mark.skip(reason=no_slurm))


@pytest.fixture(autouse=True)
def cpu_seconds(record_property):
    """CPU-seconds of the test and of the programs that ended during it, for build/test-results/phases.json."""
    before = os.times()
    yield
    after = os.times()
    record_property("cpu_seconds", round(sum(after[:4]) - sum(before[:4]), 1))


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


@pytest.fixture(scope="module")
def cluster(request, tmp_path_factory):
    """A Slurm with two virtual nodes on this machine, of the module, with its CLUSTER settings."""
    started = SlurmCluster(tmp_path_factory.mktemp("slurm") / "cluster", **getattr(request.module, "CLUSTER", {}))
    yield started
    started.stop()


@pytest.fixture
def port():
    """A port that nobody listens on, held until the test ends; whoever listens with SO_REUSEADDR may take it."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]
