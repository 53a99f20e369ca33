"""Each bound of the service, set low on its command line, as a client meets it."""

import contextlib
import http.client
import json
import socket
import time

import pytest
from support import jobs
from support.processes import wait_until
from support.rest import Rest, metric_samples

FORM = {"Content-Type": "multipart/form-data; boundary=b0"}
SPACE = 200_000


def waiting_job(rest, text_data, folder):
    """A paused job: of those nothing happens, and their streams of events stay open."""
    job_id = rest.submit(jobs.base_spec(text_data, folder, steps=10**6))
    assert rest.post(f"/v1/jobs/{job_id}/pause").status in (200, 202)
    rest.wait_job(job_id, ["paused"])
    return job_id


def address(rest):
    host, port = rest.url.removeprefix("http://").split(":")
    return host, int(port)


def open_stream(rest, target):
    """(connection, answer)"""
    connection = http.client.HTTPConnection(*address(rest), timeout=60)
    connection.request("GET", target, headers={"Accept": "text/event-stream"})
    return connection, connection.getresponse()


@pytest.mark.parametrize("flags", [("--max-streams", "2"), ("--max-connections", "4")])
def test_streams_are_as_many_as_may_be_and_all_else_goes_on(distilld, text_data, tmp_path, flags):
    rest = Rest(distilld.service(tmp_path / "service", *flags).url)
    target = f"/v1/jobs/{waiting_job(rest, text_data, tmp_path / 'student')}/events"
    streams = [open_stream(rest, target) for _ in range(2)]
    assert [answer.status for _, answer in streams] == [200, 200]
    refused = rest.get(target, headers={"Accept": "text/event-stream"})
    assert refused.status == 503 and "no free stream" in refused.text
    assert int(refused.headers["Retry-After"]) > 0
    assert rest.get(target.removesuffix("/events")).status == 200
    streams[0][0].close()
    streams[0][1].close()

    def taken():
        connection, answer = open_stream(rest, target)
        connection.close()
        return answer.status == 200

    wait_until(taken, "the place of the one that left")
    assert streams[1][1].readline().startswith(b"id: ")
    streams[1][0].close()


def test_more_streams_than_connections_are_a_wrong_setting(distilld, tmp_path):
    flags = ("--max-streams", "9", "--max-connections", "8")
    err = distilld.run("serve", "--listen", "127.0.0.1:0", "--data-dir", tmp_path / "service", *flags, code=2).err
    assert "server.max_streams: must not be more than server.max_connections, which is 8" in err


def test_a_silent_stream_says_that_it_lives(distilld, text_data, tmp_path):
    rest = Rest(distilld.service(tmp_path / "service", "--heartbeat", "200ms").url)
    job_id = waiting_job(rest, text_data, tmp_path / "student")
    for target in (f"/v1/jobs/{job_id}/events", f"/v1/fine_tuning/jobs/{job_id}/events?stream=true"):
        connection, answer = open_stream(rest, target)
        comments = []
        while len(comments) < 3:
            if answer.readline() == b": keep-alive\n":
                comments.append(time.monotonic())
        assert comments[2] - comments[0] > 0.2, "not all at once"
        assert comments[2] - comments[0] < 10, f"{target}: the default would be 20 s"
        connection.close()


def form(size, name="a.jsonl"):
    head = '--b0\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nfine-tune\r\n'
    head += f'--b0\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    return head.encode() + b"x" * size + b"\r\n--b0--\r\n"


class Uploads:
    def __init__(self, service):
        self.rest = Rest(service.url)
        self.folder = service.data_dir / "files"

    def send(self, size):
        return self.rest.post("/v1/files", form(size), headers=FORM)

    def send_in_pieces(self, size):
        """Nobody says beforehand how much it will be."""
        connection = http.client.HTTPConnection(*address(self.rest), timeout=60)
        try:
            body = form(size)
            pieces = (body[start : start + 4096] for start in range(0, len(body), 4096))
            connection.request("POST", "/v1/files", body=pieces, headers=FORM, encode_chunked=True)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def head_alone(self, size):
        """What is said to a request of which only the head is sent."""
        with socket.create_connection(address(self.rest), timeout=60) as client:
            head = f"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n"
            client.sendall((head + f"Content-Type: {FORM['Content-Type']}\r\n\r\n").encode())
            answer = http.client.HTTPResponse(client)
            answer.begin()
            return answer.status, json.loads(answer.read())

    def names(self):
        return sorted(path.name for path in self.folder.iterdir())


def assert_full(status, problem):
    assert (status, problem["error"]["code"], problem["error"]["param"]) == (507, "uploads_full", "file"), problem
    assert f"{SPACE} bytes together (--upload-space)" in problem["detail"]


def test_uploads_take_no_more_space_together_than_they_may(distilld, tmp_path):
    flags = ("--upload-space", str(SPACE), "--max-upload-size", "1MiB")
    uploads = Uploads(distilld.service(tmp_path / "service", *flags))
    first, second = (uploads.send(80_000) for _ in range(2))
    assert (first.status, second.status) == (200, 200)
    kept = sorted([first.json["id"], second.json["id"]])
    refused = uploads.send(40_001)
    assert_full(refused.status, refused.json)
    assert_full(*uploads.send_in_pieces(40_001))
    assert_full(*uploads.head_alone(500_000))
    wait_until(lambda: uploads.names() == kept, "no part of those to be left")
    exact = uploads.send(40_000)
    assert exact.status == 200, "what was refused has taken nothing"
    assert_full(*uploads.send_in_pieces(1))
    assert uploads.rest.request("DELETE", f"/v1/files/{first.json['id']}").status == 200
    status, third = uploads.send_in_pieces(80_000)
    assert status == 200, third
    assert_full(*uploads.send_in_pieces(1))


def test_files_of_before_count_when_the_service_starts_again(distilld, tmp_path):
    flags = ("--upload-space", str(SPACE))
    service = distilld.service(tmp_path / "service", *flags)
    assert Uploads(service).send(150_000).status == 200
    service.destroy()  # SIGKILL
    uploads = Uploads(distilld.service(tmp_path / "service", *flags))
    refused = uploads.send(60_000)
    assert_full(refused.status, refused.json)
    assert uploads.send(50_000).status == 200


def test_an_upload_that_breaks_off_gives_its_space_back(distilld, tmp_path):
    uploads = Uploads(distilld.service(tmp_path / "service", "--upload-space", str(SPACE)))
    with socket.create_connection(address(uploads.rest), timeout=60) as client:
        body = form(190_000)
        head = f"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        client.sendall((head + f"Content-Type: {FORM['Content-Type']}\r\n\r\n").encode() + body[:150_000])
        wait_until(uploads.names, "the upload to begin")
        assert_full(*uploads.send_in_pieces(100_000))  # held by the one under way
    wait_until(lambda: uploads.names() == [], "nothing of it to be left")
    assert uploads.send(SPACE).status == 200


def test_f12_announced_bytes_hold_no_upload_space(distilld, tmp_path):
    uploads = Uploads(distilld.service(tmp_path / "service", "--upload-space", str(SPACE)))
    with socket.create_connection(address(uploads.rest), timeout=60) as client:
        body = form(190_000)
        head = f"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        client.sendall((head + f"Content-Type: {FORM['Content-Type']}\r\n\r\n").encode() + body[:1000])
        assert uploads.rest.request("GET", "/healthz").status == 200
        assert uploads.send(SPACE).status == 200


def test_a_file_that_is_a_little_too_large_does_not_stay(distilld, tmp_path):
    """So little that only the file's end shows it, for the form around it has room of its own."""
    uploads = Uploads(distilld.service(tmp_path / "service", "--max-upload-size", "100000"))
    refused = uploads.send(100_001)
    assert (refused.status, refused.json["error"]["code"]) == (413, "file_too_large")
    wait_until(lambda: uploads.names() == [], "nothing of it to be left")
    assert uploads.send(100_000).status == 200


def test_a_webhook_is_given_up_after_its_tries(distilld, text_data, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n")
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the kernel takes connections, and nobody answers
        service = distilld.service(
            tmp_path / "service",
            *("--webhook-url", f"http://127.0.0.1:{silent.getsockname()[1]}/", "--webhook-secret-file", secret),
            *("--webhook-timeout", "300ms", "--webhook-tries", "2"),
        )
        rest = Rest(service.url)
        rest.wait_job(rest.submit(jobs.base_spec(text_data, tmp_path / "student", 2)), ["succeeded"])

        def count(result):
            samples = metric_samples(rest.get("/metrics").text)
            return samples[f'distilld_webhook_deliveries_total{{result="{result}"}}']

        wait_until(lambda: count("given_up") == 1, "the second try to be the last", seconds=20)
        assert (count("retried"), count("delivered")) == (1, 0)
        assert "no answer within 0.3 s; given up after 2 attempts" in service.err


def test_the_audit_log_is_as_large_as_it_may_be(distilld, tmp_path):
    service = distilld.service(tmp_path / "service", "--audit-file-size", "1KiB", "--audit-files", "2")
    rest = Rest(service.url)
    for number in range(40):
        assert rest.post("/v1/jobs/none/cancel", headers={"X-Request-Id": f"audit-{number}"}).status == 404

    def files():
        with contextlib.suppress(FileNotFoundError):  # it was given its next name meanwhile
            found = sorted((tmp_path / "service").glob("audit-refused.jsonl*"))
            return {file.name: file.read_text() for file in found}
        return {}

    wait_until(lambda: "audit-39" in files().get("audit-refused.jsonl", ""), "the last line")
    found = files()
    assert sorted(found) == ["audit-refused.jsonl", "audit-refused.jsonl.1", "audit-refused.jsonl.2"]
    assert all(len(text) <= 1024 for text in found.values())
    lines = (
        found["audit-refused.jsonl.2"] + found["audit-refused.jsonl.1"] + found["audit-refused.jsonl"]
    ).splitlines()
    ids = [json.loads(line)["request_id"] for line in lines]
    assert ids == [f"audit-{number}" for number in range(40 - len(ids), 40)], "the newest, without a hole"
