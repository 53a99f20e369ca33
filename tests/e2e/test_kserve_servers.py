"""Students distilled from real servers of the Open Inference Protocol: Triton and the KServe SDK (both installed by
setup.sh into .deps/servers), held against the same student distilled from `distilld teacher`."""

import json
import os
import pathlib
import shutil
import subprocess
import sysconfig
import urllib.error
import urllib.request

import numpy
import pytest
import torch
from safetensors.torch import save_file
from support import jobs, torchscript
from support.processes import wait_until
from support.rest import free_port

ROOT = pathlib.Path(__file__).resolve().parents[2]
SERVERS = ROOT / "tests" / "e2e" / "servers"
PYTHON = ROOT / ".deps" / "servers" / "bin" / "python"
STEPS = 40

pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="scripts/setup.sh did not install .deps/servers")


def start(command, log, ready_page, environment=None):
    """A server's process once `ready_page` answers 200."""
    whole = {**os.environ, **(environment or {})}
    with open(log, "wb") as out:
        server = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=whole)

    def ready():
        assert server.poll() is None, log.read_text()[-4000:]
        try:
            with urllib.request.urlopen(ready_page, timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    try:
        wait_until(ready, f"{ready_page} answers", seconds=120)
    except BaseException:
        server.kill()
        server.wait()
        raise
    return server


def stop(server):
    server.terminate()
    try:
        server.wait(30)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


TENSORS = {
    # As a user writes the configuration of a model of their own.
    "teacher": """
input [ { name: "input_ids" data_type: TYPE_INT32 dims: [ -1 ] } ]
output [ { name: "logits" data_type: TYPE_FP32 dims: [ -1, %(vocabulary)d ] } ]
""",
    # TensorRT-LLM's.
    "tensorrt_llm": """
input [
  { name: "input_ids" data_type: TYPE_INT32 dims: [ -1 ] allow_ragged_batch: true },
  { name: "input_lengths" data_type: TYPE_INT32 dims: [ 1 ] reshape: { shape: [ ] } },
  { name: "request_output_len" data_type: TYPE_INT32 dims: [ 1 ] },
  { name: "return_context_logits" data_type: TYPE_BOOL dims: [ 1 ] reshape: { shape: [ ] } optional: true }
]
output [
  { name: "output_ids" data_type: TYPE_INT32 dims: [ -1, -1 ] },
  { name: "context_logits" data_type: TYPE_FP32 dims: [ -1, %(vocabulary)d ] }
]
""",
}


# Of samples: at most three in a request.
SAMPLES = """
name: "samples"
backend: "python"
max_batch_size: 3
input [ { name: "x" data_type: TYPE_FP32 dims: [ 16 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 10 ] }, { name: "h" data_type: TYPE_FP32 dims: [ 32 ] } ]
parameters { key: "weights" value: { string_value: "%s" } }
instance_group [ { count: 1 kind: KIND_CPU } ]
"""


def write_repository(folder, model_folder, weights):
    (folder / "samples" / "1").mkdir(parents=True)
    shutil.copy(SERVERS / "triton_samples.py", folder / "samples" / "1" / "model.py")
    (folder / "samples" / "config.pbtxt").write_text(SAMPLES % weights)
    for name, tensors in TENSORS.items():
        (folder / name / "1").mkdir(parents=True)
        shutil.copy(SERVERS / "triton_model.py", folder / name / "1" / "model.py")
        values = {"folder": model_folder, "code": SERVERS}
        parameters = "".join(
            f'parameters {{ key: "{key}" value: {{ string_value: "{value}" }} }}\n' for key, value in values.items()
        )
        (folder / name / "config.pbtxt").write_text(
            f'name: "{name}"\nbackend: "python"\nmax_batch_size: 8\n'
            + tensors % {"vocabulary": jobs.BYTE_VOCABULARY}
            + parameters
            + "instance_group [ { count: 1 kind: KIND_CPU } ]\n"
        )


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    """A folder with modules of a teacher and a student, the teacher's weights for Triton, and data."""
    folder = tmp_path_factory.mktemp("samples")
    torch.manual_seed(5)
    teacher = torchscript.Classifier(32)
    torch.jit.script(teacher).save(str(folder / "t.pt"))
    torch.jit.script(torchscript.Classifier(32)).save(str(folder / "s.pt"))
    numpy.savez(folder / "weights.npz", **{name: value.numpy() for name, value in teacher.state_dict().items()})
    save_file({"x": torch.randn(40, 16)}, folder / "train.safetensors")
    return folder


@pytest.fixture(scope="module")
def triton(teacher_folder, samples, tmp_path_factory):
    """Triton's own server program with its Python backend."""
    folder = tmp_path_factory.mktemp("triton")
    write_repository(folder / "models", teacher_folder, samples / "weights.npz")
    site = pathlib.Path(sysconfig.get_path("purelib", vars={"base": str(PYTHON.parents[1])}))
    program = site / "pytriton" / "tritonserver"
    backends = folder / "backends"  # the stub of this Python's version goes into them
    shutil.copytree(program / "backends", backends, symlinks=True)
    version = sysconfig.get_python_version()
    shutil.copy(program / "python_backend_stubs" / version / "triton_python_backend_stub", backends / "python")
    libraries = [sysconfig.get_config_var("LIBDIR"), site / "nvidia_pytriton.libs", os.environ.get("LD_LIBRARY_PATH")]
    port = free_port()
    command = [program / "bin" / "tritonserver", f"--model-repository={folder / 'models'}"]
    command += [f"--backend-directory={backends}", "--http-address=127.0.0.1", f"--http-port={port}"]
    command += ["--allow-grpc=false", "--allow-metrics=false"]
    environment = {
        "PATH": f"{PYTHON.parent}:{os.environ['PATH']}",
        "LD_LIBRARY_PATH": ":".join(str(path) for path in libraries if path),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    url = f"http://127.0.0.1:{port}"
    server = start(command, folder / "log", f"{url}/v2/health/ready", environment)
    yield url
    stop(server)


@pytest.fixture(scope="module")
def kserve_sdk(teacher_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("kserve")
    port = free_port()
    command = [PYTHON, SERVERS / "kserve_server.py", teacher_folder, str(port)]
    url = f"http://127.0.0.1:{port}"
    server = start(command, folder / "log", f"{url}/v2/models/teacher/ready", {"OPENBLAS_NUM_THREADS": "1"})
    yield url
    stop(server)


@pytest.fixture(scope="module")
def distil(distilld_session, text_data, tmp_path_factory):
    held_out = jobs.write_text_data(tmp_path_factory.mktemp("held-out") / "eval.jsonl", 20, seed=2)

    def run(endpoint, **changes):
        folder = tmp_path_factory.mktemp("student")
        spec = jobs.changed(
            jobs.distil_spec(text_data, folder / "student", endpoint, STEPS),
            {"/dataset/eval": str(held_out), **changes},
        )
        report = folder / "report.json"
        process = distilld_session.run("run", jobs.write_spec(folder / "spec.json", spec), "--report", report)
        return json.loads(report.read_text()), process

    return run


@pytest.fixture(scope="module", params=[0, 16], ids=["logits", "top-16"])
def reference(request, distil, teacher):
    """k, and the report of the job with `distilld teacher` as its teacher."""
    return request.param, distil(teacher.url, **{"/teacher/top_k": request.param})[0]


def same_loss(report, reference):
    print(f"held-out loss {report['eval_loss']:.5f}, from distilld teacher {reference['eval_loss']:.5f}")
    assert report["last"]["fetch"]["failures"] == {}
    # Ours rounds logits to fp16, theirs are numpy's.
    return report["eval_loss"] == pytest.approx(reference["eval_loss"], abs=2e-3)


@pytest.mark.parametrize("model", TENSORS)
def test_a_student_learns_the_same_from_triton(triton, distil, reference, model):
    k, expected = reference
    report, process = distil(f"{triton}/v2/models/{model}/infer", **{"/teacher/top_k": k})
    assert same_loss(report, expected)
    assert "binary" in process.out


def test_a_student_learns_the_same_from_the_kserve_sdk(kserve_sdk, distil, reference):
    k, expected = reference
    report, _ = distil(kserve_sdk, **{"/teacher/top_k": k})
    assert same_loss(report, expected)


def test_triton_and_the_sdk_are_known_by_their_pages(triton, kserve_sdk, distil, reference):
    k, expected = reference
    for url in (f"{triton}/v2/models/teacher/infer", kserve_sdk):
        report, _ = distil(url, **{"/teacher/top_k": k, "/teacher/protocol": "auto"})
        assert same_loss(report, expected)


def test_batches_above_tritons_limit_are_split(triton, distil, teacher):
    changes = {"/training/batch_size": 20, "/training/micro_batches": 1, "/teacher/top_k": 0, "/training/max_steps": 8}
    report, _ = distil(f"{triton}/v2/models/teacher/infer", **changes)
    expected, _ = distil(teacher.url, **changes)
    assert same_loss(report, expected)


def test_a_model_that_triton_has_not_is_named(triton, distilld, text_data, tmp_path):
    spec = jobs.distil_spec(text_data, tmp_path / "student", f"{triton}/v2/models/absent/infer", STEPS)
    spec["teacher"]["startup_timeout_secs"] = 3
    process = distilld.start("run", jobs.write_spec(tmp_path / "spec.json", spec)).expect(1)
    assert "absent" in process.err
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(f"{triton}/v2/models/absent")


def samples_spec(samples, output, teacher):
    names = {"inputs": ["x"], "outputs": ["y", "h"]}
    losses = [
        {"kind": "kl", "output": "y", "target": "teacher.y"},
        {"kind": "mse", "output": "h", "target": "teacher.h"},
    ]
    return {
        "student": {"format": "torchscript", "model": str(samples / "s.pt"), **names},
        "teacher": {**teacher, **names},
        "dataset": {"format": "tensors", "train": str(samples / "train.safetensors")},
        "training": {"losses": losses, "max_steps": 20, "batch_size": 4, "micro_batches": 2, "learning_rate": 0.01},
        "output": str(output),
    }


def test_a_model_with_named_tensors_teaches_samples(triton, samples, distilld, tmp_path):
    """A micro-batch of four takes two requests. numpy's products differ from libtorch's in the last bits."""
    losses = {}
    for name, teacher in {
        "module": {"module": str(samples / "t.pt")},
        "triton": {"endpoints": [f"{triton}/v2/models/samples"]},
    }.items():
        report = tmp_path / f"{name}-report.json"
        spec = jobs.write_spec(tmp_path / f"{name}.json", samples_spec(samples, tmp_path / name, teacher))
        process = distilld.run("run", spec, "--report", report)
        last = json.loads(report.read_text())["last"]
        assert last["fetch"]["failures"] == {}
        losses[name] = last["loss"]
    assert "KServe v2, outputs y, h, binary requests, binary answers, at most 3 samples a request" in process.out
    assert losses["triton"] == pytest.approx(losses["module"], rel=1e-4)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"/teacher/outputs": ["y", "z"]}, '/teacher/outputs: the model has no output "z" (it has y, h)'),
        ({"/teacher/inputs": ["label"]}, '/teacher/inputs: the model has no input "label" (it has x)'),
        ({"/teacher/protocol": "vllm"}, "/teacher/protocol: 'vllm' has no named tensors"),
    ],
)
def test_names_that_a_model_has_not_are_refused(triton, samples, distilld, tmp_path, changes, message):
    endpoints = {"endpoints": [f"{triton}/v2/models/samples"]}
    spec = samples_spec(samples, tmp_path / "out", endpoints)
    spec["training"]["losses"] = spec["training"]["losses"][:1]
    process = distilld.start("run", jobs.write_spec(tmp_path / "spec.json", jobs.changed(spec, changes)))
    process.wait()
    assert process.code not in (0, None) and message in process.out + process.err
