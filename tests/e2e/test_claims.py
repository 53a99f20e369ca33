"""What one key's job writes and reads is out of reach of another's: artifacts, outputs, patterns."""

import io
import json
import tarfile
import threading

import pytest
from support import jobs
from support.keyed import Guarded
from support.processes import Programs, wait_until


@pytest.fixture(scope="module")
def guarded(programs, text_data, tmp_path_factory):
    """One root, below which lie the data, the folders of all and those of the service."""
    started = Programs(programs, tmp_path_factory.mktemp("logs"))
    root = tmp_path_factory.mktemp("root")
    service = Guarded(started, root / "service", "--root", root)
    service.root = root
    service.data = root / "train.jsonl"
    service.data.write_bytes(text_data.read_bytes())
    yield service
    started.stop_all()


@pytest.fixture(scope="module")
def paused(guarded):
    """Alice's job, paused with checkpoints: (id, output)."""
    output = guarded.root / "alice" / "student"
    spec = jobs.changed(jobs.base_spec(guarded.data, output, steps=1_000_000), {"/checkpoint/every_steps": 5})
    job_id = guarded.alice.submit(spec)
    wait_until(lambda: list(output.glob("checkpoints/step-*")), "a checkpoint")
    guarded.alice.post(f"/v1/jobs/{job_id}/pause")
    guarded.alice.wait_job(job_id, ["paused"])
    return job_id, output


def content(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def refusal(client, spec, target="/v1/jobs"):
    answer = client.post(target, spec)
    assert answer.status in (400, 409), answer.text
    return answer.status, answer.json["error"]["code"], answer.json["errors"][0]["pointer"]


def test_f2_an_output_above_what_others_have_is_refused(guarded, paused):
    for output in (guarded.root, guarded.root.parent, guarded.data_dir, guarded.data_dir / "outputs"):
        spec = jobs.base_spec(guarded.data, output, steps=1)
        assert refusal(guarded.bob, spec) == (400, "path_not_allowed", "/output"), output
    above = jobs.base_spec(guarded.data, guarded.root / "alice", steps=1)
    assert refusal(guarded.bob, above) == (409, "output_in_use", "/output")


def test_f2_artifacts_are_what_the_job_wrote_and_name_no_key(guarded, teacher):
    output = guarded.root / "bob" / "student"
    (output / "merged").mkdir(parents=True)
    for name in ("keys.json", "notes.txt", "merged/tokenizer.json", "other.jsonl"):
        (output / name).write_text("secret")
    (output / "vocab.json").symlink_to(guarded.data_dir / "keys.json")
    spec = jobs.distil_spec(guarded.data, output, [teacher.url, "http://127.0.0.1:9?key=s3cret"], steps=2)
    spec = jobs.changed(spec, {"/metrics/jsonl_file": str(output / "figures.jsonl")})
    job_id = guarded.bob.submit(spec)
    job = guarded.bob.wait_job(job_id, ["succeeded"])
    named = json.loads((output / "distilld.json").read_text())["files"]
    with tarfile.open(fileobj=io.BytesIO(guarded.bob.get(f"/v1/jobs/{job_id}/artifacts").body)) as tar:
        assert sorted(tar.getnames()) == sorted([*named, "figures.jsonl"])
    assert {"config.json", "model.safetensors", "distilld.json"} <= set(named)
    for name in ("keys.json", "notes.txt", "merged/tokenizer.json", "other.jsonl", "vocab.json"):
        refused = guarded.bob.get(f"/v1/jobs/{job_id}/artifacts?path={name}")
        assert (refused.status, refused.json["error"]["code"]) == (404, "artifact_not_found"), name
    shown = guarded.bob.get(f"/v1/fine_tuning/jobs/{job_id}").json
    files = {guarded.bob.get(f"/v1/files/{file}").json["filename"] for file in shown["result_files"]}
    assert files == set(named)
    assert job["weights_sha256"]
    written = b"".join(content(output).values())
    assert b"?\xe2\x80\xa6" in written and b"s3cret" not in written


def test_f5_a_paused_job_keeps_all_that_it_writes_and_reads(guarded, paused):
    job_id, output = paused
    before = content(output)
    data = guarded.data.read_bytes()
    checkpoints = output / "checkpoints"
    newest = max(checkpoints.glob("step-*"))
    aims = {
        "/checkpoint/dir": [checkpoints, output, newest],
        "/metrics/jsonl_file": [newest / "state.json", guarded.data, output / "figures.jsonl"],
        "/metrics/tensorboard_dir": [newest],
        "/output": [output, checkpoints, output / "below"],
    }
    for pointer, paths in aims.items():
        for path in paths:
            spec = jobs.base_spec(guarded.data, guarded.root / "bob" / "new", steps=1)
            changes = {pointer: str(path), "/training/learning_rate": 0.5, "/overwrite": True}
            assert refusal(guarded.bob, jobs.changed(spec, changes)) == (409, "output_in_use", pointer), path
    (guarded.root / "bob" / "door").symlink_to(checkpoints)
    spec = jobs.base_spec(guarded.data, guarded.root / "bob" / "door", steps=1)
    assert refusal(guarded.bob, spec) == (409, "output_in_use", "/output")
    assert content(output) == before
    assert guarded.data.read_bytes() == data
    assert guarded.alice.post(f"/v1/jobs/{job_id}/resume").status == 202
    guarded.alice.wait_job(job_id, ["running"])
    guarded.alice.post(f"/v1/jobs/{job_id}/cancel")
    guarded.alice.wait_job(job_id, ["cancelled"])


def test_f5_what_a_job_has_made_stays_its_owners(guarded):
    output = guarded.root / "alice" / "finished"
    spec = jobs.base_spec(guarded.data, output, steps=2)
    job_id = guarded.alice.submit(spec)
    guarded.alice.wait_job(job_id, ["succeeded"])
    theirs = jobs.changed(spec, {"/overwrite": True, "/training/learning_rate": 0.5})
    assert refusal(guarded.bob, theirs) == (400, "path_not_allowed", "/output")
    follower = jobs.base_spec(guarded.data, guarded.root / "bob" / "follower", steps=1)
    follower["student"] = {"model": str(output)}
    assert guarded.bob.post("/v1/jobs?dry_run=true", follower).status == 200, "reading is another matter"
    for client in (guarded.alice, guarded.admin):
        assert client.post("/v1/jobs?dry_run=true", theirs).status == 200
    assert guarded.alice.request("DELETE", f"/v1/jobs/{job_id}").status == 200
    assert guarded.bob.post("/v1/jobs?dry_run=true", theirs).status == 200


def test_f4_a_pattern_is_judged_before_it_is_searched_for_and_nobody_waits(guarded):
    outside = ["/proc/self/task/*/root/" * 1 + "proc/self/task/*/root/" * 4 + "etc/*", "/usr/*/*/*/*/*"]
    spec = jobs.base_spec(guarded.data, guarded.root / "bob" / "patterns", steps=1)
    for pattern in outside:
        spec["dataset"]["train"] = [pattern] * 40
        refused = guarded.bob.post("/v1/jobs?dry_run=true", spec)
        assert (refused.status, refused.json["error"]["code"]) == (400, "path_not_allowed"), pattern
        assert "is not below a folder" in refused.json["errors"][0]["detail"]
    for below in "abcd":
        (guarded.root / "wide" / below).mkdir(parents=True)
        (guarded.root / "wide" / below / "up").symlink_to("..")
    spec["dataset"]["train"] = [f"{guarded.root}/wide/" + "*/up/" * 12 + "x"] * 4
    answers = []
    asking = threading.Thread(target=lambda: answers.append(guarded.bob.post("/v1/jobs?dry_run=true", spec)))
    asking.start()
    others = [guarded.nobody.get("/readyz").status for _ in range(20)]
    asking.join()
    assert others == [200] * 20
    assert answers[0].json["errors"][0]["pointer"] == "/dataset/train/0"
    assert "the pattern looks into too many folders" in answers[0].json["errors"][0]["detail"]
