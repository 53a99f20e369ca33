"""bench/load.py and bench/cluster_scale.py on a small scale: counts, order and memory. Their times are in
bench/README.md."""

import json
import pathlib
import subprocess
import sys

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
SCRIPT = BENCH / "load.py"
JOBS, CLIENTS = 400, 300
MEMORY_MB = 200  # what 10,000 jobs and 1,000 followers may take


def test_a_service_bears_queued_jobs_followers_and_polls(programs):
    command = [sys.executable, SCRIPT, "--bin", programs, "--jobs", JOBS, "--clients", CLIENTS, "--hold", 11]
    done = subprocess.run(
        [str(part) for part in [*command, "--rounds", 1, "--seconds", 2]], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["submitted"]["jobs"] == JOBS
    assert found["one_more"] == {"status": 429, "code": "queue_full", "retry_after": "30"}
    assert found["listed"]["jobs"] == JOBS + 1
    assert found["listed"]["in_order"] is True
    assert found["listed"]["page_ms"]["count"] == -(-(JOBS + 1) // 100)
    # Held for longer than a heartbeat, which each has been sent.
    assert found["followers"] == {"asked": CLIENTS, "answered": CLIENTS, "still_there": CLIENTS}
    assert found["status_ms"]["count"] == 200
    assert 0 < found["rss_mb_idle"] <= found["rss_mb"] <= found["peak_rss_mb"] < MEMORY_MB
    # A job that waits takes no more than its share of that, nor does a follower.
    grown = found["rss_mb"] - found["rss_mb_idle"]
    assert grown < MEMORY_MB * max(JOBS / 10000, CLIENTS / 1000)


def on_a_cluster(programs, *options):
    command = [sys.executable, BENCH / "cluster_scale.py", "--bin", programs, "--jobs", 20, "--nodes", 4, *options]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert (found["jobs"], found["nodes"]) == (24, 4)
    assert 0 < found["anonymous_mb"] < found["rss_mb"] < MEMORY_MB
    return found


def test_a_service_bears_jobs_on_many_nodes(programs):
    found = on_a_cluster(programs, "--seconds", 2)
    assert found["busy"] == 4
    assert found["messages_per_second"] > 0
    assert found["events_per_second"] > 0
    assert found["jobs_ended_per_second"] == 0


def test_jobs_on_many_nodes_follow_each_other(programs):
    assert on_a_cluster(programs, "--seconds", 8, "--job-seconds", 4)["jobs_ended_per_second"] > 0
