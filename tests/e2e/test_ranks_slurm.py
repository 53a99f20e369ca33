"""Ranks that Slurm starts: slurmctld and two virtual nodes on this machine."""

import pathlib

import pytest
from support import jobs
from test_ranks import hash_of, of

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "docker" / "slurm" / "distilld.sbatch"
# The names of virtual nodes have no addresses.
MEETING_POINT = {"MASTER_ADDR": "127.0.0.1"}


@pytest.fixture(scope="module")
def spec(text_data, teacher):
    made = jobs.distil_spec(text_data, "", teacher.url, steps=8)
    return jobs.changed(made, {"/training/gradient_groups": 2, "/training/replicas": 1})


@pytest.fixture(scope="module")
def alone(distilld_session, spec, tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    distilld_session.run("run", jobs.write_spec(folder / "spec.json", of(spec, folder / "student")))
    return hash_of(folder / "student")


def test_srun_starts_ranks_on_two_nodes(cluster, programs, spec, alone, tmp_path):
    file = jobs.write_spec(tmp_path / "spec.json", of(spec, tmp_path / "student"))
    said = cluster.run("srun", "-N2", "-n2", programs / "distilld", "run", file, env=MEETING_POINT)
    assert hash_of(tmp_path / "student") == alone
    assert said.count("weights sha256") == 1, "one rank reports"


def test_the_batch_script_starts_ranks(cluster, programs, spec, alone, tmp_path):
    file = jobs.write_spec(tmp_path / "spec.json", of(spec, tmp_path / "student"))
    log = tmp_path / "log"
    options = ["--wait", "--nodes=2", "--ntasks=2", "--cpus-per-task=1", "--mem=0", f"--output={log}"]
    environment = {**MEETING_POINT, "DISTILLD": str(programs / "distilld")}
    cluster.run("sbatch", *options, SCRIPT, file, env=environment)
    assert hash_of(tmp_path / "student") == alone, log.read_text()
