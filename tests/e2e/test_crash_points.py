"""kill -9 of the service and of its workers, at random moments: no job is lost, doubled or trained differently.

The whole storm is one command, which prints its table:

    DISTILLD_STORM_KILLS=100 python -m pytest tests/e2e/test_kill_storm.py -q

DISTILLD_STORM_SEED chooses other moments. All limits are the service's defaults.
"""

import collections
import os
import random
import re
import time

from support import jobs
from support.moments import kill
from support.processes import children_of, wait_until
from support.rest import Rest

KILLS = int(os.environ.get("DISTILLD_STORM_KILLS", "8"))
SEED = int(os.environ.get("DISTILLD_STORM_SEED", "1"))
STEPS = 30
SEEDS = (11, 12, 13)  # of the jobs of a round
LONGEST_PAUSE = 2.0
# By default a job whose worker dies more often than this in a row without progress has failed, as it should.
MAX_RESTARTS = 3


class Storm:
    """One service after the other over one data folder, and what was asked of them."""

    def __init__(self, distilld, teacher, data, folder):
        self.distilld = distilld
        self.teacher = teacher
        self.data = data
        self.folder = folder
        self.random = random.Random(SEED)
        self.kills = collections.Counter()
        self.jobs = {}  # id: (seed, file of the spec, key)
        self.start()

    def start(self):
        self.process = self.distilld.service(self.folder / "data", "--slots", "2")
        self.rest = Rest(self.process.url)

    def spec(self, seed, output):
        spec = jobs.distil_spec(self.data, output, self.teacher.url, STEPS)
        changes = {"/training/seed": seed, "/checkpoint/every_steps": 4, "/dataset/eval": str(self.data)}
        return jobs.write_spec(self.folder / f"{output.name}.json", jobs.changed(spec, changes))

    def expected(self):
        """Hashes of the undisturbed runs, by seed."""
        hashes = {}
        for seed in SEEDS:
            output = self.folder / f"calm-{seed}"
            self.distilld.run("run", self.spec(seed, output))
            hashes[seed] = jobs.sha256(output / "model.safetensors")
        return hashes

    def submit(self, seed, file, key):
        return self.rest.post("/v1/jobs", file.read_bytes(), headers={"Idempotency-Key": key})

    def submit_round(self):
        for seed in SEEDS:
            key = f"job-{len(self.jobs)}"
            file = self.spec(seed, self.folder / key)
            answer = self.submit(seed, file, key)
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
        found = self.listed()
        assert not [job for job in found if job["state"] in ("failed", "cancelled")], found
        return [job for job in found if not job["terminal"]]

    def last_restart(self, job_id):
        """How often in a row the job's worker died, as the newest restart says."""
        records = self.events(job_id)
        numbers = [re.search(r"; restart (\d+) of 3 ", record["message"]) for record in records]
        return max([int(number.group(1)) for number in numbers[-6:] if number], default=0)

    def strike(self):
        time.sleep(self.random.uniform(0, LONGEST_PAUSE))
        running = [job for job in self.unfinished() if job["state"] == "running"]
        workers = children_of(self.process.pid)
        spared = any(self.last_restart(job["id"]) >= MAX_RESTARTS - 1 for job in running)
        if workers and not spared and self.random.random() < 0.6:
            try:
                kill(self.random.choice(workers))
            except ProcessLookupError:
                return  # it was at its end, and the blow hit nobody
            self.kills["worker"] += 1
            return
        kill(self.process.pid)
        self.process.wait()
        self.kills["service"] += 1
        self.start()
        # Who does not know whether a job was taken asks again, and gets no second one.
        job_id, (seed, file, key) = self.random.choice(list(self.jobs.items()))
        answer = self.submit(seed, file, key)
        assert (answer.status, answer.json["id"]) == (200, job_id), answer.text

    def rage(self, kills):
        while self.kills.total() < kills:
            if len(self.unfinished()) < 2:
                self.submit_round()
            self.strike()
        wait_until(lambda: not self.unfinished(), "all jobs to end", pause=0.2, seconds=300)

    def events(self, job_id):
        records = []
        while True:
            after = records[-1]["sequence"] if records else 0
            page = self.rest.get(f"/v1/jobs/{job_id}/events?limit=1000&after={after}").json
            records += page["data"]
            if not page["has_more"]:
                return records

    def check(self, job_id, expected):
        seed, file, _ = self.jobs[job_id]
        job = self.rest.job(job_id)
        assert job["state"] == "succeeded", job["status_reason"]
        progress = job["progress"]
        assert progress["step"] == progress["total_steps"] == STEPS, progress
        assert progress["loss"] > 0, progress
        assert (job["eval_loss"] or 0) > 0, job
        assert job["weights_sha256"] == expected[seed], f"{job_id}: the weights differ"
        assert jobs.sha256(self.folder / file.stem / "model.safetensors") == expected[seed]
        records = self.events(job_id)
        assert [record["sequence"] for record in records] == list(range(1, len(records) + 1))
        states = [record["data"]["state"] for record in records if record["type"] == "state"]
        assert states.count("succeeded") == 1
        assert states[-1] == "succeeded"
        assert records[-1]["data"].get("state") == "succeeded"
        return states.count("running"), len(records)


def test_a_storm_of_kills_loses_doubles_and_changes_nothing(distilld, teacher, text_data, tmp_path, capsys):
    storm = Storm(distilld, teacher, text_data, tmp_path)
    expected = storm.expected()
    storm.submit_round()
    began = time.monotonic()
    storm.rage(KILLS)
    listed = [job["id"] for job in storm.listed()]
    assert sorted(listed) == sorted(storm.jobs)
    rows = [(job_id, *storm.check(job_id, expected)) for job_id in storm.jobs]
    with capsys.disabled():
        print(f"\n{storm.kills['service']} kills of the service, {storm.kills['worker']} of workers", end="")
        print(f" in {time.monotonic() - began:.0f} s; {len(rows)} jobs")
        print(f"{'job':30}  seed  runs  events  sha256 of the weights")
        for job_id, runs, records in rows:
            seed = storm.jobs[job_id][0]
            print(f"{job_id:30}  {seed:4}  {runs:4}  {records:6}  {expected[seed][:16]}")
    assert len(set(expected.values())) == len(SEEDS), "the hash sees what it is to see"
