"""`distilld run --metrics-listen`: the metrics of a job in the foreground, while it runs."""

import re
import socket
import subprocess

import pytest
from support import jobs
from support.processes import wait_until
from support.prometheus import exported, program
from support.rest import Rest, closed_port, metric_samples

OF_RUN = '{job_id="run"}'


@pytest.fixture
def spec_file(teacher, text_data, tmp_path):
    spec = jobs.distil_spec(text_data, tmp_path / "student", teacher.url, steps=1_000_000)
    return jobs.write_spec(tmp_path / "spec.json", spec)


def test_a_run_serves_the_metrics_that_a_service_has_of_its_jobs(distilld, spec_file, module_service):
    run = distilld.start("run", spec_file, "--metrics-listen", "127.0.0.1:0")
    rest = Rest(run.wait_for_line(r"metrics at (http://127.0.0.1:\d+)/metrics").group(1), ours=False)
    assert rest.get("/healthz").json == {"status": "ok"}

    def trained():
        samples = metric_samples(rest.get("/metrics").text)
        return samples if samples.get(f"distilld_job_step{OF_RUN}", 0) >= 3 else None

    samples = wait_until(trained, "steps in the metrics")
    assert samples['distilld_jobs{state="running"}'] == 1
    assert samples["distilld_steps_total"] >= 3
    assert samples['distilld_tokens_total{role="student"}'] >= 3 * 4 * 2 * jobs.SEQUENCE_LENGTH
    assert samples[f"distilld_step_duration_seconds_count{OF_RUN}"] >= 3
    assert samples['distilld_http_requests_total{code="200",method="GET",route="/healthz"}'] == 1

    text = rest.get("/metrics").text
    of_a_service = exported(module_service.rest.get("/metrics").text)
    of_services_alone = ("distilld_store", "distilld_node")
    assert {name for name in of_a_service if not name.startswith(of_services_alone)} <= exported(text)
    # As a service: anybody may scrape under any name, and there is nothing else to ask for.
    assert rest.get("/metrics", headers={"Host": "scraped.example"}).status == 200
    assert rest.get("/v1/jobs").status == 404
    assert rest.get("/v1/jobs", headers={"Host": "evil.example"}).status == 421
    assert rest.post("/metrics").status == 405

    run.send(2)
    run.expect(130)
    with pytest.raises(ConnectionError):
        rest.get("/metrics")


def test_promtool_finds_nothing_to_complain_about(distilld, spec_file):
    tool = program("promtool")
    run = distilld.start("run", spec_file, "--metrics-listen", "127.0.0.1:0")
    rest = Rest(run.wait_for_line(r"metrics at (http://127.0.0.1:\d+)/metrics").group(1), ours=False)
    wait_until(lambda: re.search(r"job_step\S* [1-9]", rest.get("/metrics").text), "a step in the metrics")
    checked = subprocess.run(
        [tool, "check", "metrics"], input=rest.get("/metrics").body, capture_output=True, timeout=60
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_run_that_cannot_listen_does_not_begin(distilld, spec_file, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = distilld.run("run", spec_file, "--metrics-listen", address, code=1)
    assert ended.err.count("\n") == 1 and "--metrics-listen" in ended.err and address in ended.err
    for wrong in ("9100", "nowhere:port", "127.0.0.1:70000", f"example.invalid:{closed_port()}"):
        ended = distilld.run("run", spec_file, "--metrics-listen", wrong, code=2)
        assert ended.err.count("\n") == 1 and "--metrics-listen" in ended.err
    assert not (tmp_path / "student").exists()
