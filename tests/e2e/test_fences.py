"""A worker that stood still while a later attempt of its job took over changes nothing when it goes on."""

import contextlib
import fcntl
import functools
import json
import os
import pathlib
import signal
import socket
import threading

import pytest
from support import jobs
from support.moments import alive, kill
from support.processes import wait_until
from support.rest import Rest

STEPS = 60
EVERY = 5
JOB = "job-0123456789"


@pytest.fixture
def spec(text_data, tmp_path):
    spec = jobs.base_spec(text_data, tmp_path / "student", STEPS)
    return jobs.changed(spec, {"/checkpoint/every_steps": EVERY, "/metrics/jsonl_file": str(tmp_path / "steps.jsonl")})


class Attempt:
    """A worker that is told its job by this test, and its events."""

    def __init__(self, distilld, spec, number):
        ours, theirs = socket.socketpair()
        self.events = []
        script = f'exec "$0" train 3<&{theirs.fileno()}'
        program = distilld.folder / "distilld-worker"
        os.set_inheritable(theirs.fileno(), True)
        self.process = distilld.start("-c", script, program, program="/bin/bash", pass_fds=(theirs.fileno(),))
        theirs.close()
        start = {"type": "start", "version": 2, "spec": spec, "resume": number > 1, "job_id": JOB, "attempt": number}
        ours.sendall(json.dumps(start).encode() + b"\n")
        self.channel = ours
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        with self.channel.makefile() as lines, contextlib.suppress(OSError):
            for line in lines:
                self.events.append(json.loads(line))

    def of(self, kind):
        return [event for event in list(self.events) if event["type"] == kind]

    def wait_for(self, kind, count=1):
        wait_until(lambda: len(self.of(kind)) >= count, f"{kind} of {self.process.describe()}", pause=0.001)
        return self.of(kind)

    def end(self, kind, code):
        event = self.wait_for(kind)[0]
        self.process.expect(code)
        return event


def is_changing(folder):
    """Whether a process is in the middle of a commit: whoever replaces it then waits for it."""
    with contextlib.suppress(FileNotFoundError), open(folder / ".distilld-fence.lock", "rb+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def state_of(pid):
    """T: all threads of the process stand still."""
    stats = [stat.read_text() for stat in pathlib.Path(f"/proc/{pid}/task").glob("*/stat")]
    states = {stat.rpartition(")")[2].split()[0] for stat in stats}
    return states.pop() if len(states) == 1 else "mixed"


def stop_when(pid, look, folders):
    """Stops the process at an instant at which look() is true, between its commits. False: it ended before."""

    def outcome():
        if not look():
            return "" if alive(pid) else "ended"
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: state_of(pid) in ("T", "Z"), "the stop", pause=0)
        if alive(pid) and look() and not any(is_changing(folder) for folder in folders):
            return "stopped"
        os.kill(pid, signal.SIGCONT)
        return ""

    return wait_until(outcome, "the moment to stop", pause=0) == "stopped"


# Whether an attempt is in the middle of that.
LOOKS = {
    "steps": lambda attempt, _: len(attempt.of("progress")) > 1,
    "checkpoint": lambda _, output: any(output.glob("checkpoints/.tmp-step-*")),
    "export": lambda _, output: any(output.glob(".distilld-export-*/*")),
}


def stopped_attempt(distilld, spec, tmp_path, stop):
    """An attempt that stands still there, and its spec. A busy machine may not look in time, so it tries again."""
    for number in range(20):
        output = tmp_path / f"student-{number}"
        changes = {"/output": str(output), "/metrics/jsonl_file": str(tmp_path / f"steps-{number}.jsonl")}
        changed = jobs.changed(spec, changes)
        attempt = Attempt(distilld, changed, 1)
        attempt.wait_for("checkpoint")
        look = functools.partial(LOOKS[stop], attempt, output)
        if stop_when(attempt.process.pid, look, (output, output / "checkpoints")):
            assert not attempt.of("finished")
            return attempt, changed
    raise AssertionError(f"none of 20 attempts could be stopped: {stop}")


def committed(output):
    """{name: content hash} of the checkpoints and of the model."""
    files = [*output.glob("checkpoints/step-*/*"), *(path for path in output.iterdir() if path.is_file())]
    return {
        str(path.relative_to(output)): jobs.sha256(path)
        for path in files
        if not path.name.startswith(".distilld-fence")
    }


def weights(files):
    return {name: value for name, value in files.items() if name.endswith(".safetensors")}


def calm_run(distilld, spec, tmp_path):
    calm = jobs.changed(spec, {"/output": str(tmp_path / "calm"), "/metrics/jsonl_file": None})
    distilld.run("run", jobs.write_spec(tmp_path / "calm.json", calm))
    return committed(tmp_path / "calm")


@pytest.mark.parametrize(
    ("stop", "go_on"),
    [
        ("steps", "first checkpoint"),
        ("steps", "end"),
        ("checkpoint", "first checkpoint"),
        ("checkpoint", "end"),
        ("export", "end"),
    ],
)
def test_a_replaced_worker_commits_nothing(distilld, spec, tmp_path, stop, go_on):
    calm = calm_run(distilld, spec, tmp_path)
    first, spec = stopped_attempt(distilld, spec, tmp_path, stop)
    output = pathlib.Path(spec["output"])
    second = Attempt(distilld, spec, 2)
    if go_on == "first checkpoint":
        second.wait_for("checkpoint")
        os.kill(first.process.pid, signal.SIGCONT)
    second.end("finished", 0)
    found = committed(output)
    if go_on == "end":
        os.kill(first.process.pid, signal.SIGCONT)
    failed = first.end("failed", 1)
    assert failed["kind"] == "replaced"
    assert f"attempt 1 of {JOB} was replaced by attempt 2; nothing was changed" in failed["message"]
    assert committed(output) == found
    assert weights(found) == weights(calm)
    half = [*output.glob(".distilld-export-*"), *output.glob("checkpoints/.tmp-*")]
    assert not half, "nothing half is left"
    steps = [json.loads(line) for line in pathlib.Path(spec["metrics"]["jsonl_file"]).read_text().splitlines()]
    assert [line["step"] for line in steps if line["kind"] == "step"] == list(range(1, STEPS + 1))

    third = Attempt(distilld, spec, 1)
    assert "was replaced by attempt 2" in third.end("failed", 1)["message"]
    assert committed(output) == found


def test_a_service_counts_the_attempts_of_a_job(distilld, spec, tmp_path):
    calm = calm_run(distilld, spec, tmp_path)
    output = tmp_path / "student"
    service = distilld.service(tmp_path / "service")
    job = Rest(service.url).submit(jobs.write_spec(tmp_path / "spec.json", spec).read_bytes())
    wait_until(lambda: any(output.glob("checkpoints/step-*")), "a checkpoint", pause=0.001)
    kill(service.worker())
    kill(service.pid)
    service.wait()
    again = distilld.service(tmp_path / "service")
    rest = Rest(again.url)
    ended = rest.wait_job(job)
    records = rest.get(f"/v1/jobs/{job}/events?limit=1000").json["data"]
    attempts = [record["data"]["attempt"] for record in records if "first_step" in record["data"]]
    assert attempts == list(range(1, ended["attempt"] + 1)), "each start has the next number, over a restart too"
    assert (ended["state"], len(attempts) > 1) == ("succeeded", True), ended
    assert json.loads((output / ".distilld-fence.json").read_text())["attempt"] == ended["attempt"]
    assert weights(committed(output)) == weights(calm)
