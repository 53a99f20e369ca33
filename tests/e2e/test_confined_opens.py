"""Files that a job comes to open without its spec naming them: each is judged by where it leads (--root)."""

import json
import os
import shutil
import signal

import pytest
from support import jobs
from support.keyed import Guarded
from support.processes import Programs, wait_until
from support.rest import Rest

SECRET = b'{"keys": "of somebody else"}'
RANK = 4


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Folders `root` and `blobs`, which specs may name, and `outside`."""
    base = tmp_path_factory.mktemp("confined")
    for name in ("root", "blobs", "outside", "service"):
        (base / name).mkdir()
    (base / "outside" / "secret").write_bytes(SECRET)
    return base


@pytest.fixture(scope="module")
def service(programs, place, tmp_path_factory):
    started = Programs(programs, tmp_path_factory.mktemp("logs"))
    roots = ("--root", place / "root", "--root", place / "blobs")
    process = started.service(place / "service", *roots, "--slots", "4", "--slots-by", "none")
    process.rest = Rest(process.url)
    yield process
    started.stop_all()


@pytest.fixture
def folder(place, request):
    made = place / "root" / request.node.name.replace("[", "-").rstrip("]")
    made.mkdir()
    return made


@pytest.fixture(scope="module")
def data(place):
    return jobs.write_text_data(place / "root" / "train.jsonl", 60)


def spec_of(data, model, output, **changes):
    plain = jobs.base_spec(data, output, steps=1)
    del plain["student"]
    return jobs.changed({**plain, "student": {"model": str(model)}}, {f"/{path}": to for path, to in changes.items()})


def refusal(service, spec):
    """Of a job that fails because it came to a file that it may not open."""
    rest = service.rest
    job = rest.wait_job(rest.submit(spec), ["failed", "succeeded"])
    assert job["state"] == "failed", job
    assert job["status_reason"]["code"] == "path_not_allowed", job["status_reason"]
    return job["status_reason"]["message"]


def left_in(folder):
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


LINKED = ["config.json", "generation_config.json", "tokenizer_config.json", "chat_template.jinja", "model.safetensors"]


@pytest.mark.parametrize("name", LINKED)
def test_f3_a_link_in_a_model_folder_leads_nowhere_else(name, service, place, folder, teacher_folder, data):
    model = shutil.copytree(teacher_folder, folder / "model")
    there = model / name
    if there.exists():
        there.rename(place / "outside" / name)
    else:
        (place / "outside" / name).write_bytes(SECRET)
    there.symlink_to(place / "outside" / name)
    message = refusal(service, spec_of(data, model, folder / "out"))
    assert str(there) in message and "outside" not in message
    assert SECRET not in left_in(folder / "out")


@pytest.mark.parametrize("way", ["absolute", "relative"])
def test_f3_the_base_of_an_adapter_lies_below_a_root_too(way, service, place, folder, teacher_folder, data):
    private = place / "outside" / f"private-{way}"
    shutil.copytree(teacher_folder, private)
    base = shutil.copytree(teacher_folder, folder / "base")
    lora = {"r": RANK, "alpha": RANK, "merge": True}
    rest = service.rest
    made = spec_of(data, base, folder / "adapter", **{"student/lora": lora})
    assert rest.wait_job(rest.submit(made))["state"] == "succeeded"
    file = folder / "adapter" / "adapter_config.json"
    config = json.loads(file.read_text())
    config["base_model_name_or_path"] = str(private if way == "absolute" else os.path.relpath(private, file.parent))
    file.write_text(json.dumps(config))
    message = refusal(service, spec_of(data, folder / "adapter", folder / "out", **{"student/lora": lora}))
    assert "config.json" in message
    assert not (folder / "out" / "merged").exists()


def test_f3_checkpoints_as_a_link_are_not_written_outside(service, place, folder, teacher_folder, data):
    outside = place / "outside" / "checkpoints"
    outside.mkdir()
    (folder / "out").mkdir()
    (folder / "out" / "checkpoints").symlink_to(outside)
    model = shutil.copytree(teacher_folder, folder / "model")
    message = refusal(service, spec_of(data, model, folder / "out"))
    assert str(folder / "out" / "checkpoints") in message
    assert list(outside.iterdir()) == []


def test_f3_snapshots_of_links_to_blobs_keep_working(service, place, folder, teacher_folder, data):
    """As the Hugging Face cache has them, the blobs below another root."""
    snapshot = folder / "snapshots" / "main"
    snapshot.mkdir(parents=True)
    for number, file in enumerate(sorted(path for path in teacher_folder.iterdir() if path.is_file())):
        blob = place / "blobs" / f"{number}"
        shutil.copy(file, blob)
        (snapshot / file.name).symlink_to(os.path.relpath(blob, snapshot) if number % 2 else blob)
    rest = service.rest
    job = rest.wait_job(rest.submit(spec_of(data, snapshot, folder / "out")))
    assert job["state"] == "succeeded", job
    assert (folder / "out" / "model.safetensors").is_file()


def test_f11_a_pipe_in_a_model_folder_is_refused_and_holds_nobody(service, folder, teacher_folder, data):
    model = shutil.copytree(teacher_folder, folder / "model")
    (model / "tokenizer.json").unlink()
    os.mkfifo(model / "tokenizer.json")
    rest = service.rest
    spec = spec_of(data, model, folder / "out")
    job = rest.wait_job(rest.submit(spec))
    assert job["state"] == "failed"
    assert f"{model / 'tokenizer.json'}: is not a regular file" in job["status_reason"]["message"]
    spec = jobs.changed(spec, {"/training/max_steps": None, "/training/epochs": 1})
    for _ in range(2):
        answer = rest.post("/v1/jobs?dry_run=true", spec)
        assert answer.status == 400 and "is not a regular file" in answer.json["detail"], answer.text


def test_f11_a_regex_that_tries_for_ever_is_given_up(service, folder, teacher_folder):
    model = shutil.copytree(teacher_folder, folder / "model")
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    tokenizer["pre_tokenizer"] = {"type": "Split", "pattern": {"Regex": "(?:a|a)+c"}, "behavior": "Isolated"}
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    data = jobs.write_jsonl(folder / "train.jsonl", [{"text": "a" * 200 + "bc"}] * 3000)
    spec = spec_of(data, model, folder / "out")
    rest = service.rest
    job = rest.wait_job(rest.submit(spec))
    assert job["state"] == "failed" and job["status_reason"]["code"] == "invalid_input"
    assert "train.jsonl:1: a regular expression" in job["status_reason"]["message"]
    spec = jobs.changed(spec, {"/training/max_steps": None, "/training/epochs": 1})
    answer = rest.post("/v1/jobs?dry_run=true", spec)
    assert answer.status == 400 and "needs too many steps" in answer.json["detail"], answer.text


def test_f11_keys_as_a_pipe_hold_nobody(distilld, tmp_path):
    guarded = Guarded(distilld, tmp_path / "service")
    keys = tmp_path / "service" / "keys.json"
    keys.unlink()
    os.mkfifo(keys)
    wait_until(lambda: "keys.json: is not a regular file" in guarded.process.err, "the service to look at its keys")
    assert guarded.nobody.get("/v1/jobs").status == 401
    guarded.process.send(signal.SIGTERM)
    guarded.process.expect(0)
