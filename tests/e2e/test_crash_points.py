"""kill -9 of the service, of its workers and of both, at chosen points of a job: none is lost, doubled or trained
differently, and its history has neither gap nor contradiction.

CI takes 20 points; scripts/crash-test.sh takes 200 and more, and prints the table. DISTILLD_CRASH_POINTS says how many,
DISTILLD_CRASH_SEED chooses other points; the seed is printed, so that a run that found something can be taken again.
All limits are the service's defaults.

What must hold, whatever was killed when:

- The service lists each job that it took once, and takes none twice (asked again with its Idempotency-Key).
- Each job succeeds. The weights it exports have the hash of a run that nobody disturbed.
- The numbers of its events are 1, 2, 3 … to the last, which says that it succeeded; nothing else says so.
- A step that is done again from a checkpoint is done as before: each figure of a step in the history is that of the
  undisturbed run, bit by bit, however often the step was reported. The metrics file of the run has each step once.
"""

import collections
import itertools
import json
import os
import random
import re
import signal
import time

from support import jobs, moments
from support.moments import kill
from support.processes import children_of, wait_until
from support.rest import Rest

POINTS = int(os.environ.get("DISTILLD_CRASH_POINTS", "20"))
SEED = int(os.environ.get("DISTILLD_CRASH_SEED", "1"))
STEPS = 24
SEEDS = (11, 12)  # of the jobs of a round
FIGURES = ("loss", "kd_loss", "ce_loss", "grad_norm", "learning_rate")
# By default a job whose worker dies more often than this in a row without progress has failed, as it should.
MAX_RESTARTS = 3
# How long a point is waited for, and how often. Where it does not come, the blow falls between steps, and is counted as
# missed.
PATIENCE = 8.0
TRIES = 6

# Where a blow falls: at the start of what is hit, between steps, while a checkpoint or the export is written, and while
# no worker is there.
PHASES = ("start", "steps", "checkpoint", "export")
ALLOWED = {("queued", "queued"), ("queued", "running"), ("running", "queued"), ("running", "succeeded")}
VICTIMS = ("worker", "service", "both")
KINDS = [*itertools.product(PHASES, VICTIMS), ("between", "service")]


def points(count, source):
    """Every kind of point as often as every other, in a random order."""
    chosen = [KINDS[i % len(KINDS)] for i in range(count)]
    source.shuffle(chosen)
    return chosen


class Storm:
    """One service after the other over one data folder, and what was asked of them."""

    def __init__(self, distilld, teacher, data, folder):
        self.distilld = distilld
        self.teacher = teacher
        self.data = data
        self.folder = folder
        self.random = random.Random(SEED)
        self.hits = collections.Counter()
        self.missed = collections.Counter()
        self.jobs = {}  # id: (seed, file of the spec, key)
        self.ended = set()
        self.seen = set()  # workers
        self.workers = {}  # that has the output folder
        self.start()

    def start(self):
        self.process = self.distilld.service(self.folder / "data", "--slots", "2")
        self.rest = Rest(self.process.url)

    def spec(self, seed, output):
        spec = jobs.distil_spec(self.data, output, self.teacher.url, STEPS)
        changes = {
            "/training/seed": seed,
            "/checkpoint/every_steps": 3,
            "/dataset/eval": str(self.data),
            "/metrics/jsonl_file": str(output) + ".jsonl",
        }
        return jobs.write_spec(self.folder / f"{output.name}.json", jobs.changed(spec, changes))

    def expected(self):
        """Of the undisturbed runs, by seed: hash of the weights and figures of each step."""
        outputs = {seed: self.folder / f"calm-{seed}" for seed in SEEDS}
        running = [self.distilld.start("run", self.spec(seed, output)) for seed, output in outputs.items()]
        for process in running:
            process.expect(0)
        return {
            seed: (jobs.sha256(output / "model.safetensors"), figures_of_file(str(output) + ".jsonl"))
            for seed, output in outputs.items()
        }

    def submit(self, file, key):
        return self.rest.post("/v1/jobs", file.read_bytes(), headers={"Idempotency-Key": key})

    def submit_round(self):
        for seed in SEEDS:
            key = f"job-{len(self.jobs)}"
            file = self.spec(seed, self.folder / key)
            answer = self.submit(file, key)
            assert answer.status == 201, answer.text
            self.jobs[answer.json["id"]] = (seed, file, key)

    def listed(self):
        found = []
        while True:
            after = f"&after={found[-1]['id']}" if found else ""
            page = self.rest.get(f"/v1/jobs?limit=100{after}").json
            found += page["data"]
            if not page["has_more"]:
                return found

    def unfinished(self):
        """Asked of few: what a blow waits for would be over by the time that hundreds of jobs are listed."""
        found = [self.rest.job(job_id) for job_id in self.jobs if job_id not in self.ended]
        assert not [job for job in found if job["state"] in ("failed", "cancelled")], found
        self.ended |= {job["id"] for job in found if job["terminal"]}
        return [job for job in found if not job["terminal"]]

    def events(self, job_id):
        records = []
        while True:
            after = records[-1]["sequence"] if records else 0
            page = self.rest.get(f"/v1/jobs/{job_id}/events?limit=1000&after={after}").json
            records += page["data"]
            if not page["has_more"]:
                return records

    def is_spared(self, job_id):
        """One more death in a row without progress might be the one after which it has failed."""
        numbers = [re.search(r"; restart (\d+) of 3 ", record["message"]) for record in self.events(job_id)]
        return max([int(number.group(1)) for number in numbers[-6:] if number], default=0) >= MAX_RESTARTS - 1

    # --- the points ---

    def wait_for(self, condition, pause=0.002):
        """Its first true value; None where it does not come in time, or not before the jobs' end."""
        deadline = time.monotonic() + PATIENCE
        look_again = time.monotonic() + 1
        while (now := time.monotonic()) < deadline:
            if value := condition():
                return value
            if now > look_again and not self.unfinished():
                return None
            look_again = now + 1 if now > look_again else look_again
            time.sleep(pause)
        return None

    def outputs(self):
        return {job_id: self.folder / key for job_id, (_, _, key) in self.jobs.items()}

    def worker_of(self, output):
        """The worker that has the lock of the folder."""
        for worker in children_of(self.process.pid):
            try:
                opened = [os.readlink(entry.path) for entry in os.scandir(f"/proc/{worker}/fd")]
            except OSError:
                continue
            if any(name.startswith(f"{output}/") for name in opened):
                return worker
        return None

    def new_worker(self):
        fresh = [worker for worker in children_of(self.process.pid) if worker not in self.seen]
        return fresh[0] if fresh else None

    def stepping(self):
        running = [job for job in self.unfinished() if job["state"] == "running" and job["progress"]]
        if not running:
            return None
        return self.worker_of(self.outputs()[self.random.choice(running)["id"]])

    def known_worker(self, output):
        """Looked for beforehand: a checkpoint is written faster than a process is found."""
        if output not in self.workers or not moments.alive(self.workers[output]):
            found = self.worker_of(output)
            if found is None:
                return None
            self.workers[output] = found
        return self.workers[output]

    def committing(self):
        for output in self.active_outputs:
            worker = self.known_worker(output)
            if worker and moments.is_committing(output / "checkpoints"):
                return worker
        return None

    def exporting(self):
        for output in self.active_outputs:
            owner = output / "distilld.json"
            worker = self.known_worker(output)
            try:
                if worker and json.loads(owner.read_text()).get("weights_sha256", "") == "":
                    return worker
            except (OSError, ValueError):
                continue
        return None

    def idle(self):
        return not children_of(self.process.pid)

    def find(self, phase):
        """Waits for a job at that point: its worker, True where there is to be none, None if the point did not come."""
        unfinished = {job["id"] for job in self.unfinished()}
        self.active_outputs = [output for job_id, output in self.outputs().items() if job_id in unfinished]
        look = {"start": self.new_worker, "steps": self.stepping, "checkpoint": self.committing}
        look.update({"export": self.exporting, "between": self.idle})
        found = self.wait_for(look[phase], 0.05 if phase == "steps" else 0.002)
        # What is stopped at no instant of its own is hit at any.
        if phase in ("start", "steps"):
            time.sleep(self.random.uniform(0, 0.6 if phase == "start" else 0.3))
        return found

    def may_kill_a_worker(self):
        running = [job["id"] for job in self.unfinished() if job["state"] == "running"]
        return not any(self.is_spared(job_id) for job_id in running)

    def kill_service(self, early):
        kill(self.process.pid)
        self.process.wait()
        if early:  # and once more, as soon as it has begun
            process = self.distilld.start("serve", "--listen", "127.0.0.1:0", "--data-dir", self.folder / "data")
            time.sleep(self.random.uniform(0, 0.25))
            hit(process.pid)
            process.wait()

    def strike(self, phase, victim, tries):
        """Whether the blow fell. Where the point does not come it falls between steps, after some tries."""
        if victim == "worker":  # asked now: when the point has come there is no time for it
            wait_until(self.may_kill_a_worker, "progress after a restart", pause=0.05)
        worker = None
        if (phase, victim) != ("start", "service"):
            found = self.find(phase if tries <= TRIES else "steps")
            if found is None:
                return False
            worker = found if phase != "between" else None
        if victim == "both":
            # At once, as a power cut has it: neither sees the other's end first.
            os.kill(self.process.pid, signal.SIGSTOP)
            hit(worker)
        if victim == "worker":
            if not hit(worker):
                return False
        else:
            self.kill_service(early=phase == "start" and victim == "service")
            self.start()
            # Who does not know whether a job was taken asks again, and gets no second one.
            job_id, (_, file, key) = self.random.choice(list(self.jobs.items()))
            answer = self.submit(file, key)
            assert (answer.status, answer.json["id"]) == (200, job_id), answer.text
        self.hits[f"{victim} at {phase}"] += 1
        if tries > TRIES:
            self.missed[phase] += 1
        return True

    def attempt(self, phase, victim, tries):
        if phase == "between":
            wait_until(lambda: not self.unfinished(), "all jobs to end", pause=0.05, seconds=300)
        elif not self.unfinished():
            self.submit_round()
        if phase == "start" and victim != "service":
            self.seen = set(children_of(self.process.pid))
            if len(self.unfinished()) <= len(self.seen):
                self.submit_round()  # so that there will be a new worker
        return self.strike(phase, victim, tries)

    def rage(self, count):
        for phase, victim in points(count, self.random):
            began, tries = time.monotonic(), 1
            while not self.attempt(phase, victim, tries):
                assert time.monotonic() < began + 300, f"in {tries} tries there was no {victim} to kill at {phase}"
                tries += 1
        wait_until(lambda: not self.unfinished(), "all jobs to end", pause=0.1, seconds=300)

    def check(self, job_id, expected):
        seed, file, _ = self.jobs[job_id]
        weights, figures = expected[seed]
        job = self.rest.job(job_id)
        assert job["state"] == "succeeded", job["status_reason"]
        progress = job["progress"]
        assert progress["step"] == progress["total_steps"] == STEPS, progress
        assert (job["eval_loss"] or 0) > 0, job
        assert job["weights_sha256"] == weights, f"{job_id}: the weights differ"
        output = self.folder / file.stem
        assert jobs.sha256(output / "model.safetensors") == weights
        records = self.events(job_id)
        assert [record["sequence"] for record in records] == list(range(1, len(records) + 1))
        states = [record["data"]["state"] for record in records if record["type"] == "state"]
        assert states.count("succeeded") == 1
        assert records[-1]["data"].get("state") == "succeeded"
        check_states(states)
        for record in records:
            if record["type"] == "metrics":
                step = record["data"]["step"]
                assert {name: record["data"][name] for name in FIGURES} == figures[step], f"{job_id}: step {step}"
        assert figures_of_file(str(output) + ".jsonl") == figures, f"{job_id}: its metrics file"
        return states.count("running"), len(records)


def hit(pid):
    try:
        kill(pid)
    except ProcessLookupError:
        return False  # it was at its end, and the blow hit nobody
    return True


def check_states(states):
    """A job is started from the queue only; what follows a run is the queue, or its end."""
    assert states[0] == "queued"
    for before, after in itertools.pairwise(states):
        assert (before, after) in ALLOWED, states


def figures_of_file(path):
    """{step: figures} of a metrics file, in which each step stands once."""
    with open(path) as file:
        lines = [json.loads(line) for line in file]
    steps = [line for line in lines if line["kind"] == "step"]
    assert [line["step"] for line in steps] == list(range(1, STEPS + 1)), path
    return {line["step"]: {name: line[name] for name in FIGURES} for line in steps}


def test_kills_at_every_point_lose_double_and_change_nothing(distilld, teacher, text_data, tmp_path, capsys):
    with capsys.disabled():
        print(f"\nseed {SEED}, {POINTS} points", end=" ", flush=True)
    storm = Storm(distilld, teacher, text_data, tmp_path)
    expected = storm.expected()
    assert len({weights for weights, _ in expected.values()}) == len(SEEDS), "the hash sees what it is to see"
    storm.submit_round()
    began = time.monotonic()
    storm.rage(POINTS)
    seconds = time.monotonic() - began
    listed = [job["id"] for job in storm.listed()]
    assert sorted(listed) == sorted(storm.jobs)
    rows = [(job_id, *storm.check(job_id, expected)) for job_id in storm.jobs]
    assert storm.hits.total() == POINTS
    assert storm.missed.total() <= POINTS // 4, storm.missed
    with capsys.disabled():
        print(f"in {seconds:.0f} s; {len(rows)} jobs; points that did not come: {dict(storm.missed) or 'none'}")
        for kind, count in sorted(storm.hits.items()):
            print(f"{count:5}  {kind}")
        if POINTS > 20:
            print(f"{'job':30}  seed  runs  events  sha256 of the weights")
            for job_id, runs, records in rows:
                seed = storm.jobs[job_id][0]
                print(f"{job_id:30}  {seed:4}  {runs:4}  {records:6}  {expected[seed][0][:16]}")
