"""Sinks that speak to a server: a real MLflow."""

import json
import os
import pathlib
import re
import sys

import pytest
from support import jobs
from support.moments import kill
from support.processes import Process, wait_until
from support.rest import Rest, free_port
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
    rest = Rest(f"http://127.0.0.1:{port}")

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
    assert [step for step, _ in history(mlflow, runs[-1], "loss")] == list(range(1, 401))


def test_an_mlflow_that_is_not_there_holds_up_nothing(distilld, spec, tmp_path):
    spec["metrics"] = {"mlflow_url": f"http://127.0.0.1:{free_port()}", "jsonl_file": str(tmp_path / "metrics.jsonl")}
    report, process = run_report(distilld, spec, tmp_path)
    silent, _ = run_report(distilld, plain(spec), tmp_path, "--output", tmp_path / "silent")
    assert report["weights_sha256"] == silent["weights_sha256"]
    assert steps_of(lines_of(tmp_path / "metrics.jsonl")) == list(range(1, STEPS + 1))
    assert re.search(r"warn: sink mlflow: .*cannot connect", process.out + process.err)
    # Start, steps, evaluations, checkpoint and end: all of them, and nothing more.
    lost = re.search(r"sink mlflow: (\d+) records of this run were lost", process.out + process.err)
    assert int(lost.group(1)) == 1 + STEPS + 2 + 1 + 1
