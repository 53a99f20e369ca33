"""What each kind of job leaves is what the service gives out: artifacts, checkpoints, metrics, downloads."""

import dataclasses
import io
import json
import pathlib
import tarfile

import pytest
from support import jobs

STEPS = 4
TOKENIZER = {"special_tokens_map.json", "tokenizer.json", "tokenizer_config.json"}
STORE = {"manifest.json", "shards.jsonl", "lock", "leases.json", "leases.lock"}  # and its shards; docs/store.md
MODEL = {"config.json", "generation_config.json", "model.safetensors", *TOKENIZER}


@dataclasses.dataclass
class Ended:
    job: dict
    folder: pathlib.Path  # what it has left
    files: set  # that have to be there; of a store its shards are beside them
    weights: str  # file whose hash the job has; "" = none


def below(folder, names):
    return {f"{folder}/{name}" for name in names}


@pytest.fixture(scope="module")
def ended(module_service, teacher, text_data, tmp_path_factory):
    """{kind: Ended}"""
    rest = module_service.rest
    base = tmp_path_factory.mktemp("kinds")
    checkpoints = {"/checkpoint/every_steps": 2, "/dataset/eval": str(text_data)}

    def done(name, spec, files, weights="model.safetensors", **changes):
        spec = jobs.changed(spec, {**checkpoints, **changes})
        return Ended(rest.wait_job(rest.submit(spec), ["succeeded"]), base / name, files, weights)

    plain = done("plain", jobs.base_spec(text_data, base / "plain", STEPS), {*MODEL, "distilld.json"})
    distil = done("distil", jobs.distil_spec(text_data, base / "distil", teacher.url, STEPS), {*MODEL, "distilld.json"})

    def adapters(name, files, **lora):
        spec = jobs.base_spec(text_data, base / name, STEPS)
        spec["student"] = {"model": str(base / "plain"), "dtype": "fp32", "lora": {"r": 4, "alpha": 8, **lora}}
        own = {"adapter_config.json", "adapter_model.safetensors", "distilld.json", *TOKENIZER}
        return done(name, spec, own | files, "adapter_model.safetensors")

    ternary = jobs.base_spec(text_data, base / "ternary-student", STEPS)
    ternary["student"].update(quantization="ternary", quantize_modules=["mlp.up_proj", "q_proj"])
    generate = {
        "kind": "generate",
        "teacher": {"endpoints": [teacher.url], "top_k": 16, "store": str(base / "store")},
        "student": {"config": {"vocab_size": 257}},
        "dataset": {"train": str(text_data), "sequence_length": jobs.SEQUENCE_LENGTH},
        "training": {"batch_size": 2},
    }
    stored = rest.wait_job(rest.submit(generate), ["succeeded"])
    return {
        "plain": plain,
        "distil": distil,
        "lora": adapters("lora", set()),
        "lora merged": adapters("merged-lora", below("merged", MODEL), merge=True),
        "ternary": done(
            "ternary-student", ternary, {*MODEL, "distilld.json"} | below("ternary", MODEL), "model.safetensors"
        ),
        "generate": Ended(stored, base / "store", STORE, ""),
    }


@pytest.fixture(params=["plain", "distil", "lora", "lora merged", "ternary", "generate"])
def one(request, ended):
    return ended[request.param]


def test_the_artifacts_are_what_the_job_has_left(module_service, distilld, one, tmp_path):
    rest, left = module_service.rest, jobs.left_for_others(one.folder)
    target = f"/v1/jobs/{one.job['id']}/artifacts"
    beside = {name for name in left if name not in one.files}
    assert one.files <= set(left)
    assert {name for name in beside if one.weights or not name.startswith("shard-")} == set()
    with tarfile.open(fileobj=io.BytesIO(rest.get(target).body)) as tar:
        assert {entry.name: tar.extractfile(entry).read() for entry in tar if entry.isfile()} == left
    for name, content in left.items():
        assert rest.get(f"{target}?path={name}").body == content, name
    distilld.run("jobs", "download", one.job["id"], "--to", tmp_path / "mine", "--server", rest.url)
    assert jobs.left_for_others(tmp_path / "mine") == left


def test_the_hash_is_of_the_weights_that_are_given_out(module_service, one):
    rest, job = module_service.rest, one.job
    if not one.weights:
        assert job["weights_sha256"] is None
        return
    assert job["weights_sha256"] == jobs.sha256(one.folder / one.weights)
    owner = json.loads(rest.get(f"/v1/jobs/{job['id']}/artifacts?path=distilld.json").body)
    assert owner["weights_sha256"] == job["weights_sha256"]


def test_checkpoints_are_those_of_the_folder(module_service, distilld, one):
    rest, job = module_service.rest, one.job
    listed = rest.get(f"/v1/jobs/{job['id']}/checkpoints")
    assert listed.status == 200
    there = {str(path) for path in one.folder.glob("checkpoints/step-*")}
    assert bool(there) == bool(one.weights)
    assert there <= {entry["folder"] for entry in listed.json["data"]}
    table = distilld.run("jobs", "checkpoints", job["id"], "--server", rest.url).out
    assert all(folder in table for folder in there)
    for path in ("checkpoints", f"checkpoints/step-{STEPS:08}/state.json"):
        refused = rest.get(f"/v1/jobs/{job['id']}/artifacts?path={path}")
        assert (refused.status, refused.json["error"]["code"]) == (404, "artifact_not_found"), path


def test_metrics_are_of_the_whole_run(module_service, one):
    answer = module_service.rest.get(f"/v1/jobs/{one.job['id']}/metrics")
    assert answer.status == 200
    series = {entry["name"]: entry for entry in answer.json["data"] if entry["values"]}
    if not one.weights:
        assert not {"loss", "eval_loss", "learning_rate", "grad_norm"} & set(series), "nothing is trained"
        assert series["total_steps"]["values"][-1] == series["total_steps"]["steps"][-1]
        return
    assert series["loss"]["steps"][-1] == STEPS
    assert series["loss"]["values"][-1] == one.job["progress"]["loss"]
    assert series["eval_loss"]["values"][-1] == one.job["eval_loss"]


def test_openais_result_files_are_the_models_files(module_service, one):
    rest = module_service.rest
    shown = rest.get(f"/v1/fine_tuning/jobs/{one.job['id']}").json
    files = [rest.get(f"/v1/files/{file}").json["filename"] for file in shown["result_files"]]
    assert sorted(files) == sorted(one.files if one.weights else [])
    assert (shown["fine_tuned_model"] is None) == (not one.weights)
    models = [model["id"] for model in rest.get("/v1/models").json["data"]]
    assert (shown["fine_tuned_model"] in models) == bool(one.weights)


def test_a_downloaded_store_is_a_teacher(module_service, distilld, ended, text_data, tmp_path):
    """And gives the weights that the teacher itself gave."""
    rest = module_service.rest
    stored = ended["generate"].job["id"]
    distilld.run("jobs", "download", stored, "--to", tmp_path / "store", "--server", rest.url)
    spec = jobs.distil_spec(text_data, tmp_path / "student", "http://unused:1", STEPS)
    spec["teacher"] = {"top_k": 16, "store": str(tmp_path / "store")}
    job = rest.wait_job(rest.submit(spec), ["succeeded"])
    assert job["weights_sha256"] == ended["distil"].job["weights_sha256"]


def test_what_has_ended_without_a_model_says_that_it_has_none(module_service, distilld, text_data, tmp_path):
    rest = module_service.rest
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"text": 1}\n')
    failed = rest.submit(jobs.base_spec(broken, tmp_path / "failed", 2))
    rest.wait_job(failed, ["failed"])
    cancelled = rest.submit(jobs.base_spec(text_data, tmp_path / "cancelled", 10**6))
    rest.wait_job(cancelled, ["running"])
    rest.post(f"/v1/jobs/{cancelled}/cancel")
    rest.wait_job(cancelled, ["cancelled"])
    for job_id, state in ((failed, "already failed"), (cancelled, "already been cancelled")):
        refused = rest.get(f"/v1/jobs/{job_id}/artifacts")
        assert (refused.status, refused.json["error"]["code"]) == (409, "no_artifacts")
        assert f"it has {state}" in refused.json["detail"]
        download = ("jobs", "download", job_id, "--to", tmp_path / "none", "--server", rest.url)
        assert f"it has {state}" in distilld.run(*download, code=1).err
        assert not (tmp_path / "none").exists()


def test_a_folder_that_another_run_has_written_since_is_not_given_out(module_service, text_data, tmp_path):
    rest = module_service.rest
    spec = jobs.base_spec(text_data, tmp_path / "student", STEPS)
    first = rest.wait_job(rest.submit(spec), ["succeeded"])
    longer = {"/training/max_steps": 2 * STEPS, "/overwrite": True, "/resume": False}
    second = rest.wait_job(rest.submit(jobs.changed(spec, longer)), ["succeeded"])
    assert first["weights_sha256"] != second["weights_sha256"]
    gone = rest.get(f"/v1/jobs/{first['id']}/artifacts")
    assert (gone.status, gone.json["error"]["code"]) == (404, "artifacts_gone")
    assert rest.get(f"/v1/jobs/{second['id']}/artifacts").status == 200
