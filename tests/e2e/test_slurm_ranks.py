"""Ranks of one job on two nodes of Slurm: slurmctld and two virtual nodes on this machine."""

import contextlib
import os
import pathlib
import signal

import pytest
from support import jobs
from support.processes import wait_until
from support.sinks import run_report
from test_slurm_jobs import OnSlurm, slurm_id
from test_teacher_keys import KEY, Gate, files_with

STEPS = 80


@pytest.fixture
def service(distilld, cluster, tmp_path):
    # The names of virtual nodes have no addresses.
    yield OnSlurm(distilld, cluster, tmp_path, MASTER_ADDR="127.0.0.1")
    cluster.clear()


@pytest.fixture(scope="module")
def spec(text_data):
    steps = {"batch_size": 8, "micro_batches": 8, "gradient_groups": 4, "replicas": 1}  # longer than an exchange
    changes = {f"/training/{name}": value for name, value in steps.items()}
    return jobs.changed(jobs.base_spec(text_data, "", STEPS), {**changes, "/checkpoint/every_steps": 20})


@pytest.fixture(scope="module")
def expected(distilld_session, spec, tmp_path_factory):
    """The weights of two ranks on this machine, without Slurm."""
    folder = tmp_path_factory.mktemp("here")
    local = jobs.changed(spec, {"/output": str(folder / "student"), "/training/ranks": 2})
    return run_report(distilld_session, local, folder)[0]["weights_sha256"]


def placed(spec, folder, **placement):
    return jobs.changed(spec, {"/output": str(folder / "student"), "/placement": placement})


def workers_on_other_nodes(cluster):
    """Process ids of the ranks that srun has started."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            ours = str(cluster.config).encode() in (entry / "environ").read_bytes()
            if ours and words[0].endswith(b"/distilld-worker") and b"--stdio" in words:
                found.append(int(entry.name))
    return found


def test_ranks_on_two_nodes_outlive_the_service_and_give_the_bits_of_one_machine(service, spec, expected, tmp_path):
    job = service.rest.submit(placed(spec, tmp_path, nodes=2, ranks_per_node=2))
    service.wait_step(job, 20)
    assert len(workers_on_other_nodes(service.cluster)) == 2
    service.process.send(signal.SIGKILL)
    service.process.wait()
    service.start()
    ended = service.rest.wait_job(job)
    assert (ended["state"], ended["attempt"]) == ("succeeded", 1), ended
    assert ended["weights_sha256"] == expected
    assert [rank["rank"] for rank in ended["progress"]["ranks"]] == [0, 1, 2, 3]
    numbers = [number for _, number, _ in service.rest.events(job) if number is not None]
    assert numbers == list(range(1, len(numbers) + 1))


def test_each_rank_gets_the_key_of_the_services_environment(distilld, cluster, teacher, text_data, tmp_path):
    service = OnSlurm(distilld, cluster, tmp_path, MASTER_ADDR="127.0.0.1", DISTILLD_KEY_LAB=KEY)
    with Gate(teacher.url) as gate:
        made = jobs.distil_spec(text_data, "", gate.url, steps=3)
        keyed = jobs.changed(made, {"/teacher/api_key_env": "DISTILLD_KEY_LAB", "/training/gradient_groups": 2})
        ended = service.rest.wait_job(service.rest.submit(placed(keyed, tmp_path, nodes=2)))
    assert ended["state"] == "succeeded", ended
    assert gate.keys_seen == {f"Bearer {KEY}"}
    assert files_with(tmp_path, KEY) == [] and files_with(cluster.folder, KEY) == []
    assert KEY not in service.process.out + service.process.err


def kill_the_worker(service, job):
    (worker,) = workers_on_other_nodes(service.cluster)
    os.kill(worker, signal.SIGKILL)


def give_notice(service, job):
    """What Slurm sends a minute before a time limit, and to all ranks when another job takes the nodes."""
    (worker,) = workers_on_other_nodes(service.cluster)
    os.kill(worker, signal.SIGTERM)
    service.cluster.run("scancel", "--signal=TERM", "--batch", slurm_id(service, job))


@pytest.mark.parametrize(("trouble", "why"), [(kill_the_worker, "srun: error: n2: task 0: Killed"), (give_notice, "")])
def test_all_ranks_begin_again_from_the_checkpoint(service, spec, expected, tmp_path, trouble, why):
    job = service.rest.submit(placed(spec, tmp_path, nodes=2))
    service.wait_step(job, 20)
    trouble(service, job)
    ended = service.rest.wait_job(job)
    assert (ended["state"], ended["attempt"]) == ("succeeded", 2), ended
    assert ended["weights_sha256"] == expected
    said = [line["message"] for _, _, line in service.rest.events(job) if "rank 1 of 2: " in str(line.get("message"))]
    assert not why or any(why in line for line in said), said


def test_ranks_that_somebody_cancels_in_slurm_are_cancelled(service, spec, tmp_path):
    job = service.rest.submit(jobs.changed(placed(spec, tmp_path, nodes=2), {"/training/max_steps": 100_000}))
    service.wait_step(job, 5)
    wait_until(lambda: all(row["jobs"] == [job] for row in service.rest.get("/v1/nodes").json["data"]), "its nodes")
    service.cluster.run("scancel", slurm_id(service, job))
    ended = service.rest.wait_job(job)
    assert (ended["state"], ended["status_reason"]["code"]) == ("cancelled", "worker_cancelled")
    wait_until(lambda: not workers_on_other_nodes(service.cluster), "the end of all ranks")
