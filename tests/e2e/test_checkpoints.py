"""What was trained is not lost, and what somebody else wrote is not touched. Specs say nothing of checkpoints unless
the test is about that: the defaults have to do."""

import json
import os
import pathlib
import re
import shutil
import signal

import pytest
from chaos_proxy import ChaosProxy
from support import jobs
from support.moments import alive, kill
from support.processes import wait_until
from support.rest import Rest, closed_port
from support.small_disk import fill, small_disk_at

STEPS = 12
SMALL = 16 * 1024  # more than the fence of a folder takes, and less than a checkpoint
PROBE = 2  # POSTs before the first micro-batch


def run_report(distilld, spec, folder, *flags, **options):
    file = jobs.write_spec(folder / "spec.json", spec)
    distilld.run("run", file, "--report", folder / "report.json", *flags, **options)
    return json.loads((folder / "report.json").read_text())


def checkpoints(output):
    return sorted(entry.name for entry in (pathlib.Path(output) / "checkpoints").glob("[!.]*"))


@pytest.fixture
def spec(text_data, tmp_path):
    """Plain training."""
    return jobs.base_spec(text_data, tmp_path / "student", steps=4)


@pytest.mark.parametrize("who", ["service", "run"])
def test_a_worker_whose_parent_was_killed_saves_its_last_step(distilld, teacher, text_data, tmp_path, who):
    spec = jobs.distil_spec(text_data, tmp_path / "student", teacher.url, STEPS)
    calm = run_report(distilld, spec, tmp_path, "--output", tmp_path / "calm")
    with ChaosProxy(teacher.url) as proxy:
        proxy.hold_after = PROBE + 4 * 5 + 2  # the teacher falls silent in the sixth step
        # One request at a time: several arrive in any order, and the one that is held could belong to an earlier step.
        spec["teacher"].update(endpoints=[proxy.url], hedge=False, max_concurrent=1)
        file = jobs.write_spec(tmp_path / "spec.json", spec)
        if who == "service":
            process = distilld.service(tmp_path / "service")
            rest = Rest(process.url)
            job_id = rest.submit(file.read_bytes())
            wait_until(lambda: (rest.job(job_id)["progress"] or {}).get("step") == 5, "five steps")
        else:
            process = distilld.start("run", file)
            process.wait_for_line("step 1")
        wait_until(
            lambda: proxy.counts["held"] > 0 and proxy.answered == proxy.hold_after, "the teacher to fall silent"
        )
        worker = process.worker()
        kill(process.pid)
        process.wait()
        wait_until(lambda: not alive(worker), "the worker to end by itself")
        (saved,) = checkpoints(tmp_path / "student")
        step = int(saved.removeprefix("step-"))
        assert step == 5 if who == "service" else 1 <= step <= 5
        proxy.hold_after = None
        report = tmp_path / "report.json"
        if who == "service":
            rest = Rest(distilld.service(tmp_path / "service").url)
            job = rest.wait_job(job_id, ["succeeded"])
            assert job["progress"]["fetch"]["completed"] == 4 * (STEPS - step)
            assert job["weights_sha256"] == calm["weights_sha256"]
        else:
            # No --resume: the spec is that of the run whose checkpoints lie there.
            again = distilld.run("run", file, "--report", report)
            assert f"resumed from {tmp_path}/student/checkpoints/{saved}" in again.out
            assert json.loads(report.read_text())["weights_sha256"] == calm["weights_sha256"]


def test_a_finished_run_that_is_run_again_says_the_same(distilld, teacher, text_data, tmp_path):
    spec = jobs.distil_spec(text_data, tmp_path / "student", teacher.url, steps=4)
    spec["dataset"]["eval"] = str(text_data)
    first = run_report(distilld, spec, tmp_path)
    assert first["last"]["step"] == 4 and first["last"]["loss"] > 0
    # Nothing is left to be asked, so nobody has to be there.
    spec["teacher"]["endpoints"] = [f"http://127.0.0.1:{closed_port()}"]
    for flags in ([], ["--resume"]):
        again = run_report(distilld, spec, tmp_path, *flags)
        figures = ("step", "total_steps", "loss", "kd_loss", "ce_loss", "grad_norm", "learning_rate", "tokens")
        for figure in (*figures, "tokens_per_second", "seconds_elapsed"):
            assert again["last"][figure] == first["last"][figure], figure
        assert again["eval_loss"] == first["eval_loss"]
        assert again["weights_sha256"] == first["weights_sha256"]


def test_a_finished_job_that_is_posted_again_says_the_same(distilld, spec, tmp_path):
    rest = Rest(distilld.service(tmp_path / "service").url)
    jobs_done = [rest.wait_job(rest.submit(json.dumps(spec).encode()), ["succeeded"]) for _ in range(2)]
    first, again = (
        (job["weights_sha256"], job["progress"]["step"], job["progress"]["loss"], job["progress"]["learning_rate"])
        for job in jobs_done
    )
    assert first == again
    assert first[1] == 4 and first[2] > 0


def test_checkpoints_by_time_change_no_bit(distilld, spec, tmp_path):
    calm = run_report(distilld, spec, tmp_path, "--output", tmp_path / "calm")
    assert checkpoints(tmp_path / "calm") == ["step-00000004"]
    often = run_report(
        distilld, spec, tmp_path, "--set", "/checkpoint/every_secs=0.000001", "--set", "/checkpoint/keep=9"
    )
    assert len(checkpoints(tmp_path / "student")) > 1
    assert often["weights_sha256"] == calm["weights_sha256"]


def test_another_teacher_or_another_arithmetic_is_refused(distilld, teacher, text_data, tmp_path):
    spec = jobs.distil_spec(text_data, tmp_path / "student", teacher.url, steps=4)
    run_report(distilld, spec, tmp_path)
    other = jobs.base_spec(text_data, tmp_path / "other", steps=2)
    other["student"]["config"] = jobs.llama_config(48)
    (tmp_path / "model").mkdir()
    run_report(distilld, other, tmp_path / "model")
    stranger = distilld.teacher(tmp_path / "other", "--dtype", "fp32")
    file = jobs.write_spec(tmp_path / "spec.json", spec)
    longer = ["--set", "/training/max_steps=6"]
    asking = [*longer, "--teacher-endpoint", stranger.url]
    refused = distilld.run("run", file, *asking, code=1)
    assert "step-00000004: /teacher/endpoints: the teacher is not the one" in refused.err
    refused = distilld.run("run", file, *longer, "--set", "/student/dtype=bf16", code=1)
    assert '/student/dtype: is "bf16", but the checkpoint was made with "fp32"' in refused.err
    twin = distilld.run("run", file, *longer)
    assert "the teacher is not the one" not in twin.out
    warned = distilld.run("run", file, "--set", "/training/max_steps=8", *asking[2:], "--set", "/overwrite=true")
    assert "warn: /teacher/endpoints: the teacher is not the one" in warned.out


def test_fewer_steps_than_were_done_are_refused(distilld, spec, tmp_path):
    run_report(distilld, spec, tmp_path)
    refused = distilld.run("run", tmp_path / "spec.json", "--set", "/training/max_steps=3", code=1)
    newest = tmp_path / "student" / "checkpoints" / "step-00000004"
    assert f"/training/max_steps: 3 is below the checkpoint's step 4 in {newest}" in refused.err


def test_checkpoints_of_another_run_stay_until_they_may_be_overwritten(distilld, spec, tmp_path):
    run_report(distilld, spec, tmp_path)
    newest = tmp_path / "student" / "checkpoints" / "step-00000004"
    weights = jobs.sha256(newest / "model.safetensors")
    other = ["--set", "/training/seed=9", "--set", "/training/max_steps=3"]
    refused = distilld.run("run", tmp_path / "spec.json", *other, code=1)
    assert f"{newest}: /training/seed: is 9, but" in refused.err and '"overwrite": true' in refused.err
    refused = distilld.run("run", tmp_path / "spec.json", "--set", "/resume=false", code=1)
    assert f"{newest}: /resume: is false, but there are checkpoints up to step 4" in refused.err
    assert jobs.sha256(newest / "model.safetensors") == weights

    told = distilld.run("run", tmp_path / "spec.json", *other, "--set", "/overwrite=true")
    assert "checkpoints of an earlier run" in told.out
    assert checkpoints(tmp_path / "student") == ["step-00000003"]


def test_what_distilld_did_not_write_stays(distilld, spec, tmp_path):
    thesis = tmp_path / "student" / "checkpoints" / "step-00000007" / "thesis.txt"
    thesis.parent.mkdir(parents=True)
    thesis.write_text("years of work")
    run_report(distilld, spec, tmp_path, "--set", "/checkpoint/every_steps=1", "--set", "/checkpoint/keep=1")
    assert checkpoints(tmp_path / "student") == ["step-00000004", "step-00000007"]
    assert thesis.read_text() == "years of work"


def test_a_model_of_another_is_not_overwritten_in_silence(distilld, spec, tmp_path):
    output = tmp_path / "student"
    output.mkdir()
    (output / "config.json").write_text("{}")
    file = jobs.write_spec(tmp_path / "spec.json", spec)
    refused = distilld.run("run", file, code=1)
    assert f"/output: {output / 'config.json'} belongs to another model" in refused.err
    assert "step 1/4" not in refused.out and (output / "config.json").read_text() == "{}"
    distilld.run("run", file, "--set", "/overwrite=true")
    owner = json.loads((output / "distilld.json").read_text())
    assert owner["step"] == 4 and owner["weights_sha256"] == jobs.sha256(output / "model.safetensors")

    # The same run without its checkpoints knows its own model; another does not take it for its own.
    shutil.rmtree(output / "checkpoints")
    distilld.run("run", file)
    shutil.rmtree(output / "checkpoints")
    refused = distilld.run("run", file, "--set", "/training/seed=9", code=1)
    assert "belongs to another model: /training/seed: is 9" in refused.err


def test_a_cancel_in_the_last_evaluation_leaves_a_checkpoint_that_is_only_evaluated(distilld, spec, tmp_path):
    spec["dataset"]["eval"] = str(jobs.write_text_data(tmp_path / "eval.jsonl", 4000))
    spec["training"]["batch_size"] = 1
    file = jobs.write_spec(tmp_path / "spec.json", spec)
    process = distilld.start("run", file)
    process.wait_for_line(r"checkpoint .*step-00000004")
    process.send(signal.SIGINT)
    process.expect(130)
    assert "held-out" not in process.out
    assert checkpoints(tmp_path / "student") == ["step-00000004"]
    assert not (tmp_path / "student" / "model.safetensors").exists()
    again = run_report(distilld, spec, tmp_path)
    assert again["last"]["step"] == 4 and again["eval_loss"] > 0


@pytest.fixture
def small_disk(tmp_path):
    with small_disk_at(tmp_path / "disk", megabytes=2) as folder:
        yield folder


@pytest.mark.parametrize("moment", ["start", "checkpoint", "export"])
def test_a_full_disk_is_waited_out(distilld, spec, small_disk, tmp_path, moment):
    calm = run_report(distilld, spec, tmp_path)
    full, roomy = small_disk / "student", tmp_path / "roomy"
    spec["output"] = str(full if moment == "export" else roomy)
    spec["checkpoint"] = {"dir": str(roomy if moment == "export" else full), "every_steps": 2}
    ballast = fill(small_disk, 0 if moment == "start" else SMALL)
    rest = Rest(distilld.service(tmp_path / "service").url)
    job_id = rest.submit(json.dumps(spec).encode())

    def waits():
        found = rest.job(job_id)
        reason = found["status_reason"]
        return found if reason and reason["code"] != "waiting_for_slot" else None

    job = wait_until(waits, "a reason")
    assert job["state"] == "running" and job["status_reason"]["code"] == "disk_full"
    said = (
        r"student/.*: No space left" if moment == "start" else r"student: no space on the disk: .* needs [\d.]+ [kM]B"
    )
    assert re.search(said, job["status_reason"]["message"])
    assert job["status_reason"]["since"]
    left = [entry.name for entry in full.rglob("*") if entry.is_file() and entry.name != ".lock"]
    assert [name for name in left if "tmp" in name] == []
    os.unlink(ballast)
    job = rest.wait_job(job_id, ["succeeded"])
    assert job["weights_sha256"] == calm["weights_sha256"]
    assert job["status_reason"] is None


def test_a_cancel_does_not_wait_for_space(distilld, spec, small_disk, tmp_path):
    spec["checkpoint"] = {"dir": str(small_disk / "checkpoints"), "every_steps": 2}
    fill(small_disk, SMALL)
    process = distilld.start("run", jobs.write_spec(tmp_path / "spec.json", spec))
    process.wait_for_line(r"warn: .*a checkpoint needs .* are free")
    process.wait_for_line(r"waiting: .*no space on the disk")
    process.send(signal.SIGINT)
    process.expect(130)
    assert "was abandoned" in process.out
