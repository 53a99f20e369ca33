"""What is wrong around the service fails no job: the queue stays a queue until it has passed."""

import pathlib
import resource
import shutil

from support import jobs
from support.processes import Programs, wait_until
from support.rest import Rest, metric_samples

STEPS = 2


def spec(data, folder, number):
    return jobs.write_spec(folder / f"{number}.json", jobs.base_spec(data, folder / f"student-{number}", STEPS))


def waits_with(rest, job_id, words):
    """The reason of a queued job, once it names them."""
    reason = rest.job(job_id)["status_reason"]
    return reason if reason and words in reason["message"] else None


def finished(rest, ids):
    """The jobs, which ended well and in the order in which they were submitted."""
    found = [rest.wait_job(job_id, ["succeeded"]) for job_id in ids]
    assert [job["status_reason"] for job in found] == [None] * len(ids)
    ends = [job["finished_at"] for job in found]
    assert ends == sorted(ends)
    return found


def test_no_job_fails_while_the_worker_program_is_missing(programs, text_data, tmp_path):
    folder = tmp_path / "bin"
    folder.mkdir()
    shutil.copy2(programs / "distilld", folder)
    started = Programs(folder, tmp_path)
    try:
        rest = Rest(started.service(tmp_path / "data").url)
        ids = [rest.submit(spec(text_data, tmp_path, number).read_bytes()) for number in range(5)]
        reason = wait_until(lambda: waits_with(rest, ids[0], "tried again in 2 s"), "the second try")
        assert reason["code"] == "worker_not_started"
        assert "distilld-worker: No such file or directory" in reason["message"]
        again = wait_until(lambda: waits_with(rest, ids[0], "tried again in 4 s"), "the third try")
        assert again["since"] == reason["since"] > rest.job(ids[0])["created_at"]
        assert [rest.job(job_id)["queue_position"] for job_id in ids[1:]] == [2, 3, 4, 5]
        samples = metric_samples(rest.get("/metrics").text)
        assert samples['distilld_jobs_waiting{reason="worker_not_started"}'] == 1
        (folder / "distilld-worker").symlink_to(programs / "distilld-worker")
        finished(rest, ids)
    finally:
        started.stop_all()


def test_no_job_fails_while_the_service_is_out_of_descriptors(distilld, text_data, tmp_path):
    process = distilld.service(tmp_path / "data")
    rest = Rest(process.url)
    limits = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    highest = max(int(entry.name) for entry in pathlib.Path(f"/proc/{process.pid}/fd").iterdir())
    # Enough for who asks, not for a worker.
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (highest + 4, limits[1]))
    ids = [rest.submit(spec(text_data, tmp_path, number).read_bytes()) for number in range(3)]
    wait_until(lambda: waits_with(rest, ids[0], "Too many open files; tried again in 2 s"), "the second try")
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, limits)
    finished(rest, ids)
    assert metric_samples(rest.get("/metrics").text)["distilld_worker_restarts_total"] == 0
