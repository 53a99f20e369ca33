"""docker/slurm/distilld.sbatch, run by bash with an srun and an scontrol that do what Slurm's do for one step.

What this cannot show is Slurm itself: that it sends the signal in time and starts the script again after a requeue.
"""

import json
import os
import pathlib
import re
import signal
import stat

import pytest
from support import jobs
from support.processes import Process, children_of, wait_until

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "docker" / "slurm" / "distilld.sbatch"

# A step is a child of srun, whose exit code is the step's.
SRUN = """#!/usr/bin/env bash
while [[ $1 == --* ]]; do shift; done
echo "$@" >>"$FAKE/steps"
"$@" &
echo $! >"$FAKE/pid"
wait $!
"""
SCONTROL = """#!/usr/bin/env bash
echo "$@" >>"$FAKE/scontrol"
"""


class Slurm:
    def __init__(self, programs, folder, spec):
        self.folder = folder
        self.spec = spec
        self.programs = programs
        self.runs = []
        for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
            path = folder / "bin" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def start(self, *arguments, restarts=0, **environment):
        """What slurmd does with the script, the time after `restarts` requeues."""
        (self.folder / "pid").unlink(missing_ok=True)
        path = f"{self.folder / 'bin'}:{self.programs}:{os.environ['PATH']}"
        given = {"SLURM_JOB_ID": "17", "SLURM_CPUS_PER_TASK": "1", "FAKE": str(self.folder), "PATH": path}
        if restarts:
            given["SLURM_RESTART_COUNT"] = str(restarts)
        run = Process(
            ["bash", SCRIPT, *(arguments or [self.spec])],
            self.folder / f"run-{len(self.runs)}",
            env={**given, **environment},
        )
        self.runs.append(run)
        return run

    def step(self):
        """Process id of the step's `distilld run`."""
        path = self.folder / "pid"
        return int(wait_until(lambda: path.exists() and path.read_text().strip(), "the step to start"))

    def said(self, name):
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def close(self):
        for run in self.runs:
            if run.code is None:
                for step in children_of(run.pid):
                    for program in children_of(step):
                        os.kill(program, signal.SIGKILL)
                run.destroy()


def write_spec(folder, data, name, steps):
    spec = jobs.base_spec(data, folder / name, steps=steps)
    return jobs.write_spec(folder / f"{name}.json", spec)


@pytest.fixture
def slurm(programs, text_data, tmp_path):
    made = Slurm(programs, tmp_path, write_spec(tmp_path, text_data, "student", steps=250))
    yield made
    made.close()


def test_slurm_is_asked_for_what_the_script_needs():
    asked = dict(re.findall(r"^#SBATCH --([\w-]+)(?:=(.*))?$", SCRIPT.read_text(), re.MULTILINE))
    # A signal without B: is for the steps alone; the script takes one that it gets for the end of the job.
    assert re.fullmatch(r"TERM@\d+", asked["signal"])
    assert asked["requeue"] == "" and asked["open-mode"] == "append"
    assert (asked["nodes"], asked["ntasks"]) == ("1", "1")


def test_a_job_whose_time_is_over_goes_back_and_goes_on(slurm, distilld, text_data, tmp_path):
    first = slurm.start()
    first.wait_for_line(r"step +\d+")
    os.kill(slurm.step(), signal.SIGTERM)  # --signal=TERM@300: the step, not the script
    first.expect(130)
    assert slurm.said("scontrol") == ["requeue 17"]

    second = slurm.start(restarts=1).expect(0)
    assert "resumed from" in second.out and str(slurm.folder / "student" / "checkpoints") in second.out
    assert slurm.said("scontrol") == ["requeue 17"], "a job that is done stays done"
    assert all("--set /training/threads=1" in line for line in slurm.said("steps"))

    whole = write_spec(tmp_path, text_data, "whole", steps=250)
    distilld.run("run", whole)
    weights = [jobs.sha256(tmp_path / name / "model.safetensors") for name in ("student", "whole")]
    assert weights[0] == weights[1]


def test_a_job_that_is_cancelled_stays_cancelled(slurm):
    run = slurm.start()
    run.wait_for_line(r"step +\d+")
    step = slurm.step()
    run.send(signal.SIGTERM)  # scancel: everything of the job, the script too
    os.kill(step, signal.SIGTERM)
    run.expect(130)
    assert slurm.said("scontrol") == []
    assert list((slurm.folder / "student" / "checkpoints").glob("step-*"))


def test_it_does_not_go_back_for_ever(slurm):
    run = slurm.start(restarts=3, DISTILLD_MAX_REQUEUES="3")
    run.wait_for_line(r"step +\d+")
    os.kill(slurm.step(), signal.SIGTERM)
    run.expect(130)
    assert "3 times" in run.err and slurm.said("scontrol") == []


def test_options_and_another_way_to_start_it_are_passed_on(slurm, tmp_path):
    report = tmp_path / "report.json"
    slurm.start(
        slurm.spec, "--max-steps", "3", "--report", report, DISTILLD=f"env NOTHING=1 {slurm.programs}/distilld"
    ).expect(0)
    assert json.loads(report.read_text())["last"]["step"] == 3


def test_what_is_wrong_is_not_tried_again(slurm):
    (slurm.folder / "student.json").write_text("{}")
    slurm.start().expect(2)
    assert slurm.said("scontrol") == []
    slurm.start("").expect(2)
