"""What a run refuses in its first second, `spec check` and a dry run say before it; and a spec that `spec init` has
written takes edits as people make them."""

import json

import pytest
from support import jobs

CHAT = [{"messages": [{"role": "user", "content": "Hi"}]}]


@pytest.fixture
def good(text_data, tmp_path):
    return jobs.base_spec(text_data, tmp_path / "student", steps=2)


def other_model(folder):
    (folder / "student").mkdir()
    (folder / "student" / "config.json").write_text("{}")
    return {}


def other_store(folder):
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text("{}")
    return {"/teacher": {"endpoints": ["http://127.0.0.1:9"], "top_k": 8, "store": str(folder / "model")}}


def file_of(folder, name, documents):
    return str(jobs.write_jsonl(folder / name, documents))


def broken(folder):
    file = folder / "broken.jsonl"
    file.write_text('{"text": "a whole line"}\n{"text": \n')
    return str(file)


# name: (changes, made in a folder; the field; what is said of it)
MISTAKES = {
    "rows are too long": (
        lambda folder: {"/dataset/sequence_length": 4096},
        *("/dataset/sequence_length", "exceeds the student's max_position_embeddings of 128"),
    ),
    "no tokenizer": (
        lambda folder: {"/student/config/vocab_size": 999},
        *("/dataset/train", "is not that of the byte tokenizer"),
    ),
    "a folder without a tokenizer": (
        lambda folder: {"/student/tokenizer": str(folder)},
        *("/student/tokenizer", "is not a folder with a tokenizer.json"),
    ),
    "conversations": (
        lambda folder: {"/dataset/train": file_of(folder, "chat.jsonl", CHAT)},
        *("/dataset/train", "chat.jsonl:1: is a conversation"),
    ),
    "no data": (
        lambda folder: {"/dataset/train": file_of(folder, "empty.jsonl", [])},
        *("/dataset/train", "empty.jsonl"),
    ),
    "a broken line": (lambda folder: {"/dataset/train": broken(folder)}, "/dataset/train", "broken.jsonl:2: "),
    "an unknown rope_type": (
        lambda folder: {"/student/config/rope_scaling": {"rope_type": "spiral", "factor": 2.0}},
        *("/student/config", "spiral"),
    ),
    "a family that is not known": (
        lambda folder: {"/student/config/model_type": "llamb"},
        *("/student/config", "llamb"),
    ),
    "a wrong path": (
        lambda folder: {"/teacher": {"endpoints": ["http://127.0.0.1:9/v2/elsewhere"], "protocol": "kserve"}},
        *("/teacher/endpoints/0", "/v2/elsewhere"),
    ),
    "a module that is not there": (
        lambda folder: {"/student/quantization": "ternary", "/student/quantize_modules": ["c_attn"]},
        *("/student/quantize_modules", 'the student has no linear module "c_attn"'),
    ),
    "a store among other files": (other_store, "/teacher/store", "is not a store: it has no manifest.json, but "),
    "a model of somebody else": (other_model, "/output", "belongs to another model"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_check_and_dry_run_say_what_the_run_would(name, distilld, module_service, good, tmp_path):
    changes, field, said = MISTAKES[name]
    spec = jobs.changed(good, changes(tmp_path))
    file = jobs.write_spec(tmp_path / "spec.json", spec)
    found = json.loads(distilld.run("spec", "check", file, "-o", "json", code=2).out)["violations"]
    assert len(found) == 1 and found[0]["pointer"].startswith(field), found
    assert said in found[0]["detail"]
    answer = module_service.rest.post("/v1/jobs?dry_run=true", spec)
    assert answer.status == 400
    assert [(one["pointer"], one["detail"]) for one in answer.json["errors"]] == [
        (found[0]["pointer"], found[0]["detail"])
    ]
    # In the words of the run.
    assert found[0]["detail"] in distilld.run("run", file, code=1).err


def test_a_warm_up_as_long_as_the_run_is_found(distilld, good, tmp_path):
    file = jobs.write_spec(tmp_path / "spec.json", jobs.changed(good, {"/training/warmup_steps": 2}))
    assert "/training/warmup_steps: " in distilld.run("spec", "check", file, code=2).err


def test_check_says_what_it_has_not_checked(distilld, module_service, good, tmp_path):
    spec = jobs.changed(good, {"/teacher": {"endpoints": ["http://127.0.0.1:9"]}})
    file = jobs.write_spec(tmp_path / "spec.json", spec)
    said = distilld.run("spec", "check", file).out.splitlines()
    assert said == [f"{file}: nothing is wrong", "not checked: teacher.endpoints, which are not asked"]
    estimate = module_service.rest.post("/v1/jobs?dry_run=true", spec).json["estimate"]
    assert estimate["not_checked"] == ["teacher.endpoints, which are not asked"]
    assert "violations" not in estimate


def test_a_block_of_a_started_spec_can_be_uncommented_as_it_stands(distilld, teacher_folder, text_data, tmp_path):
    made = distilld.run(
        "spec", "init", "--model", teacher_folder, "--data", text_data, "--output", tmp_path / "out"
    ).out
    lines = made.splitlines()
    begin = next(i for i, line in enumerate(lines) if line.strip() == '// "lora": {')
    end = next(i for i, line in enumerate(lines) if i > begin and line.strip() == "// },")
    for i in range(begin, end + 1):
        lines[i] = lines[i].replace("// ", "", 1)
    file = tmp_path / "spec.json"
    file.write_text("\n".join(lines))
    assert "nothing is wrong" in distilld.run("spec", "check", file).out


def test_a_missing_comma_is_named_by_its_line(distilld, tmp_path):
    file = tmp_path / "spec.json"
    file.write_text('{\n  "name": "a" // here\n  // and a comment\n  "output": "b"\n}\n')
    said = distilld.run("spec", "check", file, code=2).err
    assert "line 4, column 3: line 2 lacks a comma at its end" in said


def test_names_of_the_hub_are_no_folders_yet(distilld, good, tmp_path):
    file = jobs.write_spec(tmp_path / "spec.json", jobs.changed(good, {"/student/model": "Qwen/Qwen3-0.6B"}))
    for command in (["spec", "check"], ["run"]):
        said = distilld.run(*command, file, code=2, cwd=tmp_path).err
        assert "hf download Qwen/Qwen3-0.6B --local-dir models/Qwen3-0.6B" in said
