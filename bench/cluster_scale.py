#!/usr/bin/env python3
"""Measures a service whose jobs run on a cluster: many wait, 64 run on simulated nodes. Prints JSON.

    .deps/venv/bin/python bench/cluster_scale.py [--bin build/release/bin] [--jobs 1000] [--nodes 64] [--seconds 60] \\
        [--job-seconds 0] [--progress-per-second 1]

Starts its own service with Slurm's commands replaced by small programs (bench/simulated_slurm.py), and for each running
job a relay that speaks the product's protocol over a WebSocket with the token of its attempt. When all nodes are busy,
it measures for so many seconds

- the service's memory: resident (rss_mb), shared pages divided among their users (pss_mb), its own (anonymous_mb),
- its share of a core (service_share_of_a_core), and that of the commands which it runs (commands_share_of_a_core),
- messages of the relays and events in the histories per second.

With --job-seconds, each job ends after so long, and the next one starts.
"""

import argparse
import asyncio
import json
import os
import pathlib
import re
import shutil
import tempfile
import time

import load
from simulated_slurm import SimulatedSlurm

MILLION = 1e6


class ServiceOnSlurm(load.Service):
    def __init__(self, program, folder, commands):
        listen = f"127.0.0.1:{load.free_port()}"
        flags = ("--launcher", "slurm", "--launcher-url", f"http://{listen}")
        environment = {**os.environ, "PATH": f"{commands}:{os.environ['PATH']}"}
        super().__init__(program, folder, *flags, listen=listen, env=environment)

    def memory_parts(self):
        """Megabytes (10^6 bytes) by name."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        shares = pathlib.Path(f"/proc/{self.process.pid}/smaps_rollup").read_text()
        wanted = {"rss_mb": ("VmRSS", status), "pss_mb": ("Pss", shares), "anonymous_mb": ("RssAnon", status)}
        return {
            name: round(int(re.search(rf"^{key}:\s+(\d+) kB", text, re.MULTILINE).group(1)) * 1024 / MILLION, 1)
            for name, (key, text) in wanted.items()
        }

    def commands_seconds(self):
        """CPU time of the children that have ended."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def last_event(service, job):
    """The number of the newest event of the job's history."""
    events = service.get(f"/v1/jobs/{job}/events?order=desc&limit=1")["data"]
    return events[0]["sequence"] if events else 0


async def wait_until_busy(slurm, nodes):
    deadline = time.monotonic() + 120
    while slurm.connected() < nodes:
        assert time.monotonic() < deadline, f"{slurm.connected()} relays are connected"
        await asyncio.sleep(0.2)


def nodes_of(service, slurm):
    """The answer about nodes, once the newest list of Slurm is not older than the running jobs."""
    deadline = time.monotonic() + 30
    while True:
        listed = service.get("/v1/nodes")["data"]
        busy = sum(len(node["jobs"]) for node in listed)
        if busy >= slurm.connected() or time.monotonic() > deadline:
            return len(listed), busy
        time.sleep(0.5)


async def measure(service, slurm, ids, seconds):
    loop = asyncio.get_running_loop()
    count = lambda: sum(last_event(service, job) for job in ids)  # noqa: E731
    events = await loop.run_in_executor(None, count)
    began, cpu, commands, sent = time.perf_counter(), service.cpu_seconds(), service.commands_seconds(), slurm.sent
    ended = slurm.ended
    await asyncio.sleep(seconds)
    elapsed = time.perf_counter() - began
    found = {
        **service.memory_parts(),
        "service_share_of_a_core": round((service.cpu_seconds() - cpu) / elapsed, 4),
        "commands_share_of_a_core": round((service.commands_seconds() - commands) / elapsed, 4),
        "messages_per_second": round((slurm.sent - sent) / elapsed, 1),
        "jobs_ended_per_second": round((slurm.ended - ended) / elapsed, 2),
    }
    found["events_per_second"] = round((await loop.run_in_executor(None, count) - events) / elapsed, 1)
    return found


async def run(arguments, folder):
    data = load.write_data(folder)
    slurm = SimulatedSlurm(folder / "slurm", arguments.nodes, arguments.job_seconds, arguments.progress_per_second)
    service = ServiceOnSlurm(arguments.bin / "distilld", folder, slurm.commands)
    idle = service.memory_parts()
    running = asyncio.create_task(slurm.run())
    try:
        loop = asyncio.get_running_loop()
        count = arguments.jobs + arguments.nodes
        ids = await loop.run_in_executor(None, submit_all, service, data, folder, count)
        await wait_until_busy(slurm, arguments.nodes)
        found = await measure(service, slurm, ids, arguments.seconds)
        nodes, busy = await loop.run_in_executor(None, nodes_of, service, slurm)
        return {"cores": os.cpu_count(), "idle": idle, "jobs": count, "nodes": nodes, "busy": busy, **found}
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        service.stop()


def submit_all(service, data, folder, count):
    ids = []
    for number in range(count):
        spec = load.spec_of(data, folder / f"out-{number}", f"job-{number}", threads=1)
        ids.append(service.submit(spec)["id"])
    return ids


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/release/bin"))
    parser.add_argument("--jobs", type=int, default=1000, help="that wait")
    parser.add_argument("--nodes", type=int, default=64, help="with one running job each")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--job-seconds", type=float, default=0, help="0: no job ends")
    parser.add_argument("--progress-per-second", type=float, default=1, help="of each job")
    arguments = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="distilld-scale-"))
    try:
        print(json.dumps(asyncio.run(run(arguments, folder))))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
