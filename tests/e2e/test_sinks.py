"""Sinks: where the figures of a run go beside the service. They tell of a run and change nothing of it."""

import collections
import json
import signal

import pytest
from support import jobs
from support.moments import kill

STEPS = 6


def run_report(distilld, spec, folder, *flags, **options):
    file = jobs.write_spec(folder / "spec.json", spec)
    process = distilld.run("run", file, "--report", folder / "report.json", *flags, **options)
    return json.loads((folder / "report.json").read_text()), process


def lines_of(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def steps_of(lines):
    return [line["step"] for line in lines if line["kind"] == "step"]


@pytest.fixture
def spec(text_data, tmp_path):
    made = jobs.base_spec(text_data, tmp_path / "student", STEPS)
    made["dataset"].update(eval=str(text_data), eval_rows=4)
    made["training"]["eval_steps"] = 3
    return made


def test_the_jsonl_file_has_every_figure_and_no_bit_changes(distilld, spec, tmp_path):
    plain, _ = run_report(distilld, spec, tmp_path, "--output", tmp_path / "plain")
    spec["metrics"] = {"jsonl_file": "told/metrics.jsonl"}
    report, _ = run_report(distilld, spec, tmp_path, cwd=tmp_path)
    assert report["weights_sha256"] == plain["weights_sha256"]
    lines = lines_of(tmp_path / "told" / "metrics.jsonl")
    kinds = collections.Counter(line["kind"] for line in lines)
    assert kinds == {"started": 1, "step": STEPS, "evaluation": 2, "checkpoint": 1, "finished": 1}
    assert steps_of(lines) == list(range(1, STEPS + 1))
    assert lines[0]["kind"] == "started" and lines[0]["output"] == str(tmp_path / "student")
    last = [line for line in lines if line["kind"] == "step"][-1]
    for figure in ("loss", "kd_loss", "ce_loss", "grad_norm", "learning_rate", "tokens"):
        assert last[figure] == report["last"][figure], figure
    assert lines[-1]["weights_sha256"] == report["weights_sha256"]
    assert lines[-1]["eval_loss"] == report["eval_loss"] == lines[-2]["loss"]
    times = [line["time"] for line in lines]
    assert times == sorted(times)


def test_a_killed_run_that_goes_on_has_each_step_once(distilld, spec, tmp_path):
    spec["metrics"] = {"jsonl_file": str(tmp_path / "metrics.jsonl")}
    spec["training"]["max_steps"] = 400
    spec["training"].pop("eval_steps")
    spec["checkpoint"] = {"every_steps": 10, "every_secs": 0}
    process = distilld.start("run", jobs.write_spec(tmp_path / "spec.json", spec))
    worker = process.worker()
    process.wait_for_line(r"step (1[3-9]|[2-9]\d)/")
    kill(worker)
    process.expect(0)  # the next worker goes on
    assert "resumed from" in process.out
    lines = lines_of(tmp_path / "metrics.jsonl")
    assert steps_of(lines) == list(range(1, 401))
    assert [line["step"] for line in lines if line["kind"] == "started"][-1] >= 10
    assert [line["kind"] for line in lines][-1] == "finished"


def test_an_interrupted_run_says_so(distilld, spec, tmp_path):
    spec["metrics"] = {"jsonl_file": str(tmp_path / "metrics.jsonl")}
    spec["training"]["max_steps"] = 4000
    process = distilld.start("run", jobs.write_spec(tmp_path / "spec.json", spec))
    process.wait_for_line(r"step \d+/")
    process.send(signal.SIGINT)
    process.expect(130)
    last = lines_of(tmp_path / "metrics.jsonl")[-1]
    assert last["kind"] == "cancelled"
    assert last["step"] == steps_of(lines_of(tmp_path / "metrics.jsonl"))[-1]


@pytest.mark.parametrize("bad", ["a folder", "another's file", "an unwritable place"])
def test_a_file_that_cannot_be_is_refused_before_the_training(distilld, spec, text_data, tmp_path, bad):
    path = {"a folder": tmp_path, "another's file": text_data, "an unwritable place": "/proc/nowhere/m.jsonl"}[bad]
    before = text_data.read_bytes()
    spec["metrics"] = {"jsonl_file": str(path)}
    process = distilld.run("run", jobs.write_spec(tmp_path / "spec.json", spec), code=1)
    assert "/metrics/jsonl_file: " in process.err and str(path).split("/m.jsonl")[0] in process.err
    assert "step 1" not in process.out
    assert text_data.read_bytes() == before
