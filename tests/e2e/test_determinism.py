"""Not one bit of the trained weights depends on timing: one table of ways to run a job, one SHA-256."""

import json
import signal
import socket

import pytest
from chaos_proxy import ChaosProxy, Script
from support import jobs
from support.moments import alive, is_committing, is_computing, kill, kill_when
from support.processes import wait_until
from support.rest import Rest

STEPS = 12
MICRO_BATCHES = 4
PROBE = 2  # POSTs before the first micro-batch
# Answers after which the teacher falls silent: seven steps and a half, so the worker is in mid-step.
HALF_WAY = PROBE + 7 * MICRO_BATCHES + 2

JITTER = Script(delay=0.01, jitter=0.8)
FAILURES = Script(
    seed=3,
    reset=0.0125,
    half_body=0.0125,
    unavailable=0.0125,
    garbage=0.0125,
    storm=0.003,
    storm_length=3,
    retry_after="0.2",
)
SPIKES = Script(seed=5, delay=0.01, spike=0.05, spike_seconds=0.4)

# A hedge would take an answer from a micro-batch, and the silence would come earlier.
HELD = {"/checkpoint/every_steps": 3, "/teacher/hedge": False}
# A run that ends before it was caught at the moment sought is done again.
TRIES = 20

# name: (changes to the spec, script of the proxy in between)
CALM = {
    "parallel, 8 in flight": ({}, None),
    "not parallel": ({"/training/parallel": False}, None),
    "1 in flight": ({"/teacher/max_concurrent": 1}, None),
    "64 in flight": ({"/teacher/max_concurrent": 64}, None),
    "as many in flight as it takes": ({"/teacher/max_concurrent": "auto"}, None),
    "window of 1": ({"/teacher/window": 1}, None),
    "window of 3": ({"/teacher/window": 3}, None),
    "8 in flight, 5 decode threads": ({"/training/decode_threads": 5}, JITTER),
    "window of 1 byte": ({"/teacher/window_bytes": 1}, None),
    "1 replica on 1 thread": ({"/training/replicas": 1, "/training/threads": 1}, None),
    "2 replicas": ({"/training/replicas": 2}, None),
    "3 replicas on 1 thread, jitter": ({"/training/replicas": 3, "/training/threads": 1}, JITTER),
    "3 replicas, serial optimizer": ({"/training/replicas": 3, "/training/overlap_optimizer": False}, None),
    "serial optimizer": ({"/training/overlap_optimizer": False}, None),
    "serial optimizer, not parallel": ({"/training/overlap_optimizer": False, "/training/parallel": False}, None),
    "checkpoints and evaluation in between": ({"/checkpoint/every_steps": 1, "/training/eval_steps": 2}, None),
    "jitter": ({}, JITTER),
    "jitter, 64 in flight, window of 8": ({"/teacher/max_concurrent": 64, "/teacher/window": 8}, JITTER),
    "jitter, serial optimizer": ({"/training/overlap_optimizer": False}, JITTER),
    "one in twenty requests fails": ({}, FAILURES),
    "one in twenty fails, not parallel": ({"/training/parallel": False}, FAILURES),
    "spikes, hedged": ({}, SPIKES),
    "spikes, not hedged": ({"/teacher/hedge": False}, SPIKES),
}


class Table:
    """Rows of (way to run, SHA-256, figures)."""

    def __init__(self):
        self.rows = []

    def add(self, name, sha256, fetch=None):
        self.rows.append((name, sha256, fetch or {}))

    def __str__(self):
        lines = [f"{'way to run the same job':48}  {'sha256 of the weights':16}  requests retries hedges failures"]
        for name, sha256, fetch in self.rows:
            figures = [
                fetch.get("requests", ""),
                fetch.get("retries", ""),
                fetch.get("hedges", ""),
                sum(fetch.get("failures", {}).values()) if fetch else "",
            ]
            lines.append(f"{name:48}  {sha256[:16]}  {figures[0]:>8} {figures[1]:>7} {figures[2]:>6} {figures[3]:>8}")
        return "\n".join(lines)


class Ways:
    """Runs the one job in many ways. Each ends with the file's SHA-256 in the table."""

    def __init__(self, distilld, teacher, data, folder):
        self.distilld = distilld
        self.teacher = teacher
        self.data = data
        self.folder = folder
        self.table = Table()

    def spec(self, name, changes, url):
        output = self.folder / name.replace(" ", "-").replace(",", "")
        base = jobs.changed(
            jobs.distil_spec(self.data, output / "student", url, STEPS),
            {
                "/training/lr_scheduler_type": "cosine",
                "/training/warmup_steps": 3,
                "/training/weight_decay": 0.1,
                "/training/max_grad_norm": 0.5,
                "/training/kd_ratio": 0.7,
                "/training/temperature": 2.0,
                "/dataset/eval": str(self.data),
            },
        )
        output.mkdir()
        return jobs.write_spec(output / "spec.json", jobs.changed(base, changes)), output

    def finish(self, name, file, output, *flags):
        report_file = output / "report.json"
        self.distilld.run("run", file, "--report", report_file, *flags)
        report = json.loads(report_file.read_text())
        sha256 = jobs.sha256(output / "student" / "model.safetensors")
        assert report["weights_sha256"] == sha256
        self.table.add(name, sha256, report["last"]["fetch"])
        return report

    def calm(self, name, changes, script):
        if script is None:
            return self.finish(name, *self.spec(name, changes, self.teacher.url))
        with ChaosProxy(self.teacher.url, script) as proxy:
            return self.finish(name, *self.spec(name, changes, proxy.url))

    def one_endpoint_down(self, name):
        """The first of two endpoints refuses connections from the beginning to the end."""
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            dead = f"http://127.0.0.1:{unused.getsockname()[1]}"
            file, output = self.spec(name, {"/teacher/endpoints": [dead, self.teacher.url]}, self.teacher.url)
            report_file = output / "report.json"
            done = self.distilld.run("run", file, "--report", report_file)
            assert f"warn: {dead}/v2/models/teacher/infer: not up" in done.out, done.out
        report = json.loads(report_file.read_text())
        self.table.add(name, report["weights_sha256"], report["last"]["fetch"])

    def one_endpoint_at_503(self, name):
        with ChaosProxy(self.teacher.url) as proxy:
            # Within its share of the first requests: later ones may all go to the other.
            proxy.answer_with, proxy.answer_from = (503, {}, b"busy"), PROBE + 2
            return self.finish(name, *self.spec(name, {"/teacher/endpoints": [proxy.url, self.teacher.url]}, proxy.url))

    def teacher_away(self, name, seconds):
        """The port is closed for so long in mid-run."""
        with ChaosProxy(self.teacher.url, Script(deaths=((HALF_WAY, seconds),))) as proxy:
            return self.finish(name, *self.spec(name, {}, proxy.url))

    def one_endpoint_slow(self, name):
        with ChaosProxy(self.teacher.url, Script(delay=0.2)) as proxy:
            return self.finish(name, *self.spec(name, {"/teacher/endpoints": [proxy.url, self.teacher.url]}, proxy.url))

    def silent_proxy(self):
        proxy = ChaosProxy(self.teacher.url)
        proxy.hold_after = HALF_WAY
        return proxy

    def wait_mid_step(self, proxy, output):
        """All that the teacher said has been trained on, and the checkpoint of step 6 is there."""
        wait_until(lambda: proxy.counts["held"] > 0 and proxy.answered == HALF_WAY, "the teacher to fall silent")
        wait_until(lambda: (output / "student" / "checkpoints" / "step-00000006").is_dir(), "the checkpoint of step 6")

    def run_killed(self, name):
        with self.silent_proxy() as proxy:
            file, output = self.spec(name, HELD, proxy.url)
            process = self.distilld.start("run", file)
            self.wait_mid_step(proxy, output)
            worker = process.worker()
            kill(process.pid)
            process.wait()
            wait_until(lambda: not alive(worker), "the worker to end")
            assert not (output / "student" / "model.safetensors").exists()
            proxy.hold_after = None
            left = STEPS - committed_steps(output)
            report = self.finish(name, file, output, "--resume")
        # What was committed was not done again. An orderly end saves the last whole step.
        assert left in (5, 6)
        assert report["last"]["fetch"]["completed"] == left * MICRO_BATCHES

    def start_restarting(self, file, output):
        """A run whose worker will be killed, and go on by itself."""
        return self.distilld.start("run", file, "--report", output / "report.json")

    def ended(self, name, process, output, left):
        """The end of a run whose worker was killed with so many steps left."""
        process.expect(0)
        assert "killed by signal 9" in process.out
        assert "restart 1 of 3 from the newest checkpoint" in process.out
        report = json.loads((output / "report.json").read_text())
        sha256 = jobs.sha256(output / "student" / "model.safetensors")
        assert report["weights_sha256"] == sha256
        # What was committed was not done again.
        assert report["last"]["fetch"]["completed"] == left * MICRO_BATCHES
        self.table.add(name, sha256, report["last"]["fetch"])

    def run_and_worker_killed(self, name):
        with self.silent_proxy() as proxy:
            file, output = self.spec(name, HELD, proxy.url)
            process = self.start_restarting(file, output)
            self.wait_mid_step(proxy, output)
            kill(process.worker())
            proxy.hold_after = None
            self.ended(name, process, output, 6)

    def wait_checkpoint(self, process, output):
        wait_until(lambda: process.code is not None or committed_steps(output), "a checkpoint", pause=0.0005)

    def run_killed_at(self, name, every_steps, moment):
        """The worker is killed at a moment(pid of the worker, folder of the checkpoints) after the first checkpoint."""
        for number in range(TRIES):
            changes = {"/checkpoint/every_steps": every_steps}
            file, output = self.spec(f"{name} {number}", changes, self.teacher.url)
            checkpoints = output / "student" / "checkpoints"
            process = self.start_restarting(file, output)
            worker = process.worker()
            self.wait_checkpoint(process, output)
            caught = moment(worker, checkpoints)
            # There is a second before the next worker.
            cut_short = is_committing(checkpoints)
            left = STEPS - committed_steps(output)
            if caught and left > 0:
                break
            process.expect(0)  # over before it was caught, or caught in its last evaluation
        else:
            raise AssertionError(f"in {TRIES} runs the worker was not caught: {name}")
        assert left < STEPS
        self.ended(name, process, output, left)
        assert not is_committing(checkpoints), "what the killed worker left is still there"
        return cut_short

    def service(self, name):
        return self.distilld.service(self.folder / f"service-{name.replace(' ', '-')}")

    def served(self, name):
        rest = Rest(self.service(name).url)
        file, _ = self.spec(name, {}, self.teacher.url)
        job = rest.wait_job(rest.submit(file.read_bytes()), ["succeeded"])
        self.table.add(name, job["weights_sha256"], job["progress"]["fetch"])

    def served_and_service_ended(self, name, number):
        with self.silent_proxy() as proxy:
            process = self.service(name)
            file, output = self.spec(name, HELD, proxy.url)
            job_id = Rest(process.url).submit(file.read_bytes())
            self.wait_mid_step(proxy, output)
            worker = process.worker()
            process.send(number)
            process.wait()
            wait_until(lambda: not alive(worker), "the worker to end with the service")
            proxy.hold_after = None
            left = STEPS - committed_steps(output)
            rest = Rest(self.service(name).url)
            job = rest.wait_job(job_id, ["succeeded"])
            states = [data["data"]["state"] for event, _, data in rest.events(job_id) if event == "state"]
        assert states == ["queued", "running", "queued", "running", "succeeded"]
        assert left in (5, 6)  # an orderly end saves the last whole step
        assert job["progress"]["fetch"]["completed"] == left * MICRO_BATCHES
        self.table.add(name, job["weights_sha256"], job["progress"]["fetch"])

    def served_and_worker_killed(self, name):
        """The job waits a moment with a reason, and goes on from its checkpoint by itself."""
        with self.silent_proxy() as proxy:
            process = self.service(name)
            rest = Rest(process.url)
            file, output = self.spec(name, HELD, proxy.url)
            job_id = rest.submit(file.read_bytes())
            self.wait_mid_step(proxy, output)
            kill(process.worker())
            proxy.hold_after = None
            job = rest.wait_job(job_id, ["succeeded"])
            records = [data for event, _, data in rest.events(job_id) if event == "state"]
        states = [record["data"]["state"] for record in records]
        assert states == ["queued", "running", "queued", "running", "succeeded"]
        assert records[2]["data"]["code"] == "worker_restarting"
        assert "killed by signal 9" in records[2]["message"]
        assert job["status_reason"] is None
        assert job["progress"]["step"] == job["progress"]["total_steps"] == STEPS
        assert job["progress"]["fetch"]["completed"] == 6 * MICRO_BATCHES
        self.table.add(name, job["weights_sha256"], job["progress"]["fetch"])


def committed_steps(output):
    """Step of the newest checkpoint, 0 where there is none."""
    found = [entry.name for entry in (output / "student" / "checkpoints").glob("step-*")]
    return int(max(found, default="step-0").removeprefix("step-"))


def kill_while_it_computes(worker, _):
    return kill_when(worker, lambda: is_computing(worker))


def kill_while_it_commits(worker, checkpoints):
    return kill_when(worker, lambda: is_committing(checkpoints), lambda: is_committing(checkpoints))


def test_every_way_to_run_a_job_ends_with_the_same_bits(distilld, teacher, text_data, tmp_path, capsys):
    ways = Ways(distilld, teacher, text_data, tmp_path)
    reports = {name: ways.calm(name, *row) for name, row in CALM.items()}
    ways.one_endpoint_down("one of two endpoints down")
    ways.one_endpoint_slow("one of two endpoints slow")
    refused = ways.one_endpoint_at_503("one of two endpoints answers 503")
    away = ways.teacher_away("the teacher away for a minute", 60)
    ways.run_and_worker_killed("run, worker killed in mid-step")
    ways.run_killed("run, killed in mid-step itself")
    ways.run_killed_at("run, worker killed while it computes", 3, kill_while_it_computes)
    cut_short = ways.run_killed_at("run, worker killed while it commits", 1, kill_while_it_commits)
    assert cut_short, "the kill left no half checkpoint"
    ways.served("serve")
    ways.served_and_worker_killed("serve, worker killed in mid-step")
    ways.served_and_service_ended("serve, service killed and started again", signal.SIGKILL)
    ways.served_and_service_ended("serve, service stopped and started again", signal.SIGTERM)
    with capsys.disabled():
        print(f"\n{ways.table}")
    hashes = {sha256 for _, sha256, _ in ways.table.rows}
    assert len(hashes) == 1, f"the weights differ:\n{ways.table}"
    # The rows are worth something only if what they are named after did happen.
    fetch = {name: report["last"]["fetch"] for name, report in reports.items()}
    assert fetch["one in twenty requests fails"]["retries"] > 0
    assert fetch["one in twenty fails, not parallel"]["retries"] > 0
    assert fetch["spikes, hedged"]["hedges"] > 0
    assert fetch["spikes, not hedged"]["hedges"] == 0
    assert fetch["64 in flight"]["concurrency"] == 64
    assert refused["last"]["fetch"]["failures"]["overloaded"] > 0
    assert away["last"]["fetch"]["failures"]["connection"] > 0
    assert fetch["not parallel"]["concurrency"] == 1


# All cores and half precision are what a job gets when its spec says nothing.
@pytest.mark.parametrize(
    "changes",
    [
        {"/training/threads": 2},
        {"/student/dtype": "bf16"},
        {"/training/threads": 2, "/student/dtype": "bf16"},
        {"/training/gradient_groups": 2},
    ],
    ids=str,
)
def test_bits_do_not_depend_on_timing_with_threads_half_precision_and_groups(
    distilld, teacher, text_data, tmp_path, changes
):
    ways = Ways(distilld, teacher, text_data, tmp_path)
    ways.calm("parallel, jitter", changes, JITTER)
    ways.calm("64 in flight", {**changes, "/teacher/max_concurrent": 64}, None)
    ways.calm("serial optimizer", {**changes, "/training/overlap_optimizer": False}, None)
    ways.calm("not parallel", {**changes, "/training/parallel": False}, None)
    assert len({sha256 for _, sha256, _ in ways.table.rows}) == 1, str(ways.table)


def test_a_batch_size_that_was_probed_gives_the_bits_of_one_that_was_given(distilld, teacher, text_data, tmp_path):
    ways = Ways(distilld, teacher, text_data, tmp_path)
    ways.calm("auto", {"/training/batch_size": "auto", "/training/max_steps": 4}, None)
    [state] = (tmp_path / "auto" / "student" / "checkpoints").glob("*/state.json")
    identity = json.loads(json.loads(state.read_text())["spec"])
    batch_size = identity["spec"]["training"]["batch_size"]
    assert batch_size > 1
    ways.calm("given", {"/training/batch_size": batch_size, "/training/max_steps": 4}, None)
    assert len({sha256 for _, sha256, _ in ways.table.rows}) == 1, str(ways.table)


def test_the_comparison_can_fail(distilld, teacher, text_data, tmp_path):
    """Another seed, and the tiniest change of a step, give other bits: the hash sees what it is to see."""
    ways = Ways(distilld, teacher, text_data, tmp_path)
    ways.calm("as it is", {}, None)
    ways.calm("another seed", {"/training/seed": 43}, None)
    ways.calm("a step that is a little longer", {"/training/learning_rate": 2.0000001e-3}, None)
    ways.calm("gradients in two groups", {"/training/gradient_groups": 2}, None)
    assert len({sha256 for _, sha256, _ in ways.table.rows}) == 4, str(ways.table)
