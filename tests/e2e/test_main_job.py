"""The main job: submit a distillation with HTTP, watch it, load the result in Hugging Face transformers."""

import json
import pathlib
import re
import signal
import subprocess
import time

import pytest
import torch
from chaos_proxy import ChaosProxy, Script
from support import jobs
from support.processes import wait_until
from support.prometheus import program
from support.rest import Rest, closed_port, metric_samples
from transformers import AutoModelForCausalLM, AutoTokenizer

STAGES = "plan teacher decode staging student optimizer recorder evaluation snapshot".split()


@pytest.fixture(scope="module")
def finished(module_service, teacher, text_data, tmp_path_factory):
    """A job that has succeeded: (answer to the POST, job at its end, events seen as they came, spec)."""
    folder = tmp_path_factory.mktemp("main")
    held_out = jobs.write_text_data(folder / "eval.jsonl", 20, seed=2)
    spec = jobs.changed(
        jobs.distil_spec(text_data, folder / "student", teacher.url, steps=25),
        {"/name": "main job", "/dataset/eval": str(held_out), "/checkpoint/every_steps": 10},
    )
    answer = module_service.rest.post("/v1/jobs", spec)
    assert answer.status == 201, answer.text
    events = list(module_service.rest.events(answer.json["id"]))
    return answer, module_service.rest.job(answer.json["id"]), events, spec


def test_a_submitted_job_is_created_and_located(finished, module_service):
    answer, _, _, spec = finished
    created = answer.json
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["Location"] == f"/v1/jobs/{created['id']}"
    assert created["object"] == "job"
    assert created["state"] == "queued"
    assert created["spec"] == spec
    assert created["resolved_spec"]["training"]["adam_beta2"] == 0.999
    located = module_service.rest.get(answer.headers["Location"])
    assert located.json["id"] == created["id"]


def test_the_job_succeeds_and_says_with_what(finished):
    _, job, _, spec = finished
    assert job["state"] == "succeeded"
    assert job["status_reason"] is None
    assert job["output"] == spec["output"]
    assert job["weights_sha256"] == jobs.sha256(f"{spec['output']}/model.safetensors")
    progress = job["progress"]
    assert progress["step"] == progress["total_steps"] == 25
    assert progress["percent"] == 100
    # 25 steps of 4 micro-batches of 2 sequences.
    assert progress["tokens"] in jobs.trained_tokens(spec["dataset"]["train"], 25 * 4 * 2)
    assert progress["fetch"]["completed"] == 100
    # Of each token at least 16 ids of 4 bytes and 16 log-probabilities of 2.
    assert progress["fetch"]["bytes_received"] >= progress["tokens"] * 16 * (4 + 2)
    assert progress["tokens_per_second"] > 0
    assert [stage["stage"] for stage in progress["stages"]] == STAGES
    assert progress["bottleneck"] in ("teacher", "decode", "staging", "student")
    assert 0 < job["eval_loss"] < 6
    assert job["created_at"] <= job["started_at"] <= job["finished_at"]
    assert [checkpoint["step"] for checkpoint in job["checkpoints"]][-1] == 25


def test_events_tell_the_job_from_start_to_end(finished):
    _, job, events, _ = finished
    names = [name for name, _, _ in events]
    assert names[-1] == "done"
    assert events[-1][2]["state"] == "succeeded"
    assert events[-1][2]["id"] == job["id"]
    states = [data["data"]["state"] for name, _, data in events if name == "state"]
    assert states == ["queued", "running", "succeeded"]
    numbers = [number for _, number, _ in events if number is not None]
    assert numbers == list(range(1, len(numbers) + 1))
    steps = [data["data"]["step"] for name, _, data in events if name == "metrics"]
    assert steps == sorted(set(steps)) and steps[-1] == 25
    assert [data["data"]["step"] for name, _, data in events if name == "checkpoint"] == [10, 20, 25]
    assert [data["data"]["step"] for name, _, data in events if name == "evaluation"] == [25]


def test_training_lowers_the_loss(finished):
    _, job, events, _ = finished
    first = next(data["data"]["loss"] for name, _, data in events if name == "metrics")
    assert job["progress"]["loss"] < first


def test_events_go_on_where_a_reader_left_off_and_come_as_json(finished, module_service):
    _, job, events, _ = finished
    rest = module_service.rest
    last_five = [number for _, number, _ in events if number is not None][-5:]
    again = list(rest.events(job["id"], headers={"Last-Event-ID": str(last_five[0] - 1)}))
    assert [number for _, number, _ in again if number is not None] == last_five
    assert again[-1][0] == "done"
    listed = rest.get(f"/v1/jobs/{job['id']}/events?after={last_five[0] - 1}&limit=3").json
    assert [event["sequence"] for event in listed["data"]] == last_five[:3]
    assert listed["has_more"] is True


def test_the_exported_student_loads_in_transformers_and_gives_our_logits(finished, distilld):
    _, job, _, _ = finished
    folder = job["output"]
    model, report = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = "The old ship turns near the river."
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    assert ids.tolist() == [list(text.encode())]
    with torch.no_grad():
        theirs = model.eval()(ids).logits
    served = distilld.teacher(folder, "--dtype", "fp32")
    answer = Rest(served.url, ours=False).post("/v1/completions", {"input_ids": ids.tolist(), "return_logits": True})
    assert answer.status == 200, answer.text
    ours = torch.tensor(answer.json["logits"])
    assert ours.shape == theirs.shape
    assert theirs.std() > 0.1
    assert (ours - theirs).abs().max().item() < 1e-4


def test_health_readiness_and_version(module_service):
    rest = module_service.rest
    assert rest.get("/healthz").json == {"status": "ok"}
    assert rest.get("/readyz").json == {"status": "ready"}
    version = rest.get("/version").json
    line = subprocess.run([module_service.command[0], "--version"], capture_output=True, text=True, timeout=60)
    assert line.stdout.split() == ["distilld", version["version"]]


def test_metrics_count_what_was_done(finished, module_service):
    answer = module_service.rest.get("/metrics")
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("text/plain")
    samples = metric_samples(answer.text)
    assert samples['distilld_jobs{state="succeeded"}'] >= 1
    assert samples["distilld_steps_total"] >= 25
    assert samples["distilld_teacher_requests_total"] >= 100
    assert samples['distilld_tokens_total{role="student"}'] >= finished[1]["progress"]["tokens"]
    fetch = finished[1]["progress"]["fetch"]
    assert samples["distilld_teacher_received_bytes_total"] >= fetch["bytes_received"]
    assert samples['distilld_stage_busy_seconds_total{stage="student"}'] > 0
    assert any(name.startswith("distilld_http_request_duration_seconds_bucket") for name in samples)
    assert samples["distilld_checkpoints_total"] >= 3
    assert samples["distilld_queue_wait_seconds_count"] >= 1
    assert samples["distilld_worker_cpu_seconds_total"] > 0
    assert samples["distilld_store_size_bytes"] > 0
    assert 0 < samples['distilld_disk_free_bytes{of="data"}'] < samples['distilld_disk_size_bytes{of="data"}']


def test_what_is_measured_of_a_job_is_what_there_is(finished, module_service):
    _, job, _, _ = finished
    samples = metric_samples(module_service.rest.get("/metrics").text)
    of_job = f'job_id="{job["id"]}"'
    newest = pathlib.Path(job["checkpoints"][-1]["folder"])
    size = sum(file.stat().st_size for file in newest.rglob("*") if file.is_file())
    assert samples[f"distilld_job_checkpoint_bytes{{{of_job}}}"] == size
    assert samples[f"distilld_job_checkpoint_step{{{of_job}}}"] == 25
    assert samples[f"distilld_checkpoint_duration_seconds_count{{{of_job}}}"] == 3
    now = time.time()
    for what in ("last_step", "checkpoint"):
        assert now - 600 < samples[f"distilld_job_{what}_timestamp_seconds{{{of_job}}}"] <= now
    assert samples[f"distilld_job_eval_loss{{{of_job}}}"] == pytest.approx(job["eval_loss"])
    assert 0 < samples[f"distilld_job_eval_kl{{{of_job}}}"] < 6
    assert 0 <= samples[f"distilld_job_eval_top1_agreement{{{of_job}}}"] <= 1
    assert samples[f"distilld_job_tokens_total{{{of_job}}}"] == job["progress"]["tokens"]
    assert samples[f"distilld_job_padding_tokens_total{{{of_job}}}"] == job["progress"]["padding_tokens"]
    assert samples[f"distilld_job_kd_loss{{{of_job}}}"] == pytest.approx(job["progress"]["kd_loss"])
    assert samples[f"distilld_job_grad_norm{{{of_job}}}"] > 0
    assert sum(samples[f'distilld_job_bottleneck{{{of_job},stage="{stage}"}}'] for stage in STAGES) == 1
    for stage in ("decode", "staging", "student", "recorder"):
        queue = f'{{{of_job},stage="{stage}"}}'
        assert samples[f"distilld_stage_queue_items{queue}"] <= samples[f"distilld_stage_queue_capacity_items{queue}"]
    resident = samples[f"distilld_worker_resident_memory_bytes{{{of_job}}}"]
    assert 50e6 < resident <= samples[f"distilld_worker_peak_resident_memory_bytes{{{of_job}}}"] * 1.5
    of_device = [name for name in samples if name.startswith("distilld_device_memory_bytes") and of_job in name]
    assert {re.search(r'kind="(\w+)"', name).group(1) for name in of_device} == {
        "allocated",
        "reserved",
        "peak",
        "total",
    }
    assert all(samples[name] > 0 for name in of_device)
    assert samples[f'distilld_disk_free_bytes{{{of_job},of="output"}}'] > 0
    fetch = job["progress"]["fetch"]
    endpoint = fetch["endpoints"][0]
    of_endpoint = f'{{endpoint="{endpoint["endpoint"]}",{of_job}}}'
    assert endpoint["tokens"] >= job["progress"]["tokens"]
    # The probe's answers are among the bytes.
    assert endpoint["bytes_received"] == fetch["bytes_received"] > 0
    assert endpoint["bytes_sent"] > 0
    for name, field in [("tokens", "tokens"), ("received_bytes", "bytes_received"), ("retries", "retries")]:
        assert samples[f"distilld_teacher_endpoint_{name}_total{of_endpoint}"] == endpoint[field]
    stages = {stage["stage"]: stage for stage in job["progress"]["stages"]}
    student = stages["student"]
    taken = student["busy_seconds"] + student["wait_input_seconds"] + student["wait_output_seconds"]
    assert taken == pytest.approx(job["progress"]["seconds_elapsed"], rel=0.05, abs=0.05)
    for name in ("optimizer", "evaluation", "snapshot"):  # what came after the last step is in
        assert samples[f'distilld_stage_busy_seconds_total{{stage="{name}"}}'] >= stages[name]["busy_seconds"] > 0


def test_histograms_of_a_job_count_each_of_its_requests_and_steps(finished, module_service):
    _, job, _, spec = finished
    samples = metric_samples(module_service.rest.get("/metrics").text)
    of_job = f'job_id="{job["id"]}"'
    assert samples[f"distilld_step_duration_seconds_count{{{of_job}}}"] == 25
    assert samples[f'distilld_step_duration_seconds_bucket{{{of_job},le="+Inf"}}'] == 25
    elapsed = job["progress"]["seconds_elapsed"]
    assert samples[f"distilld_step_duration_seconds_sum{{{of_job}}}"] == pytest.approx(elapsed, rel=1e-3)
    (endpoint,) = job["progress"]["fetch"]["endpoints"]
    assert endpoint["endpoint"].startswith(spec["teacher"]["endpoints"][0])
    request = "distilld_teacher_request_duration_seconds"
    labels = f'{{endpoint="{endpoint["endpoint"]}",{of_job},outcome="success"}}'
    fetch = job["progress"]["fetch"]
    # Of a request and its hedge both may be answered.
    assert 100 == fetch["completed"] <= samples[f"{request}_count{labels}"] <= 100 + fetch["hedges"]
    assert samples[f"{request}_sum{labels}"] > 0
    counts = {name: n for name, n in samples.items() if name.startswith(f"{request}_count") and of_job in name}
    ended = sum(endpoint["outcomes"].values())
    assert sum(counts.values()) == ended
    # A hedge may be dropped before it is sent.
    assert fetch["requests"] - fetch["hedges"] <= ended <= fetch["requests"]
    of_endpoint = f'{{endpoint="{endpoint["endpoint"]}",{of_job}}}'
    assert samples[f"distilld_teacher_endpoint_in_flight{of_endpoint}"] == 0
    assert samples[f"distilld_teacher_endpoint_limit{of_endpoint}"] == endpoint["limit"] >= 1
    assert samples[f"distilld_teacher_endpoint_open{of_endpoint}"] == 0
    assert "durations" not in job["progress"], "buckets are for the metrics alone"


@pytest.mark.parametrize("who", ["service", "teacher"])
def test_promtool_finds_nothing_to_complain_about(finished, module_service, teacher, who):
    url = module_service.url if who == "service" else teacher.url
    text = Rest(url).get("/metrics").body
    checked = subprocess.run([program("promtool"), "check", "metrics"], input=text, capture_output=True, timeout=60)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize(
    "method, path, body, status, code",
    [
        ("GET", "/v1/jobs/job-nobody", None, 404, "job_not_found"),
        ("POST", "/v1/jobs/job-nobody/cancel", b"", 404, "job_not_found"),
        ("GET", "/v1/jobs/job-nobody/events", None, 404, "job_not_found"),
        ("GET", "/nowhere", None, 404, None),
        ("DELETE", "/v1/jobs", None, 405, None),
        ("GET", "/v1/jobs?limit=0", None, 400, "invalid_parameter"),
        ("GET", "/v1/jobs?colour=red", None, 400, "unknown_parameter"),
        ("POST", "/v1/jobs", b"{", 400, "invalid_job_spec"),
    ],
)
def test_errors_are_problems(module_service, method, path, body, status, code):
    answer = module_service.rest.request(method, path, body=body)
    assert answer.status == status
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem = answer.json
    assert problem["status"] == status
    assert problem["type"] and problem["title"] and problem["detail"]
    if code:
        assert problem["error"]["code"] == code


@pytest.fixture
def slow_teacher(teacher):
    with ChaosProxy(teacher.url, Script(delay=0.05)) as proxy:
        yield proxy


def test_a_cancelled_job_leaves_a_checkpoint(module_service, slow_teacher, text_data, tmp_path):
    rest = module_service.rest
    spec = jobs.distil_spec(text_data, tmp_path / "student", slow_teacher.url, steps=100_000)
    job_id = rest.submit(spec)
    wait_until(lambda: (rest.job(job_id)["progress"] or {}).get("step", 0) >= 2, "two steps")
    answer = rest.post(f"/v1/jobs/{job_id}/cancel")
    assert answer.status == 202
    assert answer.json["cancel_requested"] is True
    job = rest.wait_job(job_id, ["cancelled"])
    reason = job["status_reason"]
    assert (reason["code"], reason["message"]) == ("cancelled_by_user", "cancelled after a checkpoint")
    checkpoint = job["checkpoints"][-1]
    assert checkpoint["step"] >= 2
    folder = tmp_path / "student" / "checkpoints" / f"step-{checkpoint['step']:08d}"
    assert checkpoint["folder"] == str(folder)
    assert (folder / "model.safetensors").is_file()
    assert not (tmp_path / "student" / "model.safetensors").exists()
    again = rest.post(f"/v1/jobs/{job_id}/cancel")
    assert again.status == 409
    assert again.json["error"]["code"] == "job_is_terminal"


def test_a_teacher_that_is_waited_for_does_not_hold_up_a_cancellation(module_service, text_data, tmp_path):
    rest = module_service.rest
    job_id = rest.submit(jobs.distil_spec(text_data, tmp_path / "student", f"http://127.0.0.1:{closed_port()}", 1))

    def told():
        events = rest.get(f"/v1/jobs/{job_id}/events").json["data"]
        return [event["message"] for event in events if "asking the teacher" in event["message"]]

    wait_until(told, "the worker to ask the teacher")
    assert rest.post(f"/v1/jobs/{job_id}/cancel").status == 202
    # A probe waits a minute for an endpoint that may still come up.
    job = rest.wait_job(job_id, ["cancelled"], seconds=30)
    assert job["checkpoints"] == [] and job["progress"] is None
    assert job["status_reason"]["message"] == "cancelled before a step was done"


def test_jobs_wait_their_turn(distilld, slow_teacher, text_data, tmp_path):
    rest = Rest(distilld.service(tmp_path / "service", "--slots", "1").url)
    ids = [
        rest.submit(jobs.distil_spec(text_data, tmp_path / name, slow_teacher.url, steps=100_000))
        for name in ("first", "second", "third")
    ]
    rest.wait_job(ids[0], ["running"])
    waiting = [rest.job(job_id) for job_id in ids[1:]]
    assert [job["state"] for job in waiting] == ["queued", "queued"]
    assert [job["queue_position"] for job in waiting] == [1, 2]
    assert rest.post(f"/v1/jobs/{ids[1]}/cancel").status == 202
    assert rest.job(ids[1])["state"] == "cancelled"
    rest.post(f"/v1/jobs/{ids[0]}/cancel")
    rest.wait_job(ids[2], ["running"])
    newest = rest.get("/v1/jobs?limit=2").json
    assert [job["id"] for job in newest["data"]] == [ids[2], ids[1]] and newest["has_more"] is True
    rest_of_them = rest.get(f"/v1/jobs?limit=2&after={newest['last_id']}").json
    assert [job["id"] for job in rest_of_them["data"]] == [ids[0]] and rest_of_them["has_more"] is False
    assert [job["id"] for job in rest.get("/v1/jobs?state=cancelled").json["data"]] == [ids[1], ids[0]]
    rest.post(f"/v1/jobs/{ids[2]}/cancel")
    rest.wait_job(ids[2], ["cancelled"])


def test_a_submission_that_is_sent_twice_makes_one_job(module_service, teacher, text_data, tmp_path):
    rest = module_service.rest
    spec = jobs.distil_spec(text_data, tmp_path / "student", teacher.url, steps=1)
    body = json.dumps(spec)
    tried = rest.post("/v1/jobs?dry_run=true", body)
    assert (tried.status, tried.json["valid"]) == (200, True)
    key = {"Idempotency-Key": str(tmp_path)}
    first = rest.post("/v1/jobs", body, headers=key)
    again = rest.post("/v1/jobs", body, headers=key)
    assert (first.status, again.status) == (201, 200)
    assert first.json["id"] == again.json["id"]
    other = rest.post("/v1/jobs", json.dumps({**spec, "name": "another"}), headers=key)
    assert (other.status, other.json["error"]["code"]) == (422, "idempotency_key_reused")
    rest.wait_job(first.json["id"], ["succeeded"])


def test_a_folder_is_written_by_one_job_at_a_time(module_service, slow_teacher, text_data, tmp_path):
    rest = module_service.rest
    spec = jobs.distil_spec(text_data, tmp_path / "student", slow_teacher.url, steps=100_000)
    first = rest.submit(spec)
    refused = rest.post("/v1/jobs", jobs.changed(spec, {"/output": str(tmp_path / "elsewhere" / ".." / "student")}))
    assert refused.status == 409
    assert refused.json["errors"][0]["pointer"] == "/output"
    assert first in refused.json["detail"]
    rest.post(f"/v1/jobs/{first}/cancel")
    rest.wait_job(first, ["cancelled"])


def test_the_command_line_does_what_curl_does(module_service, distilld, teacher, slow_teacher, text_data, tmp_path):
    server = ["--server", module_service.url]
    good = jobs.write_spec(
        tmp_path / "good.json",
        jobs.changed(
            jobs.distil_spec(text_data, tmp_path / "good", teacher.url, steps=3), {"/name": "from the command line"}
        ),
    )
    submitted = distilld.run("jobs", "submit", good, *server)
    job_id = submitted.out.strip()
    assert job_id.startswith("job-")
    watched = distilld.run("jobs", "watch", job_id, *server)
    assert "step 3/3" in watched.out
    assert "succeeded" in watched.out
    shown = distilld.run("jobs", "get", job_id, *server).out
    assert "from the command line" in shown and "succeeded" in shown and str(tmp_path / "good") in shown
    assert json.loads(distilld.run("jobs", "get", job_id, *server, "-o", "json").out)["id"] == job_id
    listed = distilld.run("jobs", "list", *server).out.splitlines()
    assert listed[0].split() == ["ID", "STATE", "STEP", "LOSS", "NAME"]
    assert listed[1].split()[:3] == [job_id, "succeeded", "3/3"]  # newest first

    endless = jobs.write_spec(
        tmp_path / "endless.json", jobs.distil_spec(text_data, tmp_path / "endless", slow_teacher.url, steps=100_000)
    )
    endless_id = distilld.run("jobs", "submit", endless, *server).out.strip()
    watcher = distilld.start("jobs", "watch", endless_id, *server)
    watcher.wait_for_line(r"step \d+/100000")
    distilld.run("jobs", "cancel", endless_id, *server)
    watcher.expect(1)  # it did not succeed
    assert "cancelled" in watcher.out

    bad = jobs.write_spec(tmp_path / "bad.json", {"output": 1})
    refused = distilld.run("jobs", "submit", bad, *server, code=2)
    for pointer in ("/student", "/dataset", "/training", "/output"):
        assert f"{pointer}: " in refused.err
    missing = distilld.run("jobs", "get", "job-nobody", *server, code=1)
    assert "job-nobody" in missing.err
    distilld.run("jobs", "watch", "job-nobody", *server, code=1)
    distilld.run("jobs", "cancel", "job-nobody", *server, code=1)
    distilld.run("jobs", "submit", tmp_path / "nowhere.json", *server, code=2)


def test_a_watcher_outlives_the_service(distilld, teacher, text_data, tmp_path):
    with ChaosProxy(teacher.url) as proxy:
        proxy.hold_after = 2 + 4 * 5
        service = distilld.service(tmp_path / "service")
        spec = jobs.changed(
            jobs.distil_spec(text_data, tmp_path / "student", proxy.url, steps=10), {"/checkpoint/every_steps": 1}
        )
        job_id = Rest(service.url).submit(spec)
        watcher = distilld.start("jobs", "watch", job_id, "--server", service.url)
        watcher.wait_for_line(r"checkpoint of step 4 ")
        service.send(signal.SIGKILL)
        service.wait()
        proxy.hold_after = None
        distilld.service(tmp_path / "service", listen=service.url.removeprefix("http://"))
        watcher.expect(0)
    assert "resumed at step" in watcher.out
    assert "step 10/10" in watcher.out
    # Nothing is told twice.
    assert watcher.out.count("checkpoint of step 4 ") == 1
    assert watcher.out.count("training started") == 1


def test_healthcheck(module_service, teacher, distilld):
    for ready in (module_service, teacher):
        assert distilld.run("healthcheck", "--server", ready.url).out == "ready\n"
    nobody = f"127.0.0.1:{closed_port()}"
    assert nobody in distilld.run("healthcheck", "--server", f"http://{nobody}", code=1).err
    distilld.run("healthcheck", "--server", "not a url", code=2)
    distilld.run("jobs", "list", "--server", f"http://{nobody}", code=1)


def test_the_service_ends_in_order_and_keeps_its_jobs(distilld, teacher, text_data, tmp_path):
    data_dir = tmp_path / "data"
    first = distilld.service(data_dir)
    rest = Rest(first.url)
    job_id = rest.submit(jobs.distil_spec(text_data, tmp_path / "student", teacher.url, steps=2))
    rest.wait_job(job_id, ["succeeded"])
    # Two services on one folder would run one job twice.
    second = distilld.run("serve", "--listen", "127.0.0.1:0", "--data-dir", data_dir, code=1)
    assert "in use" in second.err
    first.send(signal.SIGTERM)
    first.expect(0)
    again = distilld.service(data_dir)
    kept = Rest(again.url).job(job_id)
    assert kept["state"] == "succeeded"
    assert kept["weights_sha256"] == jobs.sha256(tmp_path / "student" / "model.safetensors")
    again.send(signal.SIGINT)
    again.expect(0)
