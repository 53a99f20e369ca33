"""What a user may ask of a job that there is: pause, resume, checkpoint, cancel, priority and limits. A job that was
stopped and went on ends with the bits of one that was not."""

import json
import pathlib

import pytest
from chaos_proxy import ChaosProxy, Script
from support import jobs
from support.moments import alive, kill
from support.processes import wait_until
from support.rest import Rest

STEPS = 12
MICRO_BATCHES = 4
PROBE = 2  # POSTs before the first micro-batch
# Answers after which the teacher falls silent: the worker is in mid-step.
HALF_WAY = PROBE + 5 * MICRO_BATCHES + 2
LONG = 10**6

# Steps that a test can catch: with one request in flight, more than a second each.
SLOW = Script(delay=0.3)


def distil(text_data, output, url):
    """A spec with what could go wrong at a resume: a schedule, clipping, weight decay, two losses."""
    return jobs.changed(
        jobs.distil_spec(text_data, output, url, STEPS),
        {
            "/training/lr_scheduler_type": "cosine",
            "/training/warmup_steps": 3,
            "/training/weight_decay": 0.1,
            "/training/max_grad_norm": 0.5,
            "/training/kd_ratio": 0.7,
            "/teacher/hedge": False,
        },
    )


@pytest.fixture(scope="module")
def uninterrupted(distilld_session, teacher, text_data, tmp_path_factory):
    """SHA-256 of the weights of a run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    file = jobs.write_spec(folder / "spec.json", distil(text_data, folder / "student", teacher.url))
    distilld_session.run("run", file, "--report", folder / "report.json")
    return json.loads((folder / "report.json").read_text())["weights_sha256"]


class HalfWay:
    """A service with a job whose teacher has fallen silent in its sixth step."""

    def __init__(self, distilld, teacher, text_data, folder):
        self.distilld = distilld
        self.folder = folder
        self.proxy = ChaosProxy(teacher.url)
        self.proxy.hold_after = HALF_WAY
        self.spec = distil(text_data, folder / "student", self.proxy.url)

    def __enter__(self):
        self.proxy.__enter__()
        self.process = self.start()
        self.id = self.rest.submit(self.spec)
        wait_until(
            lambda: self.proxy.counts["held"] > 0 and self.proxy.answered == HALF_WAY, "the teacher to fall silent"
        )
        wait_until(lambda: (self.rest.job(self.id)["progress"] or {}).get("step") == 5, "five steps")
        return self

    def __exit__(self, *thrown):
        self.proxy.__exit__(*thrown)

    def start(self):
        process = self.distilld.service(self.folder / "service")
        self.rest = Rest(process.url)
        return process

    def ask(self, verb, status=202, query=""):
        answer = self.rest.post(f"/v1/jobs/{self.id}/{verb}{query}")
        assert answer.status == status, answer.text
        return answer.json

    def finish(self, expected):
        """Lets the teacher answer; the job ends with the bits of a run that was left alone."""
        job = self.rest.wait_job(self.id, ["succeeded"])
        assert job["weights_sha256"] == expected
        assert job["progress"]["step"] == STEPS
        return job

    def states(self):
        return [data["data"]["state"] for event, _, data in self.rest.events(self.id) if event == "state"]


@pytest.fixture
def half_way(distilld, teacher, text_data, tmp_path):
    with HalfWay(distilld, teacher, text_data, tmp_path) as job:
        yield job


def test_a_paused_job_goes_on_with_the_same_bits(half_way, uninterrupted):
    worker = half_way.process.worker()
    assert half_way.ask("pause")["state"] in ("pausing", "paused")
    paused = half_way.rest.wait_job(half_way.id, ["paused"])
    assert paused["status_reason"]["code"] == "paused_by_user"
    assert not paused["terminal"]
    assert [one["step"] for one in paused["checkpoints"]] == [5]
    wait_until(lambda: not alive(worker), "the worker to end")
    assert half_way.ask("pause")["state"] == "paused"
    half_way.proxy.hold_after = None
    half_way.ask("resume")
    job = half_way.finish(uninterrupted)
    assert job["progress"]["fetch"]["completed"] == (STEPS - 5) * MICRO_BATCHES, "no step was done twice"
    assert half_way.states() == ["queued", "running", "pausing", "paused", "queued", "running", "succeeded"]
    assert half_way.ask("resume", 409)["error"]["code"] == "job_is_terminal"


def test_a_paused_job_outlives_its_service(half_way, uninterrupted):
    half_way.ask("pause")
    half_way.rest.wait_job(half_way.id, ["paused"])
    kill(half_way.process.pid)
    half_way.process.wait()
    half_way.proxy.hold_after = None
    half_way.process = half_way.start()
    assert half_way.rest.job(half_way.id)["state"] == "paused"
    half_way.ask("resume")
    half_way.finish(uninterrupted)
    events = [sequence for _, sequence, _ in half_way.rest.events(half_way.id) if sequence]
    assert [int(sequence) for sequence in events] == list(range(1, len(events) + 1)), "no gap, no double"


def test_a_cancelled_job_goes_on_with_the_same_bits(half_way, uninterrupted):
    half_way.ask("cancel")
    ended = half_way.rest.wait_job(half_way.id, ["cancelled"])
    assert ended["status_reason"]["message"] == "cancelled after a checkpoint"
    assert [one["step"] for one in ended["checkpoints"]] == [5]
    seen = list(half_way.rest.events(half_way.id))
    assert seen[-1][0] == "done"
    half_way.proxy.hold_after = None
    resumed = half_way.ask("resume")
    assert (resumed["cancel_requested"], resumed["finished_at"]) == (False, None)
    job = half_way.finish(uninterrupted)
    assert job["finished_at"] > ended["finished_at"]
    # A stream that had ended goes on where it was.
    last = seen[-2][1]
    more = list(half_way.rest.events(half_way.id, headers={"Last-Event-ID": str(last)}))
    assert int(more[0][1]) == int(last) + 1
    assert more[0][2]["message"] == "resume requested"


def test_a_cancel_without_a_checkpoint_goes_on_from_the_one_before(
    distilld, teacher, text_data, tmp_path, uninterrupted
):
    rest = Rest(distilld.service(tmp_path / "service").url)
    with ChaosProxy(teacher.url, SLOW) as proxy:
        spec = jobs.changed(distil(text_data, tmp_path / "student", proxy.url), {"/teacher/max_concurrent": 1})
        job_id = rest.submit(spec)
        wait_until(lambda: (rest.job(job_id)["progress"] or {}).get("step"), "a step")
        asked = rest.post(f"/v1/jobs/{job_id}/checkpoint")
        assert asked.status == 202, asked.text
        saved = wait_until(lambda: rest.job(job_id)["checkpoints"], "the checkpoint that was asked for")[-1]["step"]
        wait_until(lambda: rest.job(job_id)["progress"]["step"] > saved, "another step")
        assert rest.post(f"/v1/jobs/{job_id}/cancel?checkpoint=false").status == 202
        ended = rest.wait_job(job_id, ["cancelled"])
        assert ended["status_reason"] == {
            "code": "cancelled_by_user",
            "message": "cancelled without a last checkpoint",
            "since": None,
        }
        saved = ended["checkpoints"][-1]
        assert saved["step"] < ended["progress"]["step"] < STEPS
        assert pathlib.Path(saved["folder"]).is_dir()
        messages = [data["message"] for event, _, data in rest.events(job_id) if event == "message"]
        assert "checkpoint requested" in messages
        proxy.script = Script()
        rest.post(f"/v1/jobs/{job_id}/resume")
        job = rest.wait_job(job_id, ["succeeded"])
        assert job["weights_sha256"] == uninterrupted
        assert job["progress"]["fetch"]["completed"] == (STEPS - saved["step"]) * MICRO_BATCHES


def test_a_failed_job_goes_on_when_its_teacher_is_mended(distilld, teacher, text_data, tmp_path, uninterrupted):
    rest = Rest(distilld.service(tmp_path / "service").url)
    with ChaosProxy(teacher.url) as proxy:
        proxy.answer_with, proxy.answer_from = (400, {}, b"no"), HALF_WAY
        job_id = rest.submit(distil(text_data, tmp_path / "student", proxy.url))
        failed = rest.wait_job(job_id, ["failed"])
        assert failed["checkpoints"], "nothing that was trained is lost"
        proxy.answer_with = None
        assert rest.post(f"/v1/jobs/{job_id}/resume").status == 202
        assert rest.wait_job(job_id, ["succeeded"])["weights_sha256"] == uninterrupted


def test_priority_and_pause_decide_who_is_next(distilld, text_data, tmp_path):
    process = distilld.service(tmp_path / "service", "--slots", "1")
    rest = Rest(process.url)
    server = ("--server", process.url)

    def submit(name, query=""):
        answer = rest.post(f"/v1/jobs{query}", jobs.base_spec(text_data, tmp_path / name, LONG))
        assert answer.status == 201, answer.text
        return answer.json["id"]

    first, second = submit("first"), submit("second")
    third = submit("third", "?priority=5")
    wait_until(lambda: (rest.job(first)["progress"] or {}).get("step"), "a step to be done")
    assert [rest.job(one)["queue_position"] for one in (first, second, third)] == [None, 2, 1]
    assert rest.job(second)["status_reason"] == {
        "code": "waiting_for_slot",
        "message": "1 job is before it",
        "since": None,
    }
    assert "priority      -5\n" in distilld.run("jobs", "set", second, "--priority", "-5", *server).out
    # The slot is free for the next while the first is paused.
    distilld.run("jobs", "pause", first, *server)
    rest.wait_job(first, ["paused"])
    rest.wait_job(third, ["running"])
    back = json.loads(distilld.run("jobs", "resume", first, "-o", "json", *server).out)
    assert (back["state"], back["queue_position"]) == ("queued", 1)
    out = distilld.run("jobs", "pause", second, *server).out
    assert "paused_by_user: paused while it was queued" in out
    assert rest.post(f"/v1/jobs/{second}/cancel").json["state"] == "cancelled"
    assert "it is waiting in the queue" in distilld.run("jobs", "checkpoint", first, *server, code=1).err
    distilld.run("jobs", "checkpoint", third, *server)
    wait_until(lambda: rest.job(third)["checkpoints"], "a checkpoint")
    distilld.run("jobs", "cancel", third, "--no-checkpoint", *server)
    ended = rest.wait_job(third, ["cancelled"])
    assert ended["status_reason"]["message"] == "cancelled without a last checkpoint"
    rest.wait_job(first, ["running"])


def test_a_job_is_labelled_and_found_by_it(module_service, distilld, text_data, tmp_path):
    rest = module_service.rest
    server = ("--server", module_service.url)
    done = rest.wait_job(rest.submit(jobs.base_spec(text_data, tmp_path / "student", 2)), ["succeeded"])
    shown = distilld.run("jobs", "set", done["id"], "--metadata", "team=red", "--metadata", "note=a=b ü", *server).out
    assert "metadata      note=a=b ü\nmetadata      team=red\n" in shown
    assert "dtype         fp32\n" in shown
    listed = distilld.run("jobs", "list", "--metadata", "note=a=b ü", "--metadata", "team=red", *server).out
    assert [line.split()[0] for line in listed.splitlines()[1:]] == [done["id"]]
    assert len(distilld.run("jobs", "list", "--metadata", "team=blue", *server).out.splitlines()) == 1
    distilld.run("jobs", "set", done["id"], "--metadata", "note=", *server)
    assert rest.job(done["id"])["metadata"] == {"team": "red"}
    assert "has already succeeded" in distilld.run("jobs", "set", done["id"], "--priority", "1", *server, code=1).err
    assert "nothing to set" in distilld.run("jobs", "set", done["id"], *server, code=2).err
    long = distilld.run("jobs", "set", done["id"], "--metadata", "n=" + 513 * "x", *server, code=2).err
    assert "/metadata/n: a text has at most 512 bytes" in long


def test_a_limit_is_kept_by_the_run_and_by_those_after_it(distilld, teacher, text_data, tmp_path, uninterrupted):
    rest = Rest(distilld.service(tmp_path / "service").url)
    with ChaosProxy(teacher.url, SLOW) as proxy:
        job_id = rest.submit(
            jobs.changed(distil(text_data, tmp_path / "student", proxy.url), {"/teacher/max_concurrent": 2})
        )

        def steps_behind(step):
            """A job that has come further, with what its progress said of it."""
            look = lambda: (now := rest.job(job_id)["progress"]) and now["step"] > step and now  # noqa: E731
            return wait_until(look, f"a step behind {step}")

        assert steps_behind(0)["fetch"]["concurrency"] == 2
        changed = rest.request("PATCH", f"/v1/jobs/{job_id}", {"max_concurrent": 1, "metadata": {"limited": "yes"}})
        assert changed.status == 200, changed.text
        assert changed.json["max_concurrent"] == 1
        assert changed.json["spec"]["teacher"]["max_concurrent"] == 2
        # A step whose record was on its way to the service when the limit changed was made with the old one.
        wait_until(lambda: rest.job(job_id)["progress"]["fetch"]["concurrency"] == 1, "a step under the new limit")
        rest.post(f"/v1/jobs/{job_id}/pause")
        paused = rest.wait_job(job_id, ["paused"])
        assert paused["metadata"] == {"limited": "yes"}
        wait_until(lambda: proxy.in_flight == 0, "the end of what the paused run had asked")
        proxy.max_in_flight = 0
        rest.post(f"/v1/jobs/{job_id}/resume")
        assert steps_behind(paused["progress"]["step"])["fetch"]["concurrency"] == 1
        proxy.script = Script()
        assert rest.wait_job(job_id, ["succeeded"])["weights_sha256"] == uninterrupted
    assert proxy.max_in_flight == 1
