"""A receiver is notified of the ends of jobs: signed, retried, neither lost nor doubled by a restart."""

import base64
import collections
import http.server
import os
import threading

import openai
import pytest
import standardwebhooks
from support import jobs
from support.processes import wait_until
from support.rest import Rest, closed_port, free_port, metric_samples

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OLD_SECRET = "whsec_" + base64.b64encode(os.urandom(24)).decode()


class Receiver:
    """Answers each request with the next of its statuses, with 200 at the end of them."""

    def __init__(self, statuses=(), port=0):
        self.requests = []
        self.statuses = collections.deque(statuses)
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.requests.append((self.path, dict(self.headers), body))
                status = receiver.statuses.popleft() if receiver.statuses else 200
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hooks/of-mine"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self):
        self._server.shutdown()
        self._server.server_close()

    def wait(self, count):
        return wait_until(lambda: len(self.requests) >= count and self.requests[:], f"{count} requests")


@pytest.fixture
def receivers():
    made = []

    def make(*arguments, **options):
        made.append(Receiver(*arguments, **options))
        return made[-1]

    yield make
    for receiver in made:
        receiver.stop()


@pytest.fixture
def start(distilld, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text(f"{SECRET}\n{OLD_SECRET}\n")

    def service(*urls):
        flags = [flag for url in urls for flag in ("--webhook-url", url)]
        process = distilld.service(tmp_path / "service", *flags, "--webhook-secret-file", secret)
        process.rest = Rest(process.url)
        return process

    return service


def verified(request):
    """The event of a request, whose signature is of its body."""
    _, headers, body = request
    for secret in (SECRET, OLD_SECRET):
        event = standardwebhooks.Webhook(secret).verify(body, headers)
    unwrapped = openai.OpenAI(api_key="none").webhooks.unwrap(body, headers, secret=SECRET)
    assert unwrapped.id == event["id"] == headers["webhook-id"]
    assert headers["Content-Type"] == "application/json"
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        standardwebhooks.Webhook(SECRET).verify(body.replace(b"job.", b"jab."), headers)
    return event


def deliveries(service):
    samples = metric_samples(service.rest.get("/metrics").text)
    return {
        result: samples[f'distilld_webhook_deliveries_total{{result="{result}"}}']
        for result in ("delivered", "retried", "given_up")
    }


def test_a_receiver_that_fails_twice_is_told_once_more(start, receivers, text_data, tmp_path):
    receiver, other = receivers([503, 500]), receivers()
    service = start(receiver.url, other.url)
    job = service.rest.wait_job(service.rest.submit(jobs.base_spec(text_data, tmp_path / "student", 2)))
    requests = receiver.wait(3)
    event = verified(requests[-1])
    assert [verified(request) for request in requests] == [event] * 3  # the same id and body each time
    assert (event["type"], event["created_at"]) == ("job.succeeded", job["finished_at"])
    shown = {name: value for name, value in job.items() if name not in ("spec", "resolved_spec")}
    assert event["data"] == shown
    assert [path for path, _, _ in requests] == ["/hooks/of-mine"] * 3
    assert verified(other.wait(1)[0])["data"] == shown
    wait_until(lambda: deliveries(service) == {"delivered": 2, "retried": 2, "given_up": 0}, "the counts")
    assert len(receiver.requests) == 3
    assert "HTTP 503; again in 1 s" in service.err
    for secret in (SECRET, SECRET.removeprefix("whsec_"), OLD_SECRET, "/hooks/of-mine"):
        assert secret not in service.err


def test_all_ends_are_told_of_and_redirects_are_not_followed(start, receivers, text_data, tmp_path):
    receiver = receivers([307, 410])
    service = start(receiver.url)
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"text": 1}\n')
    failed = service.rest.submit(jobs.base_spec(broken, tmp_path / "failed", 2))
    requests = receiver.wait(2)  # a redirect, then a receiver that has gone: given up
    assert {path for path, _, _ in requests} == {"/hooks/of-mine"}
    assert verified(requests[0])["type"] == "job.failed"
    assert verified(requests[0])["data"]["id"] == failed
    wait_until(lambda: deliveries(service) == {"delivered": 0, "retried": 1, "given_up": 1}, "the counts")
    cancelled = service.rest.submit(jobs.base_spec(text_data, tmp_path / "cancelled", 10**6))
    service.rest.post(f"/v1/jobs/{cancelled}/cancel")
    event = verified(receiver.wait(3)[2])
    assert (event["type"], event["data"]["id"], event["data"]["state"]) == ("job.cancelled", cancelled, "cancelled")


def test_a_restart_neither_loses_nor_doubles(start, receivers, text_data, tmp_path):
    port = free_port()  # where nobody listens at first
    url = f"http://127.0.0.1:{port}/hooks/of-mine"
    service = start(url)
    ids = [service.rest.submit(jobs.base_spec(text_data, tmp_path / name, 2)) for name in "ab"]
    for job in ids:
        service.rest.wait_job(job)
    wait_until(lambda: deliveries(service)["retried"] >= 2, "two attempts")
    service.destroy()  # SIGKILL
    receiver = receivers(port=port)
    service = start(url)
    events = [verified(request) for request in receiver.wait(2)]
    assert sorted(event["data"]["id"] for event in events) == sorted(ids)
    wait_until(lambda: deliveries(service)["delivered"] == 2, "both to be delivered")
    service.destroy()
    service = start(url)
    third = service.rest.submit(jobs.base_spec(text_data, tmp_path / "c", 2))
    assert verified(receiver.wait(3)[2])["data"]["id"] == third
    assert len({request[1]["webhook-id"] for request in receiver.requests}) == len(receiver.requests) == 3


def test_receivers_that_are_not_configured_any_more_are_told_nothing(start, receivers, text_data, tmp_path):
    gone, kept = f"http://127.0.0.1:{closed_port()}/", receivers()
    service = start(gone)
    service.rest.wait_job(service.rest.submit(jobs.base_spec(text_data, tmp_path / "a", 2)))
    wait_until(lambda: deliveries(service)["retried"] >= 1, "an attempt")
    service.destroy()
    service = start(kept.url)
    job = service.rest.submit(jobs.base_spec(text_data, tmp_path / "b", 2))
    assert verified(kept.wait(1)[0])["data"]["id"] == job
    assert deliveries(service)["retried"] == 0


def test_wrong_options_are_refused(distilld, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    flags = ("serve", "--listen", "127.0.0.1:0", "--data-dir", tmp_path / "service")
    assert "--webhook-secret-file" in distilld.run(*flags, "--webhook-url", "http://127.0.0.1:1/", code=2).err
    hook = ("--webhook-secret-file", secret, "--webhook-url")
    assert "ftp://a/" in distilld.run(*flags, *hook, "ftp://a/", code=2).err
    for text, said in (
        ("whsec_c2hvcnQ=", f"{secret}:1:"),
        ("\nnothing", f"{secret}:2:"),
        ("", "does not hold a secret"),
    ):
        secret.write_text(text)
        err = distilld.run(*flags, *hook, "http://127.0.0.1:1/", code=2).err
        assert said in err
        assert "c2hvcnQ" not in err
    secret.unlink()
    distilld.run(*flags, *hook, "http://127.0.0.1:1/", code=2)
