"""Workers in other places, over the channel: nothing is lost or doubled, whatever happens to connection and service.

The service is tests/support/remote_service.cpp, with the product's manager, routes and door; its launcher starts
`distilld attempt` as a process that outlives it.
"""

import base64
import contextlib
import http.client
import os
import pathlib
import re
import signal
import socket
import ssl
import subprocess

import pytest
from support import jobs
from support.processes import wait_until
from support.remote import Cable, relays
from support.rest import Rest, free_port
from support.sinks import run_report

STEPS = 500  # several seconds: a relay connects again after 1, 2 and 4
EVERY = 100
CHANNEL = "/v1/attempts/channel"


class TrustingRest(Rest):
    """Over TLS, with the service's certificate as its own authority."""

    def __init__(self, url, certificate):
        super().__init__(url, ours=False)
        self.context = ssl.create_default_context(cafile=certificate)

    def _connection(self, seconds):
        return http.client.HTTPSConnection(*self._address, timeout=seconds, context=self.context)


class Remote:
    """A service with remote workers, at a port that stays, and its relays at the other end of a cable."""

    def __init__(self, distilld, folder, identity=()):
        """`identity`: files with certificate and key, for TLS."""
        self.distilld = distilld
        self.folder = folder / "service"
        self.identity = identity
        self.port = free_port()
        self.cable = Cable(self.port)
        self.start()

    def start(self):
        self.process = self.distilld.start(
            self.folder.name,
            f"127.0.0.1:{self.port}",
            self.cable.url.replace("http:", "https:") if self.identity else self.cable.url,
            *self.identity,
            program="distilld-remote-service",
            cwd=self.folder.parent,
        )
        url = "http://" + self.process.wait_for_line(r"listening on (\S+)").group(1)
        self.rest = TrustingRest(url, self.identity[0]) if self.identity else Rest(url, ours=False)

    def kill(self):
        self.process.send(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        self.process.send(signal.SIGTERM)
        self.process.expect(0)

    def wait_step(self, job, step):
        return wait_until(
            lambda: (self.rest.job(job)["progress"] or {"step": 0})["step"] >= step, f"step {step} of {job}", pause=0.01
        )

    def logs(self):
        return "\n".join(log.read_text() for log in (self.folder / "relays").glob("*.log"))

    def close(self):
        self.cable.close()
        for pid in relays(self.folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def remote(distilld, tmp_path):
    service = Remote(distilld, tmp_path)
    yield service
    service.close()


@pytest.fixture
def spec(text_data, tmp_path):
    return jobs.changed(jobs.base_spec(text_data, tmp_path / "student", STEPS), {"/checkpoint/every_steps": EVERY})


def history(rest, job):
    """What the job's events say that no timing changes, in order, without metrics; and the steps of the metrics."""
    events = [(kind, data) for kind, number, data in rest.events(job) if number is not None]
    steps = [data["data"]["step"] for kind, data in events if kind == "metrics"]
    said = []
    for kind, data in events:
        if kind == "metrics":
            continue
        facts = data.get("data") or {}
        kept = {name: facts[name] for name in ("step", "total_steps", "loss", "attempt") if name in facts}
        said.append((kind, data.get("state"), kept))
    return said, steps


def numbers(rest, job):
    return [number for _, number, _ in rest.events(job) if number is not None]


def check_whole(remote, job, expected):
    """Nothing is lost or doubled, and the weights are those of a run on this machine."""
    ended = remote.rest.wait_job(job)
    assert ended["weights_sha256"] == expected["weights_sha256"]
    assert ended["attempt"] == 1, "the worker was never replaced"
    said, steps = history(remote.rest, job)
    assert steps == sorted(set(steps)) and steps[-1] == STEPS
    checkpoints = [facts["step"] for kind, _, facts in said if kind == "checkpoint"]
    assert checkpoints == sorted(set(checkpoints)) and checkpoints[-1] == STEPS
    assert set(range(EVERY, STEPS + 1, EVERY)) <= set(checkpoints)
    assert numbers(remote.rest, job) == list(range(1, len(said) + len(steps) + 1))
    wait_until(lambda: not relays(remote.folder), "the end of the relay")
    return said


@pytest.fixture
def expected(distilld, spec, tmp_path):
    folder = tmp_path / "here"
    folder.mkdir()
    return run_report(distilld, jobs.changed(spec, {"/output": str(folder / "student")}), folder)[0]


def test_a_job_over_the_channel_is_that_of_this_machine(distilld, remote, spec, expected, tmp_path):
    job = remote.rest.submit(spec)
    remote_said = check_whole(remote, job, expected)
    service = distilld.service(tmp_path / "local")
    local = Rest(service.url)
    there = local.submit(jobs.changed(spec, {"/output": str(tmp_path / "third")}))
    local.wait_job(there)
    assert remote_said == history(local, there)[0]


def test_cuts_lose_and_double_nothing(remote, spec, expected):
    job = remote.rest.submit(spec)
    for step in (5, 20, 40):
        remote.wait_step(job, step)
        before = remote.cable.connections
        remote.cable.cut()
        wait_until(
            # A relay that had told all by then does not come back.
            lambda before=before: remote.cable.connections > before or not relays(remote.folder),
            "the next connection",
        )
    assert remote.cable.connections > 1
    check_whole(remote, job, expected)


def test_the_channel_over_tls(distilld, spec, expected, tmp_path):
    identity = (tmp_path / "service.pem", tmp_path / "service.key")
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=service -days 2".split()
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    command = ["openssl", *words, *names, "-out", str(identity[0]), "-keyout", str(identity[1])]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    with contextlib.closing(Remote(distilld, tmp_path, identity)) as remote:
        job = remote.rest.submit(spec)
        remote.wait_step(job, 5)
        before = remote.cable.connections
        remote.cable.cut()
        wait_until(lambda: remote.cable.connections > before, "the next connection")
        with socket.create_connection(("127.0.0.1", remote.port), timeout=30) as plain:
            plain.sendall(f"GET {CHANNEL} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert b"HTTP" not in read_to_end(plain)
        check_whole(remote, job, expected)


def test_the_worker_outlives_a_killed_service(remote, spec, expected):
    job = remote.rest.submit(spec)
    for step in (5, 20):
        remote.wait_step(job, step)
        remote.kill()
        assert len(relays(remote.folder)) == 1
        remote.start()
        assert remote.rest.job(job)["state"] in ("running", "succeeded")
    check_whole(remote, job, expected)
    log = remote.rest.get(f"/v1/jobs/{job}/logs").text
    assert log.count("a worker is started") == 1 and log.count("the worker has gone on") == 2


def test_the_worker_outlives_a_service_that_stops(remote, spec, expected):
    job = remote.rest.submit(spec)
    remote.wait_step(job, 5)
    remote.stop()
    wait_until((pathlib.Path(spec["output"]) / "model.safetensors").exists, "the model, while nobody listens")
    assert len(relays(remote.folder)) == 1
    remote.start()
    check_whole(remote, job, expected)


def test_a_cancel_that_the_killed_service_took_is_obeyed(remote, spec):
    job = remote.rest.submit(jobs.changed(spec, {"/training/max_steps": 100_000}))
    remote.wait_step(job, 3)
    remote.cable.severed = True
    remote.cable.cut()
    assert remote.rest.post(f"/v1/jobs/{job}/cancel").status == 202
    remote.kill()
    remote.cable.severed = False
    remote.start()
    remote.rest.wait_job(job, states=("cancelled",))
    wait_until(lambda: not relays(remote.folder), "the end of the relay")


def test_a_lost_place_is_replaced(remote, spec, expected):
    job = remote.rest.submit(spec)
    remote.wait_step(job, 15)
    os.kill(relays(remote.folder)[0], signal.SIGKILL)
    ended = remote.rest.wait_job(job)
    assert ended["attempt"] == 2
    assert ended["weights_sha256"] == expected["weights_sha256"]


def test_a_place_that_is_asked_to_end_checkpoints(remote, spec, expected):
    job = remote.rest.submit(spec)
    remote.wait_step(job, 15)
    os.kill(relays(remote.folder)[0], signal.SIGTERM)
    ended = remote.rest.wait_job(job)
    assert ended["attempt"] == 2
    assert ended["weights_sha256"] == expected["weights_sha256"]
    messages = [data["message"] for kind, _, data in remote.rest.events(job) if kind == "message"]
    assert any("asks it to end (SIGTERM)" in message for message in messages)


def upgrade(port, token=None, extra=b"", path=CHANNEL):
    """The socket after the request, and the answer's head."""
    client = socket.create_connection(("127.0.0.1", port), timeout=30)
    key = base64.b64encode(os.urandom(16)).decode()
    head = f"GET {path} HTTP/1.1\r\nHost: node.example:1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    head += f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
    if token is not None:
        head += f"Authorization: Bearer {token}\r\n"
    client.sendall(head.encode() + b"\r\n" + extra)
    answer = b""
    while b"\r\n\r\n" not in answer:
        piece = client.recv(65536)
        if not piece:
            break
        answer += piece
    return client, answer


def frame(payload, length=None):
    """A masked text frame; `length` is announced in place of the payload's."""
    size = len(payload) if length is None else length
    head = bytes([0x81]) + (bytes([0x80 | size]) if size < 126 else bytes([0xFF]) + size.to_bytes(8, "big"))
    return head + bytes(4) + payload


def read_to_end(client):
    data = b""
    with contextlib.suppress(ConnectionError):
        while piece := client.recv(65536):
            data += piece
    return data


def status_of(answer):
    return int(answer.split(b" ", 2)[1])


def ends_told(remote):
    """The requests of connections that have broken, by the log of the service."""
    return re.findall(r"\(request (\S+)\): the connection of 127.0.0.1 ended", remote.process.err)


def test_the_door_is_closed_to_others(remote, spec):
    spec = jobs.changed(spec, {"/training/max_steps": 100_000})
    first = remote.rest.submit(spec)
    remote.wait_step(first, 2)
    token = next((remote.folder / "relays").glob("*.token")).read_text().strip()
    for wrong in (None, "", "dt_wrong", token[:-1], token + "0", "x" * 5000):
        client, answer = upgrade(remote.port, wrong)
        assert status_of(answer) == 401, wrong
        client.close()
    plain = remote.rest.get(CHANNEL, headers={"Authorization": f"Bearer {token}"})
    assert plain.status == 426
    assert remote.rest.get("/v1/jobs", headers={"Authorization": f"Bearer {token}"}).status == 200, "there are no keys"
    (relay,) = relays(remote.folder)
    os.kill(relay, signal.SIGSTOP)  # it would take its place back
    greeting = b'{"type":"greeting","version":1,"job":"%s","attempt":1,"received":0}' % first.encode()
    for nonsense, code in (
        (frame(b"garbage"), 4002),
        (frame(greeting.replace(b'"version":1', b'"version":9')), 4002),
        (frame(greeting), 4002),  # a relay that has nothing of what this one has
        (frame(b"", 1 << 40), None),
        (b"\xff" * 100, None),
    ):
        client, answer = upgrade(remote.port, token)
        assert status_of(answer) == 101
        client.sendall(nonsense)
        end = read_to_end(client)
        assert code is None or code.to_bytes(2, "big") in end, (nonsense, end)
        client.close()
    wait_until(lambda: len(ends_told(remote)) >= 5, "a line for each of them")
    # The job's own relay comes back, however often it was replaced.
    os.kill(relay, signal.SIGCONT)
    step = remote.rest.job(first)["progress"]["step"]
    remote.wait_step(first, step + 20)
    assert remote.rest.job(first)["attempt"] == 1
    remote.rest.post(f"/v1/jobs/{first}/cancel")
    remote.rest.wait_job(first, states=("cancelled",))
    wait_until(lambda: status_of(upgrade(remote.port, token)[1]) == 401, "the end of the token")
    assert len(ends_told(remote)) == len(set(ends_told(remote))), "one line each, never more"


def test_a_service_without_remote_workers_has_no_door(distilld, tmp_path):
    service = distilld.service(tmp_path / "data")
    port = int(service.url.rpartition(":")[2])
    _, answer = upgrade(port, "dt_token")
    assert status_of(answer) in (404, 421)
    assert Rest(service.url, ours=False).get(CHANNEL).status == 404
    assert Rest(service.url, ours=False).get("/v1/attempts/other").status == 404
