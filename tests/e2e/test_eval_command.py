"""eval.command: a program judges exported students, and its figures are in events, metrics, sinks and series."""

import signal
import sys
import textwrap

import pytest
from support import jobs
from support.moments import alive, kill
from support.processes import wait_until
from support.rest import Rest
from support.sinks import lines_of, plain, run_report
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

STEPS = 6
# Reads the exported folder alone: the step of its name and the bytes of its weights, in lm-eval's shape.
JUDGE = """\
import json, os, pathlib, sys
folder = pathlib.Path(sys.argv[1])
assert str(folder) == os.environ["DISTILLD_CHECKPOINT"] and sys.argv[2] == os.environ["DISTILLD_STEP"]
config = json.loads((folder / "config.json").read_text())
weights = (folder / "model.safetensors").read_bytes()
(pathlib.Path(sys.argv[0]).parent / f"weights-{sys.argv[2]}").write_bytes(weights)
print("judging", folder)
print(json.dumps({"results": {"task": {"alias": "task", "acc,none": int(sys.argv[2]) / 10}},
                  "hidden": config["hidden_size"], "version": "1"}))
"""
# Has a child of its own, as a shell script has.
HANGS = """\
import os, pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
pathlib.Path(sys.argv[0]).with_suffix(".pids").write_text(f"{os.getpid()} {child.pid} end")
print("hanging", file=sys.stderr, flush=True)
time.sleep(1000)
"""


def written(folder, name, text):
    file = folder / name
    file.write_text(textwrap.dedent(text))
    return file


def pids_of(program):
    file = program.with_suffix(".pids")
    wait_until(lambda: file.exists() and file.read_text().endswith("end"), "the program runs")
    return [int(word) for word in file.read_text().split()[:2]]


def exports_left(output):
    return [path.name for path in output.iterdir() if path.name.startswith(".distilld-export")]


def figures_in(file):
    return [line for line in lines_of(file) if line["kind"] == "figures"]


@pytest.fixture
def spec(text_data, tmp_path):
    made = jobs.base_spec(text_data, tmp_path / "student", STEPS)
    made["metrics"] = {"jsonl_file": str(tmp_path / "metrics.jsonl")}
    return made


def judged_by(spec, program, **changes):
    command = [sys.executable, str(program), "{checkpoint}", "{step}"]
    return spec | {"eval": {"command": command, **changes}}


def test_its_figures_are_in_the_sinks_and_change_no_bit(distilld, spec, tmp_path):
    silent, _ = run_report(distilld, plain(spec), tmp_path, "--output", tmp_path / "silent")
    judge = written(tmp_path, "judge.py", JUDGE)
    spec["metrics"]["tensorboard_dir"] = str(tmp_path / "board")
    report, process = run_report(distilld, judged_by(spec, judge), tmp_path)
    assert report["weights_sha256"] == silent["weights_sha256"]
    (end,) = figures_in(tmp_path / "metrics.jsonl")
    assert end["step"] == STEPS and end["problem"] == "" and end["seconds"] > 0
    assert end["figures"] == {"hidden": spec["student"]["config"]["hidden_size"], "results/task/acc_none": 0.6}
    assert f"step {STEPS} eval.command hidden 32, results/task/acc_none 0.6" in process.out
    board = EventAccumulator(str(tmp_path / "board"))
    board.Reload()
    assert [(one.step, one.value) for one in board.Scalars("figures/hidden")] == [(STEPS, 32.0)]
    weights = (tmp_path / "student" / "model.safetensors").read_bytes()
    assert (tmp_path / f"weights-{STEPS}").read_bytes() == weights, "at the end it judges the output itself"


def test_it_judges_the_student_of_its_step(distilld, spec, tmp_path):
    judge = written(tmp_path, "judge.py", JUDGE)
    spec["training"]["lr_scheduler_type"] = "constant"
    spec["checkpoint"] = {"every_steps": 3, "every_secs": 0}
    run_report(distilld, judged_by(spec, judge, every_steps=3), tmp_path)
    assert [line["step"] for line in figures_in(tmp_path / "metrics.jsonl")] == [3, STEPS]
    assert exports_left(tmp_path / "student") == []
    spec["training"]["max_steps"] = 3
    run_report(distilld, plain(spec), tmp_path, "--output", tmp_path / "short")
    short = (tmp_path / "short" / "model.safetensors").read_bytes()
    assert (tmp_path / "weights-3").read_bytes() == short != (tmp_path / f"weights-{STEPS}").read_bytes()


def test_a_service_forbids_it_unless_its_operator_allows_it(distilld, spec, tmp_path):
    judge = written(tmp_path, "judge.py", JUDGE)
    rest = Rest(distilld.service(tmp_path / "service").url)
    refused = rest.post("/v1/jobs", judged_by(spec, judge))
    assert refused.status == 400 and refused.json["error"]["code"] == "command_not_allowed"
    assert refused.json["errors"][0]["pointer"] == "/eval/command"
    assert "security.allow_eval_command" in refused.text
    rest = Rest(distilld.service(tmp_path / "other", "--allow-eval-command").url)
    job = rest.wait_job(rest.submit(judged_by(spec, judge)))
    assert job["state"] == "succeeded", job
    events = rest.get(f"/v1/jobs/{job['id']}/events?limit=1000").json["data"]
    (event,) = [event for event in events if event["type"] == "figures"]
    assert event["data"]["figures"]["results/task/acc_none"] == 0.6 and event["level"] == "info"
    series = {one["name"]: one for one in rest.get(f"/v1/jobs/{job['id']}/metrics").json["data"]}
    assert series["figures/results/task/acc_none"]["values"] == [0.6]
    (one,) = rest.get(f"/v1/jobs/{job['id']}/metrics?names=figures/hidden").json["data"]
    assert one["steps"] == [STEPS]
    metrics = rest.get("/metrics").text
    assert f'distilld_job_figure{{figure="results/task/acc_none",job_id="{job["id"]}"}} 0.6' in metrics
    assert 'distilld_eval_commands_total{result="figures"} 1' in metrics


def test_a_job_that_was_accepted_is_judged_again_when_it_goes_on(distilld, spec, tmp_path):
    hangs = written(tmp_path, "hangs.py", HANGS)
    service = distilld.service(tmp_path / "service", "--allow-eval-command")
    rest = Rest(service.url)
    spec["training"]["max_steps"] = 1_000_000
    job = rest.submit(judged_by(spec, hangs, every_steps=2))
    pids = pids_of(hangs)
    rest.post(f"/v1/jobs/{job}/cancel")
    rest.wait_job(job, ["cancelled"])
    for pid in pids:
        wait_until(lambda pid=pid: not alive(pid), "the program is gone")
    service.send(signal.SIGTERM)
    service.expect(0)
    refused = Rest(distilld.service(tmp_path / "service").url).post(f"/v1/jobs/{job}/resume")
    assert refused.status == 409 and refused.json["errors"][0]["code"] == "command_not_allowed", refused.text


def test_a_program_that_fails_is_an_event(distilld, spec, tmp_path):
    broken = written(tmp_path, "broken.py", "import sys\nsys.exit('no such task')\n")
    report, process = run_report(distilld, judged_by(spec, broken), tmp_path)
    assert report["weights_sha256"]
    (end,) = figures_in(tmp_path / "metrics.jsonl")
    assert end["problem"] == "it exited with code 1; it said: no such task" and end["figures"] == {}
    assert "it said: no such task" in process.out
    hangs = written(tmp_path, "hangs.py", HANGS)
    _, process = run_report(
        distilld, judged_by(plain(spec), hangs, command_timeout_secs=3), tmp_path, "--output", tmp_path / "second"
    )
    assert "did not end within 3000 ms and was killed; it said: hanging" in process.out
    for pid in pids_of(hangs):
        wait_until(lambda pid=pid: not alive(pid), "the program is gone")


def test_a_program_that_is_not_there_is_an_error_before_training(distilld, spec, tmp_path):
    spec["eval"] = {"command": ["no-such-program"]}
    process = distilld.start("run", jobs.write_spec(tmp_path / "spec.json", spec))
    process.expect(1)
    assert "/eval/command/0: no-such-program is in no folder of PATH" in process.out + process.err
    assert "step 1/" not in process.out


@pytest.mark.parametrize("every", [2, 0])
def test_a_cancel_kills_it_and_what_it_has_started(distilld, spec, tmp_path, every):
    """During training, and at the end, when the student is in its place."""
    hangs = written(tmp_path, "hangs.py", HANGS)
    spec["training"]["max_steps"] = STEPS if every == 0 else 1_000_000
    process = distilld.start("run", jobs.write_spec(tmp_path / "spec.json", judged_by(spec, hangs, every_steps=every)))
    pids = pids_of(hangs)
    process.send(signal.SIGINT)
    process.expect(0 if every == 0 else 130)
    for pid in pids:
        wait_until(lambda pid=pid: not alive(pid), "the program is gone")
    assert (tmp_path / "student" / "model.safetensors").exists() == (every == 0)
    assert exports_left(tmp_path / "student") == []


def test_it_dies_with_a_killed_worker_and_judges_again(distilld, spec, tmp_path):
    hangs = written(tmp_path, "hangs.py", HANGS)
    process = distilld.start("run", jobs.write_spec(tmp_path / "spec.json", judged_by(spec, hangs)))
    pids = pids_of(hangs)
    hangs.write_text(JUDGE)
    kill(process.worker())
    for pid in pids:
        wait_until(lambda pid=pid: not alive(pid), "the program is gone")
    process.expect(0)
    assert [line["problem"] for line in figures_in(tmp_path / "metrics.jsonl")] == [""]


def test_one_rank_of_two_runs_it(distilld, spec, tmp_path):
    judge = written(tmp_path, "judge.py", JUDGE)
    spec["training"].update({"ranks": 2, "micro_batches": 2, "gradient_groups": 2, "threads": 1})
    run_report(distilld, judged_by(spec, judge), tmp_path)
    assert [line["step"] for line in figures_in(tmp_path / "metrics.jsonl")] == [STEPS]
