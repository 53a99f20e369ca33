"""A cluster for bench/cluster_scale.py: Slurm's commands as small shell scripts on a folder, and a relay per running
job, all in this process, so that they cost the service's machine little."""

import asyncio
import json
import pathlib
import re
import time

import aiohttp

LOOK_SECONDS = 0.2
FRAME_LIMIT = 1 << 25

# What the commands do.
COMMANDS = {
    "squeue": 'exec cat "$folder/queue"',
    "sinfo": 'exec cat "$folder/nodes"',
    "scontrol": """for id; do :; done
[ -f "$folder/jobs/$id" ] && exec cat "$folder/jobs/$id"
echo 'slurm_load_jobs error: Invalid job id specified' >&2
exit 1""",
    "scancel": """for id; do :; done
: > "$folder/cancelled/$id\"""",
    "sbatch": """for word; do case $word in --job-name=*) name=${word#--job-name=};; esac; done
id=$(date +%s%N)
{ echo "$name"; cat; } > "$folder/submitted/$id.part"
mv "$folder/submitted/$id.part" "$folder/submitted/$id"
echo "$id\"""",
}


def progress_of(step):
    """As large as that of a job with one endpoint."""
    stages = ["plan", "teacher", "decode", "staging", "student", "optimizer", "recorder"]
    times = {"busy_seconds": 12.25, "wait_input_seconds": 3.5, "wait_output_seconds": 0.125}
    endpoint = {"endpoint": "http://teacher-1:8000", "in_flight": 8, "limit": 8, "outcomes": {"success": step}}
    counts = {"requests": step, "completed": step, "concurrency": 8, "window": 32, "in_flight": 8, "buffered": 4}
    queues = [{"stage": name, "items": 2, "capacity": 4} for name in stages]
    usage = {"resident_bytes": 1 << 30, "peak_resident_bytes": 1 << 30, "cpu_seconds": 99.5, "open_files": 40}
    return {
        **{"type": "progress", "step": step, "total_steps": 10_000_000, "loss": 2.5, "kd_loss": 2.5, "ce_loss": 2.5},
        **{"grad_norm": 1.5, "learning_rate": 1e-4, "tokens": step * 2048, "tokens_per_second": 2048.5},
        **{"stages": [{"stage": name, **times} for name in stages], "bottleneck": "student"},
        **{"fetch": {**counts, "endpoints": [endpoint]}, "measures": {"queues": queues, "usage": usage}},
    }


class Relay:
    """Speaks for a worker, as `distilld attempt` does (server/protocol/numbered_link.hpp)."""

    def __init__(self, slurm, service, token):
        self.slurm = slurm
        self.service = service
        self.token = token
        self.number = 0
        self.connected = False

    async def run(self, session):
        url = f"{self.service}/v1/attempts/channel"
        headers = {"Authorization": f"Bearer {self.token}"}
        async with session.ws_connect(url, headers=headers, max_msg_size=FRAME_LIMIT) as link:
            greeting = json.loads(await link.receive_str())
            await link.send_str(json.dumps({**greeting, "received": 0}) + "\n")
            header = json.loads((await link.receive_str()).partition("\n")[0])
            await link.send_str(json.dumps({"type": "ack", "number": header["number"]}) + "\n")
            self.connected = True
            working = asyncio.create_task(self.work(link))
            async for _ in link:
                pass  # acknowledgements
            working.cancel()
        self.connected = False

    async def say(self, link, message):
        self.number += 1
        self.slurm.sent += 1
        await link.send_str(json.dumps({"type": "message", "number": self.number}) + "\n" + json.dumps(message) + "\n")

    async def work(self, link):
        await self.say(link, {"type": "started", "total_steps": 10_000_000, "batch_size": 8, "dtype": "fp32"})
        began = time.monotonic()
        step = 0
        while not self.slurm.job_seconds or time.monotonic() < began + self.slurm.job_seconds:
            step += 1
            await self.say(link, progress_of(step))
            await asyncio.sleep(1 / self.slurm.progress_per_second)
        last = progress_of(step)
        await self.say(link, {"type": "finished", "last": last, "output": "/o", "weights_sha256": "0" * 64})
        await self.say(link, {"type": "end", "exit_code": 0})


class SimulatedSlurm:
    def __init__(self, folder, nodes, job_seconds, progress_per_second):
        self.folder = folder
        self.job_seconds = job_seconds
        self.progress_per_second = progress_per_second
        self.commands = folder / "bin"
        self.free = [f"n{number}" for number in range(1, nodes + 1)]
        self.waiting = []  # (id, name, service, token file)
        self.running = {}  # id: (name, node, relay, task)
        self.gone = {}  # id: (name, state)
        self.sent = 0
        self.ended = 0
        for name in ("bin", "jobs", "submitted", "cancelled"):
            (folder / name).mkdir(parents=True)
        for name, text in COMMANDS.items():
            program = self.commands / name
            program.write_text(f"#!/bin/sh\nfolder='{folder}'\n{text}\n")
            program.chmod(0o755)
        self.write("nodes", "".join(f"{name}|idle|16|64000|(null)\n" for name in self.free))
        self.write("queue", "")

    def write(self, name, text):
        part = self.folder / f"{name}.part"
        part.write_text(text)
        part.rename(self.folder / name)

    def connected(self):
        return sum(relay.connected for _, _, relay, _ in self.running.values())

    async def run(self):
        async with aiohttp.ClientSession() as session:
            try:
                while True:
                    self.look(session)
                    await asyncio.sleep(LOOK_SECONDS)
            finally:
                for *_, task in self.running.values():
                    task.cancel()

    def look(self, session):
        """Takes what came, starts what fits, and writes the list."""
        for file in sorted(self.folder.glob("submitted/*")):
            if file.suffix != ".part":
                self.waiting.append((file.name, *self.read_script(file.read_text())))
                file.unlink()
        for file in self.folder.glob("cancelled/*"):
            self.cancel(file.name)
            file.unlink()
        while self.free and self.waiting:
            job, name, service, token = self.waiting.pop(0)
            relay = Relay(self, service, pathlib.Path(token).read_text().strip())
            task = asyncio.create_task(relay.run(session))
            task.add_done_callback(lambda _, job=job: self.end(job, "COMPLETED"))
            self.running[job] = (name, self.free.pop(0), relay, task)
        self.write("queue", "".join(self.lines()))

    @staticmethod
    def read_script(text):
        name, _, script = text.partition("\n")
        service = re.search(r"--service '?([^' \n]+)", script).group(1)
        return name, service, re.search(r"--token-file '?([^' \n]+)", script).group(1)

    def lines(self):
        for job, (name, node, _, _) in self.running.items():
            yield f"{job}|RUNNING|{node}|None|{name}\n"
        for job, name, _, _ in self.waiting:
            yield f"{job}|PENDING||Resources|{name}\n"
        for job, (name, state) in list(self.gone.items())[-100:]:
            yield f"{job}|{state}||None|{name}\n"

    def cancel(self, job):
        if job in self.running:
            self.running[job][3].cancel()
        self.waiting = [one for one in self.waiting if one[0] != job]

    def end(self, job, state):
        name, node, _, task = self.running.pop(job)
        if not task.cancelled() and task.exception():
            print(f"simulated Slurm: {name}: {task.exception()!r}", flush=True)
            state = "FAILED"
        self.free.append(node)
        self.gone[job] = (name, state)
        self.ended += 1
        (self.folder / "jobs" / job).write_text(f"JobId={job} JobName={name} JobState={state} ExitCode=0:0\n")
