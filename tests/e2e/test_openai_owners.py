"""Files, fine-tuning jobs and models of two users: what one may see and do of the other's."""

import pytest
from support import jobs
from support.keyed import Guarded
from support.processes import Programs


@pytest.fixture(scope="module")
def guarded(programs, text_data, tmp_path_factory):
    """Roots that do not hold the service's own folders, where files and models of these jobs lie."""
    started = Programs(programs, tmp_path_factory.mktemp("logs"))
    base = tmp_path_factory.mktemp("guarded")
    (base / "work").mkdir()
    service = Guarded(started, base / "service", "--root", base / "work", "--root", text_data.parent)
    service.work = base / "work"
    yield service
    started.stop_all()


def send_file(client, text_data):
    """Id of a file of the client's."""
    head = '--b0\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nfine-tune\r\n'
    head += '--b0\r\nContent-Disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n'
    form = head.encode() + text_data.read_bytes() + b"\r\n--b0--\r\n"
    sent = client.post("/v1/files", form, headers={"Content-Type": "multipart/form-data; boundary=b0"})
    assert sent.status == 200, sent.text
    return sent.json["id"]


def fine_tuning(file, teacher_url=None, steps=2):
    spec = jobs.distil_spec("", "", teacher_url, steps) if teacher_url else jobs.base_spec("", "", steps)
    del spec["dataset"]["train"], spec["output"]
    method = {"type": "distillation", "distillation": spec}
    return {"model": "scratch", "training_file": file, "method": method}


def test_openais_view_tells_others_no_more_than_the_services_own(guarded, text_data):
    """Jobs of both paths, seen through both, by a key that is not their owner's."""
    secret = "a1ices-0ther-s3cret"
    teacher = f"http://127.0.0.1:9/v1?key={secret}"
    asked = fine_tuning(send_file(guarded.alice, text_data), teacher)
    asked["method"]["distillation"]["teacher"]["startup_timeout_secs"] = 1
    made = guarded.alice.post("/v1/fine_tuning/jobs", asked)
    assert made.status == 200, made.text
    spec = jobs.distil_spec(text_data, guarded.work / "both-views", teacher, steps=2)
    spec["teacher"]["startup_timeout_secs"] = 1
    for job_id in (made.json["id"], guarded.alice.submit(spec)):
        guarded.alice.wait_job(job_id, ["failed"])
        own = f"/v1/fine_tuning/jobs/{job_id}"
        assert secret in guarded.alice.get(own).text and secret in guarded.admin.get("/v1/fine_tuning/jobs").text
        pages = [f"{own}{tail}" for tail in ("", "/events", "/checkpoints")]
        for client in (guarded.bob, guarded.eve):
            for page in [*pages, f"/v1/jobs/{job_id}", "/v1/fine_tuning/jobs", "/v1/models", "/v1/files"]:
                answer = client.get(page)
                assert answer.status == 200, page
                assert secret not in answer.text, page
            shown = client.get(own).json["method"]["distillation"]["teacher"]["endpoints"]
            assert shown == ["http://127.0.0.1:9/v1?…"]
        for verb in ("cancel", "pause", "resume"):
            refused = guarded.bob.post(f"{own}/{verb}")
            assert (refused.status, refused.json["error"]["code"]) == (403, "not_your_job"), verb


def test_files_and_models_are_their_owners(guarded, text_data):
    file = send_file(guarded.alice, text_data)
    refused = guarded.bob.post("/v1/fine_tuning/jobs", fine_tuning(file))
    assert (refused.status, refused.json["error"]["param"]) == (400, "training_file")
    assert refused.json["errors"][0]["code"] == "not_found", "as if there were none"
    place = guarded.data_dir / "files" / file / "data"
    assert place.read_bytes() == text_data.read_bytes()
    (guarded.work / "door").symlink_to(place)
    for path in (place, guarded.work / "door"):
        spec = jobs.base_spec(path, guarded.work / "stolen", steps=2)
        refused = guarded.bob.post("/v1/jobs", spec)
        assert (refused.status, refused.json["error"]["code"]) == (400, "path_not_allowed"), path
        hidden = fine_tuning(send_file(guarded.bob, text_data))
        hidden["method"]["distillation"]["dataset"]["eval"] = str(path)
        refused = guarded.bob.post("/v1/fine_tuning/jobs", hidden)
        assert (refused.status, refused.json["errors"][0]["code"]) == (400, "path_not_allowed"), path
    made = guarded.alice.post("/v1/fine_tuning/jobs", fine_tuning(file))
    assert made.status == 200, made.text
    guarded.alice.wait_job(made.json["id"], ["succeeded"])
    job = guarded.bob.get(f"/v1/fine_tuning/jobs/{made.json['id']}").json
    for one in (file, *job["result_files"]):
        for client, status in ((guarded.bob, 403), (guarded.eve, 403), (guarded.alice, 200), (guarded.admin, 200)):
            assert client.get(f"/v1/files/{one}/content").status == status, one
    assert guarded.bob.request("DELETE", f"/v1/files/{file}").json["error"]["code"] == "not_your_file"
    model = f"/v1/models/{job['fine_tuned_model']}"
    assert guarded.bob.get(model).json["owned_by"] == "alice"
    assert guarded.bob.request("DELETE", model).json["error"]["code"] == "not_your_job"
    assert guarded.eve.request("DELETE", model).status == 403
    assert guarded.alice.request("DELETE", model).status == 200
    assert guarded.admin.request("DELETE", f"/v1/files/{file}").status == 200
