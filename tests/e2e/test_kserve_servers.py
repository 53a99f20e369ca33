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

import pytest
from support import jobs
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


def write_repository(folder, model_folder):
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
def triton(teacher_folder, tmp_path_factory):
    """Triton's own server program with its Python backend."""
    folder = tmp_path_factory.mktemp("triton")
    write_repository(folder / "models", teacher_folder)
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
