"""Sinks that speak to a server: a real MLflow, and a collector of OpenTelemetry's spans."""

import collections
import http.server
import json
import os
import pathlib
import re
import sys
import threading
import time

import pytest
from support import jobs
from support.moments import kill
from support.processes import Process, wait_until
from support.rest import Rest, closed_port, free_port
from support.sinks import STEPS, lines_of, plain, run_report, small_spec, steps_of

SCRIPTS = pathlib.Path(sys.executable).parent


@pytest.fixture
def spec(text_data, tmp_path):
    return small_spec(text_data, tmp_path / "student")


@pytest.fixture(scope="module")
def mlflow(tmp_path_factory):
    """A real MLflow server; its `url`, and `client`, MLflow's own."""
    from mlflow import MlflowClient  # takes seconds

    folder = tmp_path_factory.mktemp("mlflow")
    port = free_port()
    environment = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "PATH": f"{SCRIPTS}:{os.environ['PATH']}"}
    store = f"sqlite:///{folder / 'mlflow.db'}"
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--workers", "1", "--backend-store-uri", store, "--default-artifact-root", str(folder / "artifacts")]
    server = Process(command, folder / "server", cwd=folder, env=environment)
    rest = Rest(f"http://127.0.0.1:{port}", ours=False)

    def ready():
        assert server.code is None, server.describe()
        try:
            return rest.get("/health").status == 200
        except OSError:
            return False

    wait_until(ready, "MLflow to answer")
    server.url = rest.url
    server.client = MlflowClient(tracking_uri=rest.url)
    yield server
    server.destroy()


def runs_of(mlflow, experiment="distilld"):
    (found,) = [one for one in mlflow.client.search_experiments() if one.name == experiment]
    return mlflow.client.search_runs([found.experiment_id], order_by=["attributes.start_time"])


def history(mlflow, run, key):
    return [(point.step, point.value) for point in mlflow.client.get_metric_history(run.info.run_id, key)]


def test_mlflow_has_every_figure(distilld, spec, mlflow, tmp_path):
    spec["name"] = "every figure"
    spec["metrics"] = {"mlflow_url": mlflow.url, "jsonl_file": str(tmp_path / "metrics.jsonl")}
    report, _ = run_report(distilld, spec, tmp_path)
    silent, _ = run_report(distilld, plain(spec), tmp_path, "--output", tmp_path / "silent")
    assert report["weights_sha256"] == silent["weights_sha256"]
    run = runs_of(mlflow)[-1]
    assert (run.info.run_name, run.info.status) == ("every figure", "FINISHED")
    assert run.data.tags["distilld.weights_sha256"] == report["weights_sha256"]
    assert run.data.params["training.learning_rate"] == "0.002"
    assert json.loads(run.data.params["student.config"])["hidden_size"] == 32
    steps = [line for line in lines_of(tmp_path / "metrics.jsonl") if line["kind"] == "step"]
    for figure in ("loss", "kd_loss", "ce_loss", "grad_norm", "learning_rate", "tokens"):
        assert history(mlflow, run, figure) == [(line["step"], line[figure]) for line in steps], figure
    assert [step for step, _ in history(mlflow, run, "eval_loss")] == [3, 6]


def test_a_killed_run_goes_on_as_the_same_run_of_mlflow(distilld, spec, mlflow, tmp_path):
    spec["metrics"] = {"mlflow_url": mlflow.url}
    spec["training"]["max_steps"] = 400
    spec["training"].pop("eval_steps")
    spec["checkpoint"] = {"every_steps": 100, "every_secs": 0}
    before = len(runs_of(mlflow)) if mlflow.client.search_experiments(filter_string="name = 'distilld'") else 0
    process = distilld.start("run", jobs.write_spec(tmp_path / "spec.json", spec))
    worker = process.worker()
    wait_until(lambda: (tmp_path / "student" / "checkpoints" / "step-00000100").is_dir(), "a checkpoint")
    kill(worker)
    process.expect(0)
    assert "resumed from" in process.out
    runs = runs_of(mlflow)
    assert len(runs) == before + 1
    assert runs[-1].info.status == "FINISHED"
    steps = [step for step, _ in history(mlflow, runs[-1], "loss")]
    assert steps == sorted(set(steps)), "no step is reported twice"
    # A checkpoint waits a second for MLflow. On a busy machine the newest steps before it may be lost with the worker.
    lost = 400 - len(steps)
    assert steps == [*range(1, 101 - lost), *range(101, 401)]


def test_an_mlflow_that_is_not_there_holds_up_nothing(distilld, spec, tmp_path):
    spec["metrics"] = {"mlflow_url": f"http://127.0.0.1:{closed_port()}", "jsonl_file": str(tmp_path / "metrics.jsonl")}
    report, process = run_report(distilld, spec, tmp_path)
    silent, _ = run_report(distilld, plain(spec), tmp_path, "--output", tmp_path / "silent")
    assert report["weights_sha256"] == silent["weights_sha256"]
    assert steps_of(lines_of(tmp_path / "metrics.jsonl")) == list(range(1, STEPS + 1))
    assert re.search(r"warn: sink mlflow: .*cannot connect", process.out + process.err)
    # Start, steps, evaluations, checkpoint and end: all of them, and nothing more.
    lost = re.search(r"sink mlflow: (\d+) records of this run were lost", process.out + process.err)
    assert int(lost.group(1)) == 1 + STEPS + 2 + 1 + 1


class Collector:
    """Takes OTLP over HTTP as JSON. `answer`: the status of each, or None for none at all."""

    def __init__(self, answer=200):
        self.requests = []  # (path, headers, document)
        self._gone = threading.Event()
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.requests.append((self.path, dict(self.headers), json.loads(body)))
                if answer is None:
                    collector._gone.wait()
                    return
                self.send_response(answer)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._gone.set()
        self._server.shutdown()
        self._server.server_close()

    def spans(self):
        return [
            span
            for _, _, document in self.requests
            for resource in document["resourceSpans"]
            for scope in resource["scopeSpans"]
            for span in scope["spans"]
        ]


def attribute(span, key):
    return next(next(iter(one["value"].values())) for one in span["attributes"] if one["key"] == key)


def times(span):
    return int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])


@pytest.fixture
def distil(text_data, teacher, tmp_path):
    """Distillation, with evaluations."""
    made = jobs.distil_spec(text_data, tmp_path / "student", teacher.url, STEPS)
    made["dataset"].update(eval=str(text_data), eval_rows=4)
    return made


@pytest.mark.parametrize("where", ["the spec", "the environment"])
def test_a_collector_gets_one_tree_of_spans(distilld, distil, tmp_path, where):
    began = time.time_ns()
    with Collector() as collector:
        options = {}
        if where == "the spec":
            distil["metrics"] = {"otlp_url": collector.url}
        else:
            options["env"] = {
                "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
                "OTEL_EXPORTER_OTLP_HEADERS": "api-key=secret",
            }
        report, _ = run_report(distilld, distil, tmp_path, **options)
        silent, _ = run_report(distilld, plain(distil), tmp_path, "--output", tmp_path / "silent")
        assert report["weights_sha256"] == silent["weights_sha256"]
    ended = time.time_ns()
    spans = collector.spans()
    assert all(path == "/v1/traces" for path, _, _ in collector.requests)
    if where == "the environment":
        assert all(headers["api-key"] == "secret" for _, headers, _ in collector.requests)
    resource = collector.requests[0][2]["resourceSpans"][0]["resource"]
    assert attribute(resource, "service.name") == "distilld"
    by_id = {span["spanId"]: span for span in spans}
    assert len(by_id) == len(spans), "each span once"
    assert len({span["traceId"] for span in spans}) == 1
    (root,) = [span for span in spans if "parentSpanId" not in span]
    assert root["name"] == "job" and root["status"]["code"] == 1
    steps = [span for span in spans if span["name"] == "step"]
    assert sorted(int(attribute(span, "distilld.step")) for span in steps) == list(range(1, STEPS + 1))
    names = collections.Counter(span["name"] for span in spans)
    micro_batches = 4 * STEPS
    assert names["plan"] == names["staging.stage"] == names["student.train"] == micro_batches
    assert names["decode"] >= micro_batches  # both answers, where a hedge came in with the first
    assert names["teacher.request"] + names["teacher.retry"] + names["teacher.hedge"] >= micro_batches
    assert names["optimizer.finish_step"] == STEPS
    assert names["evaluation.evaluate"] == names["recorder.checkpoint"] == 1
    for span in spans:
        assert re.fullmatch("[0-9a-f]{32}", span["traceId"]) and re.fullmatch("[0-9a-f]{16}", span["spanId"])
        begin, end = times(span)
        assert began <= begin <= end <= ended
        if span is not root:
            parent = by_id[span["parentSpanId"]]
            assert times(parent)[0] <= begin, (span["name"], parent["name"])
            assert end <= times(parent)[1] or span["name"].startswith("teacher."), (span["name"], parent["name"])
    for step in steps:
        assert step["parentSpanId"] == root["spanId"]
        below = collections.Counter(span["name"] for span in spans if span.get("parentSpanId") == step["spanId"])
        assert below["student.train"] == 4 and below["optimizer.finish_step"] == 1
        index = int(attribute(step, "distilld.step")) - 1
        trained = [s for s in spans if s["name"] == "student.train" and s["parentSpanId"] == step["spanId"]]
        assert {int(attribute(span, "distilld.micro_batch")) // 4 for span in trained} == {index}


@pytest.mark.parametrize("answer", [503, None], ids=["503", "hangs"])
def test_a_collector_in_trouble_holds_up_nothing(distilld, spec, tmp_path, answer):
    with Collector(answer) as collector:
        spec["metrics"] = {"otlp_url": collector.url, "jsonl_file": str(tmp_path / "metrics.jsonl")}
        report, process = run_report(distilld, spec, tmp_path)
        silent, _ = run_report(distilld, plain(spec), tmp_path, "--output", tmp_path / "silent")
    assert report["weights_sha256"] == silent["weights_sha256"]
    assert steps_of(lines_of(tmp_path / "metrics.jsonl")) == list(range(1, STEPS + 1))
    assert collector.requests
    said = process.out + process.err
    assert re.search(r"sink otlp: \d+ records of this run were lost", said)
    if answer == 503:
        assert re.search(r"warn: sink otlp: .*/v1/traces: HTTP 503", said)
