"""Slots: each job that runs has cores of its own, and computes as if it were alone on them."""

import contextlib
import os
import pathlib

import pytest
from support import jobs
from support.rest import Rest, metric_samples

TWO = sorted(os.sched_getaffinity(0))[:2]


@contextlib.contextmanager
def on_cores(cores):
    """What is started here may use these cores alone."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def cores_of(pid):
    """As the kernel says it, one number a core."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    text = next(line.split()[1] for line in status.splitlines() if line.startswith("Cpus_allowed_list:"))
    cores = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        cores += range(int(first), int(last or first) + 1)
    return cores


def nice_of(pid):
    """As the kernel says it. The name in parentheses may hold anything, so count from its end."""
    stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    return int(stat[stat.rindex(")") + 2 :].split()[16])


def spec_of(data, output, threads, steps=40):
    # Wide enough for libtorch to split its sums over threads where it has several.
    wide = {"/student/config": jobs.llama_config(256), "/dataset/sequence_length": 64}
    length = {"/training/batch_size": 8, "/training/threads": threads}
    return jobs.changed(jobs.base_spec(data, output, steps), {**wide, **length})


@pytest.mark.skipif(len(TWO) < 2, reason="two slots need two cores")
def test_two_jobs_at_once_have_a_core_each_and_the_bits_of_one_alone(distilld, text_data, tmp_path):
    distilld.run("run", jobs.write_spec(tmp_path / "alone.json", spec_of(text_data, tmp_path / "alone", threads=1)))
    with on_cores(TWO):
        service = distilld.service(tmp_path / "service", "--slots", "2")
    rest = Rest(service.url)
    ids = [rest.submit(spec_of(text_data, tmp_path / name, threads=0)) for name in ("one", "two")]
    running = [rest.wait_job(job_id, ["running"]) for job_id in ids]
    workers = service.workers(2)
    assert sorted(cores_of(worker) for worker in workers) == [[core] for core in TWO]
    assert sorted((job["slot"], job["cores"]) for job in running) == [(0, [TWO[0]]), (1, [TWO[1]])]
    samples = metric_samples(rest.get("/metrics").text)
    assert samples['distilld_slots{state="busy"}'] == 2
    assert samples['distilld_slots{state="free"}'] == 0
    shown = distilld.run("jobs", "get", ids[0], "--server", service.url).out
    assert f"slot          {running[0]['slot']}, cores {running[0]['cores'][0]}\n" in shown
    assert cores_of(service.pid) == TWO

    ended = [rest.wait_job(job_id, ["succeeded"]) for job_id in ids]
    alone = jobs.sha256(tmp_path / "alone" / "model.safetensors")
    assert [job["weights_sha256"] for job in ended] == [alone, alone]
    assert [(job["slot"], job["cores"], job["device"]) for job in ended] == [(None, [], None)] * 2
    assert metric_samples(rest.get("/metrics").text)['distilld_slots{state="free"}'] == 2


@pytest.mark.skipif(len(TWO) < 2, reason="it is one slot against two cores")
def test_one_slot_has_all_cores(distilld, text_data, tmp_path):
    with on_cores(TWO):
        service = distilld.service(tmp_path / "service")
    rest = Rest(service.url)
    job_id = rest.submit(spec_of(text_data, tmp_path / "one", threads=0, steps=1000))
    assert rest.wait_job(job_id, ["running"])["cores"] == TWO
    assert cores_of(service.worker()) == TWO
    rest.post(f"/v1/jobs/{job_id}/cancel")


def test_more_slots_than_there_is_are_refused(distilld, tmp_path):
    with on_cores(TWO[:1]):
        refused = distilld.run("serve", "--listen", "127.0.0.1:0", "--data-dir", tmp_path / "a", "--slots", "2", code=2)
        shared = distilld.service(tmp_path / "b", "--slots", "2", "--slots-by", "none")
    assert "--slots 2: there is no core for each slot, but 1 core for all" in refused.err
    assert not (tmp_path / "a").exists()
    assert metric_samples(Rest(shared.url).get("/metrics").text)['distilld_slots{state="free"}'] == 2
    no_gpu = distilld.run(
        *("serve", "--listen", "127.0.0.1:0", "--data-dir", tmp_path / "c", "--slots-by", "devices"),
        code=2,
        env={"CUDA_VISIBLE_DEVICES": ""},
    )
    assert "there is no GPU" in no_gpu.err


def test_workers_are_nicer_than_the_service(distilld, text_data, tmp_path):
    for flags, nicer in (((), 5), (("--worker-nice", "0"), 0)):
        folder = tmp_path / f"nicer-by-{nicer}"
        service = distilld.service(folder / "service", *flags)
        rest = Rest(service.url)
        job_id = rest.submit(spec_of(text_data, folder / "out", threads=1, steps=100_000))
        rest.wait_job(job_id, ["running"])
        worker = service.worker()
        assert nice_of(worker) == min(nice_of(service.pid) + nicer, 19)
        rest.post(f"/v1/jobs/{job_id}/cancel")
        rest.wait_job(job_id, ["cancelled"])
    refused = distilld.run(
        "serve", "--listen", "127.0.0.1:0", "--data-dir", tmp_path / "a", "--worker-nice", "20", code=2
    )
    assert "--worker-nice" in refused.err
