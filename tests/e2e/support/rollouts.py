"""A small job with rollouts: its models, prompts, servers and spec as fixtures, and what it leaves."""

import json
import random

import pytest

from support import jobs
from support.moments import kill
from support.processes import Programs, wait_until

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

STEPS = 10
EVERY = 3
MICRO_BATCHES = 2


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Folders of a base and of a teacher, and a file of prompts."""
    made = tmp_path_factory.mktemp("models")
    for seed, name in enumerate(("base", "teacher")):
        torch.manual_seed(seed)
        config = transformers.LlamaConfig(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=64,
            eos_token_id=1,
            bos_token_id=None,
            initializer_range=0.2,
        )
        transformers.LlamaForCausalLM(config).save_pretrained(made / name)
    draw = random.Random(3)
    prompts = [[draw.randrange(2, 64) for _ in range(draw.randrange(1, 12))] for _ in range(17)]
    jobs.write_jsonl(made / "prompts.jsonl", [{"input_ids": ids} for ids in prompts])
    return made


@pytest.fixture(scope="module")
def servers(programs, models, tmp_path_factory):
    """Two servers of the base."""
    started = Programs(programs, tmp_path_factory.mktemp("logs"))
    yield [started.teacher(models / "base", "--dtype", "fp32") for _ in range(2)]
    started.stop_all()


@pytest.fixture
def spec(models, servers, tmp_path):
    return {
        "student": {"model": str(models / "base"), "lora": {"r": 4}, "dtype": "fp32"},
        "teacher": {"model_dir": str(models / "teacher"), "dtype": "fp32", "threads": 1},
        "rollout": {
            "endpoints": [servers[0].url],
            "prompts": [str(models / "prompts.jsonl")],
            "max_prompt_tokens": 12,
            "max_tokens": 10,
        },
        "training": {
            "batch_size": 4,
            "micro_batches": MICRO_BATCHES,
            "max_steps": STEPS,
            "learning_rate": 0.02,
            "beta": 1.0,
            "threads": 1,
        },
        "checkpoint": {"every_steps": EVERY},
        "output": str(tmp_path / "student"),
    }


def run(distilld, spec, folder, code=0):
    """The hash of the adapter that a run writes, or what it says on its way out."""
    spec = jobs.changed(spec, {"/output": str(folder)})
    process = distilld.run("run", jobs.write_spec(f"{folder}.json", spec), code=code, seconds=120)
    return jobs.sha256(folder / "adapter_model.safetensors") if code == 0 else process.err


def kept(folder):
    """The micro-batches of answers in the order of their numbers."""
    lines = [json.loads(line) for line in (folder / "rollouts.jsonl").read_text().splitlines()]
    assert [*lines[0]] == ["rollouts_of_run"]
    assert [line["micro_batch"] for line in lines[1:]] == list(range(len(lines) - 1)), "each is there once, in order"
    return lines[1:]


def killed(distilld, spec, folder, steps):
    """Starts the run, kills it when it has kept the answers of `steps` steps, and lets it go on."""
    spec = jobs.changed(spec, {"/output": str(folder)})
    path = jobs.write_spec(f"{folder}.json", spec)
    process = distilld.start("run", path)
    file = folder / "rollouts.jsonl"
    enough = 1 + steps * MICRO_BATCHES
    wait_until(lambda: file.exists() and file.read_bytes().count(b"\n") >= enough, "answers", pause=0.001)
    worker = process.worker()
    kill(process.pid)
    kill(worker)
    process.wait()
    with open(file, "ab") as torn:
        torn.write(b'{"micro_batch":99,"vers')
    return run(distilld, spec, folder)
