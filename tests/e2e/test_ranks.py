"""Several ranks train one student: one hash for every number of them, however they are started or lost.

The micro-batches' gradients form groups, so that each rank sums some (docs/ranks.md).
"""

import json
import os
import random
import signal
import sys
import time

import pytest
from support import jobs
from support.processes import children_of, wait_until

STEPS = 12
GROUPS = 4
# From the loss of a rank to the end of all; the rest is the start of the next workers.
NOTICED_SECONDS = 30


@pytest.fixture(scope="module")
def spec(text_data, teacher):
    made = jobs.distil_spec(text_data, "", teacher.url, STEPS)
    return jobs.changed(
        made,
        {
            "/student/config": jobs.llama_config(32),
            "/training/micro_batches": 8,
            "/training/gradient_groups": GROUPS,
            "/training/replicas": 1,
        },
    )


@pytest.fixture(scope="module")
def alone(distilld_session, spec, tmp_path_factory):
    """The hash of one rank's student."""
    folder = tmp_path_factory.mktemp("alone")
    distilld_session.run("run", jobs.write_spec(folder / "spec.json", of(spec, folder / "student")))
    return hash_of(folder / "student")


def of(spec, output, **training):
    return jobs.changed(
        spec, {"/output": str(output), **{f"/training/{name}": value for name, value in training.items()}}
    )


def hash_of(folder):
    return jobs.sha256(folder / "model.safetensors")


@pytest.mark.parametrize(
    ("ranks", "replicas", "shard"), [(2, 1, False), (4, 1, False), (2, 2, False), (1, 4, False), (4, 2, True)]
)
def test_ranks_and_replicas_give_the_bits_of_one(distilld, spec, alone, tmp_path, ranks, replicas, shard):
    changed = of(spec, tmp_path / "student", ranks=ranks, replicas=replicas, shard_optimizer=shard)
    file = jobs.write_spec(tmp_path / "spec.json", changed)
    run = distilld.run("run", file, "--report", tmp_path / "report.json")
    assert hash_of(tmp_path / "student") == alone
    tokens = json.loads((tmp_path / "report.json").read_text())["last"]["tokens"]
    assert tokens in jobs.trained_tokens(spec["dataset"]["train"], STEPS * 8 * 2), run.describe()


def test_ranks_fill_a_store(distilld, spec, tmp_path):
    hashes = []
    for ranks in (1, 2):
        folder = tmp_path / str(ranks)
        folder.mkdir()
        filled = jobs.changed(of(spec, folder / "student", ranks=ranks), {"/teacher/store": str(folder / "store")})
        distilld.run("run", jobs.write_spec(folder / "spec.json", filled))
        hashes.append(hash_of(folder / "student"))
        assert list((folder / "store").glob("**/*shard*")), "answers are kept"
    assert hashes[0] == hashes[1]


def test_torchrun_starts_ranks(distilld, spec, alone, programs, port, tmp_path):
    file = jobs.write_spec(tmp_path / "spec.json", of(spec, tmp_path / "student"))
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--no-python", "--rdzv-backend", "c10d"]
    launcher += ["--rdzv-endpoint", f"127.0.0.1:{port}", programs / "distilld"]
    started = distilld.start(*launcher, "run", file, program=sys.executable).expect(0)
    assert hash_of(tmp_path / "student") == alone
    assert started.out.count("weights sha256") == 1, "one rank reports"


def slurm_environment(rank, count, port):
    return {
        "SLURM_STEP_ID": "0",
        "SLURM_JOB_ID": "7",
        "SLURM_PROCID": str(rank),
        "SLURM_NTASKS": str(count),
        "SLURM_NNODES": "1",
        "SLURM_STEP_NODELIST": "localhost",
        "MASTER_PORT": str(port),
    }


def train_job_environment(rank, count, port):
    return {
        "PET_NODE_RANK": str(rank),
        "PET_NNODES": str(count),
        "PET_NPROC_PER_NODE": "1",
        "PET_MASTER_ADDR": "127.0.0.1",
        "PET_MASTER_PORT": str(port),
    }


@pytest.mark.parametrize("environment", [slurm_environment, train_job_environment])
def test_variables_of_a_launcher_make_ranks(distilld, spec, alone, port, tmp_path, environment):
    file = jobs.write_spec(tmp_path / "spec.json", of(spec, tmp_path / "student"))
    ranks = [distilld.start("run", file, env=environment(rank, 2, port)) for rank in (0, 1)]
    for rank in ranks:
        rank.expect(0)
    assert hash_of(tmp_path / "student") == alone
    assert "weights sha256" not in ranks[1].out


def test_a_job_of_the_service_goes_on_when_a_rank_was_killed(module_service, spec, alone, tmp_path):
    folder = tmp_path / "student"
    slow = jobs.changed(of(spec, folder, ranks=2), {"/checkpoint/every_steps": 2})
    job = module_service.rest.post("/v1/jobs", slow).json["id"]

    def after_a_checkpoint():
        return module_service.rest.job(job)["checkpoints"] or None

    wait_until(after_a_checkpoint, "the first checkpoint")
    workers = children_of(module_service.pid)
    if len(workers) == 2:  # else it has just ended
        os.kill(max(workers), signal.SIGKILL)
    assert list(module_service.rest.events(job))[-1][2]["state"] == "succeeded"
    assert hash_of(folder) == alone


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("started", [0, 1])  # the last one is rank 0
def test_a_run_goes_on_without_a_rank_that_is_lost(distilld, spec, alone, tmp_path, number, started):
    shard = number == signal.SIGKILL
    long = jobs.changed(of(spec, tmp_path / "student", ranks=2, shard_optimizer=shard), {"/checkpoint/every_steps": 1})
    run = distilld.start("run", jobs.write_spec(tmp_path / "spec.json", long))
    workers = sorted(run.workers(2))
    wait_until(lambda: list((tmp_path / "student" / "checkpoints").glob("step-*")), "a checkpoint")
    os.kill(workers[started], number)
    stopped = time.monotonic()
    wait_until(lambda: run.code is not None or not set(workers) & set(children_of(run.pid)), "the end of both workers")
    assert time.monotonic() - stopped < 2 * NOTICED_SECONDS, "a hang, whatever else the machine does"
    run.expect(0)
    assert hash_of(tmp_path / "student") == alone
    assert "rank " in run.out + run.err


def test_ranks_that_are_killed_again_and_again_lose_nothing(distilld, spec, tmp_path):
    """CI takes 2 points; DISTILLD_RANK_KILLS says how many, DISTILLD_RANK_SEED chooses others."""
    kills = int(os.environ.get("DISTILLD_RANK_KILLS", "2"))
    source = random.Random(int(os.environ.get("DISTILLD_RANK_SEED", "1")))
    # So many that the run outlasts the kills.
    long = jobs.changed(of(spec, tmp_path / "alone", max_steps=60 * kills), {"/checkpoint/every_steps": 1})
    distilld.run("run", jobs.write_spec(tmp_path / "alone.json", long))
    folder = tmp_path / "student"
    run = distilld.start("run", jobs.write_spec(tmp_path / "spec.json", of(long, folder, ranks=2)))

    def newest():
        steps = [int(entry.name.removeprefix("step-")) for entry in (folder / "checkpoints").glob("step-*")]
        return max(steps, default=0)

    killed = []
    for _ in range(kills):
        before = newest()
        wait_until(lambda before=before: newest() > before or run.code is not None, "progress")
        time.sleep(source.uniform(0, 0.2))  # into the next step
        workers = sorted(run.workers(2))
        victim = source.randrange(2)
        os.kill(workers[victim], signal.SIGKILL)
        killed.append((newest(), "rank 0" if victim == 1 else "rank 1"))  # rank 0 is started last
        wait_until(lambda old=set(workers): not old & set(children_of(run.pid)), "the end of both workers")
    print(killed)
    run.expect(0)
    assert hash_of(folder) == hash_of(tmp_path / "alone")


def test_the_number_of_ranks_changes_at_a_checkpoint(distilld, spec, alone, tmp_path):
    two = of(spec, tmp_path / "student", ranks=2, shard_optimizer=True)
    slow = jobs.changed(two, {"/checkpoint/every_steps": 1})
    first = distilld.start("run", jobs.write_spec(tmp_path / "spec.json", slow))
    wait_until(lambda: list((tmp_path / "student" / "checkpoints").glob("step-*")), "a checkpoint")
    first.send(signal.SIGINT)
    assert first.wait() in (0, 130), first.describe()
    four = ("--set", "training.ranks=4", "--set", "training.shard_optimizer=false")
    distilld.run("run", tmp_path / "spec.json", "--resume", *four)
    assert hash_of(tmp_path / "student") == alone


def test_ranks_of_another_spec_are_refused(distilld, spec, port, tmp_path):
    mine = jobs.write_spec(tmp_path / "mine.json", of(spec, tmp_path / "student"))
    other = jobs.write_spec(tmp_path / "other.json", of(spec, tmp_path / "student", learning_rate=1e-5))
    ranks = [
        distilld.start("run", file, env=train_job_environment(rank, 2, port)) for rank, file in enumerate((mine, other))
    ]
    for rank in ranks:
        rank.expect(1)
    assert "/training/learning_rate" in ranks[1].err, ranks[1].describe()
    assert "rank 1 of 2 has failed" in ranks[0].err, ranks[0].describe()
    assert not (tmp_path / "student" / "model.safetensors").exists()
