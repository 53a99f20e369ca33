"""The service over TLS: who trusts whom, and that everything works as it does without."""

import http.client
import json
import socket
import ssl
import subprocess
import threading
import time

import pytest
from support import jobs
from support.processes import wait_until


def openssl(*arguments, folder):
    subprocess.run(["openssl", *map(str, arguments)], cwd=folder, check=True, capture_output=True, timeout=60)


def make_authority(folder, name):
    openssl(
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", 2),
        *("-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}"),
        folder=folder,
    )


def make_certificate(folder, name, authority, names):
    openssl(
        *("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
        *("-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}"),
        folder=folder,
    )
    (folder / f"{name}.ext").write_text(f"subjectAltName={names}\n")
    openssl(
        *("x509", "-req", "-in", f"{name}.csr", "-CA", f"{authority}.pem", "-CAkey", f"{authority}.key"),
        *("-CAcreateserial", "-days", 2, "-extfile", f"{name}.ext", "-out", f"{name}.pem"),
        folder=folder,
    )


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pki")
    for authority in ("authority", "stranger"):
        make_authority(folder, authority)
    make_certificate(folder, "server", "authority", "DNS:localhost,IP:127.0.0.1")
    make_certificate(folder, "elsewhere", "authority", "DNS:elsewhere.example")
    make_certificate(folder, "client", "authority", "DNS:client")
    make_certificate(folder, "intruder", "stranger", "DNS:client")
    return folder


def serve(distilld, data_dir, pki, *flags, name="server"):
    process = distilld.start(
        *("serve", "--listen", "127.0.0.1:0", "--data-dir", data_dir),
        *("--tls-certificate", pki / f"{name}.pem", "--tls-key", pki / f"{name}.key", *flags),
    )
    process.url = process.wait_for_line(r"listening on (https://\S+)").group(1)
    process.port = int(process.url.rpartition(":")[2])
    return process


def trusting(pki, client=None):
    context = ssl.create_default_context(cafile=pki / "authority.pem")
    if client:
        context.load_cert_chain(pki / f"{client}.pem", pki / f"{client}.key")
    return context


def get(port, path, context, method="GET", body=None, headers=None):
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=30)
    try:
        connection.request(method, path, body=body, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_a_job_is_submitted_and_followed_over_tls(distilld, pki, text_data, tmp_path):
    service = serve(distilld, tmp_path / "service", pki)
    at = ("--server", service.url, "--ca", pki / "authority.pem")
    distilld.run("healthcheck", *at)
    spec = jobs.write_spec(tmp_path / "spec.json", jobs.base_spec(text_data, tmp_path / "student", steps=3))
    job_id = distilld.run("jobs", "submit", spec, *at).out.strip()
    distilld.run("jobs", "watch", job_id, *at)
    assert json.loads(distilld.run("jobs", "get", job_id, *at, "-o", "json").out)["state"] == "succeeded"
    # A body in many records, and several requests on one connection.
    connection = http.client.HTTPSConnection("localhost", service.port, context=trusting(pki), timeout=30)
    for _ in range(3):
        connection.request("POST", "/v1/jobs", body=b" " * 3_000_000, headers={"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == 400 and answer.read()
    connection.close()


def test_nobody_is_taken_for_another(distilld, pki, tmp_path):
    service = serve(distilld, tmp_path / "service", pki)
    listing = ("jobs", "list", "--server", service.url)
    unknown = distilld.run(*listing, code=1)
    assert "TLS handshake failed" in unknown.err
    distilld.run(*listing, "--ca", pki / "stranger.pem", code=1)
    other = serve(distilld, tmp_path / "other", pki, name="elsewhere")
    wrong_name = distilld.run("jobs", "list", "--server", other.url, "--ca", pki / "authority.pem", code=1)
    assert "TLS handshake failed" in wrong_name.err
    # Plain HTTP gets no answer at the door, and hurts nobody.
    with socket.create_connection(("127.0.0.1", service.port), timeout=20) as plain:
        plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200" not in plain.recv(4096)
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname = False
    old.verify_mode = ssl.CERT_NONE
    old.minimum_version = ssl.TLSVersion.TLSv1
    old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        get(service.port, "/healthz", old)
    assert get(service.port, "/healthz", trusting(pki))[0] == 200


def test_clients_show_a_certificate_where_one_is_wanted(distilld, pki, tmp_path):
    service = serve(distilld, tmp_path / "service", pki, "--tls-client-ca", pki / "authority.pem")
    assert get(service.port, "/v1/jobs", trusting(pki, "client"))[0] == 200
    for client in (None, "intruder"):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            get(service.port, "/v1/jobs", trusting(pki, client))
    at = ("jobs", "list", "--server", service.url, "--ca", pki / "authority.pem")
    distilld.run(*at, "--certificate", pki / "client.pem", "--certificate-key", pki / "client.key")
    distilld.run(*at, code=1)
    distilld.run(*at, "--certificate", pki / "intruder.pem", "--certificate-key", pki / "intruder.key", code=1)


def test_files_that_do_not_do_are_named(distilld, pki, tmp_path):
    (tmp_path / "empty.pem").write_text("")
    for certificate, key, named in (
        (tmp_path / "none.pem", pki / "server.key", "none.pem"),
        (tmp_path / "empty.pem", pki / "server.key", "empty.pem"),
        (pki / "server.pem", pki / "client.key", "client.key"),
    ):
        refused = distilld.run(
            *("serve", "--data-dir", tmp_path / "data", "--listen", "127.0.0.1:0"),
            *("--tls-certificate", certificate, "--tls-key", key),
            code=2,
        )
        assert named in refused.err
    alone = distilld.run(
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        tmp_path / "data",
        "--tls-certificate",
        pki / "server.pem",
        code=2,
    )
    assert "security.tls_key" in alone.err


def test_a_client_that_never_shakes_hands_holds_up_nobody(distilld, pki, tmp_path):
    service = serve(distilld, tmp_path / "service", pki, "--header-timeout", "1s")
    silent = [socket.create_connection(("127.0.0.1", service.port), timeout=30) for _ in range(20)]
    try:
        assert get(service.port, "/healthz", trusting(pki))[0] == 200
        begun = time.monotonic()
        for client in silent:
            assert client.recv(16) == b"", "closed when its time is over"
        assert time.monotonic() - begun < 20
    finally:
        for client in silent:
            client.close()


def test_a_stream_ends_with_the_service_and_with_its_client(distilld, pki, text_data, tmp_path):
    """An event stream over TLS: its events come at once, and a client that leaves is noticed."""
    service = serve(distilld, tmp_path / "service", pki)
    spec = json.dumps(jobs.base_spec(text_data, tmp_path / "student", steps=100_000))
    typed = {"Content-Type": "application/json"}
    status, body = get(service.port, "/v1/jobs", trusting(pki), "POST", spec, typed)
    assert status == 201
    job_id = json.loads(body)["id"]
    lines = []

    def follow():
        connection = http.client.HTTPSConnection("127.0.0.1", service.port, context=trusting(pki), timeout=60)
        connection.request("GET", f"/v1/jobs/{job_id}/events", headers={"Accept": "text/event-stream"})
        lines.extend(iter(connection.getresponse().readline, b""))

    follower = threading.Thread(target=follow)
    follower.start()
    wait_until(lambda: any(b"running" in line for line in lines), "the event that it runs")
    assert get(service.port, f"/v1/jobs/{job_id}/cancel", trusting(pki), "POST", "", typed)[0] == 202
    follower.join(60)
    assert not follower.is_alive()
    assert any(b"cancelled" in line for line in lines)
    service.send(15)
    service.expect(0)
