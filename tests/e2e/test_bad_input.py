"""What is wrong is refused with one clear error that names it; the service goes on."""

import json
import pathlib
import shutil

import pytest
import torch
from chaos_proxy import ChaosProxy
from support import jobs
from transformers import LlamaConfig, LlamaForCausalLM

# --- job specs ---

# name: (changes to a good spec, pointers that the answer must name)
BAD_SPECS = {
    "no student": ({"/student": None}, ["/student"]),
    "no dataset": ({"/dataset": None}, ["/dataset"]),
    "no training": ({"/training": None}, ["/training"]),
    "no output": ({"/output": None}, ["/output"]),
    "output is a number": ({"/output": 7}, ["/output"]),
    "an unknown field": ({"/colour": "red"}, ["/colour"]),
    "an unknown field inside": ({"/training/learningrate": 1}, ["/training/learningrate"]),
    "a field that is null": ({"/name": json}, ["/name"]),
    "neither steps nor epochs": ({"/training/max_steps": None}, ["/training/max_steps"]),
    "steps and epochs": ({"/training/epochs": 1}, ["/training/epochs"]),
    "no steps at all": ({"/training/max_steps": 0}, ["/training/max_steps"]),
    "half a step": ({"/training/max_steps": 1.5}, ["/training/max_steps"]),
    "steps as text": ({"/training/max_steps": "10"}, ["/training/max_steps"]),
    "a negative learning rate": ({"/training/learning_rate": -1e-4}, ["/training/learning_rate"]),
    "a batch of nothing": ({"/training/batch_size": 0}, ["/training/batch_size"]),
    "more micro-batches than allowed": ({"/training/micro_batches": 1 << 40}, ["/training/micro_batches"]),
    "a ratio above 1": ({"/training/kd_ratio": 1.5}, ["/training/kd_ratio"]),
    "temperature 0": ({"/training/temperature": 0}, ["/training/temperature"]),
    "beta above 1": ({"/training/beta": 1.5}, ["/training/beta"]),
    "a schedule that is not known": ({"/training/lr_scheduler_type": "zigzag"}, ["/training/lr_scheduler_type"]),
    "parallel as text": ({"/training/parallel": "yes"}, ["/training/parallel"]),
    "a dtype that is not known": ({"/student/dtype": "fp8"}, ["/student/dtype"]),
    "pretrained without a folder": ({"/student": {"dtype": "fp32"}}, ["/student/model"]),
    "a config that is not an object": ({"/student/config": []}, ["/student/config"]),
    "no endpoints": ({"/teacher/endpoints": []}, ["/teacher/endpoints"]),
    "an endpoint that is no URL": ({"/teacher/endpoints": ["localhost:8000"]}, ["/teacher/endpoints/0"]),
    "a scheme that is not spoken": ({"/teacher/endpoints": ["ftp://127.0.0.1"]}, ["/teacher/endpoints/0"]),
    "a password in the URL": ({"/teacher/endpoints": ["http://u:p@127.0.0.1"]}, ["/teacher/endpoints/0"]),
    "one endpoint twice": (
        {"/teacher/endpoints": ["http://127.0.0.1:9", "http://127.0.0.1:9"]},
        ["/teacher/endpoints/1"],
    ),
    "a protocol that is not known": ({"/teacher/protocol": "telepathy"}, ["/teacher/protocol"]),
    "no time at all": ({"/teacher/timeout_secs": 0}, ["/teacher/timeout_secs"]),
    "concurrency 0": ({"/teacher/max_concurrent": 0}, ["/teacher/max_concurrent"]),
    "a key that is no name": ({"/teacher/api_key_env": "sk-12 34"}, ["/teacher/api_key_env"]),
    "a variable that is no key": ({"/teacher/api_key_env": "HOME"}, ["/teacher/api_key_env"]),
    "no sequence length": ({"/dataset/sequence_length": None}, ["/dataset/sequence_length"]),
    "no checkpoint is kept": ({"/checkpoint": {"keep": 0}}, ["/checkpoint/keep"]),
    "kd_ratio without a teacher": ({"/teacher": None, "/training/kd_ratio": 0.5}, ["/training/kd_ratio"]),
    "many at once": (
        {"/training/beta": 2, "/teacher/top_k": -1, "/dataset/train": 3, "/shoe": 1},
        ["/training/beta", "/teacher/top_k", "/dataset/train", "/shoe"],
    ),
}

BAD_DOCUMENTS = {
    "nothing": b"",
    "half of it": b'{"name": "x"',
    "a list": b"[1, 2]",
    "not UTF-8": b'{"name": "\xff\xfe"}',
    "a key twice": b'{"name": "a", "name": "b"}',
    "deeper than anybody needs": b'{"name": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    "not a number": b'{"training": {"learning_rate": NaN}}',
}


@pytest.fixture(scope="module")
def good_spec(teacher, text_data, tmp_path_factory):
    return jobs.distil_spec(text_data, tmp_path_factory.mktemp("bad") / "student", teacher.url, steps=2)


def bad_spec(good, name):
    spec = jobs.changed(good, BAD_SPECS[name][0])
    if spec.get("name") is json:  # stands for null, which a change cannot say
        spec["name"] = None
    return spec


@pytest.mark.parametrize("name", BAD_SPECS)
def test_a_malformed_spec_is_a_problem_that_names_the_field(module_service, good_spec, name):
    answer = module_service.rest.post("/v1/jobs", bad_spec(good_spec, name))
    assert answer.status == 400
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem = answer.json
    assert problem["status"] == 400
    assert problem["error"]["code"] == "invalid_job_spec"
    pointers = [error["pointer"] for error in problem["errors"]]
    assert set(pointers) == set(BAD_SPECS[name][1]), problem["errors"]
    for error in problem["errors"]:
        assert error["detail"] and error["code"]
        assert error["detail"] in problem["detail"]


@pytest.mark.parametrize("name", BAD_DOCUMENTS)
def test_what_is_no_spec_is_a_problem(module_service, name):
    answer = module_service.rest.post("/v1/jobs", BAD_DOCUMENTS[name])
    assert answer.status == 400, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json["errors"] if name != "nothing" else answer.json["detail"]


def test_a_body_that_is_too_large_or_of_another_type_is_refused(module_service):
    rest = module_service.rest
    large = rest.post("/v1/jobs", b'{"name": "' + b"x" * (2 << 20) + b'"}')
    assert large.status in (400, 413)
    assert large.headers["Content-Type"] == "application/problem+json"
    other = rest.post("/v1/jobs", b"name: x", headers={"Content-Type": "application/yaml"})
    assert other.status == 415


def test_nothing_of_this_became_a_job(module_service):
    assert module_service.rest.get("/v1/jobs").json["data"] == []
    assert module_service.rest.get("/readyz").status == 200


@pytest.mark.parametrize("name", ["no output", "an unknown field inside", "one endpoint twice", "many at once"])
def test_run_lists_every_violation_and_exits_with_2(distilld, good_spec, tmp_path, name):
    ended = distilld.run("run", jobs.write_spec(tmp_path / "spec.json", bad_spec(good_spec, name)), code=2)
    lines = ended.err.splitlines()
    assert "spec.json is not a valid job spec" in lines[0]
    for pointer in BAD_SPECS[name][1]:
        assert sum(line.startswith(f"{pointer}: ") for line in lines) == 1, ended.err
    assert ended.out == ""


def test_an_override_is_checked_like_the_spec(distilld, good_spec, tmp_path):
    file = jobs.write_spec(tmp_path / "spec.json", good_spec)
    ended = distilld.run(
        "run", file, "--set", "/training/beta=1.5", "--set", "/training/seed=-1", "--timeout", "0", code=2
    )
    for pointer in ("/training/beta", "/training/seed", "/teacher/timeout_secs"):
        assert f"{pointer}: " in ended.err
    parent = distilld.run("run", file, "--set", "/dataset/train/inside=1", code=2)
    assert "/dataset/train/inside" in parent.err


# --- student folders and data ---


@pytest.fixture(scope="module")
def student_folder(tmp_path_factory):
    torch.manual_seed(1)
    folder = tmp_path_factory.mktemp("student") / "model"
    LlamaForCausalLM(
        LlamaConfig(
            vocab_size=jobs.BYTE_VOCABULARY,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=128,
        )
    ).save_pretrained(folder)
    return folder


def rewrite(folder, change):
    """Replaces model.safetensors by change(header bytes, data)."""
    file = folder / "model.safetensors"
    raw = file.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header, data = change(raw[8 : 8 + size], raw[8 + size :])
    file.write_bytes(len(header).to_bytes(8, "little") + header + data)


def edit_header(folder, edit):
    def change(header, data):
        parsed = json.loads(header)
        edit(parsed)
        return json.dumps(parsed).encode(), data

    rewrite(folder, change)


def edit_config(folder, **changes):
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def cut(folder, share):
    file = folder / "model.safetensors"
    raw = file.read_bytes()
    file.write_bytes(raw[: int(len(raw) * share)])


NORM = "model.norm.weight"
UNKNOWN_NORMALIZER = {
    "normalizer": {"type": "Precompiled", "precompiled_charsmap": ""},
    "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []},
}

# name: (what is done to the folder, what the error must say)
BAD_FOLDERS = {
    "weights cut short": (lambda f: cut(f, 0.7), ["model.safetensors", "truncated"]),
    "weights cut inside the header": (lambda f: cut(f, 0.005), ["model.safetensors"]),
    "empty weights": (lambda f: (f / "model.safetensors").write_bytes(b""), ["model.safetensors"]),
    "a header longer than the file": (
        lambda f: (f / "model.safetensors").write_bytes((1 << 60).to_bytes(8, "little") + b"{}"),
        ["model.safetensors"],
    ),
    "a header that is no JSON": (lambda f: rewrite(f, lambda h, d: (b"[" + h[1:], d)), ["model.safetensors"]),
    "a tensor missing": (lambda f: edit_header(f, lambda h: h.update(nobody=h.pop(NORM))), [NORM, "missing"]),
    "a tensor of another shape": (
        lambda f: edit_header(f, lambda h: h[NORM].update(shape=[4, 8])),
        ["model.safetensors", NORM],
    ),
    "a tensor of another type": (
        lambda f: edit_header(f, lambda h: h[NORM].update(dtype="I32")),
        ["model.safetensors", NORM],
    ),
    "a tensor beyond the end": (
        lambda f: edit_header(f, lambda h: h[NORM].update(data_offsets=[1 << 40, (1 << 40) + 128])),
        ["model.safetensors"],
    ),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), ["model.safetensors"]),
    "no config": (lambda f: (f / "config.json").unlink(), ["config.json"]),
    "a config that is no JSON": (lambda f: (f / "config.json").write_text("hidden_size: 32"), ["config.json"]),
    "a config of another kind": (lambda f: edit_config(f, model_type="mamba"), ["config.json", "mamba"]),
    "a config that does not fit the weights": (lambda f: edit_config(f, hidden_size=64, head_dim=8), ["model"]),
    "heads that cannot be": (lambda f: edit_config(f, num_attention_heads=5, head_dim=None), ["config.json"]),
    "a tokenizer with a part that is not known": (
        lambda f: (f / "tokenizer.json").write_text(json.dumps(UNKNOWN_NORMALIZER)),
        ["tokenizer.json", "normalizer", "Precompiled"],
    ),
    "a tokenizer that is no JSON": (lambda f: (f / "tokenizer.json").write_text("{"), ["tokenizer.json"]),
    "a network of an absurd size": (lambda f: edit_config(f, intermediate_size=1 << 40), ["config.json"]),
}

TEXT = b'{"text": "a good line"}\n'

# name: (content of the file, what the error must say after the file's name)
BAD_DATA = {
    "an empty file": (b"", ["is empty: write at least one document"]),
    "not JSON in line 3": (TEXT * 2 + b"oops\n" + TEXT, [":3: "]),
    "a list in line 2": (TEXT + b"[1]\n", [":2: ", "object"]),
    "neither text nor ids": (TEXT + b'{"words": "x"}\n', [":2: ", "input_ids"]),
    "text that is a number": (b'{"text": 5}\n', [":1: ", "text"]),
    "not UTF-8 in line 2": (TEXT + b'{"text": "\xff"}\n', [":2: ", "UTF-8"]),
    "an id above the vocabulary": (TEXT + b'{"input_ids": [1, 2, 257]}\n', [":2: ", "input_ids[2]", "257"]),
    "a negative id": (b'{"input_ids": [1, -1]}\n', [":1: ", "input_ids[1]"]),
    "an id that is text": (b'{"input_ids": [1, "2"]}\n', [":1: ", "input_ids[1]"]),
    "labels of another length": (b'{"input_ids": [1, 2, 3], "labels": [1]}\n', [":1: ", "labels"]),
    "one token": (b'{"input_ids": [1]}\n', ["no row to learn from"]),
    "gzip": (b"\x1f\x8b\x08\x00 and so on", ["gzip"]),
}


@pytest.fixture(scope="module")
def bad_jobs(module_service, good_spec, student_folder, tmp_path_factory):
    """Everything above as jobs of one service: {(table, name): (job at its end, path)}."""
    root = tmp_path_factory.mktemp("bad-files")
    ids = {}
    for number, (name, (damage, _)) in enumerate(BAD_FOLDERS.items()):
        folder = root / f"model-{number}"
        shutil.copytree(student_folder, folder)
        damage(folder)
        spec = jobs.changed(good_spec, {"/student": {"model": str(folder)}, "/output": str(root / f"out-m{number}")})
        ids["folder", name] = (module_service.rest.submit(spec), folder)
    for number, (name, (content, _)) in enumerate(BAD_DATA.items()):
        file = root / f"data-{number}.jsonl"
        file.write_bytes(content)
        spec = jobs.changed(good_spec, {"/dataset/train": str(file), "/output": str(root / f"out-d{number}")})
        ids["data", name] = (module_service.rest.submit(spec), file)
    return {key: (module_service.rest.wait_job(job_id), path) for key, (job_id, path) in ids.items()}


def test_files_that_are_not_there_are_refused_at_once(module_service, good_spec, tmp_path):
    spec = jobs.changed(
        good_spec,
        {
            "/student": {"model": str(tmp_path / "model")},
            "/dataset/train": [str(tmp_path / "*.jsonl"), str(tmp_path / "absent")],
            "/output": str(tmp_path / "out"),
        },
    )
    for path in ("/v1/jobs", "/v1/jobs?dry_run=true"):
        answer = module_service.rest.post(path, spec)
        assert answer.status == 400, answer.text
        errors = {error["pointer"]: error["detail"] for error in answer.json["errors"]}
        assert errors.keys() == {"/student/model", "/dataset/train/0", "/dataset/train/1"}
        assert errors["/dataset/train/1"] == f"'{tmp_path}/absent' is not a file"
        assert str(tmp_path / "model") in errors["/student/model"]


def check_failed(job, path, words):
    assert job["state"] == "failed", job
    assert job["status_reason"]["code"] in ("invalid_input", "io"), job["status_reason"]
    message = job["status_reason"]["message"]
    assert str(path) in message, message
    for word in words:
        assert word in message, message
    assert "\n" not in message.strip(), "one error, one line"
    assert not (pathlib.Path(job["output"]) / "model.safetensors").exists()


@pytest.mark.parametrize("name", BAD_FOLDERS)
def test_a_damaged_model_folder_fails_the_job_by_name(bad_jobs, name):
    check_failed(*bad_jobs["folder", name], BAD_FOLDERS[name][1])


@pytest.mark.parametrize("name", BAD_DATA)
def test_bad_data_fails_the_job_with_file_and_line(bad_jobs, name):
    check_failed(*bad_jobs["data", name], BAD_DATA[name][1])


def test_run_says_the_same_and_exits_with_1(distilld, good_spec, student_folder, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(student_folder, folder)
    cut(folder, 0.5)
    spec = jobs.changed(good_spec, {"/student": {"model": str(folder)}, "/output": str(tmp_path / "out")})
    ended = distilld.run("run", jobs.write_spec(tmp_path / "spec.json", spec), code=1)
    assert str(folder / "model.safetensors") in ended.err and "truncated" in ended.err
    served = distilld.run("teacher", folder, "--listen", "127.0.0.1:0", code=1)
    assert str(folder / "model.safetensors") in served.err

    data = tmp_path / "data.jsonl"
    data.write_bytes(TEXT + b'{"input_ids": [300]}\n')
    spec = jobs.changed(good_spec, {"/dataset/train": str(data), "/output": str(tmp_path / "out")})
    ended = distilld.run("run", jobs.write_spec(tmp_path / "spec.json", spec), code=1)
    assert f"{data}:2: " in ended.err


def test_a_device_that_is_not_there_is_one_clear_error(distilld, good_spec, tmp_path):
    # No machine has so many GPUs; in a build without CUDA, `cuda` alone is refused as well.
    file = jobs.write_spec(tmp_path / "spec.json", jobs.changed(good_spec, {"/output": str(tmp_path / "out")}))
    for device in ["cuda:99"] if torch.cuda.is_available() else ["cuda:99", "cuda"]:
        ended = distilld.run("run", file, "--set", f"/student/device={device}", code=1)
        assert ended.err.count("/student/device: ") == 1, ended.err
        assert f'/student/device: is "{device}", but ' in ended.err
        assert "CUDA" in ended.err
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("field", ["/output", "/checkpoint/dir"])
def test_a_folder_that_cannot_be_written_to_is_found_before_the_first_step(
    distilld, teacher, good_spec, tmp_path, field
):
    (tmp_path / "file").write_text("in the way")
    with ChaosProxy(teacher.url) as proxy:
        spec = jobs.changed(
            good_spec,
            {
                "/output": str(tmp_path / "out"),
                field: str(tmp_path / "file" / "folder"),
                "/teacher/endpoints": [proxy.url],
            },
        )
        ended = distilld.run("run", jobs.write_spec(tmp_path / "spec.json", spec), code=1)
        assert str(tmp_path / "file" / "folder") in ended.err
        assert proxy.posts == 0


def test_a_damaged_checkpoint_is_passed_over(distilld, good_spec, tmp_path):
    spec = jobs.changed(
        good_spec,
        {"/training/max_steps": 4, "/checkpoint": {"every_steps": 2, "keep": 3}, "/output": str(tmp_path / "out")},
    )
    file = jobs.write_spec(tmp_path / "spec.json", spec)
    distilld.run("run", file)
    whole = jobs.sha256(tmp_path / "out" / "model.safetensors")
    weights = tmp_path / "out" / "checkpoints" / "step-00000004" / "model.safetensors"
    raw = bytearray(weights.read_bytes())
    raw[len(raw) // 2] ^= 1
    weights.write_bytes(raw)
    (tmp_path / "out" / "model.safetensors").unlink()
    resumed = distilld.run("run", file, "--resume")
    assert "step-00000004" in resumed.out and "resumed from" in resumed.out and "step-00000002" in resumed.out
    assert jobs.sha256(tmp_path / "out" / "model.safetensors") == whole
