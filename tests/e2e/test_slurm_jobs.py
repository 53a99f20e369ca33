"""Jobs of a service whose workers Slurm places: slurmctld and two virtual nodes on this machine."""

import pytest
from support import jobs
from support.processes import wait_until
from support.remote import OnSlurm
from support.sinks import run_report

STEPS = 2000  # longer than the lists of Slurm take to show its job


@pytest.fixture
def service(distilld, cluster, tmp_path):
    yield OnSlurm(distilld, cluster, tmp_path)
    cluster.clear()


@pytest.fixture
def spec(text_data, tmp_path):
    return jobs.changed(jobs.base_spec(text_data, tmp_path / "student", STEPS), {"/checkpoint/every_steps": 250})


@pytest.fixture
def expected(distilld, spec, tmp_path):
    """The report of a run on this machine."""
    folder = tmp_path / "here"
    folder.mkdir()
    return run_report(distilld, jobs.changed(spec, {"/output": str(folder / "student")}), folder)[0]


def test_a_job_outlives_the_service_and_ends_with_the_bits_of_a_run_alone(service, spec, expected, tmp_path):
    job = service.rest.submit(spec)
    service.wait_step(job, 20)
    wait_until(lambda: [row for row in service.rest.get("/v1/nodes").json["data"] if row["jobs"] == [job]], "its node")
    service.kill()
    service.start()
    ended = service.rest.wait_job(job)
    assert ended["weights_sha256"] == expected["weights_sha256"]
    assert ended["attempt"] == 1, "the worker was never replaced"
    numbers = [number for _, number, _ in service.rest.events(job) if number is not None]
    assert numbers == list(range(1, len(numbers) + 1))
    folder = tmp_path / "service" / "launcher"
    wait_until(lambda: not list(folder.glob("*.token")), "the end of the token")


def slurm_id(service, job):
    """Of the job's newest attempt."""
    listed = service.cluster.run("squeue", "-h", "-o", "%A %j").splitlines()
    (found,) = [line.split()[0] for line in listed if job in line]
    return found


def test_notice_of_a_preemption_costs_no_step(service, spec, expected):
    """What Slurm sends a minute before a time limit, or when another job takes the node."""
    job = service.rest.submit(spec)
    service.wait_step(job, 20)
    service.cluster.run("scancel", "--signal=TERM", "--batch", slurm_id(service, job))
    ended = service.rest.wait_job(job)
    assert (ended["state"], ended["attempt"]) == ("succeeded", 2)
    assert ended["weights_sha256"] == expected["weights_sha256"]


def test_a_job_that_waits_in_slurms_queue_says_so(service, cluster, spec):
    blocker = cluster.run(
        "sbatch", "--parsable", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 600"
    ).strip()
    job = service.rest.submit(jobs.changed(spec, {"/training/max_steps": 20}))
    reason = wait_until(lambda: service.rest.job(job)["status_reason"], "the reason")
    assert reason["code"] == "cluster_queue"
    assert reason["message"].startswith(f"in Slurm's queue as job {slurm_id(service, job)}: "), reason
    cluster.run("scancel", blocker)
    ended = service.rest.wait_job(job)
    assert (ended["state"], ended["status_reason"]) == ("succeeded", None)


def test_a_job_that_somebody_cancels_in_slurm_is_cancelled(service, cluster, spec):
    job = service.rest.submit(jobs.changed(spec, {"/training/max_steps": 100_000}))
    service.wait_step(job, 5)
    number = slurm_id(service, job)
    cluster.run("scancel", number)
    ended = service.rest.wait_job(job)
    assert ended["state"] == "cancelled"
    assert ended["status_reason"]["code"] == "worker_cancelled"
    assert ended["status_reason"]["message"] == f"Slurm job {number} was cancelled"


def test_a_job_that_is_cancelled_leaves_its_node(service, cluster, spec):
    job = service.rest.submit(jobs.changed(spec, {"/training/max_steps": 100_000}))
    service.wait_step(job, 5)
    assert service.rest.post(f"/v1/jobs/{job}/cancel").status == 202
    ended = service.rest.wait_job(job)
    assert ended["state"] == "cancelled"
    assert ended["status_reason"]["code"] == "cancelled_by_user"
    cluster.wait_for("idle", "n1", "n2")
