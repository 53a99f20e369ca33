"""What reaches the service from outside and must neither get in nor hurt: web pages, odd names, streams, pipes."""

import contextlib
import http.client
import json
import os
import resource
import signal
import socket
import threading

import pytest
from support import jobs
from support.processes import wait_until
from support.rest import Rest

SERVICE_FLAGS = ["--max-connections", "1024"]
STREAMS = 1040  # more than the service has connections


@pytest.fixture(scope="module", autouse=True)
def many_descriptors():
    """Enough for STREAMS sockets, here and in what is started from here."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * STREAMS
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, wanted) if hard != resource.RLIM_INFINITY else wanted, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def post(url, body, headers):
    """Status and body of a POST with these headers and no others, but for its length."""
    connection = http.client.HTTPConnection(*Rest(url)._address, timeout=60)
    with contextlib.closing(connection):
        connection.putrequest("POST", "/v1/jobs", skip_host="Host" in headers, skip_accept_encoding=True)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            connection.putheader(name, value)
        connection.endheaders()
        # A refusal comes without the body: what is sent after it may find the connection closed.
        if headers.get("X-Body") != "none":
            with contextlib.suppress(ConnectionError):
                connection.send(body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def test_a_web_page_cannot_start_jobs(module_service, text_data, tmp_path):
    body = json.dumps(jobs.base_spec(text_data, tmp_path / "student", steps=1)).encode()
    typed = {"Content-Type": "application/json"}
    refused = {
        "no type": ({}, 415),
        "a form, as curl -d sends it": ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        "what a page may post without asking": ({"Content-Type": "text/plain;charset=UTF-8"}, 415),
        "another site": ({**typed, "Sec-Fetch-Site": "cross-site"}, 403),
        "another port of this machine": ({**typed, "Sec-Fetch-Site": "same-site"}, 403),
        "another origin": ({**typed, "Origin": "http://evil.example"}, 403),
        "a sandboxed page": ({**typed, "Origin": "null"}, 403),
        "a rebound name": ({**typed, "Host": "evil.example:8500"}, 421),
        "a rebound name that is its own origin": (
            {**typed, "Host": "evil.example", "Origin": "http://evil.example", "Sec-Fetch-Site": "same-origin"},
            421,
        ),
    }
    for name, (headers, status) in refused.items():
        for body_comes in ({}, {"X-Body": "none"}):
            got, text = post(module_service.url, body, {**headers, **body_comes})
            assert got == status, (name, got, text)
            assert json.loads(text)["status"] == status
    assert "--host" in post(module_service.url, body, {"Host": "evil.example"})[1]
    listed = module_service.rest.get("/v1/jobs?limit=100").json["data"]
    assert not [job for job in listed if job["output"] == str(tmp_path / "student")]
    assert module_service.rest.get("/v1/jobs", headers={"Host": "evil.example"}).status == 421
    for path in ("/healthz", "/readyz", "/metrics"):
        assert module_service.rest.get(path, headers={"Host": "distilld.namespace.svc:8500"}).status == 200


def test_a_service_answers_to_the_names_it_is_given(distilld, tmp_path):
    service = distilld.service(
        tmp_path, "--host", "jobs.example", "--host", "distilld", "--insecure", listen="0.0.0.0:0"
    )
    rest = Rest(service.url)
    for host, status in {
        "jobs.example": 200,
        "distilld:8500": 200,
        "localhost:1": 200,
        "10.1.2.3:30080": 200,  # behind a port mapping
        "other.example": 421,
    }.items():
        assert rest.get("/v1/jobs", headers={"Host": host}).status == status, host
    taken = f"127.0.0.1:{service.url.rsplit(':', 1)[1]}"
    wrong = distilld.run(
        *("serve", "--listen", taken, "--data-dir", tmp_path / "x"),
        *("--host", "http://jobs.example"),
        code=2,
    )
    assert "http://jobs.example" in wrong.err, "that is looked at before the address, which is taken"


def test_event_streams_leave_room_for_everything_else(module_service, slow_job):
    rest = module_service.rest
    request = (
        f"GET /v1/jobs/{slow_job}/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n".encode()
    )
    with contextlib.ExitStack() as open_streams:
        clients = []
        for _ in range(STREAMS):
            client = socket.create_connection(rest._address)
            open_streams.callback(client.close)
            client.sendall(request)
            client.settimeout(60)
            clients.append(client)
        heads = [client.recv(64).split(b"\r\n")[0].decode() for client in clients]
        served = heads.count("HTTP/1.1 200 OK")
        assert 0 < served <= 512, served
        assert set(heads) == {"HTTP/1.1 200 OK", "HTTP/1.1 503 Service Unavailable"}
        for path in ("/healthz", "/readyz", "/metrics", f"/v1/jobs/{slow_job}", "/v1/jobs"):
            assert rest.get(path).status == 200, path


def test_connections_that_say_nothing_leave_room_for_probes(module_service, slow_job):
    rest = module_service.rest
    with contextlib.ExitStack() as idle:

        def fill(count):
            for _ in range(count):
                idle.enter_context(contextlib.closing(socket.create_connection(rest._address)))

        def is_full():
            with contextlib.suppress(ConnectionResetError):  # the refusal came before the request was sent
                if rest.get("/version").status == 503:
                    return True
            fill(64)  # in place of those that were closed because they had said nothing for so long
            return False

        fill(STREAMS)
        wait_until(is_full, "the service to be full", pause=1)
        for path in ("/healthz", "/readyz", "/metrics", f"/v1/jobs/{slow_job}", "/v1/jobs"):
            assert rest.get(path).status == 200, path


@pytest.fixture(scope="module")
def slow_job(module_service, distilld_session, teacher_folder, text_data, tmp_path_factory):
    """A running job that does not end."""
    slow = distilld_session.teacher(teacher_folder, "--delay-ms", "2000")
    spec = jobs.distil_spec(text_data, tmp_path_factory.mktemp("slow") / "student", slow.url, steps=100_000)
    job_id = module_service.rest.submit(spec)
    module_service.rest.wait_job(job_id, ["running"])
    yield job_id
    module_service.rest.post(f"/v1/jobs/{job_id}/cancel")
    module_service.rest.wait_job(job_id, ["cancelled"])


def test_a_dataset_that_is_no_file_is_refused_at_once(module_service, text_data, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for field in ("train", "eval"):
        spec = jobs.changed(jobs.base_spec(text_data, tmp_path / field, steps=1), {f"/dataset/{field}": str(pipe)})
        job = module_service.rest.wait_job(module_service.rest.submit(spec), ["failed"])
        assert job["status_reason"]["code"] == "invalid_input"
        assert f"/dataset/{field}: {pipe}: is not a regular file" in job["status_reason"]["message"]


def test_the_log_is_json_when_it_is_asked_to_be(distilld, text_data, tmp_path):
    service = distilld.service(tmp_path / "service", "--log-json")
    rest = Rest(service.url)
    odd = tmp_path / 'a "quoted" \\ name'
    odd.mkdir()
    data = odd / "bad.jsonl"
    data.write_text("no JSON\n")
    rest.wait_job(rest.submit(jobs.base_spec(data, odd / "student", steps=1)), ["failed"])
    # Another one on its data folder says so and ends.
    second = distilld.run("serve", "--listen", "127.0.0.1:0", "--data-dir", tmp_path / "service", "--log-json", code=1)
    service.send(signal.SIGTERM)
    service.expect(0)
    lines = [json.loads(line) for line in (service.err + second.err).splitlines()]
    assert lines
    for line in lines:
        assert set(line) == {"time", "level", "component", "message"}
        assert line["time"].endswith("Z")
    assert any(line["component"] == "jobs" and str(odd) in line["message"] for line in lines)
    assert any(line["level"] == "error" and "in use" in line["message"] for line in lines)


def test_a_worker_knows_only_the_key_of_its_job(distilld, teacher_folder, text_data, tmp_path):
    slow = distilld.teacher(teacher_folder, "--delay-ms", "1000")
    service = distilld.start(
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        tmp_path / "service",
        env={"DISTILLD_KEY_A": "secret-a", "DISTILLD_KEY_B": "secret-b", "SOME_TOKEN": "secret-c"},
    )
    rest = Rest(service.wait_for_line(r"listening on (http://\S+)").group(1))
    spec = jobs.changed(
        jobs.distil_spec(text_data, tmp_path / "student", slow.url, steps=1000),
        {"/teacher/api_key_env": "DISTILLD_KEY_A"},
    )
    refused = rest.post("/v1/jobs", jobs.changed(spec, {"/teacher/api_key_env": "SOME_TOKEN"}))
    assert refused.status == 400
    assert refused.json["errors"][0]["pointer"] == "/teacher/api_key_env"
    assert "DISTILLD_KEY_" in refused.json["detail"]
    job_id = rest.submit(spec)
    rest.wait_job(job_id, ["running"])
    with open(f"/proc/{service.worker()}/environ", "rb") as environment:
        known = environment.read()
    assert b"secret-a" in known
    assert b"secret-b" not in known and b"secret-c" not in known
    rest.post(f"/v1/jobs/{job_id}/cancel")
    rest.wait_job(job_id, ["cancelled"])


def test_answers_are_json_whatever_bytes_come_in(module_service):
    for path in ("/nothing/%FF%FE", "/v1/jobs/%E8", "/v1/jobs?state=%FF", "/v1/jobs/%E8/events?after=%80"):
        answer = module_service.rest.get(path)
        assert answer.status in (400, 404)
        assert answer.json["status"] == answer.status


def test_a_teachers_reason_is_told_whatever_bytes_it_has(distilld, module_service, text_data, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server, refusals_of(server, b"mod\xe8le \xff absent") as url:
        job_id = module_service.rest.submit(jobs.distil_spec(text_data, tmp_path / "student", url, steps=1))
        # A server that is not ready may say so with 400: it is waited for, and what it said is shown meanwhile.
        job = wait_until(lambda: waiting_job(module_service.rest, job_id), "the job to say what it waits for")
        assert "HTTP 400: mod\ufffdle \ufffd absent" in job["status_reason"]["message"]
        module_service.rest.post(f"/v1/jobs/{job_id}/cancel")
        module_service.rest.wait_job(job_id, ["cancelled"])
    listed = module_service.rest.get("/v1/jobs?limit=100")
    assert listed.status == 200
    assert job_id in [one["id"] for one in listed.json["data"]]


def waiting_job(rest, job_id):
    """The job, once it gives a reason."""
    job = rest.job(job_id)
    return job if job["status_reason"] else None


@contextlib.contextmanager
def refusals_of(server, body):
    """Answers every request with 400 and these bytes."""
    head = f"HTTP/1.1 400 Bad Request\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()

    def serve():
        with contextlib.suppress(OSError):
            while True:
                client, _ = server.accept()
                with client:
                    client.recv(1 << 16)
                    client.sendall(head + body)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.getsockname()[1]}"
    server.shutdown(socket.SHUT_RDWR)
    thread.join(10)
