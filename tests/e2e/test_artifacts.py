"""What a job has made, taken from the service: as a tar, as one file, by the command line."""

import io
import json
import os
import pathlib
import socket
import tarfile
import time

import pytest
from support import jobs
from support.processes import wait_until
from support.rest import Rest

MIB = 1 << 20


@pytest.fixture(scope="module")
def finished(programs, module_service, text_data, tmp_path_factory):
    """(Rest, job that has succeeded, its folder)"""
    folder = tmp_path_factory.mktemp("artifacts") / "student"
    rest = module_service.rest
    changes = {"/checkpoint/every_steps": 2, "/dataset/eval": str(text_data)}
    job_id = rest.submit(jobs.changed(jobs.base_spec(text_data, folder, steps=4), changes))
    return rest, rest.wait_job(job_id, ["succeeded"]), folder


def test_the_tar_holds_every_byte_of_the_model(finished):
    rest, job, folder = finished
    answer = rest.get(f"/v1/jobs/{job['id']}/artifacts")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/x-tar"
    assert answer.headers["Content-Disposition"] == f'attachment; filename="{job["id"]}.tar"'
    with tarfile.open(fileobj=io.BytesIO(answer.body)) as tar:
        members = tar.getmembers()
        unpacked = {member.name: tar.extractfile(member).read() for member in members if member.isfile()}
    assert unpacked == jobs.left_for_others(folder)
    assert {"config.json", "model.safetensors", "distilld.json"} <= set(unpacked)
    assert [member.name for member in members] == sorted(member.name for member in members)
    assert {(member.uid, member.gid, member.uname) for member in members} == {(0, 0, "")}
    assert rest.get(f"/v1/jobs/{job['id']}/artifacts").body == answer.body
    head = rest.request("HEAD", f"/v1/jobs/{job['id']}/artifacts")
    assert (head.status, head.body, head.headers["Content-Type"]) == (200, b"", "application/x-tar")


def test_one_file_comes_as_it_is(finished):
    rest, job, folder = finished
    target = f"/v1/jobs/{job['id']}/artifacts?path=model.safetensors"
    answer = rest.get(target)
    assert answer.status == 200
    assert jobs.sha256(folder / "model.safetensors") == job["weights_sha256"]
    assert answer.body == (folder / "model.safetensors").read_bytes()
    assert answer.headers["Content-Length"] == str(len(answer.body))
    head = rest.request("HEAD", target)
    assert (head.status, head.headers["Content-Length"]) == (200, str(len(answer.body)))


def test_no_name_leads_out(finished, tmp_path):
    rest, job, folder = finished
    (tmp_path / "secret").write_text("secret")
    (folder / "way-out").symlink_to(tmp_path)
    try:
        for path in ("../secret", "way-out/secret", "%2e%2e/secret", "/etc/passwd", "checkpoints", ".cache", "x%00y"):
            answer = rest.get(f"/v1/jobs/{job['id']}/artifacts?path={path}")
            assert (answer.status, answer.json["error"]["code"]) == (404, "artifact_not_found"), path
        with tarfile.open(fileobj=io.BytesIO(rest.get(f"/v1/jobs/{job['id']}/artifacts").body)) as tar:
            assert not [name for name in tar.getnames() if "way-out" in name]
    finally:
        (folder / "way-out").unlink()


def test_a_job_without_a_model_has_none(module_service, text_data, tmp_path):
    rest = module_service.rest
    job_id = rest.submit(jobs.base_spec(text_data, tmp_path / "student", steps=1_000_000))
    try:
        answer = rest.get(f"/v1/jobs/{job_id}/artifacts")
        assert (answer.status, answer.json["error"]["code"]) == (409, "no_artifacts")
    finally:
        rest.post(f"/v1/jobs/{job_id}/cancel")


def test_the_command_line_unpacks(finished, distilld, tmp_path):
    rest, job, folder = finished
    server = ("--server", rest.url)
    said = distilld.run("jobs", "download", job["id"], "--to", tmp_path / "new" / "mine", *server).out
    assert jobs.left_for_others(tmp_path / "new" / "mine") == jobs.left_for_others(folder)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["mine"], "no draft stays"
    assert said.startswith(f"{tmp_path}/new/mine: {len(jobs.left_for_others(folder))} files, ")
    again = distilld.run("jobs", "download", job["id"], "--to", tmp_path / "new" / "mine", *server, code=2)
    assert "it exists and is not an empty folder" in again.err

    (tmp_path / "here").mkdir()
    distilld.run("jobs", "download", job["id"], *server, cwd=tmp_path / "here")
    assert jobs.left_for_others(tmp_path / "here" / job["id"]) == jobs.left_for_others(folder)
    (tmp_path / "empty").mkdir()
    distilld.run("jobs", "download", job["id"], "--to", ".", *server, cwd=tmp_path / "empty")
    assert jobs.left_for_others(tmp_path / "empty") == jobs.left_for_others(folder)

    file = tmp_path / "model.tar"
    said = json.loads(distilld.run("jobs", "download", job["id"], "--tar", file, "-o", "json", *server).out)
    assert said == {"place": str(file), "bytes": file.stat().st_size}
    piped = distilld.run("jobs", "download", job["id"], "--tar", "-", *server)
    assert piped.out_file.read_bytes() == file.read_bytes()
    nobody = distilld.run("jobs", "download", "nobody", "--to", tmp_path / "nobody", *server, code=1)
    assert "there is no job 'nobody'" in nobody.err
    assert not (tmp_path / "nobody").exists()


class SlowClient:
    """Asks for the artifacts, and takes what it wants of them."""

    def __init__(self, rest, job_id):
        host, port = rest.url.removeprefix("http://").split(":")
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        self.socket.settimeout(60)
        self.socket.connect((host, int(port)))
        self.socket.sendall(f"GET /v1/jobs/{job_id}/artifacts HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

    def take(self, count):
        while count > 0:
            got = len(self.socket.recv(min(count, 1 << 16)))
            assert got, "the stream has ended"
            count -= got


def memory(pid, name="VmRSS"):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith(name + ":"))


def open_files(pid):
    found = []
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.append(os.readlink(entry))
        except OSError:
            continue
    return found


def test_slow_clients_cost_little_and_leave_nothing_open(distilld, text_data, tmp_path):
    service = distilld.service(tmp_path / "service")
    rest = Rest(service.url)
    folder = tmp_path / "student"
    job_id = rest.submit(jobs.base_spec(text_data, folder, steps=2))
    rest.wait_job(job_id, ["succeeded"])
    large = folder / "a-large-file"
    with open(large, "wb") as file:
        file.truncate(8 << 30)  # all of it a hole
    owner = json.loads((folder / "distilld.json").read_text())
    owner["files"].append(large.name)
    (folder / "distilld.json").write_text(json.dumps(owner))
    before = memory(service.pid)
    clients = [SlowClient(rest, job_id) for _ in range(8)]
    for client in clients:
        client.take(2 * MIB)
    time.sleep(1)  # nobody reads: what the service has prepared by now is all that it prepares
    assert open_files(service.pid).count(str(large)) == len(clients)
    grown = memory(service.pid) - before
    assert grown < 16 * MIB, f"{grown / MIB:.1f} MiB for {len(clients)} clients"
    for client in clients:
        client.take(8 * MIB)
    assert memory(service.pid) - before < 16 * MIB
    for client in clients:
        client.socket.close()
    wait_until(lambda: str(large) not in open_files(service.pid), "the file to be closed")
    assert rest.get(f"/v1/jobs/{job_id}").status == 200

    # One that shrinks under the reader: the stream is cut off and cannot be taken for a whole one.
    client = SlowClient(rest, job_id)
    client.take(MIB)
    os.truncate(large, 64 << 10)
    cut = distilld.run("jobs", "get", job_id, "--server", service.url)
    assert cut.code == 0
    rest_of_it = b""
    while piece := client.socket.recv(1 << 16):
        rest_of_it = piece
    assert not rest_of_it.endswith(b"0\r\n\r\n")
    wait_until(lambda: "has become shorter while it was read" in service.err, "the log to say so")
