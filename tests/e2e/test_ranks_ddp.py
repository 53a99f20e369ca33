"""Ranks against PyTorch's DistributedDataParallel: the same weights, data, groups and optimizer."""

import json
import pathlib
import random
import sys

import pytest
import torch
import transformers
from safetensors.torch import load_file
from support import jobs

# Both sides round in fp32, in another order.
ALIKE = 1e-5


@pytest.fixture(scope="module")
def trained(distilld_session, tmp_path_factory):
    """What both sides train, and where DistributedDataParallel has left its weights and losses."""
    folder = tmp_path_factory.mktemp("ddp")
    torch.manual_seed(5)
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**jobs.llama_config(32))).save_pretrained(folder / "model")
    of = {"steps": 20, "micro_batches": 4, "batch_size": 2, "learning_rate": 1e-3, "weight_decay": 0.1}
    of["max_grad_norm"] = 1.0
    for name in ("model", "weights", "losses"):
        of[name] = str(folder / name)
    source = random.Random(3)
    rows = [
        {"input_ids": [source.randrange(jobs.BYTE_VOCABULARY) for _ in range(jobs.SEQUENCE_LENGTH)]}
        for _ in range(of["steps"] * of["micro_batches"] * of["batch_size"])
    ]
    of["data"] = str(jobs.write_jsonl(folder / "rows.jsonl", rows))
    side = pathlib.Path(__file__).parent / "support" / "ddp.py"
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", side]
    distilld_session.run(*launcher, jobs.write_spec(folder / "ddp.json", of), program=sys.executable)
    return of


@pytest.mark.parametrize("shard", [False, True])
def test_two_ranks_train_as_distributed_data_parallel_does(distilld, trained, tmp_path, shard):
    same = ("micro_batches", "batch_size", "learning_rate", "weight_decay", "max_grad_norm")
    spec = {
        "student": {"model": trained["model"], "dtype": "fp32"},
        "dataset": {"train": trained["data"], "sequence_length": jobs.SEQUENCE_LENGTH, "packing": False},
        "training": {name: trained[name] for name in same},
        "output": str(tmp_path / "student"),
        "metrics": {"jsonl_file": str(tmp_path / "steps.jsonl")},
    }
    spec["dataset"]["shuffle"] = "off"
    spec["training"] |= {"max_steps": trained["steps"], "lr_scheduler_type": "constant", "logging_steps": 1}
    spec["training"] |= {"ranks": 2, "gradient_groups": 2, "shard_optimizer": shard}
    distilld.run("run", jobs.write_spec(tmp_path / "spec.json", spec))

    records = map(json.loads, (tmp_path / "steps.jsonl").read_text().splitlines())
    losses = [record["loss"] for record in records if record["kind"] == "step"]
    assert losses == pytest.approx(json.loads(pathlib.Path(trained["losses"]).read_text()), rel=ALIKE)
    weights, theirs = load_file(tmp_path / "student" / "model.safetensors"), load_file(trained["weights"])
    before = load_file(pathlib.Path(trained["model"]) / "model.safetensors")
    for name, tensor in theirs.items():
        length = torch.linalg.vector_norm(tensor)
        assert torch.linalg.vector_norm(weights[name] - tensor) <= ALIKE * length, name
        assert torch.linalg.vector_norm(before[name] - tensor) > 100 * ALIKE * length, name
