"""A small REST client of the service, which holds what it sends and gets against the contract."""

import contextlib
import http.client
import json
import random
import socket
import urllib.parse

from support.contract import check_exchange
from support.processes import PATIENCE, wait_until

ENDED = ("succeeded", "failed", "cancelled")
_RANDOM = random.SystemRandom()  # tests beside this one draw others


class Answer:
    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def text(self):
        return self.body.decode()


class Rest:
    def __init__(self, url, key=None, ours=True):
        """`ours`: every answer is held against the contract. `key`: of the service, sent with each request."""
        self.url = url
        self._ours = ours
        self._key = {"Authorization": f"Bearer {key}"} if key else {}
        parts = urllib.parse.urlsplit(url)
        self._address = (parts.hostname, parts.port)

    def _connection(self, seconds):
        return http.client.HTTPConnection(*self._address, timeout=seconds)

    def request(self, method, path, body=None, headers=None, seconds=PATIENCE):
        headers = {**self._key, **(headers or {})}
        if body is not None:
            headers.setdefault("Content-Type", "application/json")
            if not isinstance(body, (str, bytes)):
                body = json.dumps(body)
        connection = self._connection(seconds)
        try:
            connection.request(method, path, body=body, headers=headers)
            answer = Answer(connection.getresponse())
        finally:
            connection.close()
        if self._ours:
            check_exchange(method, path, headers, body, answer.status, answer.headers, answer.body)
        return answer

    def get(self, path, **options):
        return self.request("GET", path, **options)

    def post(self, path, body=b"", **options):
        return self.request("POST", path, body=body, **options)

    def submit(self, spec):
        """Id of the job that was made of the spec."""
        answer = self.post("/v1/jobs", spec)
        assert answer.status == 201, answer.text
        return answer.json["id"]

    def job(self, job_id):
        answer = self.get(f"/v1/jobs/{job_id}")
        assert answer.status == 200, answer.text
        return answer.json

    def wait_job(self, job_id, states=ENDED, seconds=PATIENCE):
        """The job, once it is in one of the states. One that ends in another is an error at once."""

        def look():
            job = self.job(job_id)
            if job["state"] in states:
                return job
            assert job["state"] not in ENDED, f"ended as {job['state']}: {job['status_reason']}"
            return None

        return wait_until(look, f"job {job_id} to be {' or '.join(states)}", seconds, pause=0.05)

    def events(self, job_id, headers=None, seconds=PATIENCE):
        """The server-sent events as (event, id, data), to the end of the stream."""
        connection = self._connection(seconds)
        try:
            connection.request(
                "GET",
                f"/v1/jobs/{job_id}/events",
                headers={**self._key, "Accept": "text/event-stream", **(headers or {})},
            )
            response = connection.getresponse()
            assert response.status == 200, response.read()
            assert response.headers["Content-Type"] == "text/event-stream"
            fields = {}
            for raw in response:
                line = raw.decode().rstrip("\n")
                if line.startswith(":"):
                    continue
                if line:
                    name, _, value = line.partition(": ")
                    fields[name] = value
                elif fields:
                    number = int(fields["id"]) if "id" in fields else None
                    yield fields.get("event"), number, json.loads(fields["data"])
                    fields = {}
        finally:
            connection.close()


def metric_samples(text):
    """{'name{labels}': value} of the Prometheus text format."""
    samples = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            samples[name] = float(value)
    return samples


def free_ports(count):
    """Ports for programs that are about to be started. They lie below the range that the kernel takes for connections:
    no connection of another test can hold one of them by the time its program listens."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as ephemeral:
        above = int(ephemeral.read().split()[0])
    ports = []
    with contextlib.ExitStack() as held:
        while len(ports) < count:
            port = _RANDOM.randrange(10_000, above)
            with contextlib.suppress(OSError):  # somebody listens there
                held.enter_context(socket.socket()).bind(("127.0.0.1", port))
                ports.append(port)
    return ports


def free_port():
    return free_ports(1)[0]


# Bound for as long as the tests run, so that no program of another test gets the port, and never listening.
_NOBODY = socket.socket()
_NOBODY.bind(("127.0.0.1", 0))


def closed_port():
    """A port that refuses connections."""
    return _NOBODY.getsockname()[1]
