"""Several teachers of one job: each row is its teacher's, to the bit, whatever happens on the way."""

import http.server
import json
import signal
import threading
import urllib.request

import pytest
from chaos_proxy import ChaosProxy, Script
from support import jobs
from support.processes import wait_until
from support.rest import Rest, free_port, metric_samples

STEPS = 10
LENGTH = 12
# Of the first token of a row, which says whose it is to the server that answers as both.
MARKS = {"math": 1, "code": 2}
PROBE = 2  # POSTs before the first micro-batch


@pytest.fixture(scope="module")
def folders(distilld_session, text_data, teacher_folder, tmp_path_factory):
    """{teacher: model folder}, of different weights."""
    folder = tmp_path_factory.mktemp("second")
    spec = jobs.changed(
        jobs.base_spec(text_data, folder / "model", steps=10), {"/student/config": jobs.llama_config(48)}
    )
    distilld_session.run("run", jobs.write_spec(folder / "spec.json", spec))
    return {"math": teacher_folder, "code": folder / "model"}


@pytest.fixture(scope="module")
def teachers(distilld_session, folders):
    """{teacher: its endpoint}."""
    return {name: distilld_session.teacher(folder, "--dtype", "fp32").url for name, folder in folders.items()}


def documents():
    """Rows of one, of the other, and runs of one alone: a micro-batch has rows of both, or of one."""
    for number, line in enumerate(jobs.text_lines(60, seed=5)):
        name = "math" if number % 3 == 0 or 20 <= number < 30 else "code"
        ids = list(line.encode())[: LENGTH + 1 - number % 4]
        yield {"input_ids": [MARKS[name], *ids[:LENGTH]], "teacher": name}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return jobs.write_jsonl(tmp_path_factory.mktemp("mixed") / "train.jsonl", documents())


def spec_of(data, output, endpoints, top_k=8, changes=None):
    spec = jobs.distil_spec(data, output, "http://unused", STEPS, top_k=top_k)
    one = spec.pop("teacher")
    spec["teachers"] = {name: {**one, "endpoints": [url]} for name, url in endpoints.items()}
    spec["dataset"] = {"train": str(data), "sequence_length": LENGTH, "packing": False}
    return jobs.changed(spec, changes or {})


def run(distilld, spec, folder, *flags, code=0):
    folder.mkdir(parents=True, exist_ok=True)
    report = folder / "report.json"
    done = distilld.run("run", jobs.write_spec(folder / "spec.json", spec), "--report", report, *flags, code=code)
    return (json.loads(report.read_text()) if code == 0 else None), done


def each(teachers, field, value):
    return {f"/teachers/{name}/{field}": value for name in teachers}


@pytest.fixture(scope="module")
def calm(distilld_session, teachers, data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("calm")
    return run(distilld_session, spec_of(data, folder / "student", teachers), folder)[0]


class BothInOne(http.server.ThreadingHTTPServer):
    """A server of the seed protocol that has each row answered by the teacher that its first token names."""

    def __init__(self, teachers):
        super().__init__(("127.0.0.1", 0), Answer)
        self.daemon_threads = True
        self.of_mark = {MARKS[name]: f"{url}/v1/completions" for name, url in teachers.items()}
        self.url = f"http://127.0.0.1:{self.server_port}/v1/completions"


class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        logits = []
        for row in asked["input_ids"]:
            # The probe's rows are of nobody.
            url = self.server.of_mark.get(row[0], self.server.of_mark[MARKS["math"]])
            body = json.dumps({"input_ids": [row], "return_logits": True}).encode()
            request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=60) as answer:
                logits += json.load(answer)["logits"]
        body = json.dumps({"logits": logits}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def test_the_student_is_the_one_of_a_server_that_answers_as_both(distilld, teachers, data, tmp_path):
    several = spec_of(data, tmp_path / "several" / "student", teachers, top_k=0)
    for teacher in several["teachers"].values():
        teacher["protocol"] = "seed"
    report, done = run(distilld, several, tmp_path / "several")
    assert "rows are of the teacher math" in done.out
    server = BothInOne(teachers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    one = jobs.changed(several, {"/teachers": None, "/output": str(tmp_path / "one" / "student")})
    one["teacher"] = {"endpoints": [server.url], "protocol": "seed", "timeout_secs": 30, "hedge": False}
    together, done = run(distilld, one, tmp_path / "one")
    server.shutdown()
    assert "name a teacher, but the spec has only one: all rows go to it" in done.out
    assert report["weights_sha256"] == together["weights_sha256"]
    # And it is not what one of them alone gives.
    one["teacher"]["endpoints"] = [teachers["math"]]
    one["output"] = str(tmp_path / "math" / "student")
    assert run(distilld, one, tmp_path / "math")[0]["weights_sha256"] != report["weights_sha256"]


def test_weights_do_not_depend_on_timing(distilld, teachers, data, tmp_path, calm):
    rows = []
    math_proxy = ChaosProxy(teachers["math"], Script(delay=0.01, jitter=0.3))
    code_proxy = ChaosProxy(teachers["code"], Script(unavailable=0.1, reset=0.05))
    with math_proxy as math, code_proxy as code:
        for name, urls, changes in (
            ("1 in flight", teachers, each(teachers, "max_concurrent", 1)),
            ("not parallel", teachers, {"/training/parallel": False}),
            ("one slow, one that fails", {"math": math.url, "code": code.url}, {}),
            ("64 in flight", {"math": math.url, "code": code.url}, each(teachers, "max_concurrent", 64)),
        ):
            where = tmp_path / name.replace(" ", "-")
            report, _ = run(distilld, spec_of(data, where / "student", urls, changes=changes), where)
            rows.append((name, report["weights_sha256"]))
    print("\n" + "\n".join(f"{name:28} {sha256[:16]}" for name, sha256 in rows))
    assert {sha256 for _, sha256 in rows} == {calm["weights_sha256"]}
    figures = {teacher["teacher"]: teacher for teacher in calm["last"]["fetch"]["teachers"]}
    assert set(figures) == {"math", "code"}
    assert figures["code"]["completed"] < STEPS * 4, "some micro-batches have no row of it"


def test_a_teacher_that_is_killed_is_waited_for(distilld, folders, teachers, data, tmp_path, calm):
    port = free_port()
    flags = ("--threads", "1", "--dtype", "fp32", "--listen", f"127.0.0.1:{port}")
    first = distilld.start("teacher", folders["math"], *flags)
    first.wait_for_line("ready on")
    with ChaosProxy(f"http://127.0.0.1:{port}") as proxy:
        proxy.hold_after = PROBE + 12
        spec = spec_of(data, tmp_path / "student", {**teachers, "math": proxy.url})
        spec["teachers"]["math"] |= {"timeout_secs": 2}
        service = distilld.service(tmp_path / "service")
        rest = Rest(service.url)
        job_id = rest.submit(spec)
        wait_until(lambda: proxy.counts["held"] > 0 and proxy.answered == proxy.hold_after, "half of the answers")
        first.send(signal.SIGKILL)
        proxy.hold_after = None
        reason = wait_until(lambda: (rest.job(job_id).get("status_reason") or {}).get("message"), "the job to wait")
        assert reason.startswith("teacher math: ")
        again = distilld.start("teacher", folders["math"], *flags)
        again.wait_for_line("ready on")
        job = rest.wait_job(job_id, ["succeeded"])
    assert job["weights_sha256"] == calm["weights_sha256"]


def test_an_interrupted_run_goes_on_and_only_with_its_teachers(distilld, teachers, data, tmp_path, calm):
    spec = spec_of(data, tmp_path / "student", teachers, changes={"/training/max_steps": STEPS // 2})
    spec["training"]["lr_scheduler_type"] = "constant"
    longer = jobs.changed(spec, {"/training/max_steps": STEPS})
    whole, _ = run(distilld, jobs.changed(longer, {"/output": str(tmp_path / "whole")}), tmp_path / "at-once")
    run(distilld, spec, tmp_path)
    swapped = jobs.changed(
        longer,
        {
            "/teachers/math/endpoints": [teachers["code"]],
            "/teachers/code/endpoints": [teachers["math"]],
        },
    )
    _, refused = run(distilld, swapped, tmp_path, code=1)
    assert "/teachers/code/endpoints: the teacher is not the one" in refused.err
    _, refused = run(
        distilld, longer, tmp_path, "--set", "/teachers/code/top_k=4", "--set", "/teachers/math/top_k=4", code=1
    )
    assert "/teachers/code/top_k: is 4, but the checkpoint was made with 8" in refused.err
    report, done = run(distilld, longer, tmp_path)
    assert "resumed from" in done.out
    assert report["weights_sha256"] == whole["weights_sha256"]


def test_stores_of_each(distilld, teachers, data, tmp_path, calm):
    """A store that was generated from one teacher's rows alone serves the job, as does one that it filled itself."""
    changes = {f"/teachers/{name}/store": str(tmp_path / "stores" / name) for name in teachers}
    # f16 is what `distilld teacher` sends, so that nothing is lost.
    filling = spec_of(data, tmp_path / "filling" / "student", teachers, changes=changes)
    filled, _ = run(distilld, filling, tmp_path / "filling")
    assert filled["weights_sha256"] == calm["weights_sha256"]
    mine = [document for document in documents() if document["teacher"] == "math"]
    generate = jobs.distil_spec(
        jobs.write_jsonl(tmp_path / "math.jsonl", mine), tmp_path / "unused", teachers["math"], STEPS, top_k=8
    )
    generate["dataset"] |= {"sequence_length": LENGTH, "packing": False}
    distilld.run(
        "generate", jobs.write_spec(tmp_path / "generate.json", generate), "--store", tmp_path / "generated" / "math"
    )
    stored = jobs.changed(
        filling,
        {
            "/teachers/math/endpoints": None,
            "/teachers/math/store": str(tmp_path / "generated" / "math"),
            "/output": str(tmp_path / "stored" / "student"),
        },
    )
    report, _ = run(distilld, stored, tmp_path / "stored")
    assert report["weights_sha256"] == calm["weights_sha256"]
    assert {one["teacher"]: one["tokens"] > 0 for one in report["last"]["fetch"]["teachers"]}["math"]


def test_a_teacher_that_starves_the_others_is_seen(distilld, module_service, teachers, data, tmp_path):
    rest = module_service.rest
    with ChaosProxy(teachers["code"], Script(delay=0.2)) as slow:
        spec = spec_of(data, tmp_path / "student", {**teachers, "code": slow.url})
        spec["training"]["max_steps"] = 100_000
        spec["teachers"]["code"]["max_concurrent"] = 1
        job_id = rest.submit(spec)

        def waits():
            name = "distilld_job_teacher_wait_seconds_total"
            samples = metric_samples(rest.get("/metrics").text)
            return {teacher: samples.get(f'{name}{{job_id="{job_id}",teacher="{teacher}"}}', 0.0) for teacher in MARKS}

        wait_until(lambda: waits()["code"] > 2, "the student to wait for the slow teacher")
        seen = waits()
        print(f"\nwaited for: {seen}")
        assert seen["code"] > 5 * seen["math"]
        rest.post(f"/v1/jobs/{job_id}/cancel")
        rest.wait_job(job_id, ["cancelled"])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            {"input_ids": [5, 6, 7], "teacher": "art"},
            'names the teacher "art", of which /teachers knows nothing; it has',
        ),
        ({"input_ids": [5, 6, 7]}, 'names no teacher, and of one called "default"'),
    ],
)
def test_a_row_of_nobody_is_refused_with_its_line(distilld, teachers, data, tmp_path, line, said):
    lines = [*documents(), line]
    bad = jobs.write_jsonl(tmp_path / "bad.jsonl", lines)
    _, refused = run(distilld, spec_of(bad, tmp_path / "student", teachers), tmp_path, code=1)
    assert f"/dataset/train: {bad}:{len(lines)}: {said}" in refused.err


def test_a_teacher_that_cannot_be_trusted_is_named(distilld, teachers, data, tmp_path):
    spec = spec_of(
        data, tmp_path / "student", teachers, changes={"/teachers/math/api_key_env": "DISTILLD_KEY_NOT_THERE"}
    )
    _, refused = run(distilld, spec, tmp_path, code=1)
    assert "teacher math: /teachers/math/api_key_env: " in refused.err
