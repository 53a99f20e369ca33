#!/usr/bin/env python3
"""Measures a service under load: thousands of queued jobs, idle followers, polls while a job trains. Prints JSON.

    python3 bench/load.py [--bin build/release/bin] [--jobs 10000] [--clients 1000] [--rounds 5] [--seconds 10] \\
        [--threads 0]

Starts its own service with one slot, lets a small student train in it, and measures

- submitting `jobs` jobs, which wait: jobs per second, and the answer to one job above the limit,
- listing them all in pages of 100, and that the pages have each job once, the newest first,
- `clients` followers of their events without any news: all are answered and stay,
- the service's resident memory then (rss_mb, peak_rss_mb),
- the time of a status request while the other job trains (status_ms), 100 times per second,
- the cost of these polls for the training: tokens per second alternately with and without them, the service's CPU time
  and that of the client, which runs on the same machine.

Times mean little without the machine, so its load, its cores and what else ran are printed with them.
"""

import argparse
import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import resource
import signal
import socket
import statistics
import subprocess
import tempfile
import time

PAGE = 100
POLLS_PER_SECOND = 100
WORDS = "river house tree bird light road sea wind child king ship falls turns keeps finds breaks".split()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


class Service:
    """A `distilld serve` with a persistent connection to it."""

    def __init__(self, program, folder, *flags, listen="127.0.0.1:0", before=(), env=None):
        """`before`: a command that runs the program, and its arguments."""
        command = [*before, program, "serve", "--listen", listen, "--data-dir", folder / "data", *flags]
        self.log = open(folder / "service.log", "w")  # noqa: SIM115 (it is the process's)
        self.process = subprocess.Popen(
            [*map(str, command)], stdout=subprocess.PIPE, stderr=self.log, text=True, env=env
        )
        found = re.search(r"listening on http://(\S+):(\d+)", self.process.stdout.readline())
        self.address = (found.group(1), int(found.group(2)))
        self.connection = http.client.HTTPConnection(*self.address, timeout=60)

    def request(self, method, path, body=None):
        headers = {"Content-Type": "application/json"} if body is not None else {}
        self.connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = self.connection.getresponse()
        return answer.status, answer.headers, json.loads(answer.read())

    def get(self, path):
        status, _, body = self.request("GET", path)
        assert status == 200, (path, status, body)
        return body

    def submit(self, spec):
        status, _, job = self.request("POST", "/v1/jobs", spec)
        assert status == 201, (status, job)
        return job

    def metric(self, name):
        self.connection.request("GET", "/metrics")
        text = self.connection.getresponse().read().decode()
        return float(re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE).group(1))

    def memory(self):
        """Current and peak resident memory in MB (10^6 bytes)."""
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return [int(re.search(rf"{name}:\s+(\d+) kB", text).group(1)) * 1024 / 1e6 for name in ("VmRSS", "VmHWM")]

    def cpu_seconds(self):
        return cpu_seconds(self.process.pid)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def write_data(folder):
    source = random.Random(1)
    path = folder / "train.jsonl"
    lines = (" ".join(source.choice(WORDS) for _ in range(40)) for _ in range(2000))
    path.write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
    return path


def spec_of(data, output, name, threads=0):
    config = {
        "model_type": "llama",
        "vocab_size": 257,
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "max_position_embeddings": 128,
        "tie_word_embeddings": True,
    }
    return {
        "name": name,
        "student": {"init": "random", "config": config, "dtype": "fp32"},
        "dataset": {"train": str(data), "sequence_length": 128},
        "training": {
            "batch_size": 8,
            "micro_batches": 2,
            "max_steps": 10_000_000,
            "learning_rate": 1e-4,
            "threads": threads,
        },
        "output": str(output),
    }


def submit(service, data, folder, count):
    """Ids in the order of submission, and the answer to one more job."""
    specs = (spec_of(data, folder / f"out-{number}", f"job-{number}") for number in range(count))
    ids = [service.submit(spec)["id"] for spec in specs]
    status, headers, body = service.request("POST", "/v1/jobs", spec_of(data, folder / "one-more", "one-more"))
    return ids, {"status": status, "code": body["error"]["code"], "retry_after": headers.get("Retry-After")}


def list_all(service):
    """Ids, newest first, and the milliseconds per page."""
    ids, times = [], []
    while True:
        after = f"&after={ids[-1]}" if ids else ""
        began = time.perf_counter()
        page = service.get(f"/v1/jobs?limit={PAGE}{after}")
        times.append((time.perf_counter() - began) * 1e3)
        ids += [job["id"] for job in page["data"]]
        if not page["has_more"]:
            return ids, times


def follow(service, ids):
    """Sockets of followers after the beginning of their answer, one per job."""
    followers = []
    for job_id in ids:
        follower = socket.create_connection(service.address, timeout=30)
        head = f"GET /v1/jobs/{job_id}/events HTTP/1.1\r\nHost: {service.address[0]}:{service.address[1]}\r\n"
        follower.sendall(f"{head}Accept: text/event-stream\r\n\r\n".encode())
        followers.append(follower)
    statuses = [follower.recv(65536).split(b"\r\n", 1)[0].decode() for follower in followers]
    return followers, statuses


def still_there(followers):
    """The number of followers with an open stream; reads what they were sent."""
    count = 0
    for follower in followers:
        follower.setblocking(False)
        with contextlib.suppress(BlockingIOError, ConnectionError):
            while piece := follower.recv(65536):
                del piece
            count -= 1  # the end
        count += 1
    return count


class Poller:
    """Requests the state of one job over a persistent connection, with little work of its own, because it runs on the
    machine that trains."""

    def __init__(self, service, job_id):
        host, port = service.address
        self.socket = socket.create_connection(service.address, timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.request = f"GET /v1/jobs/{job_id} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()
        self.wanted = f'"id":"{job_id}"'.encode()

    def ask(self):
        self.socket.sendall(self.request)
        answer = self.socket.recv(1 << 16)
        end = answer.find(b"\r\n\r\n")
        while end < 0 or len(answer) < end + 4 + length_of(answer[:end]):
            piece = self.socket.recv(1 << 16)
            assert piece, "the service has closed the connection"
            answer += piece
            end = answer.find(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200 ") and self.wanted in answer, answer


def length_of(head):
    return int(re.search(rb"(?i)content-length: *(\d+)", head).group(1))


def poll(poller, seconds):
    """Requests the state at a steady pace; returns the milliseconds per answer."""
    times = []
    began = time.perf_counter()
    for number in range(int(seconds * POLLS_PER_SECOND)):
        time.sleep(max(0.0, began + number / POLLS_PER_SECOND - time.perf_counter()))
        asked = time.perf_counter()
        poller.ask()
        times.append((time.perf_counter() - asked) * 1e3)
    return times


def quantiles(times):
    times = sorted(times)
    at = lambda share: round(times[min(len(times) - 1, int(share * len(times)))], 3)  # noqa: E731
    return {"count": len(times), "median": at(0.5), "p99": at(0.99), "max": round(times[-1], 3)}


def cost_of_polls(service, job_id, rounds, seconds):
    """Tokens per second, alternately with and without polls, and the CPU time of each process."""
    rates = {"quiet": [], "polled": []}
    poller = Poller(service, job_id)
    times, served, asked = [], 0.0, 0.0
    for _ in range(rounds):
        for kind in ("quiet", "polled"):
            tokens = service.metric('distilld_tokens_total{role="student"}')
            began, cpu, own = time.perf_counter(), service.cpu_seconds(), time.process_time()
            if kind == "polled":
                times += poll(poller, seconds)
                served += service.cpu_seconds() - cpu
                asked += time.process_time() - own
            else:
                time.sleep(seconds)
                served -= service.cpu_seconds() - cpu  # its cost without polls
            elapsed = time.perf_counter() - began
            rates[kind].append((service.metric('distilld_tokens_total{role="student"}') - tokens) / elapsed)
    quiet, polled = (statistics.median(rates[kind]) for kind in ("quiet", "polled"))
    wall = rounds * seconds
    return {
        "status_ms": quantiles(times),
        "tokens_per_second": {kind: [round(rate) for rate in found] for kind, found in rates.items()},
        "tokens_per_second_lost": round(1 - polled / quiet, 4) if quiet else None,  # None: it did not train
        "service_share_of_a_core": round(served / wall, 4),
        "client_share_of_a_core": round(asked / wall, 4),
    }


def training_job(service, data, folder, threads):
    """The id of a running training job."""
    job = service.submit(spec_of(data, folder / "training", "training", threads))
    deadline = time.monotonic() + 120
    while not service.get(f"/v1/jobs/{job['id']}")["progress"]:
        assert time.monotonic() < deadline, "the job does not train"
        time.sleep(0.1)
    return job["id"]


def measure(options):
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    with tempfile.TemporaryDirectory(prefix="distilld-load-") as made:
        folder = pathlib.Path(made)
        data = write_data(folder)
        service = Service(options.bin / "distilld", folder, "--max-queued", options.jobs)
        try:
            return {**machine(), **measure_in(service, data, folder, options)}
        finally:
            service.stop()


def measure_in(service, data, folder, options):
    running = training_job(service, data, folder, options.threads)
    found = {"rss_mb_idle": round(service.memory()[0], 1)}
    began = time.perf_counter()
    ids, found["one_more"] = submit(service, data, folder, options.jobs)
    found["submitted"] = {"jobs": len(ids), "per_second": round(len(ids) / (time.perf_counter() - began), 1)}
    listed, times = list_all(service)
    found["listed"] = {
        "jobs": len(listed),
        "in_order": listed == [*reversed(ids), running],
        "page_ms": quantiles(times),
    }
    followers, statuses = follow(service, ids[: options.clients])
    time.sleep(options.hold)
    found["followers"] = {
        "asked": len(followers),
        "answered": statuses.count("HTTP/1.1 200 OK"),
        "still_there": still_there(followers),
    }
    found["rss_mb"], found["peak_rss_mb"] = (round(value, 1) for value in service.memory())
    found.update(cost_of_polls(service, running, options.rounds, options.seconds))
    service.request("POST", f"/v1/jobs/{running}/cancel")
    for follower in followers:
        follower.close()
    return found


def machine():
    load = " ".join(pathlib.Path("/proc/loadavg").read_text().split()[:3])
    return {"cores": os.cpu_count(), "load_before": load}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    root = pathlib.Path(__file__).resolve().parents[1]
    parser.add_argument("--bin", type=pathlib.Path, default=root / "build" / "release" / "bin")
    parser.add_argument("--jobs", type=int, default=10000, help="that wait")
    parser.add_argument("--clients", type=int, default=1000, help="that follow events; at most as many as jobs")
    parser.add_argument("--hold", type=float, default=12, help="seconds for which they are held: past a heartbeat")
    parser.add_argument("--rounds", type=int, default=5, help="of polls and none")
    parser.add_argument("--seconds", type=float, default=10, help="of each half of a round")
    parser.add_argument("--threads", type=int, default=0, help="that train; 0 = all cores of the slot")
    print(json.dumps(measure(parser.parse_args()), indent=1))


if __name__ == "__main__":
    main()
