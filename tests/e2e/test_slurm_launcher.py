"""What the service asks of Slurm, against slurmctld and two virtual nodes on this machine."""

import json
import os
import subprocess

import pytest
from support.rest import Rest

SPEC = {
    "student": {"model": "/m"},
    "dataset": {"train": "/t.jsonl", "sequence_length": 8},
    "training": {"max_steps": 1, "threads": 1},
    "output": "/o",
}
# What a job runs until somebody ends it.
FOREVER = ("/bin/sh", "-c", "echo ready; exec sleep 1000")


class Probe:
    def __init__(self, program, cluster, folder):
        self.program = program
        self.cluster = cluster
        self.folder = folder
        self.started = []

    def start(self, *words, **variables):
        environment = {**self.cluster.environment(), **variables}
        command = [self.program, *map(str, words)]
        self.started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment))
        return self.started[-1]

    def run(self, *words, **variables):
        return self.start(*words, **variables).communicate(timeout=120)[0].splitlines()

    def submit(self, job, *command, spec=SPEC, **variables):
        """The process that waits for the job's end, and Slurm's id of the job."""
        waiting = self.start("run", job, 1, json.dumps(spec), self.log_of(job), *command, **variables)
        return waiting, waiting.stdout.readline().strip()

    def end_of(self, waiting):
        return waiting.communicate(timeout=120)[0].strip()

    def log_of(self, job):
        return self.folder / f"{job}.log"

    def wait_until_ready(self, job):
        log = self.log_of(job)
        self.cluster.wait_until(lambda: log.exists() and "ready" in log.read_text(), f"{job} to run")

    def stop(self):
        for process in self.started:
            process.kill()
            process.communicate()


@pytest.fixture
def probe(programs, cluster, tmp_path):
    made = Probe(programs / "distilld-slurm-probe", cluster, tmp_path)
    yield made
    made.stop()


def test_the_end_of_a_job_has_its_exit_code(probe):
    waiting, job = probe.submit("job-a", "/bin/sh", "-c", "echo 'it is $HOME'; exit 7")
    assert probe.end_of(waiting) == (
        f"worker_killed Slurm job {job} failed with exit code 7; its output is in {probe.log_of('job-a')}"
    )
    assert probe.log_of("job-a").read_text() == "it is $HOME\n"
    waiting, job = probe.submit("job-b", "/bin/true")
    assert probe.end_of(waiting).startswith(f"worker_killed Slurm job {job} has ended; ")


def test_a_running_job_is_on_its_machine_and_cancelled_by_hand(cluster, probe):
    waiting, job = probe.submit("job-a", *FOREVER)
    probe.wait_until_ready("job-a")
    listed = [line.split() for line in probe.run("nodes", "job-a")]
    assert [line[0] for line in listed] == ["n1", "n2"]
    assert sorted(line[1:] for line in listed) == [["idle", "2", "0"], ["mixed", "2", "0", "job-a"]]
    cluster.run("scancel", job)
    assert probe.end_of(waiting) == f"worker_cancelled Slurm job {job} was cancelled"


def test_the_service_cancels_a_job_by_its_id_or_its_name(probe):
    waiting, job = probe.submit("job-a", *FOREVER)
    other, other_job = probe.submit("job-b", *FOREVER)
    probe.wait_until_ready("job-a")  # Slurm may drain the node of a job that is cancelled while it starts
    assert probe.run("cancel", "job-a", 1, job) == ["cancelled"]
    assert probe.end_of(waiting) == f"worker_cancelled Slurm job {job} was cancelled"
    assert probe.run("cancel", "job-b", 2) == ["cancelled"], "there is no such attempt"
    assert probe.run("cancel", "job-b", 1) == ["cancelled"]
    assert probe.end_of(other) == f"worker_cancelled Slurm job {other_job} was cancelled"
    assert probe.run("cancel", "job-a", 1, job) == ["cancelled"], "it has ended"
    assert probe.run("cancel", "job-a", 1, 99999) == ["cancelled"], "Slurm does not know it"
    assert probe.run("ended", 99999, job) == [
        "worker_killed Slurm job 99999 has ended, and Slurm does not know it any more",
        f"worker_cancelled Slurm job {job} was cancelled",
    ]


def test_the_command_of_a_job_on_several_nodes_runs_on_the_first(probe):
    training = {**SPEC["training"], "gradient_groups": 4, "micro_batches": 4}
    spec = {**SPEC, "training": training, "placement": {"nodes": 2, "ranks_per_node": 2, "time_limit": "1h"}}
    show = 'echo "$SLURMD_NODENAME of $SLURM_JOB_NODELIST, $SLURM_CPUS_ON_NODE cores"'
    waiting, job = probe.submit("job-a", "/bin/sh", "-c", show, spec=spec)
    assert probe.end_of(waiting).startswith(f"worker_killed Slurm job {job} has ended")
    assert probe.log_of("job-a").read_text() == "n1 of n[1-2], 2 cores\n"


def test_what_slurm_does_not_have_is_refused(probe):
    for placement, why in (
        ({"partition": "other"}, "Invalid partition name specified"),
        ({"options": {"no-such-option": "1"}}, 'Try "sbatch --help" for more information'),
    ):
        spec = {**SPEC, "placement": placement}
        (said,) = probe.run("run", "job-a", 1, json.dumps(spec), probe.log_of("job-a"), "/bin/true")
        assert said.startswith("sbatch: ")
        assert said.endswith(why)


def test_jobs_do_not_end_with_the_controller(cluster, probe):
    waiting, job = probe.submit("job-a", *FOREVER)
    other, other_job = probe.submit("job-b", *FOREVER)
    for name in ("job-a", "job-b"):
        probe.wait_until_ready(name)
    # SIGTERM: killed within seconds of a submission, the controller forgets it.
    cluster.daemons["slurmctld"].terminate()
    cluster.daemons["slurmctld"].wait()
    (failed,) = probe.run("nodes", "job-a")
    assert failed.startswith("sinfo: "), "Slurm's own words"
    cluster.start("slurmctld", "slurmctld", "-D", "-f", cluster.config)
    cluster.wait_until(lambda: "unknown" not in cluster.states().values(), "the controller to hear its nodes")
    cluster.run("scancel", job)
    assert probe.end_of(waiting) == f"worker_cancelled Slurm job {job} was cancelled"
    assert other.poll() is None, "it runs on"
    cluster.run("scancel", other_job)
    assert probe.end_of(other) == f"worker_cancelled Slurm job {other_job} was cancelled"


def test_a_refusal_is_in_the_words_of_slurm(probe, tmp_path):
    empty = tmp_path / "slurm.conf"
    empty.write_text("ClusterName=none\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort=1\n")
    (failed,) = probe.run("nodes", "job-a", SLURM_CONF=str(empty))
    assert failed.startswith("sinfo: ")
    (missing,) = probe.run("nodes", "job-a", PATH=str(tmp_path))
    assert missing == "sbatch is not in a folder of PATH: install Slurm's commands (Debian: slurm-client)"


def test_a_job_has_no_keys_of_the_service(probe):
    waiting, _ = probe.submit("job-a", "/usr/bin/env", DISTILLD_KEY_A="secret", OMP_NUM_THREADS="3", SBATCH_COMMENT="x")
    probe.end_of(waiting)
    lines = probe.log_of("job-a").read_text().splitlines()
    assert "OMP_NUM_THREADS=3" in lines
    assert f"PATH={os.environ['PATH']}" in lines
    assert not any("secret" in line for line in lines)


def test_a_service_without_a_cluster_refuses_its_placements(distilld, tmp_path):
    rest = Rest(distilld.service(tmp_path / "service").url)
    placement = {"nodes": 2, "partition": "main", "options": {"account": "lab"}, "cores": 2}
    training = {**SPEC["training"], "gradient_groups": 2, "micro_batches": 2}
    answer = rest.post("/v1/jobs", {**SPEC, "training": training, "placement": placement})
    assert answer.status == 400, answer.text
    assert [error["pointer"] for error in answer.json["errors"]] == [
        *("/placement/nodes", "/placement/partition", "/placement/options"),
    ]


def serve_on_slurm(distilld, cluster, folder, *flags, **variables):
    command = ["serve", "--listen", "127.0.0.1:0", "--data-dir", folder / "service", "--launcher", "slurm", *flags]
    return distilld.start(*command, env={**cluster.environment(), **variables})


def test_the_service_lists_the_machines_of_slurm(distilld, cluster, tmp_path):
    cluster.wait_for("idle", "n1", "n2")
    service = serve_on_slurm(distilld, cluster, tmp_path, "--launcher-url", "http://127.0.0.1:1")
    rest = Rest(service.wait_for_line(r"listening on (http://\S+)").group(1))
    rows = {"state": "idle", "cores": 2, "memory_mb": 1, "gpus": 0, "jobs": []}
    assert rest.get("/v1/nodes").json["data"] == [{"name": "n1", **rows}, {"name": "n2", **rows}]
    assert (tmp_path / "service" / "launcher").stat().st_mode & 0o777 == 0o700


def test_a_service_that_cannot_use_slurm_does_not_start(distilld, cluster, tmp_path):
    def refusal(*flags, code=2, **variables):
        return serve_on_slurm(distilld, cluster, tmp_path, *flags, **variables).expect(code).err

    url = ("--launcher-url", "http://127.0.0.1:1")
    assert "launcher.url: is required" in refusal()
    assert "launcher.kind is slurm, but sbatch is not in a folder of PATH" in refusal(*url, PATH=str(tmp_path))
    config = tmp_path / "slurm.conf"
    config.write_text("ClusterName=none\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort=1\n")
    assert "Slurm does not answer: sinfo: " in refusal(*url, code=1, SLURM_CONF=str(config))
    below = tmp_path / "root" / "tokens"
    below.mkdir(parents=True, mode=0o700)
    said = refusal(*url, "--root", tmp_path / "root", "--launcher-folder", below)
    assert f"launcher.folder: {below} is below {tmp_path / 'root'}, where job specs may name files" in said
    folder = tmp_path / "open"
    folder.mkdir(mode=0o755)
    assert "can be used by others" in refusal(*url, "--launcher-folder", folder)
