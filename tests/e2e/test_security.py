"""Who may do what with a service that has keys, and each way round that somebody might try."""

import http.client
import json
import pathlib
import socket
import stat

import pytest
from support import jobs
from support.keyed import Guarded, add_key
from support.processes import Programs, wait_until
from support.rest import Rest, metric_samples


@pytest.fixture(scope="module")
def guarded(programs, text_data, tmp_path_factory):
    """Roots: the folders of the tests. The working folder is one too, for nothing else is named."""
    started = Programs(programs, tmp_path_factory.mktemp("logs"))
    base = tmp_path_factory.mktemp("guarded")
    (base / "work").mkdir()
    service = Guarded(
        started,
        base / "service",
        *("--root", base / "work", "--root", text_data.parent),
        env={"SERVICE_SECRET": "s3rvice-s3cret", "DISTILLD_KEY_OTHER": "0ther-t3acher"},
    )
    service.work = base / "work"
    yield service
    started.stop_all()


def small_spec(text_data, output, steps=2):
    return jobs.base_spec(text_data, output, steps=steps)


def test_roles_may_do_what_they_are_for(guarded, text_data):
    spec = small_spec(text_data, guarded.work / "roles")
    for client, look, submit in (
        (guarded.nobody, 401, 401),
        (Rest(guarded.url, key="dk_" + "a" * 43), 401, 401),
        (guarded.eve, 200, 403),
        (guarded.alice, 200, 200),
        (guarded.admin, 200, 200),
    ):
        for page in ("/v1/jobs", "/version", "/openapi.yaml", "/metrics"):
            assert client.get(page).status == look, page
        assert client.post("/v1/jobs?dry_run=true", spec).status == submit
    refused = guarded.nobody.get("/v1/jobs")
    assert refused.headers["WWW-Authenticate"] == 'Bearer realm="distilld"'
    assert refused.json["error"]["code"] == "missing_key"
    assert guarded.eve.post("/v1/jobs", spec).json["error"]["code"] == "forbidden"
    for probe in ("/healthz", "/readyz"):
        assert guarded.nobody.get(probe).status == 200
    assert guarded.nobody.get("/nothing-there").status == 401


def test_a_key_acts_on_its_own_jobs_alone(guarded, text_data):
    job_id = guarded.alice.submit(small_spec(text_data, guarded.work / "own", steps=100_000))
    assert guarded.alice.job(job_id)["owner"] == "alice"
    guarded.eve.wait_job(job_id, ["running"])
    for client in (guarded.bob, guarded.eve, guarded.nobody):
        assert client.post(f"/v1/jobs/{job_id}/cancel").status in (401, 403)
        assert client.request("DELETE", f"/v1/jobs/{job_id}").status in (401, 403)
    assert guarded.bob.post(f"/v1/jobs/{job_id}/cancel").json["error"]["code"] == "not_your_job"
    assert guarded.bob.job(job_id)["state"] == "running"
    assert guarded.alice.post(f"/v1/jobs/{job_id}/cancel").status == 202
    guarded.alice.wait_job(job_id, ["cancelled"])
    assert guarded.bob.request("DELETE", f"/v1/jobs/{job_id}").status == 403
    assert guarded.admin.request("DELETE", f"/v1/jobs/{job_id}").status == 200


def test_two_users_do_not_see_each_others_secrets(guarded, text_data):
    """A URL's query may hold a key: no page, event, log or metric shows it to others."""
    secret = "a1ices-s3cret"
    spec = jobs.distil_spec(text_data, guarded.work / "secret", f"http://127.0.0.1:9/v1?key={secret}", steps=2)
    spec["teacher"]["startup_timeout_secs"] = 1
    order = {"Idempotency-Key": "once"}
    job_id = guarded.alice.post("/v1/jobs", spec, headers=order).json["id"]
    guarded.alice.wait_job(job_id, ["failed"])
    assert secret in guarded.alice.get(f"/v1/jobs/{job_id}").text
    pages = [f"/v1/jobs/{job_id}{tail}" for tail in ("", "/events", "/metrics", "/checkpoints", "/logs")]
    for client in (guarded.bob, guarded.eve):
        for page in [*pages, "/v1/jobs", "/metrics"]:
            answer = client.get(page)
            assert answer.status == 200, page
            assert secret not in answer.text, page
    assert secret not in guarded.process.out + guarded.process.err
    # With her idempotency key and body he is refused: her job has written there. With his own folder he gets his job.
    refused = guarded.bob.post("/v1/jobs", spec, headers=order)
    assert (refused.status, refused.json["error"]["code"]) == (400, "path_not_allowed")
    spec["output"] = str(guarded.work / "his-secret")
    his = guarded.bob.post("/v1/jobs", spec, headers=order)
    assert his.status == 201 and his.json["id"] != job_id and his.json["owner"] == "bob"


def test_the_head_is_judged_before_the_body_comes(guarded):
    """Of each of these the body never comes, and the answer does."""
    key = f"Authorization: Bearer {guarded.keys['alice']}\r\n"
    read_only = f"Authorization: Bearer {guarded.keys['eve']}\r\n"
    typed = "Content-Type: application/json\r\n"
    cases = {
        "no key": ("", typed, 1_000_000, 401),
        "a key that may not": (read_only, typed, 1_000_000, 403),
        "another site": (key + "Sec-Fetch-Site: cross-site\r\n", typed, 1000, 403),
        "another name": (key, typed, 1000, 421),
        "too large": (key, typed, 1 << 40, 413),
        "another type": (key, "Content-Type: text/plain\r\n", 1000, 415),
        "too large, and no key": ("", typed, 1 << 40, 401),
    }
    for name, (headers, kind, length, status) in cases.items():
        host = "evil.example" if name == "another name" else "localhost"
        with socket.create_connection(guarded.nobody._address, timeout=20) as client:
            client.sendall(
                f"POST /v1/jobs HTTP/1.1\r\nHost: {host}\r\n{headers}{kind}Content-Length: {length}\r\n\r\n".encode()
            )
            assert client.recv(64).split()[1].decode() == str(status), name


def test_a_web_page_with_the_key_of_its_visitor_is_still_refused(guarded, text_data):
    spec = small_spec(text_data, guarded.work / "page")
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert guarded.alice.post("/v1/jobs", spec, headers=headers).status == 403
    assert guarded.alice.get("/v1/jobs", headers={"Host": "rebound.example"}).status == 421


def test_paths_lead_nowhere_else(guarded, text_data, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "train.jsonl").write_bytes(text_data.read_bytes())
    (guarded.work / "door").symlink_to(outside)
    (guarded.work / "dangling").symlink_to(outside / "new")
    spec = small_spec(text_data, guarded.work / "paths")
    escapes = {
        "/output": [
            outside / "student",
            guarded.work / "door" / "student",
            guarded.work / "dangling",
            guarded.work / ".." / ".." / "student",
            guarded.data_dir / "logs",
        ],
        "/dataset/train": ["/etc/passwd", "/proc/self/environ", guarded.work / "door" / "train.jsonl", "/etc/*.conf"],
        "/metrics/jsonl_file": [guarded.data_dir / "keys.json", outside / "figures.jsonl"],
        "/checkpoint/dir": [guarded.work / "door" / "checkpoints"],
        "/student/tokenizer": ["/etc"],
    }
    for pointer, paths in escapes.items():
        for path in paths:
            for target in ("/v1/jobs", "/v1/jobs?dry_run=true"):
                refused = guarded.admin.post(target, jobs.changed(spec, {pointer: str(path)}))
                assert refused.status == 400, (pointer, path, refused.text)
                assert refused.json["error"]["code"] == "path_not_allowed"
                assert [(error["pointer"], error["code"]) for error in refused.json["errors"]] == [
                    (pointer, "path_not_allowed")
                ]
    assert not (outside / "new").exists() and not (outside / "student").exists()
    assert guarded.alice.post("/v1/jobs?dry_run=true", spec).status == 200


def test_a_path_that_turns_into_a_link_later_is_caught_when_it_is_used(distilld, text_data, tmp_path):
    """One slot: the second job waits while its folder becomes a link."""
    (tmp_path / "work").mkdir()
    (tmp_path / "outside").mkdir()
    service = distilld.service(
        tmp_path / "service", "--root", tmp_path / "work", "--root", text_data.parent, "--slots", "1"
    )
    rest = Rest(service.url)
    first = rest.submit(small_spec(text_data, tmp_path / "work" / "first", steps=100_000))
    rest.wait_job(first, ["running"])
    second = rest.submit(small_spec(text_data, tmp_path / "work" / "later" / "student"))
    (tmp_path / "work" / "later").symlink_to(tmp_path / "outside")
    rest.post(f"/v1/jobs/{first}/cancel")
    job = rest.wait_job(second, ["failed"])
    assert job["status_reason"]["code"] == "path_not_allowed"
    assert "/output" in job["status_reason"]["message"]
    assert list((tmp_path / "outside").iterdir()) == []


def test_metadata_addresses_are_no_teachers(guarded, text_data):
    for url in (
        "http://169.254.169.254/latest/meta-data/",
        "http://[fd00:ec2::254]/latest",
        "http://[fe80::1]:8600",
        "http://2852039166/",
        "http://0xa9fea9fe/",
        "http://[::ffff:169.254.169.254]/",
        "http://metadata.google.internal/computeMetadata/v1/",
    ):
        spec = jobs.distil_spec(text_data, guarded.work / "metadata", url, steps=1)
        refused = guarded.alice.post("/v1/jobs", spec)
        assert refused.status == 400, (url, refused.text)
        assert refused.json["error"]["code"] == "host_not_allowed"
        assert refused.json["errors"][0]["pointer"] == "/teacher/endpoints/0"


def test_teachers_are_where_the_operator_says(distilld, teacher, text_data, tmp_path):
    """By its address the teacher is on the list, by its name it is not: until the name has been resolved."""
    port = teacher.url.rpartition(":")[2]
    service = distilld.service(tmp_path / "service", "--teacher-host", f"127.0.0.1:{port}")
    rest = Rest(service.url)
    good = rest.submit(jobs.distil_spec(text_data, tmp_path / "good", teacher.url, steps=1))
    assert rest.wait_job(good)["state"] == "succeeded"
    refused = rest.post("/v1/jobs", jobs.distil_spec(text_data, tmp_path / "bad", "http://127.0.0.1:1", steps=1))
    assert refused.status == 400 and refused.json["error"]["code"] == "host_not_allowed"
    # Which address a name has is known when the worker connects, and it is asked then.
    other = distilld.service(tmp_path / "other", "--teacher-host", "10.0.0.0/8")
    rest = Rest(other.url)
    job_id = rest.submit(jobs.distil_spec(text_data, tmp_path / "named", f"http://localhost:{port}", steps=1))
    job = rest.wait_job(job_id, ["failed"])
    assert "not an allowed teacher host" in job["status_reason"]["message"], job["status_reason"]
    wrong = distilld.run(
        "serve", "--listen", "127.0.0.1:0", "--data-dir", tmp_path / "x", "--teacher-host", "http://h", code=2
    )
    assert "'http://h' is not a valid teacher host" in wrong.err


def test_a_worker_has_no_secret_of_the_service(guarded, text_data):
    job_id = guarded.alice.submit(small_spec(text_data, guarded.work / "environment", steps=100_000))
    guarded.alice.wait_job(job_id, ["running"])
    worker = guarded.process.worker()
    environment = pathlib.Path(f"/proc/{worker}/environ").read_bytes()
    assert b"PATH=" in environment
    for secret in (b"s3rvice-s3cret", b"0ther-t3acher"):
        assert secret in pathlib.Path(f"/proc/{guarded.process.pid}/environ").read_bytes()
        assert secret not in environment
    guarded.alice.post(f"/v1/jobs/{job_id}/cancel")
    guarded.alice.wait_job(job_id, ["cancelled"])


def test_no_key_is_written_down_anywhere(guarded):
    for client in (guarded.alice, guarded.admin, Rest(guarded.url, key="dk_wr0ng-but-s3cret")):
        client.get("/v1/jobs")
        client.post("/v1/jobs", {"no": "spec"})
    secrets = [*guarded.keys.values(), "dk_wr0ng-but-s3cret"]
    written = guarded.process.out + guarded.process.err + guarded.admin.get("/metrics").text
    for file in guarded.data_dir.rglob("*"):
        if file.is_file():
            written += file.read_bytes().decode(errors="replace")
    assert "alice" in written
    for secret in secrets:
        assert secret not in written and secret[3:] not in written
    assert stat.S_IMODE((guarded.data_dir / "keys.json").stat().st_mode) == 0o600


def test_every_change_leaves_a_line(guarded, text_data):
    headers = {"X-Request-Id": "audit-test-1"}
    spec = small_spec(text_data, guarded.work / "audit", steps=100_000)
    job_id = guarded.alice.post("/v1/jobs", spec, headers=headers).json["id"]
    guarded.bob.post(f"/v1/jobs/{job_id}/cancel")
    guarded.nobody.post(f"/v1/jobs/{job_id}/cancel")
    guarded.alice.post(f"/v1/jobs/{job_id}/cancel")
    guarded.alice.wait_job(job_id, ["cancelled"])

    def lines():
        mine = [
            line
            for name in ("audit.jsonl", "audit-refused.jsonl")
            for line in guarded.audit(name)
            if line.get("job") == job_id
        ]
        return mine if len(mine) == 4 else None

    submitted, own, others, strangers = wait_until(lines, "two lines about the job in each file")
    assert (submitted["key"], submitted["method"], submitted["path"], submitted["status"]) == (
        *("alice", "POST", "/v1/jobs"),
        201,
    )
    assert submitted["remote"] == "127.0.0.1" and submitted["request_id"] == "audit-test-1"
    assert (others["key"], others["status"]) == ("bob", 403)
    assert (strangers["key"], strangers["status"]) == (None, 401)
    assert (own["key"], own["status"], own["path"]) == ("alice", 202, f"/v1/jobs/{job_id}/cancel")
    for name in ("audit.jsonl", "audit-refused.jsonl"):
        assert not [line for line in guarded.audit(name) if line.get("method") == "GET"]
        assert stat.S_IMODE((guarded.data_dir / name).stat().st_mode) == 0o600


def test_keys_come_and_go_while_the_service_runs(distilld, tmp_path):
    service = distilld.service(tmp_path / "service")
    nobody = Rest(service.url)
    assert nobody.get("/v1/jobs").status == 200
    key = add_key(distilld, tmp_path / "service", "ops", "read")
    wait_until(lambda: nobody.get("/v1/jobs").status == 401, "the service to ask for a key")
    holder = Rest(service.url, key=key)
    assert holder.get("/v1/jobs").status == 200
    listed = distilld.run("keys", "list", "--data-dir", tmp_path / "service", "--output", "json")
    (row,) = json.loads(listed.out)
    assert (row["name"], row["role"]) == ("ops", "read") and "sha256" not in row
    assert "ops" in distilld.run("keys", "list", "--data-dir", tmp_path / "service").out
    distilld.run("keys", "add", "ops", "--role", "read", "--data-dir", tmp_path / "service", code=2)
    distilld.run("keys", "revoke", "ops", "--data-dir", tmp_path / "service")
    wait_until(lambda: holder.get("/v1/jobs").status == 401, "the key to be worth nothing")
    assert nobody.get("/v1/jobs").status == 401, "the end of the last key opens no door"
    distilld.run("keys", "revoke", "ops", "--data-dir", tmp_path / "service", code=2)


def test_a_wide_address_takes_a_key_or_a_word(distilld, tmp_path):
    for listen in ("0.0.0.0:0", "[::]:0"):
        refused = distilld.run("serve", "--listen", listen, "--data-dir", tmp_path / "none", code=2)
        assert "distilld keys add" in refused.err and "--insecure" in refused.err
    open_door = distilld.service(tmp_path / "open", "--insecure", listen="0.0.0.0:0")
    assert Rest(open_door.url.replace("0.0.0.0", "127.0.0.1")).get("/v1/jobs").status == 200
    assert "--insecure" in open_door.err
    add_key(distilld, tmp_path / "keyed", "ops", "admin")
    keyed = distilld.service(tmp_path / "keyed", listen="0.0.0.0:0")
    assert Rest(keyed.url.replace("0.0.0.0", "127.0.0.1")).get("/v1/jobs").status == 401


def test_an_admins_key_may_come_from_the_environment(distilld, text_data, tmp_path):
    secret = "0123456789abcdef" * 2
    weak = distilld.run(
        "serve", "--listen", "127.0.0.1:0", "--data-dir", tmp_path / "weak", env={"DISTILLD_ADMIN_KEY": "short"}, code=2
    )
    assert "DISTILLD_ADMIN_KEY must have 32" in weak.err
    service = distilld.start(
        *("serve", "--listen", "0.0.0.0:0", "--data-dir", tmp_path / "service", "--metrics-open"),
        *("--root", tmp_path, "--root", text_data.parent),
        env={"DISTILLD_ADMIN_KEY": secret},
    )
    url = service.wait_for_line(r"listening on (http://\S+)").group(1).replace("0.0.0.0", "127.0.0.1")
    assert Rest(url).get("/v1/jobs").status == 401
    assert metric_samples(Rest(url).get("/metrics").text)
    rest = Rest(url, key=secret)
    job_id = rest.submit(small_spec(text_data, tmp_path / "student", steps=100_000))
    rest.wait_job(job_id, ["running"])
    worker = service.worker()
    for process in (worker, service.pid):
        assert secret.encode() not in pathlib.Path(f"/proc/{process}/environ").read_bytes()
    rest.post(f"/v1/jobs/{job_id}/cancel")
    rest.wait_job(job_id, ["cancelled"])


def test_the_command_line_shows_its_key(guarded, distilld, tmp_path):
    jobs_list = ("jobs", "list", "--server", guarded.url)
    refused = distilld.run(*jobs_list, code=1)
    assert "401" in refused.err
    distilld.run(*jobs_list, env={"DISTILLD_API_KEY": guarded.keys["eve"]})
    file = tmp_path / "key"
    file.write_text(guarded.keys["eve"] + "\n")
    distilld.run(*jobs_list, "--api-key-file", file)
    distilld.run(*jobs_list, "--api-key-file", tmp_path / "none", code=2)
    distilld.run("healthcheck", "--server", guarded.url)


def test_without_a_list_keys_bind_specs_to_the_working_and_the_data_folder(distilld, text_data, tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    (work / "train.jsonl").write_bytes(text_data.read_bytes())
    service = Guarded(distilld, tmp_path / "service", cwd=work)
    inside = small_spec(work / "train.jsonl", "student")
    assert service.alice.post("/v1/jobs?dry_run=true", inside).status == 200
    below_data = small_spec(work / "train.jsonl", tmp_path / "service" / "outputs" / "x")
    assert service.alice.post("/v1/jobs?dry_run=true", below_data).status == 200
    for spec in (small_spec(text_data, "student"), small_spec(work / "train.jsonl", tmp_path / "elsewhere")):
        assert service.alice.post("/v1/jobs", spec).status == 400


def test_a_key_in_an_odd_place_is_none(guarded):
    key = guarded.keys["admin"]
    for path in (f"/v1/jobs?key={key}", f"/v1/jobs?access_token={key}"):
        assert guarded.nobody.get(path).status == 401
    for headers in (
        {"Authorization": key},
        {"Authorization": f"Basic {key}"},
        {"X-Api-Key": key},
        {"Cookie": f"key={key}"},
    ):
        assert guarded.nobody.get("/v1/jobs", headers=headers).status == 401
    connection = http.client.HTTPConnection(*guarded.nobody._address, timeout=20)
    connection.putrequest("GET", "/v1/jobs")
    connection.putheader("Authorization", "Bearer dk_wrong")
    connection.putheader("Authorization", f"Bearer {key}")
    connection.endheaders()
    assert connection.getresponse().status == 401
