"""A generate job of several tasks, and students that follow its store."""

import json
import random
import signal

import pytest
from support import jobs
from support.processes import wait_until
from support.rest import Rest, free_port

ROWS = 1600
SHARD_ROWS = 32  # of a dataset of that size
BATCH_ROWS = 16


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    source = random.Random(7)
    rows = ({"input_ids": [source.randrange(256) for _ in range(5)]} for _ in range(ROWS))
    return jobs.write_jsonl(tmp_path_factory.mktemp("tasks") / "short.jsonl", rows)


class Array:
    """A service with four slots, the specs for it, and a teacher that comes later."""

    def __init__(self, distilld, teacher_folder, data, folder):
        self.distilld = distilld
        self.teacher_folder = teacher_folder
        self.data = data
        self.folder = folder
        self.port = free_port()
        self.store = folder / "store"
        self.start()

    def start(self):
        flags = ("--slots", "4", "--slots-by", "none")
        self.process = self.distilld.service(self.folder / "service", *flags)
        self.rest = Rest(self.process.url)

    def kill(self):
        self.process.send(signal.SIGKILL)
        self.process.wait()

    def start_teacher(self, delay_ms):
        listen = f"127.0.0.1:{self.port}"
        self.distilld.teacher(self.teacher_folder, "--dtype", "fp32", "--delay-ms", str(delay_ms), listen=listen)

    def generate_spec(self, **changes):
        endpoint = f"http://127.0.0.1:{self.port}"
        return {
            "name": "answers",
            "kind": "generate",
            "tasks": 2,
            "teacher": {"endpoints": [endpoint], "top_k": 16, "max_concurrent": 2, "store": str(self.store)},
            "student": {"config": {"vocab_size": 257}},
            "dataset": {"train": str(self.data), "sequence_length": 4, "packing": False},
            "training": {"batch_size": BATCH_ROWS},
            **changes,
        }

    def student_spec(self, name):
        spec = jobs.distil_spec(self.data, self.folder / name, "http://unused:1", 150)
        spec["teacher"] = {"top_k": 16, "store": str(self.store)}
        spec["dataset"] |= {"sequence_length": 4, "packing": False, "shuffle": "blocks"}
        spec["dataset"]["shuffle_block_rows"] = SHARD_ROWS
        return spec

    def states(self, ids):
        return [self.rest.job(job)["state"] for job in ids]

    def expect_whole_store(self):
        done = json.loads(self.distilld.run("store", "verify", self.store, "--output", "json").out)
        assert done["rows"] == ROWS and done["unsealed"] == [] and done["foreign"] == [], done


@pytest.fixture
def array(distilld, teacher_folder, data, tmp_path):
    return Array(distilld, teacher_folder, data, tmp_path)


def state_events(rest, job):
    return [event["data"] for kind, _, event in rest.events(job) if kind == "state"]


def test_students_wait_without_a_slot_and_follow_two_tasks(array, data, tmp_path):
    rest = array.rest
    first = rest.submit(array.generate_spec())
    tasks = rest.job(first)["tasks"]
    assert len(tasks) == 2 and tasks[0] == first
    assert rest.job(tasks[1])["task_of"] == first and rest.job(tasks[1])["name"] == "answers task 1"
    students = [rest.submit(array.student_spec(f"student-{number}")) for number in range(3)]
    wait_until(lambda: array.states(tasks) == ["running", "running"], "both tasks")
    # Two slots are free, and a job that comes later passes those that wait.
    passing = rest.submit(jobs.base_spec(data, tmp_path / "passing", 2) | {"name": "passing"})
    rest.wait_job(passing)

    def expect_waiting():
        """Since when."""
        reasons = [array.rest.job(student)["status_reason"] for student in students]
        for student in students:
            job = array.rest.job(student)
            assert (job["state"], job["slot"], job["queue_position"]) == ("queued", None, None)
            assert job["status_reason"]["code"] == "waiting_for_store" and first in job["status_reason"]["message"]
        return [reason["since"] for reason in reasons]

    since = expect_waiting()
    array.kill()
    array.start()
    wait_until(lambda: array.states(tasks) == ["running", "running"], "both tasks again")
    assert expect_waiting() == since

    array.start_teacher(delay_ms=200)
    follow = wait_until(
        lambda: (states := array.states(students + tasks))[3] == "running" and states.count("running") >= 4 and states,
        "two students and the tasks at once",
    )
    print(f"\nstudents and tasks: {follow}")
    ended = [array.rest.wait_job(job) for job in tasks + students]
    assert [job["state"] for job in ended] == ["succeeded"] * 5
    array.expect_whole_store()
    sealed = min(shard.stat().st_mtime_ns for shard in array.store.glob("*.safetensors"))
    for student in ended[2:]:
        states = state_events(array.rest, student["id"])
        running = [data["state"] for data in states].index("running")
        assert "waiting_for_store" in [data.get("code") for data in states[:running]]
        assert [data["state"] for data in states[running:]] == ["running", "succeeded"], "once begun, it went on"
        assert student["started_at"] >= rfc3339(sealed)
    assert min(student["started_at"] for student in ended[2:]) < ended[0]["finished_at"]
    assert len({student["weights_sha256"] for student in ended[2:]}) == 1
    asked = [job["progress"]["fetch"]["completed"] for job in ended[:2]]
    assert all(asked) and sum(asked) == ROWS // BATCH_ROWS, "each took a part, and nothing was asked for twice"


def rfc3339(nanoseconds):
    """Cut to the milliseconds of the service's times."""
    import datetime

    time = datetime.datetime.fromtimestamp(nanoseconds // 1_000_000 / 1000, datetime.UTC)
    return time.strftime("%Y-%m-%dT%H:%M:%S.") + f"{nanoseconds // 1_000_000 % 1000:03d}Z"


def test_a_request_about_the_first_task_is_about_all(array):
    rest = array.rest
    first = rest.submit(array.generate_spec(tasks="auto"))
    tasks = rest.job(first)["tasks"]
    assert len(tasks) == 4 and rest.job(first)["resolved_spec"]["tasks"] == 4, "one per free slot"
    student = rest.submit(array.student_spec("student"))
    wait_until(lambda: array.states(tasks) == ["running"] * 4, "all tasks")
    assert rest.post(f"/v1/jobs/{tasks[3]}/cancel").status == 202
    rest.wait_job(tasks[3], ["cancelled"])
    assert array.states(tasks) == ["running"] * 3 + ["cancelled"]
    assert rest.job(student)["status_reason"]["code"] == "waiting_for_store"
    listed = array.distilld.run("jobs", "list", "--server", array.process.url).out
    assert "answers task 3" in listed and "waiting_for_store" in listed
    assert rest.post(f"/v1/jobs/{first}/cancel").status == 202
    for task in tasks:
        rest.wait_job(task, ["cancelled"])
    rest.wait_job(student, ["running"])  # nobody is left to wait for: it says itself what it lacks
    assert rest.request("DELETE", f"/v1/jobs/{first}").status == 200
    assert [rest.get(f"/v1/jobs/{task}").status for task in tasks] == [404] * 4


def test_tasks_are_of_generate_jobs(array):
    refused = array.rest.post("/v1/jobs", array.student_spec("student") | {"tasks": 2})
    assert (refused.status, refused.json["errors"][0]["pointer"]) == (400, "/tasks"), refused.text
    refused = array.rest.post("/v1/jobs", array.generate_spec(tasks=1025))
    assert (refused.status, refused.json["errors"][0]["pointer"]) == (400, "/tasks"), refused.text
