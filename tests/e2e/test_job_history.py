"""What a service tells of a job afterwards: its checkpoints, what was measured; and how it forgets the job."""

import json
import pathlib

import pytest
from support import jobs
from support.processes import wait_until

STEPS = 30


@pytest.fixture(scope="module")
def trained(module_service, text_data, tmp_path_factory):
    """A job that has succeeded, as the service shows it."""
    output = tmp_path_factory.mktemp("history") / "student"
    spec = jobs.changed(
        jobs.base_spec(text_data, output, STEPS),
        {
            "/dataset/eval": str(text_data),
            "/training/eval_steps": 10,
            "/checkpoint/every_steps": 10,
            "/name": "history",
        },
    )
    return module_service.rest.wait_job(module_service.rest.submit(spec))


def bytes_of(folder):
    return sum(file.stat().st_size for file in pathlib.Path(folder).rglob("*") if file.is_file())


def series(service, job, query=""):
    answer = service.rest.get(f"/v1/jobs/{job['id']}/metrics{query}")
    assert answer.status == 200, answer.text
    return {one["name"]: one for one in answer.json["data"]}


def test_checkpoints_are_listed_with_their_size(module_service, trained):
    listed = module_service.rest.get(f"/v1/jobs/{trained['id']}/checkpoints").json["data"]
    assert [one["number"] for one in listed] == list(range(1, len(listed) + 1))
    assert {10, 20}.issubset(one["step"] for one in listed)
    there = [one for one in listed if pathlib.Path(one["folder"]).is_dir()]
    assert there, listed
    for one in there:
        assert one["bytes"] == bytes_of(one["folder"]), one
    shown = [{k: v for k, v in one.items() if k not in ("number", "object")} for one in listed]
    assert len(listed) == trained["checkpoints_total"] > len(trained["checkpoints"]) == 2, "checkpoint.keep is 2"
    assert shown[-2:] == trained["checkpoints"]


def test_metrics_are_series_of_the_whole_run(module_service, trained):
    whole = series(module_service, trained)
    loss = whole["loss"]
    assert loss["steps"] == sorted(set(loss["steps"]))
    assert loss["steps"][-1] == STEPS
    assert loss["values"][-1] == trained["progress"]["loss"]
    assert loss["total_points"] == len(loss["values"])
    held_out = whole["eval_loss"]
    assert {10, 20, 30}.issubset(held_out["steps"])
    assert held_out["values"][-1] == trained["eval_loss"]
    assert held_out["values"][-1] < held_out["values"][0]
    assert list(series(module_service, trained, "?names=loss&max_points=2")) == ["loss"]
    ends = series(module_service, trained, "?names=eval_loss&max_points=2")["eval_loss"]
    assert ends["values"] == [held_out["values"][0], held_out["values"][-1]]
    assert ends["total_points"] == held_out["total_points"]
    assert min(series(module_service, trained, "?names=eval_loss&after_step=10")["eval_loss"]["steps"]) > 10


def test_the_log_of_a_job_is_kept(module_service, distilld, trained):
    answer = module_service.rest.get(f"/v1/jobs/{trained['id']}/logs")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    lines = answer.text.splitlines()
    assert lines[0].endswith(" info a worker is started"), lines
    assert lines[-1].endswith(" info the worker has ended, exit code 0"), lines
    said = [e[2]["message"] for e in module_service.rest.events(trained["id"]) if e[0] == "message"]
    assert any(line.endswith(message) for line in lines for message in said), (lines, said)
    last = distilld.run("jobs", "logs", trained["id"], "--tail", "1", "--server", module_service.url).out
    assert last == lines[-1] + "\n"


def test_the_command_line_shows_the_same(module_service, distilld, trained):
    server = ("--server", module_service.url)
    table = distilld.run("jobs", "checkpoints", trained["id"], *server).out
    assert trained["checkpoints"][-1]["folder"] in table
    table = distilld.run("jobs", "metrics", trained["id"], "--names", "loss,eval_loss", *server).out.splitlines()
    assert [line.split()[0] for line in table] == ["METRIC", "loss", "eval_loss"]
    shown = json.loads(distilld.run("jobs", "metrics", trained["id"], "--names", "loss", "-o", "json", *server).out)
    assert shown == module_service.rest.get(f"/v1/jobs/{trained['id']}/metrics?names=loss").json
    assert "losss" in distilld.run("jobs", "metrics", trained["id"], "--names", "losss", *server, code=1).err
    listed = distilld.run("jobs", "list", "--name", "history", "--state", "succeeded", *server).out.splitlines()
    assert [line.split()[0] for line in listed[1:]] == [trained["id"]]
    assert len(distilld.run("jobs", "list", "--name", "nobody", *server).out.splitlines()) == 1


def test_a_job_is_deleted_when_it_has_ended(module_service, distilld, text_data, tmp_path):
    rest = module_service.rest
    server = ("--server", module_service.url)
    long = rest.submit(jobs.base_spec(text_data, tmp_path / "student", 10**6))
    wait_until(lambda: (rest.job(long)["progress"] or {}).get("step"), "a step to be done")
    refused = rest.request("DELETE", f"/v1/jobs/{long}")
    assert refused.status == 409
    assert refused.json["error"]["code"] == "job_is_not_terminal"
    assert "it is running" in refused.json["detail"]
    assert "it is running" in distilld.run("jobs", "delete", long, *server, code=1).err
    rest.post(f"/v1/jobs/{long}/cancel")
    ended = rest.wait_job(long, ("cancelled",))
    assert rest.request("DELETE", f"/v1/jobs/{long}", headers={"Origin": "http://evil.example"}).status == 403
    assert distilld.run("jobs", "delete", long, *server).out == f"{long} deleted\n"
    for path in ("", "/events", "/checkpoints", "/metrics", "/logs"):
        assert rest.get(f"/v1/jobs/{long}{path}").status == 404
    assert rest.request("DELETE", f"/v1/jobs/{long}").status == 404
    # What it wrote is the user's: a job goes on from there.
    assert pathlib.Path(ended["checkpoints"][-1]["folder"]).is_dir()
