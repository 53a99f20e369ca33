"""Nothing is trained in silence: what cannot be right is refused or said, and an export says what it is."""

import json
import math
import pathlib
import shutil

import pytest
import torch
from support import jobs
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

IDS = [{"input_ids": [(7 * row + 3 * column) % 250 for column in range(40)]} for row in range(40)]
TOKENIZER_FILES = ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"]


def run(distilld, tmp_path, spec, code=0):
    return distilld.run("run", jobs.write_spec(tmp_path / "spec.json", spec), code=code)


def exported(spec, name="config.json"):
    return json.loads((pathlib.Path(spec["output"]) / name).read_text())


@pytest.fixture
def spec(text_data, tmp_path):
    return jobs.base_spec(text_data, tmp_path / "student", steps=4)


@pytest.fixture(scope="module")
def half_folder(tmp_path_factory):
    """A bf16 student without tokenizer files."""
    torch.manual_seed(3)
    folder = tmp_path_factory.mktemp("half") / "model"
    config = LlamaConfig(
        **{name: value for name, value in jobs.llama_config(48).items() if name not in ("architectures", "model_type")},
        initializer_range=0.5,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    return folder


# --- numbers that are not finite ---


def test_a_learning_rate_far_too_large_fails_the_job(distilld, spec, tmp_path):
    changes = {"/training/learning_rate": 100, "/training/lr_scheduler_type": "constant", "/training/max_steps": 200}
    # Weights that decay by more than they are grow without bound, on any machine.
    changes["/training/weight_decay"] = 100
    spec = jobs.changed(spec, {**changes, "/student/config": jobs.llama_config(32, initializer_range=30)})
    ended = run(distilld, tmp_path, spec, code=1)
    assert "/training/max_nonfinite_steps: 10 steps in a row had to be skipped" in ended.err
    assert "Lower training.learning_rate (it was 100)" in ended.err
    assert "warn: step" in ended.out and "was skipped: its loss is" in ended.out
    assert not (tmp_path / "student" / "model.safetensors").exists()


# --- tokenizers ---


def test_text_needs_a_tokenizer_of_the_students_vocabulary(distilld, spec, tmp_path):
    spec = jobs.changed(spec, {"/student/config": jobs.llama_config(32, vocabulary=512)})
    ended = run(distilld, tmp_path, spec, code=1)
    assert f'{spec["dataset"]["train"]}:1: "text" cannot be read: /student/tokenizer: there is none' in ended.err
    assert "vocabulary of 512 is not that of the byte tokenizer, 257" in ended.err
    # The very vocabulary with a folder that is named is no error.
    folder = tmp_path / "bytes"
    distilld.run("run", jobs.write_spec(tmp_path / "made.json", byte_student(spec, folder)))
    named = jobs.changed(spec, {"/student/tokenizer": str(folder)})
    assert f"tokenizer: {folder} (byte tokenizer, 257 tokens)" in run(distilld, tmp_path, named).out
    for name in TOKENIZER_FILES:
        assert (tmp_path / "student" / name).read_bytes() == (folder / name).read_bytes()
    assert exported(named)["eos_token_id"] == 256
    missing = jobs.changed(spec, {"/student/tokenizer": str(tmp_path / "nowhere")})
    assert f"/student/tokenizer: '{tmp_path}/nowhere' is not a folder" in run(distilld, tmp_path, missing, code=2).err
    (tmp_path / "nowhere").mkdir()
    assert "/student/tokenizer: " in run(distilld, tmp_path, missing, code=1).err


def byte_student(spec, output):
    return jobs.changed(spec, {"/student/config": jobs.llama_config(32), "/output": str(output)})


def test_a_student_of_bytes_exports_the_end_of_text_that_it_saw(distilld, spec, tmp_path):
    ended = run(distilld, tmp_path, spec)
    assert "tokenizer: byte tokenizer, 257 tokens\n" in ended.out
    for name in ("config.json", "generation_config.json"):
        assert exported(spec, name)["eos_token_id"] == 256
        assert exported(spec, name).get("bos_token_id") is None
        assert exported(spec, name).get("pad_token_id") is None
    model = AutoModelForCausalLM.from_pretrained(spec["output"])
    assert model.generation_config.eos_token_id == AutoTokenizer.from_pretrained(spec["output"]).eos_token_id == 256


def test_a_student_reads_text_with_a_tokenizer_of_byte_pairs(distilld, spec, tmp_path):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<|end|>"], initial_alphabet=alphabet, show_progress=False
    )
    train = pathlib.Path(spec["dataset"]["train"])
    texts = [json.loads(line)["text"] for line in train.read_text().splitlines()]
    tokenizer.train_from_iterator(texts, trainer)
    folder = tmp_path / "bpe"
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>").save_pretrained(folder)
    size = tokenizer.get_vocab_size()
    changes = {"/student/config": jobs.llama_config(32, vocabulary=size), "/student/tokenizer": str(folder)}
    by_text = jobs.changed(spec, {**changes, "/dataset/packing": False})
    assert f"tokenizer: {folder} (byte-level BPE tokenizer, {size} tokens)" in run(distilld, tmp_path, by_text).out
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "student" / name).read_bytes() == (folder / name).read_bytes()
    assert exported(by_text)["eos_token_id"] == tokenizer.token_to_id("<|end|>")
    # The same weights come of the ids that transformers makes.
    theirs = AutoTokenizer.from_pretrained(folder)
    ids = jobs.write_jsonl(tmp_path / "ids.jsonl", [{"input_ids": theirs(text)["input_ids"]} for text in texts])
    ready = {"/dataset/train": str(ids), "/dataset/eval": None, "/output": str(tmp_path / "ready")}
    by_ids = jobs.changed(by_text, ready)
    run(distilld, tmp_path, by_ids)
    weights = "model.safetensors"
    assert (tmp_path / "ready" / weights).read_bytes() == (tmp_path / "student" / weights).read_bytes()


def test_ready_made_ids_export_no_tokenizer(distilld, spec, tmp_path):
    data = jobs.write_jsonl(tmp_path / "ids.jsonl", IDS)
    spec = jobs.changed(spec, {"/dataset/train": str(data)})
    assert "tokenizer: none: the data has ids\n" in run(distilld, tmp_path, spec).out
    for name in TOKENIZER_FILES:
        assert not (tmp_path / "student" / name).exists()
    assert exported(spec)["eos_token_id"] == 2  # the config's own: nobody knows better


# --- held-out loss ---


def test_the_whole_held_out_set_is_read_or_as_much_as_is_asked_for(distilld, spec, tmp_path):
    document = {"input_ids": [column % 250 for column in range(9)]}
    held_out = jobs.write_jsonl(tmp_path / "held-out.jsonl", [document] * 4500)
    changes = {"/dataset/eval": str(held_out), "/dataset/sequence_length": 8, "/training/batch_size": 64}
    changes["/dataset/packing"] = False
    whole = jobs.changed(spec, changes)
    assert f"info: each evaluation will read 4500 of the 4500 rows of {held_out}" in run(distilld, tmp_path, whole).out
    some = jobs.changed(whole, {"/dataset/eval_rows": 100, "/output": str(tmp_path / "some")})
    assert f"info: each evaluation will read 100 of the 4500 rows of {held_out}" in run(distilld, tmp_path, some).out


def transformers_loss(folder, data, length):
    """Mean cross entropy over rows of the file, which holds one document a row."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    total = count = 0
    with torch.no_grad():
        for document in map(json.loads, data.read_text().splitlines()):
            ids = torch.tensor([document["input_ids"][: length + 1]])
            total += model(ids, labels=ids).loss.item() * (ids.shape[1] - 1)
            count += ids.shape[1] - 1
    return total / count


def test_the_loss_of_a_half_precision_export_is_that_of_its_files(module_service, spec, half_folder, tmp_path):
    data = jobs.write_jsonl(tmp_path / "ids.jsonl", IDS)
    changes = {"/student": {"model": str(half_folder), "dtype": "fp32"}, "/dataset/train": str(data)}
    spec = jobs.changed(spec, {**changes, "/dataset/eval": str(data), "/dataset/packing": False})
    job = module_service.rest.wait_job(module_service.rest.submit(spec))
    assert job["state"] == "succeeded", job
    theirs = transformers_loss(spec["output"], data, jobs.SEQUENCE_LENGTH)
    assert math.isclose(job["exported_eval_loss"], theirs, rel_tol=2e-6)
    assert not math.isclose(job["eval_loss"], theirs, rel_tol=2e-6)
    random = {"init": "random", "config": jobs.llama_config(32), "dtype": "fp32"}
    exact = jobs.changed(spec, {"/student": random, "/output": str(tmp_path / "exact")})
    job = module_service.rest.wait_job(module_service.rest.submit(exact))
    assert job["exported_eval_loss"] is None
    theirs = transformers_loss(exact["output"], data, jobs.SEQUENCE_LENGTH)
    assert math.isclose(job["eval_loss"], theirs, rel_tol=2e-6)


# --- configs ---


def test_a_config_whose_layers_differ_is_refused(distilld, spec, half_folder, tmp_path):
    folder = tmp_path / "smollm3"
    shutil.copytree(half_folder, folder)
    config = json.loads((folder / "config.json").read_text())
    config.update(no_rope_layers=[1, 0], no_rope_layer_interval=4, use_sliding_window=False, colour="blue")
    (folder / "config.json").write_text(json.dumps(config))
    spec = jobs.changed(spec, {"/student": {"model": str(folder)}})
    ended = run(distilld, tmp_path, spec, code=1)
    assert f"{folder}/config.json: /no_rope_layers: is [1,0], which changes what the network computes" in ended.err
    served = distilld.run("teacher", folder, "--listen", "127.0.0.1:0", code=1)
    assert "/no_rope_layers: is [1,0]" in served.err
    config.update(no_rope_layers=[1, 1])
    (folder / "config.json").write_text(json.dumps(config))
    assert "unknown and ignored: colour" in run(distilld, tmp_path, spec).out


def test_a_weight_that_is_not_finite_is_refused_by_name(distilld, spec, half_folder, tmp_path):
    folder = tmp_path / "damaged"
    model = LlamaForCausalLM.from_pretrained(half_folder)
    model.model.layers[1].mlp.up_proj.weight.data[3, 5] = math.nan
    model.save_pretrained(folder)
    for ended in (
        run(distilld, tmp_path, jobs.changed(spec, {"/student": {"model": str(folder)}}), code=1),
        distilld.run("teacher", folder, "--listen", "127.0.0.1:0", code=1),
    ):
        wanted = "model.safetensors: tensor model.layers.1.mlp.up_proj.weight holds NaN or infinity"
        assert f"{folder}/{wanted}" in ended.err
