"""GPT-2 as a job has it: trained from nothing, served, in the process, stored, said aloud."""

import json

import pytest
import torch
from support import jobs
from transformers import AutoModelForCausalLM, AutoTokenizer

STEPS = 8


def config(width):
    return {
        "model_type": "gpt2",
        "vocab_size": jobs.BYTE_VOCABULARY,
        "n_embd": width,
        "n_layer": 2,
        "n_head": 4,
        "n_positions": 32,
        "bos_token_id": None,
        "eos_token_id": 256,
    }


def run(distilld, spec, folder, name):
    report = folder / f"{name}.report.json"
    done = distilld.run("run", jobs.write_spec(folder / f"{name}.json", spec), "--report", report)
    return json.loads(report.read_text()), done.out


@pytest.fixture(scope="module")
def taught(distilld_session, text_data, tmp_path_factory):
    """A teacher trained from nothing: its folder, the report of its job and what that printed."""
    folder = tmp_path_factory.mktemp("gpt2")
    spec = jobs.base_spec(text_data, folder / "model", 40)
    spec["student"]["config"] = config(48)
    spec["dataset"]["eval"] = str(text_data)
    spec["eval"] = {"max_rows": 16, "sample_prompts": ["The old stone "], "sample_tokens": 30}
    spec["training"].update(learning_rate=5e-3, eval_steps=40)
    report, out = run(distilld_session, spec, folder, "teacher")
    return folder / "model", report, out


def test_a_model_trained_from_nothing_is_transformers_own(taught, text_data):
    folder, report, out = taught
    model, loading = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not loading["missing_keys"] and not loading["unexpected_keys"] and model.config.attn_pdrop == 0.1
    assert report["last"]["loss"] < 4.5  # ln 257 is 5.5
    # Evaluation drops nothing: it is the loss that transformers computes.
    texts = [json.loads(line)["text"].encode() for line in text_data.read_text().splitlines()]
    ids = [id for text in texts for id in [*text, 256]]
    rows = torch.tensor(ids[: 16 * jobs.SEQUENCE_LENGTH + 1])
    inputs, labels = (rows[begin : begin + 16 * jobs.SEQUENCE_LENGTH].view(16, -1) for begin in (0, 1))
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(model(inputs).logits.flatten(0, 1), labels.flatten())
    assert report["eval_loss"] == pytest.approx(loss.item(), abs=1e-4)
    # Sampling, which goes beyond the positions that it has: prompt and answer are 44 of them.
    assert "The old stone " in out
    assert AutoTokenizer.from_pretrained(folder)("abc")["input_ids"] == [97, 98, 99]


def test_it_teaches_served_in_the_process_and_from_a_store(distilld, taught, text_data, tmp_path):
    folder, _, _ = taught
    url = distilld.teacher(folder, "--dtype", "fp32").url
    local = {"model_dir": str(folder), "dtype": "fp32", "threads": 1}
    ways = {
        "served": {"endpoints": [url]},
        "local": local,
        "shared": {**local, "placement": "shared"},
    }
    table = {}
    for name, teacher in ways.items():
        spec = jobs.base_spec(text_data, tmp_path / name, STEPS)
        spec["student"]["config"] = config(32)
        spec["teacher"] = {"top_k": 16, **teacher}
        table[name] = run(distilld, spec, tmp_path, name)[0]["weights_sha256"]
    generate = {
        "kind": "generate",
        "teacher": {"top_k": 16, **local, "store": str(tmp_path / "store")},
        "dataset": {"train": str(text_data), "sequence_length": jobs.SEQUENCE_LENGTH},
        "training": {"batch_size": 2},
    }
    distilld.run("generate", jobs.write_spec(tmp_path / "generate.json", generate))
    stored = {"/teacher": {"top_k": 16, "store": str(tmp_path / "store")}, "/output": str(tmp_path / "stored")}
    table["stored"] = run(distilld, jobs.changed(spec, stored), tmp_path, "stored")[0]["weights_sha256"]
    print("\n" + "\n".join(f"{name:8} {sha256[:16]}" for name, sha256 in table.items()))
    assert len(set(table.values())) == 1


def test_ternary_weights_are_refused_by_name(distilld, text_data, tmp_path):
    spec = jobs.base_spec(text_data, tmp_path / "student", 2)
    spec["student"].update(config=config(32), quantization="ternary")
    refused = distilld.run("run", jobs.write_spec(tmp_path / "spec.json", spec), code=1)
    assert '/student/quantization: is "ternary", but transformer.h.0.attn.c_attn' in refused.err
