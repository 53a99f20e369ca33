"""The unmodified OpenAI client drives the service: files in, a distillation job, its events, the model out."""

import gzip
import http.client
import json
import pathlib

import openai
import pytest
from support import jobs
from support.processes import wait_until

STEPS = 20


@pytest.fixture(scope="module")
def client(module_service):
    return openai.OpenAI(base_url=f"{module_service.url}/v1", api_key="none", max_retries=0, timeout=120)


@pytest.fixture(scope="module")
def training_file(client, text_data):
    return client.files.create(file=text_data.open("rb"), purpose="fine-tune")


def distillation(teacher_url=None, steps=STEPS):
    """The method of a job: a spec's own objects, without files and output."""
    spec = jobs.distil_spec("", "", teacher_url, steps) if teacher_url else jobs.base_spec("", "", steps)
    del spec["dataset"]["train"], spec["output"]
    return {"type": "distillation", "distillation": spec}


def create(client, file, method, **members):
    return client.fine_tuning.jobs.create(
        model="scratch", training_file=file.id, extra_body={"method": method}, **members
    )


def ended(client, job):
    def look():
        now = client.fine_tuning.jobs.retrieve(job.id)
        return now if now.status in ("succeeded", "failed", "cancelled") else None

    return wait_until(look, f"job {job.id} to end", pause=0.1)


@pytest.fixture(scope="module")
def trained(client, training_file, teacher):
    method = distillation(teacher.url)
    method["distillation"]["checkpoint"] = {"every_steps": 10}
    job = create(
        client,
        training_file,
        method,
        validation_file=training_file.id,
        suffix="capitals",
        seed=7,
        metadata={"ticket": "17"},
    )
    assert job.status in ("queued", "running")
    assert job.fine_tuned_model is None
    assert job.trained_tokens is None
    job = ended(client, job)
    assert job.status == "succeeded", job.error
    return job


def test_a_file_is_kept_as_it_was_sent(client, training_file, text_data):
    content = text_data.read_bytes()
    assert training_file.id.startswith("file-")
    assert (training_file.object, training_file.bytes, training_file.filename) == ("file", len(content), "train.jsonl")
    assert (training_file.purpose, training_file.status) == ("fine-tune", "processed")
    assert client.files.retrieve(training_file.id) == training_file
    assert client.files.content(training_file.id).read() == content


def test_files_are_listed_in_pages_and_deleted(client):
    made = [
        client.files.create(file=(f"{i}.jsonl", b'{"text": "x"}\n' * (i + 1)), purpose="fine-tune") for i in range(3)
    ]
    newest_first = [file.id for file in reversed(made)]
    assert [file.id for file in client.files.list(limit=2).data] == newest_first[:2]
    assert [file.id for file in client.files.list(limit=2)][:3] == newest_first  # the client asks for the pages
    oldest_first = [file.id for file in client.files.list(order="asc", limit=1)]
    assert oldest_first[-3:] == [file.id for file in made]
    assert list(client.files.list(purpose="batch")) == []
    for file in made:
        deleted = client.files.delete(file.id)
        assert (deleted.id, deleted.deleted, deleted.object) == (file.id, True, "file")
        with pytest.raises(openai.NotFoundError):
            client.files.retrieve(file.id)
        with pytest.raises(openai.NotFoundError):
            client.files.content(file.id)
        with pytest.raises(openai.NotFoundError):
            client.files.delete(file.id)


def test_a_packed_file_is_taken_whatever_its_name(client, text_data):
    packed = client.files.create(file=("*?[a].jsonl.gz", gzip.compress(text_data.read_bytes())), purpose="fine-tune")
    assert packed.filename == "*?[a].jsonl.gz"
    job = ended(client, create(client, packed, distillation(steps=2)))
    assert job.status == "succeeded", job.error


@pytest.mark.parametrize(
    ("file", "purpose", "param"),
    [
        (("a.jsonl", b"x"), "batch", "purpose"),
        (("a.jsonl", b"x"), "", "purpose"),
        (("a.jsonl", b""), "fine-tune", "file"),
        (("../a.jsonl", b"x"), "fine-tune", "file"),
        (("..", b"x"), "fine-tune", "file"),
        (("a" * 256, b"x"), "fine-tune", "file"),
    ],
)
def test_a_file_that_is_not_right_is_refused_by_its_field(client, module_service, file, purpose, param):
    with pytest.raises(openai.BadRequestError) as refused:
        client.files.create(file=file, purpose=purpose)
    assert refused.value.param == param, refused.value
    assert refused.value.code == "invalid_form"
    there = {one.id for one in client.files.list()}
    folders = {folder.name for folder in (module_service.data_dir / "files").iterdir()}
    wait_until(lambda: folders <= there or folders == there, "nothing of it to be left")


def raw_upload(service, body, content_type, length=None):
    """An upload as a client sends it that is none of OpenAI's; `body` a list of pieces."""
    host, port = service.url.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    headers = {"Content-Type": content_type}
    if length is not None:
        headers["Content-Length"] = str(length)
    try:
        connection.request("POST", "/v1/files", body=iter(body), headers=headers, encode_chunked=length is None)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def form(content, boundary="b0", tail=True):
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nfine-tune\r\n'
    head += f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n'
    return head.encode() + content + (f"\r\n--{boundary}--\r\n".encode() if tail else b"")


def test_forms_may_come_in_any_pieces(client, module_service):
    content = b'{"text": "\r\n--b"}\n' * 20
    status, file = raw_upload(
        module_service, [bytes([byte]) for byte in form(content)], "multipart/form-data; boundary=b0"
    )
    assert status == 200, file
    assert client.files.content(file["id"]).read() == content
    for body, content_type, code in (
        (form(content, tail=False), "multipart/form-data; boundary=b0", (400, "invalid_form")),
        (form(content), "multipart/form-data; boundary=b1", (400, "invalid_form")),
        (form(content), "multipart/form-data", (415, "unsupported_media_type")),
        (form(content), "application/json", (415, "unsupported_media_type")),
    ):
        status, problem = raw_upload(module_service, [body], content_type)
        assert (status, problem["error"]["code"]) == code, problem


def test_a_large_file_is_not_held_in_memory_and_a_larger_one_is_refused(distilld, tmp_path):
    service = distilld.service(tmp_path / "service", "--max-upload-size", "200MiB")
    chunk = b'{"text": "' + b"x" * (1 << 20) + b'"}\n'
    before = peak_memory(service)
    status, file = raw_upload(
        service, [form(b"", tail=False), *[chunk] * 150, b"\r\n--b0--\r\n"], "multipart/form-data; boundary=b0"
    )
    assert status == 200, file
    assert file["bytes"] == 150 * len(chunk)
    assert peak_memory(service) - before < 32 << 20
    kept = sorted(path.name for path in (tmp_path / "service" / "files").iterdir())
    for length in (300 << 20, None):
        try:
            status, problem = raw_upload(
                service, [form(b"", tail=False), *[chunk] * 250], "multipart/form-data; boundary=b0", length
            )
        except (BrokenPipeError, ConnectionResetError):
            continue  # the service has answered and closed while we were sending
        assert status == 413, problem
    wait_until(
        lambda: sorted(path.name for path in (tmp_path / "service" / "files").iterdir()) == kept, "no part to be left"
    )


def peak_memory(process):
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) << 10


def test_a_job_is_shown_as_it_was_asked_for(client, module_service, trained, training_file, teacher, text_data):
    assert trained.model == "scratch"
    assert trained.training_file == trained.validation_file == training_file.id
    assert trained.seed == 7
    assert trained.metadata == {"ticket": "17"}
    assert trained.fine_tuned_model == f"distilld:capitals:{trained.id}"
    assert trained.created_at <= trained.finished_at
    assert trained.trained_tokens in jobs.trained_tokens(text_data, STEPS * 8)
    assert trained.hyperparameters.batch_size == 2
    assert trained.error is None
    method = trained.to_dict()["method"]
    assert method["type"] == "distillation"
    assert method["distillation"]["teacher"]["endpoints"] == [teacher.url]
    # One store: the service's own path has the same job.
    job = module_service.rest.job(trained.id)
    assert job["state"] == "succeeded"
    assert job["metadata"] == {"ticket": "17"}
    assert job["resolved_spec"]["training"]["seed"] == 7
    assert trained.id in [one.id for one in client.fine_tuning.jobs.list(limit=1)]


def test_events_are_paged_newest_first(client, trained):
    newest_first = list(client.fine_tuning.jobs.list_events(trained.id, limit=3))
    assert newest_first[0].message == "job succeeded"
    numbers = [int(event.id.rpartition("-")[2]) for event in newest_first]
    assert numbers == list(range(numbers[0], 0, -1))
    assert {event.object for event in newest_first} == {"fine_tuning.job.event"}
    assert {event.type for event in newest_first} == {"message", "metrics"}
    page = client.fine_tuning.jobs.list_events(trained.id, limit=3)
    assert [event.id for event in page.data] == [event.id for event in newest_first[:3]]
    assert page.has_more
    ascending = list(client.fine_tuning.jobs.list_events(trained.id, limit=7, extra_query={"order": "asc"}))
    assert ascending == newest_first[::-1]
    with pytest.raises(openai.BadRequestError) as refused:
        client.fine_tuning.jobs.list_events(trained.id, after="ftevent-nobody-1")
    assert refused.value.param == "after"


def test_events_are_followed_while_the_job_runs(client, training_file):
    """As a script does it: ask for what came after the last event that it has seen, until the job has ended."""
    job = create(client, training_file, distillation())
    seen = []
    stream = client.get(
        f"/fine_tuning/jobs/{job.id}/events?stream=true",
        cast_to=object,
        stream=True,
        stream_cls=openai.Stream[object],
    )
    streamed = [event["id"] for event in stream]
    while True:
        status = client.fine_tuning.jobs.retrieve(job.id).status
        after = seen[-1].id if seen else openai.omit
        seen += client.fine_tuning.jobs.list_events(job.id, after=after, extra_query={"order": "asc"})
        if status == "succeeded":
            break
    assert [event.id for event in seen] == streamed
    assert seen[-1].message == "job succeeded"


def test_checkpoints_are_listed_with_their_losses(client, module_service, trained):
    listed = list(client.fine_tuning.jobs.checkpoints.list(trained.id, limit=1))
    steps = [one.step_number for one in listed]
    own = module_service.rest.get(f"/v1/jobs/{trained.id}/checkpoints").json["data"]
    assert steps == [one["step"] for one in reversed(own)]
    assert {10, 20} <= set(steps)
    own_job = module_service.rest.job(trained.id)
    loss = module_service.rest.get(f"/v1/jobs/{trained.id}/metrics?names=loss").json["data"][0]
    points = loss["steps"], loss["values"]
    for one in listed:
        assert one.fine_tuning_job_id == trained.id
        assert one.fine_tuned_model_checkpoint == f"{trained.fine_tuned_model}:ckpt-step-{one.step_number}"
        assert one.metrics.step == one.step_number
        before = [value for step, value in zip(*points, strict=True) if step <= one.step_number]
        assert one.metrics.train_loss == (before[-1] if before else None)
    assert listed[0].metrics.train_loss is not None
    assert listed[0].metrics.full_valid_loss == own_job["eval_loss"]


def test_the_result_files_are_the_exported_model(client, module_service, trained):
    output = pathlib.Path(module_service.rest.job(trained.id)["output"])
    assert output == module_service.data_dir / "outputs" / trained.id
    names = {}
    for file_id in trained.result_files:
        file = client.files.retrieve(file_id)
        names[file.filename] = file
        assert file.purpose == "fine-tune-results"
        content = client.files.content(file_id).read()
        assert content == (output / file.filename).read_bytes()
        assert file.bytes == len(content)
    assert {"config.json", "model.safetensors", "generation_config.json"} <= set(names)
    assert not any("checkpoint" in name for name in names)
    with pytest.raises(openai.ConflictError):
        client.files.delete(names["config.json"].id)
    stranger = trained.result_files[0][:-1] + ("0" if trained.result_files[0][-1] != "0" else "1")
    with pytest.raises(openai.NotFoundError):
        client.files.content(stranger)


def test_models_are_what_jobs_have_made(client, module_service, training_file, text_data, tmp_path):
    own = module_service.rest.wait_job(
        module_service.rest.submit(jobs.base_spec(text_data, tmp_path / "student", 2)), ("succeeded",)
    )
    made = ended(client, create(client, training_file, distillation(steps=2), suffix="to go"))

    def listed():
        # A job is shown as ended a moment before that is on disk, where lists are made.
        names = [model.id for model in client.models.list()]
        wanted = [made.fine_tuned_model, f"distilld:scratch:{own['id']}"]
        return [name for name in names if name in wanted] == wanted

    wait_until(listed, "both models to be listed, the newer one first")
    model = client.models.retrieve(made.fine_tuned_model)
    assert (model.id, model.object, model.owned_by) == (f"distilld:to-go:{made.id}", "model", "distilld")
    assert model.created == made.finished_at
    assert client.models.delete(model.id).deleted
    assert not (module_service.data_dir / "outputs" / made.id).exists()
    for name in (model.id, "distilld:other:" + own["id"], "gpt-4o-mini"):
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve(name)
    assert client.fine_tuning.jobs.retrieve(made.id).result_files == []
    with pytest.raises(openai.ConflictError) as kept:
        client.models.delete(f"distilld:scratch:{own['id']}")
    assert str(tmp_path / "student") in str(kept.value)
    assert (tmp_path / "student" / "model.safetensors").exists()


def test_jobs_of_both_paths_are_seen_by_both(client, module_service, text_data, tmp_path):
    own = module_service.rest.submit(jobs.changed(jobs.base_spec(text_data, tmp_path / "student", 2), {"/name": "own"}))
    seen = ended(client, client.fine_tuning.jobs.retrieve(own))
    assert (seen.status, seen.model, seen.training_file) == ("succeeded", "scratch", str(text_data))
    assert seen.fine_tuned_model == f"distilld:own:{own}"
    assert client.files.content(seen.result_files[0]).read()
    assert seen.to_dict()["method"]["distillation"]["training"]["max_steps"] == 2


def test_a_job_is_cancelled_and_its_file_is_free_again(client, text_data):
    file = client.files.create(file=text_data.open("rb"), purpose="fine-tune")
    job = create(client, file, distillation(steps=10**6))
    with pytest.raises(openai.ConflictError) as in_use:
        client.files.delete(file.id)
    assert in_use.value.code == "file_in_use"
    assert job.id in str(in_use.value)
    wait_until(lambda: client.fine_tuning.jobs.retrieve(job.id).estimated_finish, "an estimate of the end")
    assert client.fine_tuning.jobs.cancel(job.id).status in ("running", "cancelled")
    assert ended(client, job).status == "cancelled"
    with pytest.raises(openai.ConflictError) as refused:
        client.fine_tuning.jobs.cancel(job.id)
    assert refused.value.code == "job_is_terminal"
    assert client.files.delete(file.id).deleted


def test_a_job_is_paused_and_goes_on(client, training_file):
    job = create(client, training_file, distillation(steps=400), metadata={"paused": "once"})
    wait_until(lambda: client.fine_tuning.jobs.retrieve(job.id).status == "running", "the job to run", pause=0.01)
    assert client.fine_tuning.jobs.pause(job.id).status == "paused"
    wait_until(lambda: client.get(f"/jobs/{job.id}", cast_to=dict)["state"] == "paused", "the worker's end")
    assert client.fine_tuning.jobs.resume(job.id).status in ("queued", "running")
    assert ended(client, job).status == "succeeded"
    with pytest.raises(openai.ConflictError):
        client.fine_tuning.jobs.resume(job.id)
    with pytest.raises(openai.NotFoundError):
        client.fine_tuning.jobs.pause("job-nobody")
    found = client.fine_tuning.jobs.list(metadata={"paused": "once"})
    assert [one.id for one in found] == [job.id]


def test_a_failed_job_says_why(client, module_service, training_file):
    broken = client.files.create(file=("broken.jsonl", b'{"text": 1}\n'), purpose="fine-tune")
    job = ended(client, create(client, broken, distillation()))
    assert job.status == "failed"
    assert job.error.code == "invalid_input"
    assert job.error.message == module_service.rest.job(job.id)["status_reason"]["message"]
    assert job.fine_tuned_model is None
    assert job.result_files == []


def test_errors_are_the_clients_own(client, module_service, training_file):
    with pytest.raises(openai.NotFoundError):
        client.fine_tuning.jobs.retrieve("job-nobody")
    with pytest.raises(openai.NotFoundError):
        client.fine_tuning.jobs.cancel("job-nobody")
    with pytest.raises(openai.NotFoundError):
        client.fine_tuning.jobs.list_events("job-nobody")
    with pytest.raises(openai.BadRequestError) as no_file:
        client.fine_tuning.jobs.create(
            model="scratch", training_file="file-nobody", extra_body={"method": distillation()}
        )
    assert no_file.value.param == "training_file"
    with pytest.raises(openai.BadRequestError) as supervised:
        client.fine_tuning.jobs.create(model="m", training_file=training_file.id)
    assert supervised.value.param == "method"
    method = distillation("http://127.0.0.1:1")
    method["distillation"]["teacher"]["max_retrys"] = 3
    method["distillation"]["training"]["learning_rate"] = -1
    method["distillation"]["output"] = "/tmp/x"
    with pytest.raises(openai.BadRequestError) as ours:
        create(client, training_file, method, seed=-1)
    assert ours.value.param == "/method/distillation/output"
    del method["distillation"]["output"]
    with pytest.raises(openai.BadRequestError) as wrong:
        create(client, training_file, method, seed=-1)
    body = wrong.value.response.json()
    assert wrong.value.param == "/method/distillation/teacher/max_retrys"
    assert [one["pointer"] for one in body["errors"]] == [
        "/method/distillation/teacher/max_retrys",
        "/method/distillation/training/learning_rate",
        "/seed",
    ]
    assert wrong.value.response.headers["content-type"] == "application/problem+json"


def test_a_key_makes_one_job(client, training_file):
    key = {"Idempotency-Key": "the-same"}
    first = create(client, training_file, distillation(steps=2), extra_headers=key)
    again = create(client, training_file, distillation(steps=2), extra_headers=key)
    assert first.id == again.id
    with pytest.raises(openai.UnprocessableEntityError):
        create(client, training_file, distillation(steps=3), extra_headers=key)


def test_files_and_models_outlive_the_service(distilld, text_data, tmp_path):
    service = distilld.service(tmp_path / "service")
    client = openai.OpenAI(base_url=f"{service.url}/v1", api_key="none", max_retries=0)
    file = client.files.create(file=text_data.open("rb"), purpose="fine-tune")
    job = ended(client, create(client, file, distillation(steps=2)))
    (tmp_path / "service" / "files" / "file-half").mkdir()  # as a kill during an upload leaves it
    service.destroy()
    service = distilld.service(tmp_path / "service")
    client = openai.OpenAI(base_url=f"{service.url}/v1", api_key="none", max_retries=0)
    assert client.files.content(file.id).read() == text_data.read_bytes()
    assert client.models.retrieve(job.fine_tuned_model).id == job.fine_tuned_model
    assert client.fine_tuning.jobs.retrieve(job.id) == job
    assert [path.name for path in (tmp_path / "service" / "files").iterdir()] == [file.id]
