"""TorchScript students: any network, samples of tensors in, named tensors out (docs/any-network.md)."""

import json

import pytest
import torch
from chaos_proxy import ChaosProxy, Script
from safetensors.torch import load_file, save_file
from support import jobs, torchscript
from support.moments import kill
from support.processes import wait_until
from support.rest import Rest
from torch import nn

ROWS = 40
STEPS = 20
BATCH, MICRO_BATCHES = 4, 2
HALF = 8


class Between(nn.Module):
    """With a layer whose forward() changes buffers, or draws random numbers."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.first = nn.Linear(16, 24)
        self.layer = layer
        self.last = nn.Linear(24, 10)

    def forward(self, x):
        h = torch.relu(self.layer(self.first(x)))
        return self.last(h), h


class Opening(nn.Module):
    """Would write a file."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(16, 10)

    def forward(self, x):
        if x.size(0) > 1000:
            x = x + torch.from_file("opened-by-a-network", True, 16)
        return self.first(x), x


class Tied(nn.Module):
    """One matrix under two names, and a weight that is not trained."""

    def __init__(self):
        super().__init__()
        self.there = nn.Linear(16, 16)
        self.back = nn.Linear(16, 16)
        self.back.weight = self.there.weight
        self.last = nn.Linear(16, 10)
        self.last.weight.requires_grad_(False)

    def forward(self, x):
        h = self.back(torch.tanh(self.there(x)))
        return self.last(h), h


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return x[:, :10] * self.scale / 0.0, x


LOSSES = [
    {"kind": "kl", "output": "y", "target": "teacher.y", "temperature": 2.0},
    {"kind": "mse", "output": "h", "target": "teacher.h", "weight": 0.5},
    {"kind": "mae", "output": "h", "target": "teacher.h", "weight": 0.25},
    {"kind": "cosine", "output": "h", "target": "teacher.h", "weight": 0.125},
    {"kind": "cross_entropy", "output": "y", "target": "data.label", "weight": 0.1},
]


@pytest.fixture
def folder(tmp_path):
    torch.manual_seed(3)
    torch.jit.script(torchscript.Classifier(32)).save(str(tmp_path / "t.pt"))
    torch.jit.script(torchscript.Classifier(32)).save(str(tmp_path / "s.pt"))
    torch.jit.script(Between(nn.BatchNorm1d(24))).save(str(tmp_path / "norm.pt"))
    torch.jit.script(Between(nn.Dropout(0.25))).save(str(tmp_path / "drop.pt"))
    torch.jit.script(Opening()).save(str(tmp_path / "opening.pt"))
    torch.jit.script(Tied()).save(str(tmp_path / "tied.pt"))
    torch.jit.script(Broken()).save(str(tmp_path / "broken.pt"))
    save_file({"x": torch.randn(ROWS, 16), "label": torch.randint(0, 10, (ROWS,))}, tmp_path / "train.safetensors")
    return tmp_path


def spec_of(folder, name, changes=None):
    names = {"inputs": ["x"], "outputs": ["y", "h"]}
    spec = {
        "student": {"format": "torchscript", "model": str(folder / "s.pt"), **names},
        "teacher": {"module": str(folder / "t.pt"), **names},
        "dataset": {"format": "tensors", "train": str(folder / "train.safetensors"), "shuffle": "off"},
        "training": {
            "losses": LOSSES,
            "max_steps": STEPS,
            "batch_size": BATCH,
            "micro_batches": MICRO_BATCHES,
            "learning_rate": 0.01,
            "lr_scheduler_type": "constant",
            "threads": 1,
        },
        "output": str(folder / name),
    }
    return jobs.changed(spec, changes or {})


def run(distilld, folder, name, changes=None):
    file = jobs.write_spec(folder / f"{name}.json", spec_of(folder, name, changes))
    report = folder / f"{name}-report.json"
    process = distilld.run("run", file, "--report", report)
    return json.loads(report.read_text()), process.out


def refusal(distilld, folder, changes):
    process = distilld.start("run", jobs.write_spec(folder / "refused.json", spec_of(folder, "refused", changes)))
    process.wait()
    assert process.code not in (0, None)
    assert not (folder / "refused" / "model.pt").exists()
    return process.out + process.err


def move_checkpoint(folder, whole, killed):
    """As if the run had been killed after it."""
    (folder / killed / "checkpoints").mkdir(parents=True)
    name = f"checkpoints/step-{HALF:08d}"
    (folder / whole / name).rename(folder / killed / name)


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-6), ("float64", 1e-12)])
def test_the_steps_are_those_of_pytorch(distilld, folder, dtype, tolerance):
    spec = spec_of(folder, "out")
    if dtype == "float64":
        spec = torchscript.in_fp64(spec, folder)
    report, _ = run(distilld, folder, "out", {f"/{name}": section for name, section in spec.items()})
    loss = torchscript.compare(spec, getattr(torch, dtype), tolerance, folder / "out")
    assert report["last"]["loss"] == pytest.approx(loss, rel=tolerance)
    exported = torch.jit.load(str(folder / "out" / "model.pt"))
    weights = load_file(folder / "out" / "model.safetensors")
    assert weights.keys() == dict(exported.named_parameters()).keys()
    assert all(torch.equal(value, weights[name]) for name, value in exported.named_parameters())


@pytest.mark.parametrize("dtype", ["fp64", "bf16"])
def test_a_result_has_the_dtype_of_the_file(distilld, folder, dtype):
    run(distilld, folder, "out", {"/student/dtype": dtype, "/training/max_steps": 1})
    weights = load_file(folder / "out" / "model.safetensors")
    assert {value.dtype for value in weights.values()} == {torch.float32}


def test_one_hash_for_replicas_and_interruptions(distilld, folder):
    """Micro-batches side by side, one after the other, and from a checkpoint on."""
    checkpoints = {"/checkpoint": {"every_steps": HALF, "every_secs": 0, "keep": 9}, "/student/device": "cpu"}
    table = {}
    for name, changes in {
        "replicas-1": {"/training/replicas": 1},
        "replicas-2": {"/training/replicas": 2},
        "replicas-3": {"/training/replicas": 3, "/training/micro_batches": 8, "/training/batch_size": 1},
        "replicas-1-of-8": {"/training/replicas": 1, "/training/micro_batches": 8, "/training/batch_size": 1},
        "sequential": {"/training/parallel": False},
    }.items():
        report, out = run(distilld, folder, name, {**changes, **checkpoints})
        table[name] = report["weights_sha256"]
        assert "samples/s" in out
    move_checkpoint(folder, "replicas-2", "killed")
    report, out = run(distilld, folder, "killed", checkpoints)
    assert "resumed from" in out
    table["killed"] = report["weights_sha256"]
    print("\n".join(f"{name:16} {value[:16]}" for name, value in table.items()))
    assert table["replicas-3"] == table["replicas-1-of-8"]
    assert len({table[name] for name in ("replicas-1", "replicas-2", "sequential", "killed")}) == 1


def generate(distilld, folder, name, values):
    store = {"store": str(folder / name), "store_values": values}
    spec = jobs.changed(spec_of(folder, name), {"/student": None, "/training/losses": None, "/output": None})
    spec["teacher"] |= store
    return distilld.run("generate", jobs.write_spec(folder / f"{name}-generate.json", spec)).out


def test_a_stored_teacher_teaches_as_a_live_one(distilld, folder):
    """In fp32, bit for bit. A job that fills the store while it trains ends as one that finds it full."""
    live, _ = run(distilld, folder, "live")
    out = generate(distilld, folder, "fp32", "f32")
    assert "generating 40 of 40 rows into" in out and "samples/s" in out and "token" not in out
    stored = {"/teacher": {"store": str(folder / "fp32"), "outputs": ["y", "h"]}}
    report, _ = run(distilld, folder, "stored", stored)
    assert report["weights_sha256"] == live["weights_sha256"]
    filling = {"/teacher/store": str(folder / "half")}
    first, _ = run(distilld, folder, "filling", filling)
    second, out = run(distilld, folder, "full", filling)
    assert "holds all answers: the teacher is not asked" in out
    assert first["weights_sha256"] == second["weights_sha256"] != live["weights_sha256"]
    inspected = distilld.run("store", "inspect", folder / "fp32").out
    assert "outputs y [10], h [32]" in inspected and "bytes per sample" in inspected
    lines = distilld.run("store", "export", folder / "fp32", "--jsonl", "-").out.splitlines()
    with torch.no_grad():
        y, h = torch.jit.load(str(folder / "t.pt"))(load_file(folder / "train.safetensors")["x"][:4])
    first = json.loads(lines[0])
    assert len(lines) == ROWS and first["row"] == 0
    assert first["outputs"] == {"y": pytest.approx(y[0].tolist()), "h": pytest.approx(h[0].tolist())}


def test_a_store_of_bf16_and_one_of_other_outputs(distilld, folder):
    generate(distilld, folder, "bf16", "bf16")
    report, _ = run(distilld, folder, "out", {"/teacher": {"store": str(folder / "bf16"), "outputs": ["y", "h"]}})
    live, _ = run(distilld, folder, "live")
    assert report["last"]["loss"] == pytest.approx(live["last"]["loss"], rel=0.05)
    other = {"/teacher": {"store": str(folder / "bf16"), "outputs": ["y", "z"]}, "/training/losses": LOSSES[:1]}
    assert '/teacher/outputs: names "z", but the store holds outputs y, h' in refusal(distilld, folder, other)
    packed = {"/teacher/store": str(folder / "new"), "/teacher/store_values": "u8"}
    assert "f16 or f32 or bf16 with format tensors" in refusal(distilld, folder, packed)


def test_a_served_module_teaches_as_one_in_the_process(distilld, folder):
    """`distilld teacher FILE.pt`: the same bits over the wire, and one error for each bad request."""
    server = distilld.teacher(folder / "t.pt", "--inputs", "x", "--outputs", "y,h", "--dtype", "fp32")
    assert "outputs y, h, fp32 on cpu, threads 1)" in server.out
    local, _ = run(distilld, folder, "local")
    wire, out = run(distilld, folder, "wire", {"/teacher/module": None, "/teacher/endpoints": [server.url]})
    assert "KServe v2, outputs y, h, binary requests, binary answers" in out
    assert wire["weights_sha256"] == local["weights_sha256"]
    rest = Rest(server.url, ours=False)
    x = {"name": "x", "datatype": "FP32", "shape": [1, 16], "data": [0.5] * 16}
    answer = rest.post("/v2/models/teacher/infer", {"inputs": [x], "outputs": [{"name": "y"}]})
    with torch.no_grad():
        y, _ = torch.jit.load(str(folder / "t.pt"))(torch.full((1, 16), 0.5))
    assert [one["name"] for one in answer.json["outputs"]] == ["y"]
    assert answer.json["outputs"][0]["data"] == pytest.approx(y[0].tolist())
    for change, error in {
        "shape": ({"shape": [1, 4, 4]}, "forward() failed"),
        "name": ({"name": "z"}, "the model has no input 'z': it takes x"),
        "datatype": ({"datatype": "INT8", "data": [1] * 16}, "x has datatype INT8"),
        "no samples": ({"shape": [0, 16], "data": []}, "x has shape [0, 16]: [samples, …] is expected"),
    }.values():
        refused = rest.request("POST", "/v2/models/teacher/infer", {"inputs": [{**x, **change}]})
        assert refused.status == 400 and error in refused.json["error"], refused.text
    assert rest.request("POST", "/v1/completions", {"input_ids": [[1]], "return_logits": True}).status == 404
    assert rest.request("GET", "/v2/models/teacher/head").status == 404
    assert "distilld_teacher_server_tokens_total" in rest.get("/metrics").text


def test_faults_and_a_kill_leave_the_weights_alone(distilld, folder):
    """Of a job of the service: a sixth of the requests fails, and its worker dies behind a checkpoint."""
    local, _ = run(distilld, folder, "local")
    server = distilld.teacher(folder / "t.pt", "--inputs", "x", "--outputs", "y,h", "--dtype", "fp32")
    faults = Script(seed=5, reset=0.04, half_body=0.04, unavailable=0.04, garbage=0.04, retry_after="0.1")
    service = distilld.service(folder / "service")
    rest = Rest(service.url)
    with ChaosProxy(server.url, faults) as proxy:
        proxy.hold_after = 30
        changes = {"/teacher": {"endpoints": [proxy.url], "inputs": ["x"], "outputs": ["y", "h"]}}
        job_id = rest.submit(spec_of(folder, "served", {**changes, "/checkpoint": {"every_steps": 1, "every_secs": 0}}))
        wait_until(
            lambda: proxy.posts >= 30 and list((folder / "served" / "checkpoints").glob("step-*")), "a checkpoint"
        )
        kill(service.worker())
        proxy.hold_after = None
        job = rest.wait_job(job_id, ["succeeded"])
    assert job["weights_sha256"] == local["weights_sha256"]
    assert job["progress"]["fetch"]["completed"] < STEPS * MICRO_BATCHES
    assert proxy.counts.total() > 2, proxy.counts


@pytest.mark.parametrize(
    "arguments, code, error",
    [
        (["t.pt"], 2, "is a file: a TorchScript file needs --inputs and --outputs"),
        (
            [".", "--inputs", "x", "--outputs", "y"],
            2,
            "is a folder: --inputs and --outputs describe a TorchScript file",
        ),
        (["t.pt", "--inputs", "x,z", "--outputs", "y"], 1, "--inputs: names 2 tensors, forward() of"),
        (["train.safetensors", "--inputs", "x", "--outputs", "y"], 1, "is not a TorchScript file"),
        (["opening.pt", "--inputs", "x", "--outputs", "y,h"], 1, "its code calls aten::from_file"),
    ],
)
def test_a_module_that_cannot_be_served_is_refused(distilld, folder, arguments, code, error):
    process = distilld.start("teacher", folder / arguments[0], *arguments[1:], "--listen", "127.0.0.1:0")
    assert error in process.expect(code).err


@pytest.mark.parametrize("model, why", [("norm", "changes the buffer layer."), ("drop", "draws random numbers")])
def test_a_forward_with_a_memory_trains_in_order(distilld, folder, model, why):
    changes = {"/student/model": str(folder / f"{model}.pt"), "/training/losses": LOSSES[:1]}
    checkpoints = {"/checkpoint": {"every_steps": HALF, "every_secs": 0, "keep": 9}}
    assert "/training/replicas: is 2, but its forward() " + why in refusal(
        distilld, folder, {**changes, "/training/replicas": 2}
    )
    whole, _ = run(distilld, folder, "whole", {**changes, **checkpoints})
    move_checkpoint(folder, "whole", "later")
    resumed, out = run(distilld, folder, "later", {**changes, **checkpoints})
    assert "resumed from" in out
    assert resumed["weights_sha256"] == whole["weights_sha256"]
    first, second = (torch.jit.load(str(folder / name / "model.pt")) for name in ("whole", "later"))
    assert all(torch.equal(a, b) for a, b in zip(first.buffers(), second.buffers(), strict=True))
    assert all(buffer == STEPS * MICRO_BATCHES for name, buffer in first.named_buffers() if "tracked" in name)


BAD = {
    "no such tensor": (
        {"/student/inputs": ["z"]},
        '/student/inputs: the data has no tensor "z" (it has label, x)',
    ),
    "other outputs": ({"/student/outputs": ["y", "h", "more"]}, "returns 2 tensors, and the field names 3: y, h, more"),
    "too many inputs": ({"/student/inputs": ["x", "label"]}, "names 2 tensors, forward() of"),
    "other shape": (
        {"/training/losses": [{"kind": "mse", "output": "y", "target": "teacher.h"}]},
        '/training/losses/0/target: "teacher.h" is [4, 32], but for the output [4, 10] it must be [4, 10]',
    ),
    "floating labels": (
        {"/training/losses": [{"kind": "cross_entropy", "output": "y", "target": "data.x"}], "/teacher": None},
        '/training/losses/0/target: "data.x" is Float, but cross_entropy takes the numbers of classes',
    ),
    "not an output": (
        {"/training/losses": [{"kind": "mse", "output": "q", "target": "data.x"}], "/teacher": None},
        '/training/losses/0/output: is "q", which is not in /student/outputs',
    ),
    "no teacher": (
        {"/teacher": None},
        "/training/losses/0/target: is an output of the teacher, but the spec has no teacher",
    ),
    "of language models": ({"/training/beta": 0.5}, "/training/beta: is for language models"),
    "not TorchScript": ({"/student/model": "train.safetensors"}, "is not a TorchScript file"),
    "opens files": ({"/student/model": "opening.pt"}, "its code calls aten::from_file, which opens files"),
    "a teacher that opens files": ({"/teacher/module": "opening.pt"}, "/teacher/module: "),
    "not finite": ({"/student/model": "broken.pt"}, '/student/outputs: "y" is not finite'),
    "teacher not finite": ({"/teacher/module": "broken.pt"}, 'the output "y" has a value that is not finite'),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(distilld, folder, case):
    changes, message = BAD[case]
    paths = ("/student/model", "/teacher/module")
    changes = {field: str(folder / value) if field in paths else value for field, value in changes.items()}
    assert message in refusal(distilld, folder, changes)


def test_a_checkpoint_of_other_code_is_refused(distilld, folder):
    run(distilld, folder, "out", {"/training/max_steps": 2})
    torch.jit.script(Between(nn.BatchNorm1d(24))).save(str(folder / "s.pt"))
    process = distilld.start("run", folder / "out.json")
    process.wait()
    assert process.code not in (0, None) and "code_sha256" in process.out + process.err


def test_bf16_learns_too(distilld, folder):
    bf16 = {"/student/dtype": "bf16"}
    first, _ = run(distilld, folder, "start", {**bf16, "/training/max_steps": 1})
    report, out = run(distilld, folder, "out", {**bf16, "/dataset/eval": str(folder / "train.safetensors")})
    assert "tokenizer" not in out and "vocabulary" not in out
    assert report["last"]["loss"] < 0.8 * first["last"]["loss"]
    assert report["eval_loss"] < first["last"]["loss"]


@pytest.mark.parametrize("dtype", ["fp32", "fp64", "bf16"])
def test_a_tensor_with_two_names_stays_one(distilld, folder, dtype):
    tied = {"/student/model": str(folder / "tied.pt"), "/student/dtype": dtype, "/training/losses": LOSSES[:1]}
    run(distilld, folder, "out", tied)
    before, after = (torch.jit.load(str(path)) for path in (folder / "tied.pt", folder / "out" / "model.pt"))
    assert torch.equal(after.there.weight, after.back.weight) and after.there.weight.requires_grad
    assert after.there.weight.dtype == torch.float32 and not torch.equal(after.there.weight, before.there.weight)
    assert torch.equal(after.last.weight, before.last.weight) and not after.last.weight.requires_grad
    assert sorted(load_file(folder / "out" / "model.safetensors")) == sorted(dict(after.named_parameters()))
