"""Twenty jobs on a cluster of two nodes, through one fault after another: for scripts/check-slurm.sh, with real Slurm.

Each job must end with the weights of an undisturbed run on this machine, and with every event once.
"""

import contextlib
import os
import signal
import time

import pytest
from support import jobs
from support.processes import children_of, wait_until
from support.remote import OnSlurm, relays
from support.sinks import run_report

STEPS = 8000  # half a minute on a core
MINUTE = 60.0  # how long a fault lasts
LONG = 600.0

# After so many seconds, a node that does not answer is down; 300 by default, in which these jobs would end.
CLUSTER = {"cores": 1, "SlurmdTimeout": 10}


@pytest.fixture
def kinds(text_data, teacher, tmp_path):
    """Four jobs that differ in what a checkpoint must keep; the last one needs more than its time limit."""
    plain = jobs.changed(jobs.base_spec(text_data, tmp_path / "-", STEPS), {"/checkpoint/every_steps": 500})
    taught = jobs.changed(
        jobs.distil_spec(text_data, tmp_path / "-", teacher.url, STEPS // 4), {"/checkpoint/every_steps": 100}
    )
    return {
        "plain": plain,
        "taught": taught,
        "bf16": jobs.changed(plain, {"/student/dtype": "bf16", "/training/max_steps": STEPS // 2}),
        "long": jobs.changed(plain, {"/training/max_steps": 3 * STEPS, "/placement/time_limit": "2m"}),
    }


class Told:
    """Says what happens, and when."""

    def __init__(self):
        self.begun = time.monotonic()

    def __call__(self, what):
        print(f"{time.monotonic() - self.begun:6.1f} s  {what}", flush=True)


class Faults:
    def __init__(self, service, cluster, told):
        self.service = service
        self.cluster = cluster
        self.told = told
        self.kinds = {}  # of the jobs

    def early(self, job):
        return self.kinds[job] == "plain" and 0 < (self.service.rest.job(job)["progress"] or {"step": 0})["step"] < 2000

    def someone(self, node=None, early=False):
        """(job, relay, worker) of one that trains: on the node, and with most of its steps before it."""

        def look():
            listed = self.cluster.run("squeue", "--noheader", "--states=RUNNING", "--format=%j %N")
            for name, place in map(str.split, listed.splitlines()):
                job = name.removeprefix("distilld-").rpartition("-")[0]
                if node not in (None, place) or (early and not self.early(job)):
                    continue
                for relay in relays(name):
                    if workers := children_of(relay):
                        return job, relay, workers[0]
            return None

        return wait_until(look, "a worker", LONG, pause=0.5)

    def service_killed(self):
        self.told("the service is killed")
        self.service.kill()
        time.sleep(5)
        self.service.start()

    def controller_down(self):
        self.told("slurmctld is down for a minute")
        self.cluster.daemons["slurmctld"].terminate()
        self.cluster.daemons["slurmctld"].wait()
        time.sleep(MINUTE)
        self.cluster.start_controller()
        self.cluster.wait_until(lambda: "unknown" not in self.cluster.states().values(), "slurmctld to hear its nodes")

    def node_vanishes(self):
        """slurmd is killed. What it has started runs on, as on a node that the controller does not reach."""
        name, _, worker = self.someone("n2", early=True)
        self.told(f"slurmd of n2 is killed; {name} trains on there")
        self.cluster.kill("n2")
        self.cluster.wait_until(lambda: self.cluster.states()["n2"].startswith("down"), "n2 to be down", 180)
        self.told("Slurm has given n2 up")
        attempts = self.service.rest.job(name)["attempt"]
        wait_until(lambda: self.service.rest.job(name)["attempt"] > attempts, "another attempt", LONG, pause=0.5)
        self.told(f"{name} has another attempt; its old worker {'trains' if alive(worker) else 'has ended'}")
        self.cluster.start_node("n2")
        self.cluster.wait_until(lambda: self.cluster.states()["n2"] in ("idle", "allocated"), "n2 to be back")

    def node_drained(self):
        self.told("n1 is drained")
        self.cluster.run("scontrol", "update", "nodename=n1", "state=drain", "reason=check")
        self.cluster.wait_until(lambda: self.cluster.states()["n1"] == "drained", "n1 to be drained", 300)
        self.told("n1 runs nothing")
        self.cluster.run("scontrol", "update", "nodename=n1", "state=resume")

    def worker_stopped(self):
        name, _, worker = self.someone()
        self.told(f"the worker of {name} is stopped for a minute")
        os.kill(worker, signal.SIGSTOP)
        time.sleep(MINUTE)
        os.kill(worker, signal.SIGCONT)

    def worker_killed(self):
        name, _, worker = self.someone()
        self.told(f"the worker of {name} is killed")
        os.kill(worker, signal.SIGKILL)

    def relay_killed(self):
        name, relay, _ = self.someone()
        self.told(f"the relay of {name} is killed")
        os.kill(relay, signal.SIGKILL)

    def channel_cut(self):
        self.told("no worker reaches the service for a minute")
        self.service.cable.severed = True
        self.service.cable.cut()
        time.sleep(MINUTE)
        self.service.cable.severed = False


def alive(pid):
    with contextlib.suppress(OSError):
        os.kill(pid, 0)
        return True
    return False


def check_history(rest, job):
    """Every event once: numbers without a gap, and within an attempt no step twice."""
    numbers, attempt, last = [], 1, 0
    for kind, number, data in rest.events(job):
        if number is None:
            continue
        numbers.append(number)
        facts = data.get("data") or {}
        if facts.get("attempt", attempt) != attempt:
            attempt, last = facts["attempt"], 0
        if kind == "metrics":
            assert facts["step"] > last, f"step {facts['step']} after {last} of attempt {attempt}"
            last = facts["step"]
    assert numbers == list(range(1, len(numbers) + 1))


def test_twenty_jobs_through_every_fault(distilld, cluster, kinds, tmp_path):
    expected, told = {}, Told()

    def reference(kind):
        folder = tmp_path / "here" / kind
        folder.mkdir(parents=True)
        spec = jobs.changed(kinds[kind], {"/output": str(folder / "student"), "/placement": None})
        expected[kind] = run_report(distilld, spec, folder, seconds=LONG)[0]["weights_sha256"]

    told("runs on this machine")
    for kind in kinds:
        reference(kind)

    service = OnSlurm(distilld, cluster, tmp_path, cable=True)
    faults = Faults(service, cluster, told)
    submitted = faults.kinds

    def submit(*kinds_of_jobs):
        for kind in kinds_of_jobs:
            spec = jobs.changed(kinds[kind], {"/output": str(tmp_path / f"student-{len(submitted)}")})
            submitted[service.rest.submit(spec)] = kind

    told("twenty jobs")
    submit("long", *["taught", "bf16", "plain"] * 4)
    faults.someone("n1")
    faults.service_killed()
    faults.channel_cut()
    submit("plain", "taught")
    faults.service_killed()  # the answers to these two are just given
    faults.controller_down()
    faults.service_killed()
    faults.node_vanishes()
    submit("plain", "bf16", "plain", "taught", "plain")
    faults.service_killed()
    faults.node_drained()
    faults.worker_stopped()
    faults.relay_killed()
    faults.worker_killed()
    faults.service_killed()

    attempts = {}
    for job, kind in submitted.items():
        ended = service.rest.wait_job(job, seconds=LONG)
        attempts[job] = ended["attempt"]
        told(f"{job} {kind}: {ended['state']}, attempt {ended['attempt']}")
        assert ended["weights_sha256"] == expected[kind]
        check_history(service.rest, job)
    listed = service.rest.get("/v1/jobs?limit=100").json["data"]
    assert sorted(row["id"] for row in listed) == sorted(submitted)
    assert attempts[next(iter(submitted))] >= 2, "the time limit was reached"
    assert cluster.run("squeue", "--noheader") == ""
    wait_until(lambda: not relays(tmp_path), "the end of the relays")
    wait_until(lambda: not list((tmp_path / "service" / "launcher").glob("*.token")), "the end of the tokens")
    told(f"all {len(submitted)} jobs have the expected weights; attempts: {sorted(attempts.values())}")
