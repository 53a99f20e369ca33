"""The examples of docs/any-network.md: each Python file with its spec, on a small scale, against PyTorch."""

import json
import pathlib
import runpy
import subprocess
import sys
import xml.etree.ElementTree

import pytest
import torch
from safetensors.torch import load_file
from support import jobs, torchscript
from torch.nn import functional

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES, TOOLS = ROOT / "examples" / "any-network", ROOT / "tools"
SVG = "{http://www.w3.org/2000/svg}"
STEPS = 20
SMALLER = {
    "automaton": ["--size", 8, "--width", 32, "--rollout", 8, "--rows", 60],
    "classifier": ["--rows", 320, "--steps", 20],
    "denoiser": ["--rows", 320, "--steps", 5],
}


def export(name, *words):
    """Runs the Python file, in this process: importing torch takes longer than what it does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES)
        patch.setattr(sys, "argv", [f"{name}.py", *map(str, words)])
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with the modules and data of each example."""
    folder = tmp_path_factory.mktemp("examples")
    for name, words in SMALLER.items():
        export(name, folder / name, *words)
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


@pytest.fixture
def one_thread():
    """Two threads of PyTorch differ from one by more than 1e-6 in the gradients of convolutions."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-6), ("float64", 1e-12)])
@pytest.mark.parametrize("name", SMALLER)
def test_the_gradients_are_those_of_pytorch(distilld, made, one_thread, name, dtype, tolerance):
    """A step of SGD with a rate of 64 on losses of a weight of 2^14 leaves little but the gradient in the weights."""
    step = {
        "max_steps": 1,
        "optimizer": "sgd",
        "learning_rate": 64,
        "max_grad_norm": 0,
        "lr_scheduler_type": "constant",
    }
    spec = spec_of(name, {"/dataset/shuffle": "off", "/output": f"out/{name}-gradient-{dtype}"})
    training = spec["training"]
    whole = {"batch_size": training["batch_size"] * training["micro_batches"], "micro_batches": 1, "threads": 1}
    training |= {**step, **whole, "weight_decay": 0}
    for term in training["losses"]:
        term["weight"] = 2.0**14 * term.get("weight", 1.0)
    if dtype == "float64":
        spec = torchscript.in_fp64(spec, made)
    _, output = run(distilld, made, spec)
    torchscript.compare(spec, getattr(torch, dtype), tolerance, output, made)


def test_the_automaton_has_one_hash(distilld, made):
    step = {"/training/max_steps": 3, "/training/micro_batches": 3, "/training/threads": 1}
    hashes = {}
    for replicas in (1, 2, 3):
        spec = spec_of("automaton", {**step, "/training/replicas": replicas, "/output": f"out/replicas-{replicas}"})
        report, _ = run(distilld, made, spec)
        hashes[replicas] = report["weights_sha256"]
    assert len(set(hashes.values())) == 1, hashes


@pytest.fixture(scope="module")
def drawn(distilld_session, made):
    """The spec, report and output of an automaton that has learned to draw most of a board of 4 x 4 cells."""
    folder = made / "small"
    export("automaton", folder / "automaton", "--size", 4, "--width", 32, "--rollout", 3, "--rows", 240)
    spec = jobs.changed(
        json.loads((EXAMPLES / "automaton.json").read_text()),
        {"/training/max_steps": 120, "/training/eval_steps": 40, "/training/learning_rate": 0.2},
    )
    return spec, *run(distilld_session, folder, spec)


def test_the_held_out_loss_is_that_of_the_hard_gates_and_falls(made, drawn):
    spec, report, output = drawn
    held_out = load_file(made / "small" / spec["dataset"]["eval"])

    def loss(file, hard):
        module = torch.jit.load(str(file)).train(not hard)
        with torch.no_grad():
            return functional.mse_loss(module(held_out["start"]), held_out["board"].float()).item()

    first, last = (loss(file, hard=True) for file in (made / "small/automaton/automaton.pt", output / "model.pt"))
    print(f"hard {first:.3f} -> {last:.3f}, soft {loss(output / 'model.pt', hard=False):.3f}")
    assert report["eval_loss"] == last < 0.6 * first
    assert last != pytest.approx(loss(output / "model.pt", hard=False), abs=1e-4)


def test_the_curve_counts_samples_and_compares_runs(made, drawn):
    spec, *_ = drawn
    metrics = made / "small" / spec["metrics"]["jsonl_file"]
    command = [sys.executable, TOOLS / "learning_curve.py", metrics, "--svg", made / "curve.svg"]
    alone = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "| step | samples | training loss | held-out loss | samples/s |" in alone.stdout
    assert ">samples trained on<" in (made / "curve.svg").read_text()

    other = made / "other.jsonl"
    records = [json.loads(line) for line in metrics.read_text().splitlines()]
    higher = [record | {"loss": 2 * record["loss"]} if record["kind"] == "evaluation" else record for record in records]
    jobs.write_jsonl(other, higher)
    subprocess.run([*command, "--beside", other], check=True)
    picture = xml.etree.ElementTree.parse(made / "curve.svg").getroot()
    lines = {line.get("class"): line.get("points").split() for line in picture.iter(f"{SVG}polyline")}
    assert lines.keys() == {"beside", "held"} and len(lines["beside"]) == len(lines["held"]) == 3
    heights = {name: [float(point.split(",")[1]) for point in points] for name, points in lines.items()}
    assert all(ours > theirs for ours, theirs in zip(heights["held"], heights["beside"], strict=True))
    jobs.write_jsonl(other, [record for record in records if record["kind"] != "evaluation"])
    refused = subprocess.run([*command, "--beside", other], capture_output=True, text=True, check=False)
    assert refused.returncode == 1 and "held-out losses, and a run has none" in refused.stderr
