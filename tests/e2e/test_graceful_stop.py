"""SIGTERM: not ready, no new jobs, a checkpoint, exit code 0 within the drain timeout; a second one at once."""

import contextlib
import os
import signal
import time

import pytest
from support import jobs
from support.frozen_threads import frozen, threads_of
from support.processes import PATIENCE, wait_until
from support.rest import Rest


class Running:
    """A service in the middle of a job, whose worker can be held up."""

    def __init__(self, distilld, teacher_folder, text_data, folder, *flags):
        self.folder = folder
        self.distilld = distilld
        slow = distilld.teacher(teacher_folder, "--delay-ms", "300")
        self.service = distilld.service(folder / "service", *flags)
        self.rest = Rest(self.service.url)
        self.spec = jobs.distil_spec(text_data, folder / "student", slow.url, steps=40)
        self.job_id = self.rest.submit(self.spec)
        wait_until(lambda: (self.rest.job(self.job_id)["progress"] or {}).get("step", 0) >= 2, "two steps")
        self.worker = self.service.worker()

    def hold(self):
        os.kill(self.worker, signal.SIGSTOP)

    def go_on(self):
        os.kill(self.worker, signal.SIGCONT)

    def finish(self):
        """In another service on the same folder; the job's messages."""
        rest = Rest(self.distilld.service(self.folder / "service").url)
        job = rest.wait_job(self.job_id, ["succeeded"])
        assert job["weights_sha256"] == jobs.sha256(self.folder / "student" / "model.safetensors")
        return job


@pytest.fixture
def running(distilld, teacher_folder, text_data, tmp_path):
    made = []

    def make(*flags):
        made.append(Running(distilld, teacher_folder, text_data, tmp_path, *flags))
        return made[-1]

    yield make
    for one in made:
        with contextlib.suppress(ProcessLookupError):
            one.go_on()


def checkpoints(folder):
    return sorted(entry.name for entry in (folder / "student" / "checkpoints").glob("step-*"))


def test_a_stop_takes_no_jobs_and_ends_after_a_checkpoint(running, text_data, tmp_path):
    it = running()
    it.hold()
    it.service.send(signal.SIGTERM)
    wait_until(lambda: it.rest.get("/readyz").status == 503, "not ready")
    assert it.rest.get("/healthz").status == 200, "alive all the same"
    refused = it.rest.post("/v1/jobs", jobs.base_spec(text_data, tmp_path / "other", steps=1))
    assert refused.status == 503
    assert refused.json["status"] == 503 and refused.json["detail"]
    assert it.rest.job(it.job_id)["state"] == "running"
    assert checkpoints(tmp_path) == [], "the checkpoint below is that of the stop"
    it.go_on()
    it.service.expect(0)
    (saved,) = checkpoints(tmp_path)
    job = it.finish()
    assert job["progress"]["step"] == 40
    calm = Rest(it.distilld.service(tmp_path / "calm").url)
    calm_id = calm.submit(jobs.changed(it.spec, {"/output": str(tmp_path / "calm-student")}))
    assert calm.wait_job(calm_id, ["succeeded"])["weights_sha256"] == job["weights_sha256"], f"resumed from {saved}"


def test_workers_that_do_not_stop_are_killed_within_the_drain_timeout(running):
    it = running("--drain-timeout", "8s")
    it.hold()
    begin = time.monotonic()
    it.service.send(signal.SIGTERM)
    # 1 would be the exit code of an end by force at the drain timeout.
    it.service.expect(0)
    assert time.monotonic() - begin > 5
    with pytest.raises(ProcessLookupError):
        os.kill(it.worker, 0)
    it.finish()


def test_a_second_signal_ends_at_once(running):
    it = running()
    it.hold()
    it.service.send(signal.SIGTERM)
    wait_until(lambda: "stopping" in it.service.err, "the first signal was taken")
    begin = time.monotonic()
    it.service.send(signal.SIGTERM)
    it.service.expect(1)
    assert time.monotonic() - begin < 30
    it.go_on()
    wait_until(lambda: not os.path.exists(f"/proc/{it.worker}"), "the worker's end")
    it.finish()


def test_what_does_not_answer_does_not_keep_the_service(distilld, tmp_path):
    service = distilld.service(tmp_path / "service", "--drain-timeout", "3s")
    with frozen(threads_of(service.pid)[1:]):
        service.send(signal.SIGTERM)
        wait_until(lambda: "not stopped within the drain timeout" in service.err, "an end by force", PATIENCE)
    service.expect(1)
    distilld.service(tmp_path / "service")
