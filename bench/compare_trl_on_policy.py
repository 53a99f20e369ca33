#!/usr/bin/env python3
"""Compares TRL's on-policy distillation with distilld's: prints a table, or one JSON object with --json.

All use the same student folder (LoRA), prompts, batch size, forward KL over the teacher's top k with its tail, and the
same vLLM server as teacher. Answers are written by generate() in TRL's process (ServerDistillationTrainer), by a second
vLLM server (AsyncDistillationTrainer, and distilld with --vllm-rollouts), or by `distilld teacher`. The figures are
completion tokens that took part in the loss per second, after the first steps, with the servers at hand and behind
proxies that hold back each answer. Rounds alternate. The first run installs TRL into .deps/trl and vLLM into .deps/vllm
(4.5 GB together).

    bench/compare_trl_on_policy.py [--rounds 3] [--steps 40] [--delay-ms 150] [--vllm-rollouts] [--json]
"""

import argparse
import contextlib
import functools
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import urllib.request

import compare_trl
from chaos_proxy import ChaosProxy, Script
from support import jobs
from support.processes import Programs

ROOT = pathlib.Path(__file__).resolve().parents[1]
BATCH_SIZE = 8
MAX_TOKENS = 32
PROMPT_CHARACTERS = 16
TOP_K = 16
RANK = 16
LEARNING_RATE = 1e-3
STALENESS = 4  # TRL's default, an upper bound
WARM_UP = 10  # first steps that do not count
PLACES = ("at_hand", "held_back")


class Servers:
    """Where to ask, in each of PLACES: the vLLM server of the teacher, and the two that write answers."""

    def __init__(self, stack, options, models, scratch):
        def vllm(name, *flags, **variables):
            server = compare_trl.Vllm(models[name], scratch / f"vllm-{name}.log", *flags, **variables)
            stack.callback(server.stop)
            return server.url

        programs = Programs(options.bin, scratch)
        stack.callback(programs.stop_all)
        # As TRL's documentation of AsyncDistillationTrainer starts them.
        teacher = vllm("teacher", "--logprobs-mode", "processed_logprobs", "--max-logprobs", "-1")
        lora = ["--enable-lora", "--max-loras", str(STALENESS + 2), "--max-lora-rank", str(RANK)]
        dev = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "VLLM_SERVER_DEV_MODE": "1"}
        writer = vllm("student", "--served-model-name", "base", *lora, **dev)
        ours = programs.teacher(models["student"], "--dtype", "fp32", "--model-name", "base").url
        near = {"teacher": teacher, "vllm": writer, "distilld": ours}
        script = Script(delay=options.delay_ms / 1000)
        far = {name: stack.enter_context(ChaosProxy(url, script)).url for name, url in near.items()}
        self.urls = dict(zip(PLACES, (near, far), strict=True))


def rate(steps, seconds):
    """Tokens per second of the steps after the first ones; seconds: when each step ended."""
    if len(steps) <= WARM_UP:
        sys.exit(f"compare_trl_on_policy: {len(steps)} steps are too few for a figure")
    return sum(steps[WARM_UP:]) / (seconds[-1] - seconds[WARM_UP - 1])


def unload_adapters(url):
    """TRL leaves its last ones on the server, and would load others by the same names."""
    with urllib.request.urlopen(f"{url}/v1/models") as answer:
        names = [model["id"] for model in json.load(answer)["data"]]
    for name in names[1:]:
        body = json.dumps({"lora_name": name}).encode()
        headers = {"Content-Type": "application/json"}
        urllib.request.urlopen(urllib.request.Request(f"{url}/v1/unload_lora_adapter", body, headers)).close()


def run_trl(trainer, urls, models, folder, options):
    unload_adapters(urls["vllm"])
    command = [compare_trl.python_with("trl"), ROOT / "bench" / "trl_on_policy_side.py", trainer]
    command += ["--student", models["student"], "--teacher", urls["teacher"], "--rollout", urls["vllm"]]
    command += ["--prompts", models["prompts"], "--scratch", folder, "--steps", options.steps]
    command += ["--seconds", options.seconds, "--batch-size", BATCH_SIZE, "--max-tokens", MAX_TOKENS, "--rank", RANK]
    command += ["--top-k", TOP_K, "--learning-rate", LEARNING_RATE, "--staleness", STALENESS]
    command = list(map(str, command))
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode != 0:
        sys.exit(done.stderr[-4000:])
    result = json.loads(done.stdout.splitlines()[-1])
    steps = result["steps"]
    speed = rate([step["tokens"] for step in steps], [step["seconds"] for step in steps])
    return {"tokens_per_second": speed, "last_loss": result["last_loss"]}


def run_distilld(writer, staleness, urls, models, folder, options):
    spec = {
        "student": {"model": str(models["student"]), "dtype": "fp32", "lora": {"r": RANK, "alpha": 2 * RANK}},
        "teacher": {"endpoints": [urls["teacher"]], "protocol": "vllm-generate", "top_k": TOP_K, "max_concurrent": 16},
        "rollout": {
            "endpoints": [urls[writer]],
            "prompts": str(models["prompts"]),
            "max_prompt_tokens": PROMPT_CHARACTERS,
            "max_tokens": MAX_TOKENS,
            "staleness": staleness,
        },
        "training": {
            "batch_size": BATCH_SIZE,
            "micro_batches": 1,
            "max_steps": options.steps,
            "learning_rate": LEARNING_RATE,
            "lr_scheduler_type": "constant",
            "threads": 1,
        },
        "metrics": {"jsonl_file": str(folder / "steps.jsonl")},
        "output": str(folder / "student"),
    }
    report = folder / "report.json"
    compare_trl.distilld(options.bin, spec, folder, "--report", report)
    lines = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
    steps = [line for line in lines if line["kind"] == "step"]
    last = json.loads(report.read_text())["last"]
    micro_batches = [json.loads(line) for line in (folder / "student" / "rollouts.jsonl").read_text().splitlines()[1:]]
    tokens = [sum(len(answer["ids"]) for answer in line["answers"]) for line in micro_batches]
    return {
        "tokens_per_second": rate(tokens, [step["time"] for step in steps]),
        "last_loss": statistics.mean(step["kd_loss"] for step in steps[-10:]),
        "bottleneck": last["bottleneck"],
        "busy": {stage["stage"]: stage["busy_seconds"] for stage in last["stages"]},
    }


def sides(options):
    found = {
        "TRL, generate()": lambda *rest: run_trl("server", *rest),
        f"TRL, asynchronous, staleness up to {STALENESS}": lambda *rest: run_trl("async", *rest),
    }
    for writer, place in [("distilld", ""), ("vllm", ", answers from vLLM")][: 2 if options.vllm_rollouts else 1]:
        for k in (0, 1, STALENESS):
            found[f"distilld, staleness {k}{place}"] = functools.partial(run_distilld, writer, k)
    return found


def make_models(options, scratch):
    texts = jobs.write_text_data(scratch / "texts.jsonl", 400)
    prompts = [{"prompt": line[:PROMPT_CHARACTERS]} for line in jobs.text_lines(400, seed=5)]
    return {
        "teacher": compare_trl.make_model(options.bin, texts, scratch / "teacher", hidden=64, layers=2, steps=60),
        "student": compare_trl.make_model(options.bin, texts, scratch / "student", hidden=128, layers=4, steps=1),
        "prompts": jobs.write_jsonl(scratch / "prompts.jsonl", prompts),
    }


def summary(results, theirs):
    """Medians, and the ratio to the faster of TRL's sides in the same round."""
    speeds = [result["tokens_per_second"] for result in results]
    found = {"tokens_per_second": statistics.median(speeds), "slowest": min(speeds), "fastest": max(speeds)}
    found["last_loss"] = statistics.median(result["last_loss"] for result in results)
    ratios = [ours / their for ours, their in zip(speeds, theirs, strict=True)]
    found |= {"ratio": statistics.median(ratios), "ratios": sorted(ratios)}
    if "bottleneck" in results[0]:
        found["bottleneck"] = statistics.mode(result["bottleneck"] for result in results)
        found["busy"] = results[len(results) // 2]["busy"]
    return found


def table(report):
    yield "| | at hand, tokens/s | ratio | held back, tokens/s | ratio | bottleneck |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for name in report["at_hand"]:
        near, far = (report[place][name] for place in PLACES)
        cells = [text for side in (near, far) for text in (f"{side['tokens_per_second']:,.0f}", f"{side['ratio']:.2f}")]
        bottleneck = " / ".join(dict.fromkeys(side.get("bottleneck", "–") for side in (near, far)))
        yield f"| {' | '.join([name, *cells, bottleneck])} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "release" / "bin")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=20, help="TRL ends after the step that passes them")
    parser.add_argument("--delay-ms", type=float, default=150)
    parser.add_argument("--vllm-rollouts", action="store_true", help="distilld with answers from vLLM, too")
    parser.add_argument("--json", action="store_true", help="print all figures as one JSON object")
    options = parser.parse_args()
    runs = sides(options)
    results = {}
    with tempfile.TemporaryDirectory(prefix="distilld-trl-") as scratch, contextlib.ExitStack() as stack:
        scratch = pathlib.Path(scratch)
        models = make_models(options, scratch)
        servers = Servers(stack, options, models, scratch)
        for round_number in range(options.rounds):
            for place in PLACES:
                for number, (name, run) in enumerate(list(runs.items())[:: 1 if round_number % 2 == 0 else -1]):
                    folder = scratch / f"{round_number}-{place}-{number}"
                    folder.mkdir()
                    found = run(servers.urls[place], models, folder, options)
                    results.setdefault((place, name), []).append(found)
                    print(f"{place}, {name}: {found['tokens_per_second']:,.0f} tokens/s", file=sys.stderr, flush=True)
    report = {"rounds": options.rounds, "steps": options.steps, "delay_ms": options.delay_ms}
    for place in PLACES:
        speeds = [[found["tokens_per_second"] for found in results[place, name]] for name in runs if "TRL" in name]
        theirs = [max(pair) for pair in zip(*speeds, strict=True)]
        report[place] = {name: summary(results[place, name], theirs) for name in runs}
    print(json.dumps(report) if options.json else "\n".join(table(report)))


if __name__ == "__main__":
    sys.exit(main())
