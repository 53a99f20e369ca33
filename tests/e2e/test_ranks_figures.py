"""Every rank's figures reach the report, the job and the metrics; orders and signals reach every rank."""

import json
import os
import re
import signal

import pytest
from support import jobs
from support.processes import children_of, wait_until
from support.rest import Rest, free_port, metric_samples

STEPS = 120
# Of a run that is stopped before its end, whatever the machine does meanwhile.
ENDLESS = 1_000_000


def ranks_spec(text_data, teacher, output, steps, **training):
    made = jobs.distil_spec(text_data, str(output), teacher.url, steps)
    changes = {"micro_batches": 4, "gradient_groups": 2, "replicas": 1, **training}
    return jobs.changed(made, {f"/training/{name}": value for name, value in changes.items()})


def launched(rank, port):
    return {
        "PET_NODE_RANK": str(rank),
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "1",
        "PET_MASTER_ADDR": "127.0.0.1",
        "PET_MASTER_PORT": str(port),
    }


def hash_of(folder):
    return jobs.sha256(folder / "model.safetensors")


@pytest.fixture(scope="module")
def alone(distilld_session, text_data, teacher, tmp_path_factory):
    """The hash of one rank's student."""
    folder = tmp_path_factory.mktemp("alone")
    spec = ranks_spec(text_data, teacher, folder / "student", STEPS)
    distilld_session.run("run", jobs.write_spec(folder / "spec.json", spec))
    return hash_of(folder / "student")


def check(ranks, tokens):
    assert [rank["rank"] for rank in ranks] == [0, 1]
    assert sum(rank["tokens"] for rank in ranks) == tokens
    for rank in ranks:
        assert rank["host"] and rank["tokens"] > 0 and rank["tokens_per_second"] > 0, rank
        assert rank["busy_seconds"]["student"] > 0 and rank["wait_ranks_seconds"] > 0, rank


@pytest.mark.parametrize("launcher", [False, True])
def test_the_report_has_the_figures_of_every_rank(distilld, text_data, teacher, tmp_path, launcher):
    training = {} if launcher else {"ranks": 2}
    spec = jobs.write_spec(tmp_path / "spec.json", ranks_spec(text_data, teacher, tmp_path / "student", 4, **training))
    report = ("--report", tmp_path / "report.json")
    if launcher:
        port = free_port()
        ranks = [distilld.start("run", spec, *report, env=launched(rank, port)) for rank in (0, 1)]
    else:
        ranks = [distilld.start("run", spec, *report)]
    for rank in ranks:
        rank.expect(0)
    last = json.loads((tmp_path / "report.json").read_text())["last"]
    check(last["ranks"], last["tokens"])
    assert "on 2 ranks" in ranks[0].out
    assert re.search(r"rank 1: \S+: .* for other ranks", ranks[0].out), ranks[0].describe()


def test_a_job_shows_its_ranks_and_all_of_them_obey(distilld, text_data, teacher, alone, tmp_path):
    service = distilld.service(tmp_path / "data")
    rest = Rest(service.url)
    spec = ranks_spec(text_data, teacher, tmp_path / "student", STEPS, ranks=2)
    job = rest.submit(spec)
    wait_until(lambda: rest.job(job)["progress"], "progress")
    assert rest.request("PATCH", f"/v1/jobs/{job}", {"max_concurrent": 4}).status == 200
    assert rest.post(f"/v1/jobs/{job}/pause").status in (200, 202)
    paused = rest.wait_job(job, ["paused"])
    assert children_of(service.pid) == [], "a rank that trains on"
    check(paused["progress"]["ranks"], paused["progress"]["tokens"])
    samples = metric_samples(rest.get("/metrics").text)
    assert samples[f'distilld_job_ranks{{job_id="{job}"}}'] == 2
    assert samples[f'distilld_job_rank_tokens_total{{job_id="{job}",rank="1"}}'] > 0
    assert f'distilld_job_rank_wait_seconds_total{{job_id="{job}",rank="1",reason="ranks"}}' in samples
    assert rest.post(f"/v1/jobs/{job}/resume").status in (200, 202)
    wait_until(lambda: rest.job(job)["progress"]["step"] > paused["progress"]["step"], "progress after the pause")
    assert rest.job(job)["progress"]["fetch"]["concurrency"] <= 2, "rank 0 has its half"
    service.send(signal.SIGTERM)  # drains
    service.expect(0)
    again = Rest(distilld.service(tmp_path / "data").url)
    assert again.wait_job(job, ["succeeded"])["weights_sha256"]
    assert hash_of(tmp_path / "student") == alone


def checkpoint_of(run, folder):
    wait_until(lambda: list((folder / "checkpoints").glob("step-*")) or run.code is not None, "a checkpoint")


def stopped_well(ranks):
    for rank in ranks:
        rank.expect(130)
        assert "lost" not in rank.out + rank.err, rank.describe()
    assert "checkpoint: " in ranks[0].out, ranks[0].describe()


@pytest.mark.parametrize("workers_too", [False, True])
def test_a_signal_to_all_ranks_ends_them_in_order(distilld, text_data, teacher, alone, tmp_path, workers_too):
    training = {"shard_optimizer": workers_too}
    spec = ranks_spec(text_data, teacher, tmp_path / "student", STEPS, **training)
    file = jobs.write_spec(tmp_path / "spec.json", jobs.changed(spec, {"/checkpoint/every_steps": 1}))
    port = free_port()
    ranks = [distilld.start("run", file, env=launched(rank, port)) for rank in (0, 1)]
    checkpoint_of(ranks[0], tmp_path / "student")
    # The worker of rank 1 comes first: its run must not end before that of rank 0.
    told = [pid for rank in reversed(ranks) for pid in [*(children_of(rank.pid) if workers_too else []), rank.pid]]
    for pid in told:
        os.kill(pid, signal.SIGTERM)
    stopped_well(ranks)
    distilld.run("run", file, "--resume")
    assert hash_of(tmp_path / "student") == alone


def test_a_signal_to_another_rank_stops_the_job(distilld, text_data, teacher, tmp_path):
    spec = ranks_spec(text_data, teacher, tmp_path / "student", ENDLESS)
    file = jobs.write_spec(tmp_path / "spec.json", jobs.changed(spec, {"/checkpoint/every_steps": 20}))
    port = free_port()
    ranks = [distilld.start("run", file, env=launched(rank, port)) for rank in (0, 1)]
    checkpoint_of(ranks[0], tmp_path / "student")
    ranks[1].send(signal.SIGTERM)
    stopped_well(ranks)
