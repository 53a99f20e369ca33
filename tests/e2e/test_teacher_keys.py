"""A key that a job names by a file: it reaches the teacher and stands nowhere else."""

import re

import pytest
from chaos_proxy import ChaosProxy, _answer
from support import jobs
from support.rest import Rest

KEY = "s3cr3t-of-the-teacher"


class Gate(ChaosProxy):
    """Passes on what comes with the key, and answers 401 to everything else."""

    def __init__(self, upstream):
        super().__init__(upstream)
        self.keys_seen = set()

    async def _answer_post(self, number, head, body, writer, upstream):
        found = re.search(rb"\r\nauthorization: *([^\r]*)\r\n", head, re.IGNORECASE)
        key = found.group(1).decode() if found else None
        self.keys_seen.add(key)
        if key != f"Bearer {KEY}":
            writer.write(_answer(401, {}, b'{"error":"Unauthorized"}'))
            await writer.drain()
            return True
        return await super()._answer_post(number, head, body, writer, upstream)


@pytest.fixture
def gate(teacher):
    with Gate(teacher.url) as made:
        yield made


@pytest.fixture
def keys(tmp_path):
    """A folder with keys; beside it one that no job may have."""
    folder = tmp_path / "keys"
    (folder / "team").mkdir(parents=True)
    (folder / "team" / "teacher.key").write_text(KEY + "\n")
    (folder / "wrong.key").write_text("another-key\n")
    (tmp_path / "outside.key").write_text("not-for-jobs\n")
    (folder / "link.key").symlink_to(tmp_path / "outside.key")
    return folder


@pytest.fixture
def service(distilld, keys, tmp_path):
    data_dir = tmp_path / "service"
    process = distilld.start("serve", "--listen", "127.0.0.1:0", "--data-dir", data_dir, "--key-root", keys)
    return process, Rest(process.wait_for_line(r"listening on (http://\S+)").group(1)), data_dir


def spec_of(gate, text_data, output, key_file):
    return jobs.changed(jobs.distil_spec(text_data, output, gate.url, steps=3), {"/teacher/api_key_file": key_file})


def files_with(folder, secret):
    return [file for file in folder.rglob("*") if file.is_file() and secret.encode() in file.read_bytes()]


def test_the_key_reaches_the_teacher_and_nobody_else(service, gate, text_data, tmp_path):
    process, rest, data_dir = service
    output = tmp_path / "student"
    job_id = rest.submit(spec_of(gate, text_data, output, "team/teacher.key"))
    job = rest.wait_job(job_id)
    assert job["state"] == "succeeded", job
    assert gate.keys_seen == {f"Bearer {KEY}"}
    assert job["spec"]["teacher"]["api_key_file"] == "team/teacher.key"
    for page in (f"/v1/jobs/{job_id}", "/v1/jobs", f"/v1/jobs/{job_id}/events", "/metrics"):
        answer = rest.get(page)
        assert answer.status == 200, page
        assert len(answer.text) > 0 and KEY not in answer.text, page
    assert KEY not in process.out + process.err
    assert files_with(data_dir, KEY) == [] and files_with(output, KEY) == []
    assert files_with(data_dir, job_id) != [], "the job is on the disk, and the search finds it"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("link.key", "not a file below the folder of keys"),
        ("nothing.key", "is not in the folder of keys"),
        ("team", "not a file below the folder of keys"),
        ("wrong.key", "HTTP 401"),
    ],
)
def test_a_file_that_is_no_key_ends_the_job(service, gate, text_data, tmp_path, name, words):
    process, rest, data_dir = service
    job = rest.wait_job(rest.submit(spec_of(gate, text_data, tmp_path / "student", name)))
    assert job["state"] == "failed", job
    message = job["status_reason"]["message"]
    assert "/teacher/api_key_file" in message and words in message, message
    for secret in ("not-for-jobs", "another-key", KEY):
        assert secret not in message and secret not in process.out + process.err
        assert files_with(data_dir, secret) == []
    assert None not in gate.keys_seen and f"Bearer {KEY}" not in gate.keys_seen


@pytest.mark.parametrize("name", ["../outside.key", "team/../../outside.key", "/etc/hostname"])
def test_a_path_that_leads_out_is_refused_when_it_is_submitted(service, gate, text_data, tmp_path, name):
    _, rest, _ = service
    refused = rest.post("/v1/jobs", spec_of(gate, text_data, tmp_path / "student", name))
    assert refused.status == 400
    assert [error["pointer"] for error in refused.json["errors"]] == ["/teacher/api_key_file"]
    assert gate.keys_seen == set()
