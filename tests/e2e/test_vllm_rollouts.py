"""On-policy distillation with a real vLLM that writes the student's answers; scripts/test-vllm.sh runs this."""

import json

import pytest
from support import jobs
from support.trained_tokenizers import write_tokenizer
from support.vllm import needs_vllm, served

pytestmark = needs_vllm

STEPS = 60
LINES = [" ".join(jobs.text_lines(2, seed)) for seed in range(40)]


@pytest.fixture(scope="module")
def models(distilld_session, tmp_path_factory):
    """Folders of a base that has learnt little and of a teacher that has learnt more, and a file of prompts."""
    made = tmp_path_factory.mktemp("models")
    tokens = write_tokenizer(made / "tokenizer", "qwen-2.5", LINES, 400).get_vocab_size()
    config = jobs.llama_config(64, tokens, num_attention_heads=2, num_key_value_heads=1)
    data = jobs.write_jsonl(made / "lines.jsonl", [{"text": line} for line in LINES])
    for name, steps in (("base", 20), ("teacher", 300)):
        spec = {
            "student": {"init": "random", "config": config, "tokenizer": str(made / "tokenizer"), "dtype": "fp32"},
            "dataset": {"train": str(data), "sequence_length": 64},
            "training": {"batch_size": 8, "max_steps": steps, "learning_rate": 5e-3, "threads": 1},
            "output": str(made / name),
        }
        distilld_session.run("run", jobs.write_spec(made / f"{name}.json", spec))
    jobs.write_jsonl(made / "prompts.jsonl", [{"prompt": line[:9]} for line in LINES])
    return made


def run(distilld, models, url, folder, **changes):
    spec = {
        "student": {"model": str(models / "base"), "dtype": "fp32", "lora": {"r": 16}},
        "teacher": {"model_dir": str(models / "teacher"), "dtype": "fp32", "threads": 1},
        "rollout": {"endpoints": [url], "prompts": str(models / "prompts.jsonl"), "max_tokens": 16, "staleness": 1},
        "training": {
            "batch_size": 8,
            "micro_batches": 1,
            "max_steps": STEPS,
            "learning_rate": 5e-3,
            "threads": 1,
            "logging_steps": 1,
        },
        "metrics": {"jsonl_file": str(folder / "steps.jsonl")},
        "output": str(folder / "student"),
    }
    spec["rollout"]["max_prompt_tokens"] = 32
    folder.mkdir()
    distilld.run("run", jobs.write_spec(folder / "spec.json", jobs.changed(spec, changes)), seconds=600)
    lines = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
    losses = [line["kd_loss"] for line in lines if line["kind"] == "step"]
    return losses, jobs.sha256(folder / "student" / "adapter_model.safetensors")


def test_a_student_learns_from_its_own_answers_in_vllm(distilld, models, tmp_path):
    options = ["--enable-lora", "--max-loras", "4", "--max-lora-rank", "16"]
    log = tmp_path / "vllm.log"
    with served(models / "base", "base", log, *options, VLLM_ALLOW_RUNTIME_LORA_UPDATING="1") as url:
        losses, bits = run(distilld, models, url, tmp_path / "vllm")
        _, again = run(distilld, models, url, tmp_path / "sequential", **{"/training/parallel": False})
    assert again == bits, "vLLM repeats itself, whatever the timing"
    ours, _ = run(distilld, models, distilld.teacher(models / "base", "--dtype", "fp32").url, tmp_path / "distilld")
    first, last = (sum(part) / 10 for part in (losses[:10], losses[-10:]))
    our_first, our_last = (sum(part) / 10 for part in (ours[:10], ours[-10:]))
    print(f"KD loss on own answers: vLLM {first:.3f} to {last:.3f}, distilld teacher {our_first:.3f} to {our_last:.3f}")
    assert last < first - 0.2 and our_last < our_first - 0.2
