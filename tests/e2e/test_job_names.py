"""Jobs by name and the beginning of their ids, logs that are followed, and what a client says that cannot connect."""

import json
import socket
import subprocess

import pytest
from support import jobs
from support.rest import Rest


@pytest.fixture(scope="module")
def finished(module_service, text_data, tmp_path_factory):
    """Ids of three jobs that have ended: of one named "twin", and two named "pair"."""
    folder = tmp_path_factory.mktemp("finished")
    ids = []
    for number, name in enumerate(["twin", "pair", "pair"]):
        spec = jobs.changed(jobs.base_spec(text_data, folder / str(number), steps=1), {"/name": name})
        ids.append(module_service.rest.submit(spec))
    for job in ids:
        module_service.rest.wait_job(job, ["succeeded"])
    return ids


@pytest.fixture
def ask(distilld, module_service):
    """Runs `distilld jobs …` with the service in the environment."""
    environment = {"DISTILLD_SERVER": module_service.url}
    return lambda *words, code=0: distilld.run("jobs", *words, code=code, env=environment)


def test_a_job_is_found_by_name_and_by_the_beginning_of_its_id(ask, finished):
    one, first, second = finished
    for said in (one, one[:10], "twin"):
        assert json.loads(ask("get", said, "-o", "json").out)["id"] == one
    refused = ask("get", "pair", code=1).err
    assert "'pair' matches 2 jobs, and all of them have ended: give the id of one" in refused
    assert first in refused and second in refused and one not in refused
    assert "'job-' matches" in ask("logs", "job-", code=1).err
    assert "there is no job 'nobody'" in ask("get", "nobody", code=1).err


def test_of_several_the_one_that_goes_on_is_meant(ask, finished, module_service, text_data, tmp_path):
    spec = jobs.changed(jobs.base_spec(text_data, tmp_path / "long", steps=10**9), {"/name": "pair"})
    running = module_service.rest.submit(spec)
    assert json.loads(ask("get", "pair", "-o", "json").out)["id"] == running
    # The beginning of several ids stands for none of them, whichever of them goes on.
    assert "give the id of one" in ask("cancel", "job-", code=1).err
    assert json.loads(ask("cancel", "pair", "--no-checkpoint", "-o", "json").out)["id"] == running
    module_service.rest.wait_job(running, ["cancelled"])


def test_what_is_said_of_a_job_that_has_ended(ask, finished):
    assert f"job '{finished[0]}' has already succeeded" in ask("cancel", "twin", code=1).err


def test_a_log_is_followed_to_the_end_of_its_job(ask, module_service, text_data, tmp_path):
    spec = jobs.changed(jobs.base_spec(text_data, tmp_path / "out", steps=60), {"/name": "followed"})
    module_service.rest.submit(spec)
    followed = ask("logs", "followed", "--follow").out
    assert followed == ask("logs", "followed").out
    assert "finished" in followed or len(followed.splitlines()) >= 2


def make_certificate(folder):
    subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
                "-nodes",
                "-days",
                "2",
            ),
            *("-keyout", folder / "tls.key", "-out", folder / "tls.pem", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
        ],
        check=True,
        capture_output=True,
    )
    return folder / "tls.pem", folder / "tls.key"


def test_a_client_that_cannot_connect_says_what_to_do(distilld, module_service, tmp_path):
    certificate, key = make_certificate(tmp_path)
    secure = distilld.start(
        *("serve", "--listen", "127.0.0.1:0", "--data-dir", tmp_path / "secure"),
        *("--tls-certificate", certificate, "--tls-key", key),
    )
    url = secure.wait_for_line(r"listening on (https://\S+)").group(1)

    def said(server, **more):
        environment = {"DISTILLD_SERVER": server, **more}
        return distilld.run("jobs", "list", code=1, env=environment).err

    assert "the server speaks TLS: use https://" in said(url.replace("https:", "http:"))
    assert "the server does not speak TLS; use http://" in said(module_service.url.replace("http:", "https:"))
    assert "--ca FILE or DISTILLD_CA" in said(url)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        assert "is distilld serve running there?" in said(f"http://127.0.0.1:{free.getsockname()[1]}")
    trusting = {"DISTILLD_SERVER": url, "DISTILLD_CA": str(certificate)}
    distilld.run("jobs", "list", env=trusting)
    distilld.run("healthcheck", env=trusting)


def test_a_client_without_a_key_says_how_one_is_given(distilld, tmp_path):
    distilld.run("keys", "add", "alice", "--role", "read", "--data-dir", tmp_path / "service")
    service = distilld.service(tmp_path / "service")
    said = distilld.run("jobs", "list", "--server", service.url, code=1).err
    assert "--api-key-file FILE or DISTILLD_API_KEY gives a key" in said


def test_models_are_not_served_here(module_service):
    rest = Rest(module_service.url)
    for path in ("/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/embeddings"):
        # curl -d calls its body something else.
        for kind in ("application/json", "application/x-www-form-urlencoded"):
            answer = rest.post(path, {"model": "m", "prompt": "Hi"}, headers={"Content-Type": kind})
            assert answer.status == 404
            assert "trains models and does not serve them" in answer.text
            assert "docs/use-the-student.md" in answer.text


def test_nodes_are_listed_with_their_jobs(distilld, module_service, text_data, tmp_path):
    environment = {"DISTILLD_SERVER": module_service.url}
    running = module_service.rest.submit(jobs.base_spec(text_data, tmp_path / "long", steps=10**9))
    module_service.rest.wait_job(running, ["running"])
    (node,) = json.loads(distilld.run("nodes", "-o", "json", env=environment).out)["data"]
    assert node["name"] == socket.gethostname()
    assert node["jobs"] == [running] and node["state"] in ("mixed", "allocated")
    assert node["cores"] >= 1 and node["memory_mb"] > 100
    head, line = distilld.run("nodes", env=environment).out.splitlines()
    assert head.split()[0] == "NODE" and line.split()[0] == node["name"] and line.split()[-1] == running
    distilld.run("jobs", "cancel", running, env=environment)
    refused = distilld.run("nodes", "--server", "http://127.0.0.1:1", code=1).err
    assert refused.startswith("distilld nodes: ")
