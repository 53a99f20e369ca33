"""Several ranks with a teacher in the process: one copy per host, and the bits of one rank (docs/ranks.md)."""

import os
import signal
import socket

import pytest
from support import jobs
from support.processes import children_of, wait_until

STEPS = 6
# What the ranks ask for, as fields of the teacher.
TARGETS = {"top_k": {"top_k": 16}, "hidden": {"targets": "hidden"}, "logits": {"targets": "logits"}}


def spec_of(data, output, teacher, targets, **training):
    """A job with the teacher of a folder; `training` changes that section."""
    spec = jobs.changed(
        jobs.base_spec(data, output, STEPS),
        {
            "/teacher": {"model_dir": str(teacher), "dtype": "fp32", "threads": 1, **TARGETS[targets]},
            "/training/gradient_groups": 4,
            "/training/replicas": 1,
        },
    )
    spec["training"].update(training)
    return spec


def hash_of(folder):
    return jobs.sha256(folder / "model.safetensors")


@pytest.fixture(scope="module")
def alone(distilld_session, text_data, teacher_folder, tmp_path_factory):
    """The hashes of one rank's students, by what the teacher sends."""
    folder = tmp_path_factory.mktemp("alone")
    for targets in TARGETS:
        spec = spec_of(text_data, folder / targets, teacher_folder, targets)
        distilld_session.run("run", jobs.write_spec(folder / f"{targets}.json", spec))
    return {targets: hash_of(folder / targets) for targets in TARGETS}


@pytest.mark.parametrize(
    ("placement", "targets", "ranks"),
    [
        ("rank0", "top_k", 4),
        ("rank0", "hidden", 2),
        ("rank0", "logits", 2),
        ("cpu", "hidden", 4),
        ("balanced", "top_k", 2),
        ("shared", "hidden", 2),
        ("duplicated", "top_k", 2),
        ("duplicated", "hidden", 1),
    ],
)
def test_the_student_is_that_of_one_rank(
    distilld, text_data, teacher_folder, alone, tmp_path, placement, targets, ranks
):
    spec = spec_of(text_data, tmp_path / "student", teacher_folder, targets, ranks=ranks)
    spec["teacher"]["placement"] = placement
    run = distilld.run("run", jobs.write_spec(tmp_path / "spec.json", spec))
    assert hash_of(tmp_path / "student") == alone[targets], run.describe()


def test_only_one_rank_of_a_host_loads_the_model(distilld, text_data, teacher_folder, alone, tmp_path):
    """The other one could not: its folder is empty."""
    (tmp_path / "nothing").mkdir()
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        place = {"PET_NNODES": "2", "PET_NPROC_PER_NODE": "1", "PET_MASTER_ADDR": "127.0.0.1"}
        place["PET_MASTER_PORT"] = str(held.getsockname()[1])
        for placement, code in (("rank0", 0), ("duplicated", 1)):
            ranks = []
            for rank, folder in enumerate((teacher_folder, tmp_path / "nothing")):
                spec = spec_of(text_data, tmp_path / placement, folder, "hidden")
                spec["teacher"]["placement"] = placement
                file = jobs.write_spec(tmp_path / f"{placement}-{rank}.json", spec)
                ranks.append(distilld.start("run", file, env={**place, "PET_NODE_RANK": str(rank)}))
            for rank in ranks:
                rank.expect(code)
    assert hash_of(tmp_path / "rank0") == alone["hidden"]
    assert str(tmp_path / "nothing") in ranks[1].err, ranks[1].describe()


@pytest.mark.parametrize("started", [0, 1])  # the last one is rank 0, which answers the other
def test_a_run_goes_on_when_a_rank_was_killed(distilld, text_data, teacher_folder, alone, tmp_path, started):
    spec = spec_of(text_data, tmp_path / "student", teacher_folder, "top_k", ranks=2)
    spec["checkpoint"] = {"every_steps": 1}
    run = distilld.start("run", jobs.write_spec(tmp_path / "spec.json", spec))
    workers = sorted(run.workers(2))
    wait_until(lambda: list((tmp_path / "student" / "checkpoints").glob("step-*")), "a checkpoint")
    os.kill(workers[started], signal.SIGKILL)
    wait_until(lambda: run.code is not None or not set(workers) & set(children_of(run.pid)), "the end of both workers")
    run.expect(0)
    assert hash_of(tmp_path / "student") == alone["top_k"]
    assert "rank " in run.out + run.err, "the message names the lost rank"


def test_an_interrupted_run_ends_and_goes_on(distilld, text_data, teacher_folder, alone, tmp_path):
    spec = spec_of(text_data, tmp_path / "student", teacher_folder, "top_k", ranks=2)
    spec["checkpoint"] = {"every_steps": 1}
    file = jobs.write_spec(tmp_path / "spec.json", spec)
    run = distilld.start("run", file)
    wait_until(lambda: list((tmp_path / "student" / "checkpoints").glob("step-*")), "a checkpoint")
    run.send(signal.SIGINT)
    assert run.wait() in (0, 130), run.describe()
    distilld.run("run", file, "--resume", "--set", "training.ranks=4", "--set", "teacher.placement=duplicated")
    assert hash_of(tmp_path / "student") == alone["top_k"]
