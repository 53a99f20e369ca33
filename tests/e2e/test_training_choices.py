"""Losses, optimizers, checkpointed gradients and what a student says: as a job has them."""

import json
import math

import pytest
from support import jobs
from support.moments import kill
from support.processes import wait_until
from support.sinks import lines_of, run_report, small_spec

OPTIMIZERS = {
    "adamw": {},
    "adamw_8bit": {"/training/optimizer": "adamw_8bit"},
    "sgd": {"/training/optimizer": "sgd", "/training/sgd_momentum": 0.9, "/training/learning_rate": 0.2},
}


def choice(data, output, name, steps=120):
    """A student whose matrices are large enough for 8-bit state."""
    spec = jobs.changed(jobs.base_spec(data, output, steps), OPTIMIZERS[name])
    spec["student"]["config"] = jobs.llama_config(96)
    spec["checkpoint"] = {"every_steps": 10, "every_secs": 0}
    return spec


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_killed_run_ends_with_the_bits_of_one_that_was_left_alone(distilld, text_data, tmp_path, name):
    alone, _ = run_report(distilld, choice(text_data, tmp_path / "alone", name), tmp_path)
    # Neither the layers' activations nor when updates run change a bit.
    spec = choice(text_data, tmp_path / "killed", name)
    spec["training"].update(gradient_checkpointing=True, overlap_optimizer=False)
    process = distilld.start(
        "run", jobs.write_spec(tmp_path / "killed.json", spec), "--report", tmp_path / "killed-report.json"
    )
    worker = process.worker()
    wait_until(lambda: len(list((tmp_path / "killed").glob("checkpoints/step-*"))) == 2, "two checkpoints", pause=0.001)
    kill(worker)
    process.expect(0)
    assert "resumed from" in process.out
    report = json.loads((tmp_path / "killed-report.json").read_text())
    assert report["weights_sha256"] == alone["weights_sha256"]
    assert report["last"]["loss"] < 4  # ln 257 is 5.5


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_student_that_is_not_a_number_never_succeeds(distilld, text_data, tmp_path, name):
    spec = choice(text_data, tmp_path / "student", name, steps=30)
    spec["training"].update(learning_rate=100, max_grad_norm=0, lr_scheduler_type="constant")
    spec["student"]["config"]["initializer_range"] = 30
    spec["training"]["weight_decay"] = 100  # what grows by a factor of 10^4 a step soon is no number
    spec["checkpoint"] = {}
    ended = distilld.run("run", jobs.write_spec(tmp_path / "spec.json", spec), code=1)
    assert "/training/max_nonfinite_steps: 10 steps in a row had to be skipped" in ended.err
    assert not (tmp_path / "student" / "model.safetensors").exists()


def test_each_beta_is_a_loss_of_its_own(distilld, teacher, text_data, tmp_path):
    hashes = set()
    for beta in (0, 0.5, 1):
        spec = jobs.distil_spec(text_data, tmp_path / f"student-{beta}", teacher.url, steps=60)
        spec["training"]["beta"] = beta
        spec["metrics"] = {"jsonl_file": str(tmp_path / f"{beta}.jsonl")}
        report, _ = run_report(distilld, spec, tmp_path)
        losses = [line["kd_loss"] for line in lines_of(tmp_path / f"{beta}.jsonl") if line["kind"] == "step"]
        assert all(math.isfinite(loss) for loss in losses)
        print(f"beta {beta}: divergence {losses[0]:.4f} to {losses[-1]:.4f}")
        assert sum(losses[-5:]) < 0.8 * sum(losses[:5]), beta
        hashes.add(report["weights_sha256"])
    assert len(hashes) == 3


def test_the_student_says_something_at_each_evaluation(distilld, text_data, tmp_path):
    silent, _ = run_report(distilld, small_spec(text_data, tmp_path / "silent"), tmp_path)
    spec = small_spec(text_data, tmp_path / "student")
    del spec["dataset"]["eval_rows"]
    spec["eval"] = {"max_rows": 4, "sample_prompts": ["The ", "a\nb"], "sample_tokens": 8, "sample_temperature": 0.7}
    spec["metrics"] = {"jsonl_file": str(tmp_path / "metrics.jsonl")}
    report, process = run_report(distilld, spec, tmp_path)
    assert report["weights_sha256"] == silent["weights_sha256"], "looking changes nothing"
    assert report["eval_loss"] == silent["eval_loss"], "max_rows is eval_rows"
    assert "each evaluation will read 4 of the " in process.out
    said = [line["samples"] for line in lines_of(tmp_path / "metrics.jsonl") if line["kind"] == "evaluation"]
    assert len(said) == 2
    assert [sample["prompt"] for sample in said[0]] == ["The ", "a\nb"]
    assert said[0] != said[1], "it has learned meanwhile, and draws anew"
    assert '  "a\\nb" → "' in process.out


def test_prompts_without_a_tokenizer_are_refused(distilld, tmp_path):
    data = tmp_path / "ids.jsonl"
    data.write_text("".join(json.dumps({"input_ids": list(range(40))}) + "\n" for _ in range(8)))
    spec = small_spec(data, tmp_path / "student")
    spec["student"]["config"] = jobs.llama_config(32, vocabulary=1000)
    spec["eval"] = {"sample_prompts": ["The "]}
    ended = distilld.run("run", jobs.write_spec(tmp_path / "spec.json", spec), code=1)
    assert "/eval/sample_prompts: there is no tokenizer to read them with" in ended.err
