"""A small disk that fills up under the service: its own store, and the output of a job."""

import hashlib
import os
import re
import signal

import pytest
from support import jobs
from support.processes import wait_until
from support.rest import Rest
from support.small_disk import fill, small_disk_at


@pytest.fixture
def small_disk(tmp_path):
    with small_disk_at(tmp_path / "disk", megabytes=4) as folder:
        yield folder


def contents(folder):
    """SHA-256 of each file below a folder."""
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def test_a_job_pauses_for_space_and_its_checkpoints_stay_whole(
    distilld, teacher_folder, text_data, small_disk, tmp_path
):
    slow = distilld.teacher(teacher_folder, "--delay-ms", "200")
    spec = jobs.changed(
        jobs.distil_spec(text_data, tmp_path / "calm", slow.url, steps=24),
        {"/checkpoint": {"every_steps": 4, "keep": 2}},
    )
    rest = Rest(distilld.service(tmp_path / "service").url)
    calm = rest.wait_job(rest.submit(spec), ["succeeded"])
    output = small_disk / "student"
    job_id = rest.submit(jobs.changed(spec, {"/output": str(output)}))
    wait_until(lambda: list(output.glob("checkpoints/step-*/*")), "a checkpoint")
    ballast = fill(small_disk)
    job = wait_until(lambda: (found := rest.job(job_id))["status_reason"] and found, "a reason")
    assert job["state"] == "running" and job["status_reason"]["code"] == "disk_full"
    assert re.search(r"no space on the disk: .* needs [\d.]+ [kM]B", job["status_reason"]["message"])
    committed = contents(output / "checkpoints")
    assert any(name.endswith(".safetensors") for name in committed)
    assert not [name for name in committed if "tmp" in name], "nothing half written is left"
    gauge = 'distilld_jobs_waiting{reason="disk_full"} 1'
    assert gauge in rest.get("/metrics").text
    os.unlink(ballast)
    job = rest.wait_job(job_id, ["succeeded"])
    assert job["status_reason"] is None
    assert job["weights_sha256"] == calm["weights_sha256"]
    assert gauge not in rest.get("/metrics").text


def test_a_job_that_waits_for_space_frees_its_slot_when_it_is_paused(
    distilld, teacher_folder, text_data, small_disk, tmp_path
):
    slow = distilld.teacher(teacher_folder, "--delay-ms", "200")
    spec = jobs.changed(
        jobs.distil_spec(text_data, small_disk / "student", slow.url, steps=24),
        {"/checkpoint": {"every_steps": 4, "keep": 2}},
    )
    rest = Rest(distilld.service(tmp_path / "service", "--slots", "1").url)
    job_id = rest.submit(spec)
    wait_until(lambda: list((small_disk / "student").glob("checkpoints/step-*/*")), "a checkpoint")
    ballast = fill(small_disk)
    wait_until(lambda: (rest.job(job_id)["status_reason"] or {}).get("code") == "disk_full", "a wait for space")
    committed = contents(small_disk / "student" / "checkpoints")
    assert rest.post(f"/v1/jobs/{job_id}/pause").status == 202
    assert rest.wait_job(job_id, ["paused"])["status_reason"]["code"] == "paused_by_user"
    assert contents(small_disk / "student" / "checkpoints") == committed
    other = rest.submit(jobs.base_spec(text_data, tmp_path / "other", steps=2))
    rest.wait_job(other, ["succeeded"])
    os.unlink(ballast)
    assert rest.post(f"/v1/jobs/{job_id}/resume").status == 202
    rest.wait_job(job_id, ["succeeded"])


def test_a_service_that_stops_on_a_full_disk_keeps_what_was_committed(
    distilld, teacher_folder, text_data, small_disk, tmp_path
):
    slow = distilld.teacher(teacher_folder, "--delay-ms", "200")
    output = small_disk / "student"
    spec = jobs.changed(
        jobs.distil_spec(text_data, output, slow.url, steps=24), {"/checkpoint": {"every_steps": 4, "keep": 2}}
    )
    service = distilld.service(tmp_path / "service")
    rest = Rest(service.url)
    job_id = rest.submit(spec)
    wait_until(lambda: list(output.glob("checkpoints/step-*/*")), "a checkpoint")
    ballast = fill(small_disk)
    wait_until(lambda: (rest.job(job_id)["status_reason"] or {}).get("code") == "disk_full", "a wait for space")
    committed = contents(output / "checkpoints")
    service.send(signal.SIGINT)
    service.expect(0)
    left = contents(output / "checkpoints")
    assert {name: left.get(name) for name in committed if name.endswith(".safetensors")} == {
        name: sha for name, sha in committed.items() if name.endswith(".safetensors")
    }
    os.unlink(ballast)
    again = Rest(distilld.service(tmp_path / "service").url)
    job = again.wait_job(job_id, ["succeeded"])
    assert job["weights_sha256"] == jobs.sha256(output / "model.safetensors")


def test_a_full_store_takes_no_jobs_and_loses_none(distilld, teacher_folder, text_data, small_disk, tmp_path):
    slow = distilld.teacher(teacher_folder, "--delay-ms", "200")
    service = distilld.service(small_disk / "service")
    rest = Rest(service.url)
    job_id = rest.submit(jobs.distil_spec(text_data, tmp_path / "student", slow.url, steps=24))
    wait_until(lambda: (rest.job(job_id)["progress"] or {}).get("step", 0) >= 2, "two steps")
    ballast = fill(small_disk)
    other = jobs.base_spec(text_data, tmp_path / "other", steps=1)
    wait_until(lambda: rest.post("/v1/jobs", other).status == 503, "a refusal")
    not_ready = rest.get("/readyz")
    assert not_ready.status == 503 and "disk is full" in not_ready.text
    # Who asks sees how it goes on; that it ended, too.
    assert rest.wait_job(job_id, ["succeeded"])["progress"]["step"] == 24
    os.unlink(ballast)
    wait_until(lambda: rest.get("/readyz").status == 200, "ready again")
    numbers = [number for _, number, _ in rest.events(job_id) if number is not None]
    assert numbers == sorted(set(numbers)) and numbers[0] == 1, "no event twice"
    service.send(signal.SIGTERM)
    service.expect(0)
    kept = Rest(distilld.service(small_disk / "service").url).job(job_id)
    assert kept["state"] == "succeeded" and kept["weights_sha256"] == jobs.sha256(
        tmp_path / "student" / "model.safetensors"
    )
