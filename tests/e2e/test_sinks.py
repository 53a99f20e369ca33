"""Sinks: where the figures of a run go beside the service. They tell of a run and change nothing of it."""

import collections
import json
import signal
import time

import numpy as np
import pytest
from support import jobs
from support.moments import kill
from support.processes import wait_until
from support.sinks import STEPS, lines_of, plain, run_report, small_spec, steps_of
from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator


@pytest.fixture
def spec(text_data, tmp_path):
    return small_spec(text_data, tmp_path / "student")


def kill_behind_checkpoint(worker, output):
    """Kills the worker some steps after its second checkpoint."""
    wait_until(lambda: len(list(output.glob("checkpoints/step-*"))) == 2, "two checkpoints", pause=0.001)
    time.sleep(0.05)  # it trains on
    kill(worker)


def test_the_jsonl_file_has_every_figure_and_no_bit_changes(distilld, spec, tmp_path):
    silent, _ = run_report(distilld, spec, tmp_path, "--output", tmp_path / "silent")
    spec["metrics"] = {"jsonl_file": "told/metrics.jsonl"}
    report, _ = run_report(distilld, spec, tmp_path, cwd=tmp_path)
    assert report["weights_sha256"] == silent["weights_sha256"]
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
    kill_behind_checkpoint(worker, tmp_path / "student")
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


def scalars(folder):
    """{tag: [(step, value)]} as TensorBoard reads the folder, which checks the CRCs."""
    reader = EventAccumulator(str(folder), size_guidance={SCALARS: 0})
    reader.Reload()
    assert reader.file_version == 2
    return {
        tag: [(point.step, point.value) for point in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]
    }, reader


def test_tensorboard_reads_every_figure(distilld, spec, tmp_path):
    folder = tmp_path / "board" / "run"
    spec["metrics"] = {"tensorboard_dir": str(folder), "jsonl_file": str(tmp_path / "metrics.jsonl")}
    report, _ = run_report(distilld, spec, tmp_path)
    assert (
        report["weights_sha256"]
        == run_report(distilld, plain(spec), tmp_path, "--output", tmp_path / "p")[0]["weights_sha256"]
    )
    found, reader = scalars(folder)
    steps = [line for line in lines_of(tmp_path / "metrics.jsonl") if line["kind"] == "step"]
    for figure in ("loss", "kd_loss", "ce_loss", "grad_norm", "learning_rate", "tokens"):
        expected = [(line["step"], np.float32(line[figure])) for line in steps]
        assert found[f"train/{figure}"] == expected, figure
    assert [step for step, _ in found["eval/loss"]] == [3, 6]
    assert found["eval/loss"][-1][1] == np.float32(report["eval_loss"])
    assert reader.Tags()["tensors"] == ["spec"]
    text = reader.Tensors("spec")[0].tensor_proto.string_val[0].decode()
    assert json.loads(text.removeprefix("```json").removesuffix("```"))["output"] == str(tmp_path / "student")


def test_tensorboard_forgets_what_lies_behind_the_checkpoint(distilld, spec, tmp_path):
    folder = tmp_path / "board"
    spec["metrics"] = {"tensorboard_dir": str(folder)}
    spec["training"]["max_steps"] = 400
    spec["training"].pop("eval_steps")
    spec["checkpoint"] = {"every_steps": 50, "every_secs": 0}
    process = distilld.start("run", jobs.write_spec(tmp_path / "spec.json", spec))
    worker = process.worker()
    wait_until(lambda: folder.is_dir() and any(folder.glob("events*")), "an event file")
    (first,) = folder.iterdir()
    wait_until(lambda: (tmp_path / "student" / "checkpoints" / "step-00000050").is_dir(), "a checkpoint")
    size = first.stat().st_size
    wait_until(lambda: first.stat().st_size > size, "steps behind the checkpoint", pause=0.001)
    kill(worker)
    process.expect(0)
    assert len(list(folder.iterdir())) == 2
    found, _ = scalars(folder)
    assert [step for step, _ in found["train/loss"]] == list(range(1, 401))


@pytest.mark.parametrize("bad", ["a folder", "another's file", "an unwritable place"])
def test_a_file_that_cannot_be_is_refused_before_the_training(distilld, spec, text_data, tmp_path, bad):
    path = {"a folder": tmp_path, "another's file": text_data, "an unwritable place": "/proc/nowhere/m.jsonl"}[bad]
    before = text_data.read_bytes()
    spec["metrics"] = {"jsonl_file": str(path)}
    process = distilld.run("run", jobs.write_spec(tmp_path / "spec.json", spec), code=1)
    assert "/metrics/jsonl_file: " in process.err and str(path).split("/m.jsonl")[0] in process.err
    assert "step 1" not in process.out
    assert text_data.read_bytes() == before
