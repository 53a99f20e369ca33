"""Students on a GPU: what they learn is what a CPU teaches them, the same bits each time. Skipped where distilld-worker
finds no CUDA device. DISTILLD_TEST_DEVICE=cpu runs the same on the CPU, which checks the tests themselves."""

import json
import os

import pytest
from support import jobs
from support.moments import kill
from support.processes import wait_until
from support.sinks import run_report

DEVICE = os.environ.get("DISTILLD_TEST_DEVICE", "cuda")
STEPS = 30
LOSS_TOLERANCE = 2e-3  # of the last step's loss and the held-out one after STEPS steps in fp32
WIDE = {"/student/config": jobs.llama_config(96)}  # matrices large enough for 8-bit state

CASES = {
    "top-k": {},
    "top-k, tempered jsd": {"/training/temperature": 2.0, "/training/beta": 0.5, "/training/kd_ratio": 0.7},
    "logits": {"/teacher/top_k": 0, "/teacher/targets": "logits"},
    "hidden states": {"/teacher/top_k": 0, "/teacher/targets": "hidden"},
    "alone": {"/teacher": None},
    "documents packed": {"/dataset/packing": "documents"},
    "documents a row each": {"/dataset/packing": False},
    "8-bit AdamW": {"/training/optimizer": "adamw_8bit", **WIDE},
    "SGD": {"/training/optimizer": "sgd", "/training/sgd_momentum": 0.9, "/training/learning_rate": 0.1},
    "serial optimizer": {"/training/overlap_optimizer": False},
    "recomputed blocks": {"/training/gradient_checkpointing": True},
    "ternary": {"/student/quantization": "ternary"},
    "window": {"/student/config": jobs.llama_config(32, model_type="mistral", sliding_window=7)},
    "gradient groups": {"/training/micro_batches": 4, "/training/gradient_groups": 4},
    "two ranks": {"/training/micro_batches": 4, "/training/gradient_groups": 4, "/training/ranks": 2},
    "two ranks with one optimizer state": {
        "/training/micro_batches": 4,
        "/training/gradient_groups": 4,
        "/training/ranks": 2,
        "/training/shard_optimizer": True,
    },
    "batch size auto": {"/training/batch_size": "auto", "/teacher": None},
}


@pytest.fixture(scope="module")
def device(distilld_session, text_data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("device")
    spec = jobs.changed(jobs.base_spec(text_data, folder / "student", 1), {"/student/device": DEVICE})
    process = distilld_session.start("run", jobs.write_spec(folder / "spec.json", spec))
    process.wait()
    said = process.out + process.err
    if "/student/device" in said:
        pytest.skip("no CUDA device: " + next(line for line in said.splitlines() if "/student/device" in line))
    assert process.code == 0, said
    return DEVICE


def spec_of(data, output, teacher_url, where, changes):
    spec = jobs.distil_spec(data, output, teacher_url, STEPS)
    return jobs.changed(spec, {"/student/device": where, "/dataset/eval": str(data), **changes})


def run_in(distilld, folder, data, teacher_url, where, changes):
    folder.mkdir()
    return run_report(distilld, spec_of(data, folder / "student", teacher_url, where, changes), folder)[0]


def assert_alike(ours, theirs):
    assert ours["last"]["loss"] == pytest.approx(theirs["last"]["loss"], rel=LOSS_TOLERANCE, abs=LOSS_TOLERANCE)
    assert ours["eval_loss"] == pytest.approx(theirs["eval_loss"], rel=LOSS_TOLERANCE)


@pytest.mark.parametrize("name", CASES)
def test_a_student_there_learns_what_one_on_the_cpu_does_and_repeats_its_bits(
    distilld, device, teacher, text_data, tmp_path, name
):
    reports = {
        run: run_in(distilld, tmp_path / run, text_data, teacher.url, where, CASES[name])
        for run, where in {"cpu": "cpu", "there": device, "again": device}.items()
    }
    speed = reports["again"]["last"]["tokens_per_second"]
    print(
        f"\n{name}: loss {reports['there']['last']['loss']:.5f} (cpu {reports['cpu']['last']['loss']:.5f}), "
        f"{speed:.0f} tokens/s on {device}"
    )
    if name != "batch size auto":  # as large as the device's memory allows
        assert_alike(reports["there"], reports["cpu"])
    assert reports["again"]["weights_sha256"] == reports["there"]["weights_sha256"]


def test_ranks_have_the_bits_of_one(distilld, device, teacher, text_data, tmp_path):
    groups = {"/training/micro_batches": 4, "/training/gradient_groups": 4}
    hashes = {
        run: run_in(distilld, tmp_path / run, text_data, teacher.url, device, {**groups, **changes})["weights_sha256"]
        for run, changes in {
            "one": {},
            "two": {"/training/ranks": 2},
            "four": {"/training/ranks": 4},
            "sharded": {"/training/ranks": 2, "/training/shard_optimizer": True},
        }.items()
    }
    assert set(hashes.values()) == {hashes["one"]}, hashes


@pytest.mark.parametrize("placement", ["rank0", "cpu", "balanced", "shared", "duplicated"])
def test_a_teacher_in_the_process(distilld, device, teacher, teacher_folder, text_data, tmp_path, placement):
    local = {"model_dir": str(teacher_folder), "dtype": "fp32", "top_k": 16, "placement": placement}
    ranks = {"/training/micro_batches": 2, "/training/gradient_groups": 2, "/training/ranks": 2}
    remote = run_in(distilld, tmp_path / "remote", text_data, teacher.url, device, ranks)
    there, again = (
        run_in(distilld, tmp_path / run, text_data, teacher.url, device, {**ranks, "/teacher": local})
        for run in ("there", "again")
    )
    assert_alike(there, remote)
    assert again["weights_sha256"] == there["weights_sha256"]


def test_adapters_with_dropout(distilld, device, teacher, teacher_folder, text_data, tmp_path):
    def changes(where):
        student = {"model": str(teacher_folder), "init": "pretrained", "dtype": "fp32", "device": where}
        return {"/student": {**student, "lora": {"r": 4, "alpha": 8, "dropout": 0.1, "merge": True}}}

    reports = [
        run_in(distilld, tmp_path / str(i), text_data, teacher.url, where, changes(where))
        for i, where in enumerate(("cpu", device, device))
    ]
    assert_alike(reports[1], reports[0])
    merged = [jobs.sha256(tmp_path / str(i) / "student" / "merged" / "model.safetensors") for i in (1, 2)]
    assert merged[0] == merged[1]


def test_bf16_teaches_as_well(distilld, device, teacher, text_data, tmp_path):
    changes = {"/student/dtype": "bf16"}
    there, again = (
        run_in(distilld, tmp_path / run, text_data, teacher.url, device, changes) for run in ("there", "again")
    )
    wide = run_in(distilld, tmp_path / "fp32", text_data, teacher.url, device, {})
    assert there["eval_loss"] == pytest.approx(wide["eval_loss"], rel=2e-2)
    assert again["weights_sha256"] == there["weights_sha256"]


def test_a_killed_run_ends_with_the_bits_of_one_that_was_left_alone(distilld, device, teacher, text_data, tmp_path):
    alone = run_in(distilld, tmp_path / "alone", text_data, teacher.url, device, {})
    spec = spec_of(text_data, tmp_path / "killed", teacher.url, device, {})
    spec["checkpoint"] = {"every_steps": 10, "every_secs": 0}
    file, report = jobs.write_spec(tmp_path / "killed.json", spec), tmp_path / "report.json"
    process = distilld.start("run", file, "--report", report)
    worker = process.worker()
    wait_until(lambda: list((tmp_path / "killed").glob("checkpoints/step-*")), "a checkpoint", pause=0.001)
    kill(worker)
    process.expect(0)
    assert json.loads(report.read_text())["weights_sha256"] == alone["weights_sha256"]
