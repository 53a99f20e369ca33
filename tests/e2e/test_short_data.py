"""Runs on little data: what `spec init` writes trains, an epoch has every row once, nothing is left out unsaid."""

import json
import re
import shutil

import pytest
from support import jobs


def plain(text_data, folder, rows, **training):
    """A job on `rows` documents of 11 tokens, one a row; without a teacher."""
    lines = [{"input_ids": [(7 * row + i) % 256 for i in range(11)]} for row in range(rows)]
    spec = jobs.base_spec(text_data, folder / "student", steps=1)
    changes = {
        "/teacher": None,
        "/dataset/train": str(jobs.write_jsonl(folder / "rows.jsonl", lines)),
        "/dataset/packing": False,
        "/training/max_steps": None,
        "/training/epochs": 1,
    }
    return jobs.changed(spec, changes | {f"/training/{name}": value for name, value in training.items()})


def run(distilld, folder, spec, code=0):
    report = folder / "report.json"
    process = distilld.run("run", jobs.write_spec(folder / "spec.json", spec), "--report", report, code=code)
    return process, json.loads(report.read_text()) if report.exists() else None


@pytest.fixture
def base(distilld, text_data, tmp_path):
    """A model to begin with."""
    distilld.run("run", jobs.write_spec(tmp_path / "base.json", plain(text_data, tmp_path, 8)))
    return tmp_path / "student"


def test_what_spec_init_writes_trains_on_86_rows(distilld, base, tmp_path):
    lines = [{"input_ids": [(7 * row + i) % 256 for i in range(90)]} for row in range(30)]
    data = jobs.write_jsonl(tmp_path / "few.jsonl", lines)
    written = distilld.run("spec", "init", "--model", base, "--data", data, "--output", tmp_path / "out").out
    (tmp_path / "spec.json").write_text(written)
    said = distilld.run("run", tmp_path / "spec.json").out
    rows, steps = map(int, re.search(r"1 epoch of (\d+) rows: (\d+) steps of up to ", said).groups())
    assert 20 <= rows <= 200 and steps >= min(rows, 20)
    assert re.search(r"batch_size auto: \d+, micro_batches auto: \d+: a step has \d+ sequences?, and an epoch", said)
    last = next(line for line in said.splitlines() if line.startswith(f"step {steps}/{steps} "))
    assert " lr 0.0e+00" not in last
    before = jobs.safetensors_entries(base / "model.safetensors")
    after = jobs.safetensors_entries(tmp_path / "out" / "model.safetensors")
    assert all(after[name] != before[name] for name in before)


def test_an_epoch_has_every_row_once(distilld, text_data, tmp_path):
    spec = plain(text_data, tmp_path, 86, batch_size=8, micro_batches=4, epochs=2)
    process, report = run(distilld, tmp_path, spec)
    assert "2 epochs of 86 rows: 6 steps of up to 32 sequences" in process.out
    assert report["last"]["total_steps"] == 6
    assert report["last"]["tokens"] == 2 * 86 * 10


def test_cut_into_other_micro_batches_it_is_the_same_run(distilld, text_data, tmp_path):
    """The last step of an epoch is weighted by its own tokens, however many micro-batches it has."""
    losses = {}
    for batch_size, micro_batches in ((32, 1), (8, 4), (4, 8)):
        spec = plain(text_data, tmp_path, 75, batch_size=batch_size, micro_batches=micro_batches, epochs=2)
        changes = {"/output": str(tmp_path / f"cut-{batch_size}"), "/dataset/shuffle": "off"}
        _, report = run(distilld, tmp_path, jobs.changed(spec, changes))
        assert report["last"]["total_steps"] == 6
        losses[batch_size] = report["last"]["loss"]
    assert losses[8] == pytest.approx(losses[32], rel=1e-5)
    assert losses[4] == pytest.approx(losses[32], rel=1e-5)


def test_it_resumes_in_the_middle_of_an_epoch(distilld, text_data, tmp_path):
    spec = plain(text_data, tmp_path, 86, batch_size=8, micro_batches=4, epochs=2)
    _, whole = run(distilld, tmp_path, jobs.changed(spec, {"/output": str(tmp_path / "whole")}))
    spec = jobs.changed(spec, {"/checkpoint/every_steps": 1, "/checkpoint/keep": 10})
    run(distilld, tmp_path, spec)
    checkpoints = sorted((tmp_path / "student" / "checkpoints").glob("[!.]*"))
    state = json.loads((checkpoints[3] / "state.json").read_text())
    assert state["next_micro_batch"] == 11 + 4, "11 micro-batches of the first epoch, 4 of the second"
    for later in checkpoints[4:]:
        shutil.rmtree(later)
    process, resumed = run(distilld, tmp_path, spec)
    assert "resumed from" in process.out
    assert resumed["weights_sha256"] == whole["weights_sha256"]


def test_a_run_that_an_earlier_version_began_keeps_its_plan(distilld, text_data, tmp_path):
    """Its steps run on, and documents longer than a row are cut."""
    spec = plain(text_data, tmp_path, 86, batch_size=8, micro_batches=4, epochs=2)
    changes = {"/dataset/packing": "documents", "/dataset/sequence_length": 8, "/dataset/overflow": "truncate"}
    spec = jobs.changed(spec, changes | {"/checkpoint/every_steps": 1, "/training/max_steps": 2})
    spec["training"].pop("epochs")
    run(distilld, tmp_path, spec)
    state = tmp_path / "student" / "checkpoints" / "step-00000002" / "state.json"
    text = state.read_text()
    said = r",\"overflow\":\"truncate\""
    assert said in text and "ends_epochs" not in text
    text, hashes = re.subn(r',"sha256":"[0-9a-f]{64}"}\s*$', "}", text.replace(said, ""))
    assert hashes == 1  # an earlier version wrote none
    state.write_text(text)
    shutil.rmtree(state.parent.parent / "step-00000001", ignore_errors=True)
    spec = jobs.changed(spec, {"/training/max_steps": None, "/training/epochs": 2, "/dataset/overflow": None})
    process, report = run(distilld, tmp_path, spec)
    assert "resumed from" in process.out and "was started by an earlier version" in process.out
    assert "688 of 860 tokens are used" in process.out
    assert report["last"]["total_steps"] == 2 * 86 // 32


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"learning_rate": 0}, "/training/learning_rate: is 0, so no weight would change"),
        ({"warmup_steps": 20}, "/training/warmup_steps: the warm-up of 20 steps does not end before the run"),
        ({"warmup_steps": 3, "epochs": None, "max_steps": 3}, "/training/warmup_steps: the warm-up of 3 steps"),
    ],
)
def test_a_run_that_learns_nothing_is_refused(distilld, text_data, tmp_path, changes, said):
    process, _ = run(distilld, tmp_path, plain(text_data, tmp_path, 20, batch_size=8, **changes), code=1)
    assert said in process.err
    assert "step 1/" not in process.out and not (tmp_path / "student" / "model.safetensors").exists()


def test_more_rows_a_step_than_there_are_is_said(distilld, text_data, tmp_path):
    spec = plain(text_data, tmp_path, 3, batch_size=8, epochs=None, max_steps=1)
    process, _ = run(distilld, tmp_path, spec)
    assert "warn: /training/max_steps: a step takes " in process.out


def test_long_documents(distilld, text_data, tmp_path):
    lines = [{"input_ids": [(row + i) % 256 for i in range(301)]} for row in range(4)]
    data = jobs.write_jsonl(tmp_path / "long.jsonl", lines)
    spec = plain(text_data, tmp_path, 1, batch_size=2)
    spec = jobs.changed(spec, {"/dataset/train": str(data), "/dataset/sequence_length": 32})

    def said(packing, overflow, code=0):
        changes = {"/dataset/packing": packing, "/dataset/overflow": overflow}
        changes["/output"] = str(tmp_path / f"{packing}-{overflow}")
        process, _ = run(distilld, tmp_path, jobs.changed(spec, changes), code)
        return process.out + process.err

    truncated = said(False, None)
    assert "warn: /dataset/train: 128 of 1200 tokens are used (10.6%): documents are cut after 33 tokens" in truncated
    assert " on 128 of 1.2k tokens in 4 rows: 1 step of " in truncated.replace("2 steps", "1 step")
    assert "4 documents lie in 4 rows, which they fill to 100.0%" in said("documents", "truncate")
    for packing, overflow in (("documents", None), (False, "split"), ("documents", "split")):
        split = said(packing, overflow)
        assert " on 1.2k of 1.2k tokens in " in split and "are used" not in split
    refused = said("documents", "error", 1)
    assert f"/dataset/train: {data}:1: has 301 tokens, 33 of which fit into a row" in refused
    assert "/dataset/overflow: applies only when rows hold whole documents" in said(True, "split", 2)
