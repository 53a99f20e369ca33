"""A real vLLM as the teacher. scripts/test-vllm.sh installs it (3.4 GB) and runs this."""

import json

import pytest
from support import jobs
from support.vllm import needs_vllm, served

pytestmark = needs_vllm

TOP_K = 64
STEPS = 40


@pytest.fixture(scope="module")
def served_folder(distilld_session, text_data, tmp_path_factory):
    """A teacher whose heads have 32 channels: vLLM on CPUs has no attention for smaller ones."""
    folder = tmp_path_factory.mktemp("served")
    spec = jobs.changed(
        jobs.base_spec(text_data, folder / "model", steps=60),
        {
            "/student/config": jobs.llama_config(64, num_attention_heads=2),
            "/training/batch_size": 8,
            "/training/micro_batches": 1,
            "/training/learning_rate": 5e-3,
        },
    )
    distilld_session.run("run", jobs.write_spec(folder / "spec.json", spec))
    return folder / "model"


@pytest.fixture(scope="module")
def vllm(served_folder, tmp_path_factory):
    log = tmp_path_factory.mktemp("vllm") / "log"
    with served(served_folder, "teacher", log, "--max-logprobs", str(TOP_K), "--enable-scale-out") as url:
        yield url


@pytest.fixture(scope="module")
def distil(distilld_session, text_data, tmp_path_factory):
    held_out = jobs.write_text_data(tmp_path_factory.mktemp("held-out") / "eval.jsonl", 20, seed=2)

    def run(endpoint, protocol, **changes):
        folder = tmp_path_factory.mktemp(protocol)
        spec = jobs.changed(
            jobs.distil_spec(text_data, folder / "student", endpoint, STEPS, top_k=TOP_K),
            {
                "/teacher/protocol": protocol,
                "/dataset/eval": str(held_out),
                "/training/overlap_optimizer": True,
                **changes,
            },
        )
        report = folder / "report.json"
        process = distilld_session.run("run", jobs.write_spec(folder / "spec.json", spec), "--report", report)
        return json.loads(report.read_text()), process

    return run


@pytest.fixture(scope="module")
def reference(distil, distilld_session, served_folder):
    """The report of the same job with `distilld teacher` as its teacher."""
    own = distilld_session.teacher(served_folder, "--dtype", "fp32")
    return distil(own.url, "kserve")[0]


@pytest.mark.parametrize(("protocol", "said"), [("vllm", "vLLM completions"), ("vllm-generate", "vLLM generate")])
def test_a_student_learns_the_same_from_vllm(vllm, distil, reference, protocol, said):
    report, process = distil(vllm, protocol)
    print(f"held-out loss: {protocol} {report['eval_loss']:.5f}, distilld teacher {reference['eval_loss']:.5f}")
    # Our own teacher rounds its log-probabilities to fp16, vLLM sums in another order.
    assert report["eval_loss"] == pytest.approx(reference["eval_loss"], abs=2e-3)
    assert said in process.out
    assert report["last"]["fetch"]["failures"] == {}


def test_vllm_is_known_by_its_pages(vllm, distil, reference):
    report, process = distil(vllm, "auto")
    assert report["eval_loss"] == pytest.approx(reference["eval_loss"], abs=2e-3)
    assert "vLLM generate" in process.out  # whose answers are shorter


def test_the_same_job_again_gives_the_same_bits(vllm, distil):
    first, _ = distil(vllm, "vllm")
    again, _ = distil(vllm, "vllm", **{"/teacher/max_concurrent": 1})
    print(f"weights: {first['weights_sha256'][:16]} with 8 requests in flight, {again['weights_sha256'][:16]} with 1")
    assert first["eval_loss"] == pytest.approx(again["eval_loss"], abs=2e-3)


def test_too_large_a_k_is_refused_with_the_way_out(vllm, distilld, text_data, tmp_path):
    spec = jobs.changed(
        jobs.distil_spec(text_data, tmp_path / "student", vllm, STEPS, top_k=TOP_K + 1), {"/teacher/protocol": "vllm"}
    )
    process = distilld.start("run", jobs.write_spec(tmp_path / "spec.json", spec)).expect(1)
    assert "--max-logprobs" in process.err
