"""The examples of docs/any-network.md: each Python file with its spec, on a small scale, against PyTorch."""

import json
import pathlib
import subprocess
import sys

import pytest
import torch
from support import jobs, torchscript

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "any-network"
STEPS = 20
SMALLER = {
    "automaton": ["--size", 8, "--width", 32, "--rollout", 8, "--rows", 60],
    "classifier": ["--rows", 320, "--steps", 20],
    "denoiser": ["--rows", 320, "--steps", 5],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with the modules and data of each example."""
    folder = tmp_path_factory.mktemp("examples")
    for name, words in SMALLER.items():
        command = [sys.executable, EXAMPLES / f"{name}.py", folder / name, *map(str, words)]
        subprocess.run(command, check=True, cwd=folder)
    return folder


def spec_of(name, changes=None):
    spec = json.loads((EXAMPLES / f"{name}.json").read_text())
    return jobs.changed(
        spec, {"/training/max_steps": STEPS, "/dataset/eval": None, "/eval": None, "/metrics": None, **(changes or {})}
    )


def run(distilld, made, spec):
    """The report, and the output folder."""
    output = made / spec["output"]
    output.parent.mkdir(exist_ok=True)
    file, report = output.with_suffix(".json"), output.with_suffix(".report")
    distilld.run("run", jobs.write_spec(file, spec), "--report", report, cwd=made)
    return json.loads(report.read_text()), output


# Adam turns any gradient into a step of about the learning rate, also one that is mostly rounding in fp32. The lower
# rates of two examples keep such steps small.
@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-6), ("float64", 1e-12)])
@pytest.mark.parametrize("name, rate", [("automaton", 0.05), ("classifier", 5e-4), ("denoiser", 5e-4)])
def test_the_steps_are_those_of_pytorch(distilld, made, name, rate, dtype, tolerance):
    constant = {"/dataset/shuffle": "off", "/training/lr_scheduler_type": "constant", "/training/learning_rate": rate}
    spec = spec_of(name, {**constant, "/output": f"out/{name}-{dtype}"})
    if dtype == "float64":
        spec = torchscript.in_fp64(spec, made)
    report, output = run(distilld, made, spec)
    loss = torchscript.compare(spec, getattr(torch, dtype), tolerance, output, made)
    assert report["last"]["loss"] == pytest.approx(loss, rel=tolerance)
