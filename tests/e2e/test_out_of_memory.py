"""A worker that runs out of memory goes on with half the micro-batch: the same steps, in smaller parts.

Bits are not those of the larger micro-batches, for sums are grouped otherwise; losses agree to within rounding.
"""

import contextlib
import json
import os
import pathlib
import resource
import time

import pytest
from support import jobs
from support.processes import wait_until
from support.rest import Rest, metric_samples

STEPS = 4
ROWS = 96
MIB = 1 << 20


def spec_of(data, output, batch_size, micro_batches):
    changes = {
        "/student/config": jobs.llama_config(192, max_position_embeddings=128, num_hidden_layers=4),
        "/dataset/sequence_length": 128,
        "/training/batch_size": batch_size,
        "/training/micro_batches": micro_batches,
        "/checkpoint": {"every_steps": 2, "every_secs": 0, "keep": 2},
        "/metrics/jsonl_file": str(output) + ".jsonl",
    }
    return jobs.changed(jobs.base_spec(data, output, STEPS), changes)


def peaks(distilld, file):
    """Most address space and resident memory of the worker of a run, which succeeds, in bytes."""
    process = distilld.start("run", file)
    status = pathlib.Path(f"/proc/{process.worker()}/status")
    most = {"VmPeak": 0, "VmHWM": 0}
    while process.code is None:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, KeyError):
            lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
            most = {name: int(lines[name].split()[0]) * 1024 for name in most}
        time.sleep(0.005)
    process.expect(0)
    return most


@pytest.fixture(scope="module")
def measured(distilld_session, tmp_path_factory):
    """The data, and what runs with all rows and with half of them at a time take and come to."""
    folder = tmp_path_factory.mktemp("measured")
    data = jobs.write_text_data(folder / "train.jsonl", 400)
    found = {}
    for batch_size, micro_batches in ((ROWS, 1), (ROWS // 2, 2)):
        output = folder / str(batch_size)
        file = jobs.write_spec(folder / f"{batch_size}.json", spec_of(data, output, batch_size, micro_batches))
        found[batch_size] = (peaks(distilld_session, file), losses(output))
    whole, half = found[ROWS], found[ROWS // 2]
    return data, whole, half


def losses(output):
    lines = [json.loads(line) for line in pathlib.Path(str(output) + ".jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if line["kind"] == "step"]


def difference(measured, name):
    _, (whole, _), (half, _) = measured
    assert whole[name] - half[name] > 128 * MIB, "the sizes differ in what they take"
    return whole[name] - half[name]


def enough_memory_for_half(measured):
    """Nearer to half than to whole: VmHWM counts pages of files, but a group does not if others read them first."""
    return measured[2][0]["VmHWM"] + difference(measured, "VmHWM") // 4


def enough_addresses_for_half(measured):
    """Nearer to half than to whole: where addresses are few, malloc does with fewer arenas, of 64 MiB each."""
    return measured[2][0]["VmPeak"] + difference(measured, "VmPeak") // 4


def check_job(service, measured, tmp_path):
    """Submits the job with all rows at a time; it comes to its end with half of them."""
    data, (_, whole_losses), (_, half_losses) = measured
    rest = Rest(service.url)
    job_id = rest.submit(spec_of(data, tmp_path / "student", ROWS, 1))
    # Until a killed worker's memory is free, the kernel may also kill the service, if that needs a page in the same
    # control group: for example, to answer a request.
    worker = service.worker()
    wait_until(lambda: not pathlib.Path(f"/proc/{worker}").exists(), "the first worker to be gone")
    job = rest.wait_job(job_id, ("succeeded",))
    assert job["resolved_spec"]["training"]["batch_size"] == ROWS // 2
    assert job["resolved_spec"]["training"]["micro_batches"] == 2
    assert job["spec"]["training"]["batch_size"] == ROWS
    assert job["progress"]["step"] == STEPS
    reasons = [
        record["message"]
        for record in rest.get(f"/v1/jobs/{job_id}/events?limit=1000").json["data"]
        if record["data"].get("code") == "out_of_memory_restarted"
    ]
    assert len(reasons) == 1, reasons
    samples = metric_samples(rest.get("/metrics").text)
    assert samples["distilld_worker_oom_restarts_total"] == 1
    assert samples["distilld_worker_restarts_total"] == 0
    # The student is small and fp32: what is left is the order of sums.
    assert losses(tmp_path / "student") == pytest.approx(half_losses, rel=1e-4)
    assert half_losses == pytest.approx(whole_losses, rel=1e-3)
    assert half_losses[-1] < half_losses[0]
    return reasons[0]


def test_a_worker_without_address_space_goes_on_with_half_the_micro_batch(distilld, measured, tmp_path):
    limit = enough_addresses_for_half(measured)
    service = distilld.service(tmp_path / "data", limits=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    reason = check_job(service, measured, tmp_path)
    assert f"batch_size {ROWS // 2} and micro_batches 2 in place of batch_size {ROWS} and micro_batches 1" in reason


def test_distilld_run_does_the_same_and_can_be_run_again(distilld, measured, tmp_path):
    data, _, (_, half_losses) = measured
    limit = enough_addresses_for_half(measured)
    spec = spec_of(data, tmp_path / "student", ROWS, 1)
    file = jobs.write_spec(tmp_path / "spec.json", spec)
    ended = distilld.run("run", file, limits=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    assert "out-of-memory restart 1 of 3 from the newest checkpoint" in ended.out
    assert losses(tmp_path / "student") == pytest.approx(half_losses, rel=1e-4)
    # The same command goes on from its checkpoints, which smaller micro-batches made.
    longer = jobs.write_spec(tmp_path / "longer.json", jobs.changed(spec, {"/training/max_steps": STEPS + 1}))
    again = distilld.run("run", longer)
    assert f"from step {STEPS}" in again.out
    assert f"/training/batch_size: is {ROWS}, but the checkpoint was made with {ROWS // 2}" in again.out


def test_a_job_that_cannot_be_made_smaller_fails_and_says_what_to_do(distilld, measured, tmp_path):
    data, (whole, _), (half, _) = measured
    limit = 2 * half["VmPeak"] - whole["VmPeak"]  # about that of an empty micro-batch
    service = distilld.service(tmp_path / "data", limits=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    rest = Rest(service.url)
    job_id = rest.submit(spec_of(data, tmp_path / "student", ROWS - 1, 1))
    reason = rest.wait_job(job_id, ("failed",))["status_reason"]
    assert reason["code"] == "out_of_memory"
    assert f"batch_size {ROWS - 1} and micro_batches 1 cannot be halved" in reason["message"]


def memory_group():
    """A control group of ours below the present one and the file of its limit; None where we may make none."""
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            folder, limit = pathlib.Path("/sys/fs/cgroup/memory" + path), "memory.limit_in_bytes"
        elif number == "0" and controllers == "":
            folder, limit = pathlib.Path("/sys/fs/cgroup" + path), "memory.max"
        else:
            continue
        group = folder / f"distilld-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        if (group / limit).exists():
            return group, group / limit
        group.rmdir()
    return None


def test_a_worker_that_the_kernel_killed_goes_on_with_half_the_micro_batch(distilld, measured, tmp_path):
    made = memory_group()
    if made is None:
        pytest.skip("no control group with a memory limit may be made here")
    group, limit = made
    limit.write_text(str(enough_memory_for_half(measured)))
    for swap in ("memory.swap.max", "memory.swappiness"):
        with contextlib.suppress(OSError):
            (group / swap).write_text("0")

    def enter():
        (group / "cgroup.procs").write_text(str(os.getpid()))
        with contextlib.suppress(PermissionError):  # of the group, the kernel is to kill workers only
            pathlib.Path("/proc/self/oom_score_adj").write_text("-1000")

    try:
        for tries_left in (2, 1, 0):
            folder = tmp_path / str(tries_left)
            folder.mkdir()
            service = distilld.service(folder / "data", limits=enter)
            protected = pathlib.Path(f"/proc/{service.pid}/oom_score_adj").read_text() == "-1000\n"
            try:
                reason = check_job(service, measured, folder)
                break
            except ConnectionError:  # the kernel killed the service, too: it needed a page at that moment
                if protected or tries_left == 0:
                    raise
            finally:
                service.destroy()
        assert "the kernel killed the worker because memory ran out" in reason
    finally:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.1)
