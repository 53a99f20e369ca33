#!/usr/bin/env python3
"""Compares off-policy and on-policy distillation by the accuracy that a student reaches in equal time, on brackets.

    .deps/venv/bin/python scripts/on_policy_task.py [--trl] [--report FILE] [--svg FILE]

Trains a teacher that ends bracket words (scripts/on_policy_task_data.py), also after a wrong bracket, and a smaller
base that has begun to learn it. Each run trains an adapter on the base for as long, from the same few prompts. Adapters
that the run had after several times answer the same held-out prompts: an answer, drawn at temperature 1, is right if it
closes all brackets and has ended. With --trl, TRL's GKD and asynchronous distillation run as well
(bench/trl_on_policy_side.py); the first run installs TRL and vLLM into .deps (4.5 GB). Start, evaluation and TRL's
saving do not count.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

import on_policy_task_data as brackets
import recipes

ROOT = pathlib.Path(__file__).resolve().parents[1]
for folder in ("tools", "bench"):
    sys.path.insert(0, str(ROOT / folder))
import learning_curve  # noqa: E402

FULL = {"teacher": 96, "base": 64, "layers": 2, "steps": 3000, "base_steps": 500, "prompts": 256, "held_out": 256}
FULL |= {"seconds": 60, "every": 10, "run_steps": 1000000}
QUICK = {"teacher": 32, "base": 32, "layers": 1, "steps": 40, "base_steps": 10, "prompts": 32, "held_out": 16}
QUICK |= {"seconds": 60, "every": 1, "run_steps": 4}
MARKS = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0)  # shares of the time after which students are judged
SLIPS = 0.1  # share of wrong brackets in what the teacher reads of its lessons
BATCH_SIZE, RANK, LEARNING_RATE, TOP_K = 64, 16, 1e-3, 16
PATIENCE = 300

# name: (is on-policy, staleness, beta)
RUNS = {
    "off-policy": (False, 0, 0.0),
    "k = 0": (True, 0, 1.0),
    "k = 1": (True, 1, 1.0),
}
TRL_RUNS = {"TRL GKD": ("gkd", 1.0), "TRL asynchronous": ("async", 0.0)}  # the latter has forward KL alone
DRAWN = {"off-policy": "#8a8f98", "k = 0": "#9db8d9", "k = 1": "#c2571a", "TRL GKD": "#5b9a68"}
DRAWN |= {"TRL asynchronous": "#8c6bb1"}


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


class Task(recipes.Workshop):
    """The work folder with prompts, teacher and base."""

    def prepare(self):
        size = self.size
        self.held_out = brackets.examples(size["held_out"], seed=1)
        self.train = brackets.examples(size["prompts"], seed=2, besides=self.held_out)
        source = random.Random(3)
        known = [*self.held_out, *self.train]
        for name, count, share in (("teacher", 20000, SLIPS), ("base", 4000, 0.0)):
            lessons = brackets.examples(min(count, 16 * size["steps"]), seed=4, besides=known)
            rows = [brackets.with_slips(*lesson, share, source) for lesson in lessons]
            write(self.folder / f"{name}.jsonl", rows)
        write(self.folder / "prompts.jsonl", [{"prompt": asked} for asked, _ in self.train])
        self.make("teacher", size["teacher"], size["layers"] + 1, size["steps"])
        self.make("base", size["base"], size["layers"], size["base_steps"])
        with self.served("teacher") as url:
            answers = self.answers(url, "teacher", self.train)
        rows = [
            {"prompt": asked, "completion": text} for (asked, _), (text, _) in zip(self.train, answers, strict=True)
        ]
        write(self.folder / "rows.jsonl", rows)

    def make(self, name, hidden, layers, steps):
        config = {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": 257,
            "hidden_size": hidden,
            "intermediate_size": 2 * hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": hidden // 32,
            "num_key_value_heads": hidden // 32,
            "max_position_embeddings": 128,
            "tie_word_embeddings": True,
        }
        job = {
            "student": {"init": "random", "config": config, "dtype": "fp32"},
            "dataset": {"train": f"{name}.jsonl", "sequence_length": 64, "packing": False},
            "training": {**recipes.training(steps, 32, 3e-3), "threads": 0, "logging_steps": 100, "eval_steps": 0},
        }
        self.needs(name, lambda: self.make_model(name, job))

    def answers(self, url, model, examples):
        """(text, whether it has ended) of an answer to each, drawn at temperature 1."""
        body = {
            "model": model,
            "prompt": [asked for asked, _ in examples],
            "max_tokens": brackets.MAX_ANSWER,
            "temperature": 1,
            "seed": 11,
        }
        choices = post(f"{url}/v1/completions", body)["choices"]
        return [(choice["text"], choice["finish_reason"] == "stop") for choice in choices]

    def accuracy(self, url, model):
        answers = self.answers(url, model, self.held_out)
        pairs = zip(answers, self.held_out, strict=True)
        return sum(ended and brackets.is_right(asked, text) for (text, ended), (asked, _) in pairs) / len(answers)

    def trained(self, name, spec):
        """[(seconds, adapter)] of a run of `seconds`."""
        place = self.folder / "runs" / name
        shutil.rmtree(place, ignore_errors=True)
        (place / "adapters").mkdir(parents=True)
        keep = 'cp -r "$0" "$1" && echo \'{"kept": 1}\''
        spec = {
            **spec,
            "eval": {
                "command": ["sh", "-c", keep, "{checkpoint}", str(place / "adapters" / "{step}")],
                "every_steps": self.size["every"],
            },
            "metrics": {"jsonl_file": str(place / "metrics.jsonl")},
            "output": str(place / "student"),
        }
        (place / "spec.json").write_text(json.dumps(spec, indent=2))
        with open(place / "log", "wb") as log:
            began = time.time()
            command = [self.programs / "distilld", "run", place / "spec.json"]
            process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)
            try:
                process.wait(self.size["seconds"])
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(PATIENCE)
                finally:
                    process.kill()
        if process.returncode not in (0, 130):
            sys.exit(f"on_policy_task: {name} has failed; its log is {place / 'log'}")
        with open(place / "metrics.jsonl", encoding="utf-8") as file:
            records = [json.loads(line) for line in file]
        ended = {str(record["step"]): record["time"] - began for record in records if record["kind"] == "step"}
        return kept(place / "adapters", ended)


def kept(folder, ended):
    """[(seconds, adapter)]; ended: when each step did."""
    found = [(ended[path.name], path) for path in folder.glob("*") if path.name in ended]
    return sorted(found)


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            text = answer.read()
    except urllib.error.HTTPError as error:
        sys.exit(f"on_policy_task: {url}: {error.read(2000).decode(errors='replace')}")
    return json.loads(text) if text.startswith(b"{") else None


def distilled(task, name, url):
    on_policy, staleness, beta = RUNS[name]
    spec = {
        "student": {"model": "base", "dtype": "fp32", "lora": {"r": RANK, "alpha": 2 * RANK}},
        "teacher": {"model_dir": "teacher", "dtype": "fp32", "threads": 1},
        "training": {
            "batch_size": BATCH_SIZE,
            "max_steps": task.size["run_steps"],
            "learning_rate": LEARNING_RATE,
            "lr_scheduler_type": "constant",
            "beta": beta,
            "threads": 1,
        },
    }
    if on_policy:
        lengths = {"max_prompt_tokens": brackets.MAX_BRACKETS + 1, "max_tokens": brackets.MAX_ANSWER}
        spec["rollout"] = {"endpoints": [url], "prompts": "prompts.jsonl", "staleness": staleness, **lengths}
    else:
        spec["dataset"] = {"train": "rows.jsonl", "sequence_length": 64, "packing": False}
    return task.trained(folder_name(name), spec)


def folder_name(name):
    return "".join(letter if letter.isalnum() else "-" for letter in name)


def by_trl(task, name):
    import compare_trl

    trainer, beta = TRL_RUNS[name]
    place = task.folder / "runs" / folder_name(name)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    command = [compare_trl.python_with("trl"), ROOT / "bench/trl_on_policy_side.py", trainer]
    command += ["--student", task.folder / "base", "--prompts", task.folder / "prompts.jsonl", "--scratch", place]
    command += ["--steps", task.size["run_steps"], "--seconds", task.size["seconds"], "--save-every", 1]
    command += ["--batch-size", BATCH_SIZE]
    command += ["--max-tokens", brackets.MAX_ANSWER, "--learning-rate", LEARNING_RATE, "--rank", RANK]
    command += ["--beta", beta, "--top-k", TOP_K]
    with contextlib.ExitStack() as stack:
        command += ["--threads", 1 if trainer == "async" else 2]
        if trainer == "async":
            score = ["--logprobs-mode", "processed_logprobs", "--max-logprobs", "-1"]
            lora = ["--enable-lora", "--max-loras", "6", "--max-lora-rank", str(RANK)]
            dev = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "VLLM_SERVER_DEV_MODE": "1"}
            teacher = compare_trl.Vllm(task.folder / "teacher", place / "teacher.log", *score)
            stack.callback(teacher.stop)
            writer = compare_trl.Vllm(task.folder / "base", place / "base.log", *lora, **dev)
            stack.callback(writer.stop)
            command += ["--teacher", teacher.url, "--rollout", writer.url]
        else:
            command += ["--teacher", task.folder / "teacher"]
        with open(place / "log", "w") as log:
            timeout = PATIENCE + 3 * task.size["seconds"]
            done = subprocess.run(
                [*map(str, command)], stdout=subprocess.PIPE, stderr=log, text=True, timeout=timeout, check=False
            )
    if done.returncode != 0:
        sys.exit(f"on_policy_task: {name} has failed; its log is {place / 'log'}")
    steps = json.loads(done.stdout.splitlines()[-1])["steps"]
    ended = {str(number): step["seconds"] for number, step in enumerate(steps, 1)}
    return kept(place / "adapters", ended)


def judged(task, url, name, adapters):
    """A row of the table: the accuracy after each mark."""
    curve, shown = [], None
    for mark in MARKS:
        until = mark * task.size["seconds"]
        before = [adapter for adapter in adapters if adapter[0] <= until]
        if before and before[-1] != shown:
            shown = before[-1]
            post(f"{url}/v1/load_lora_adapter", {"lora_name": f"{name}-{mark}", "lora_path": str(shown[1].resolve())})
            accuracy = task.accuracy(url, f"{name}-{mark}")
            post(f"{url}/v1/unload_lora_adapter", {"lora_name": f"{name}-{mark}"})
        else:
            accuracy = curve[-1]["accuracy"] if curve else None
        curve.append({"seconds": until, "accuracy": accuracy, "step": int(shown[1].name) if shown else 0})
    return {"run": name, "curve": curve}


def figures(task, trl, names):
    task.prepare()
    with task.served("teacher") as url:
        teacher = task.accuracy(url, "teacher")
    with task.served("base", "--max-sequences", str(BATCH_SIZE)) as url:
        base = task.accuracy(url, "teacher")
        rows = []
        for name in names:
            rows.append(judged(task, url, name, distilled(task, name, url)))
            print(f"on_policy_task: {rows[-1]}", file=sys.stderr, flush=True)
    for name in TRL_RUNS if trl else ():
        adapters = by_trl(task, name)
        with task.served("base") as url:
            rows.append(judged(task, url, name, adapters))
        print(f"on_policy_task: {rows[-1]}", file=sys.stderr, flush=True)
    for row in rows:
        for point in row["curve"]:
            point["accuracy"] = base if point["accuracy"] is None else point["accuracy"]
    return {"base": base, "teacher": teacher, "rows": rows}


def table(result):
    marks = [point["seconds"] for point in result["rows"][0]["curve"]]
    yield f"| run | {' | '.join(f'{seconds:g} s' for seconds in marks)} | steps |"
    yield f"| --- |{' --- |' * (len(marks) + 1)}"
    for row in result["rows"]:
        shares = [f"{100 * point['accuracy']:.0f} %" for point in row["curve"]]
        yield f"| {' | '.join([row['run'], *shares, str(row['curve'][-1]['step'])])} |"


def draw(result, path):
    drawn = {row["run"]: row["curve"] for row in result["rows"] if row["run"] in DRAWN}
    start = (0.0, 100 * result["base"])
    curves = {
        name: [start, *((point["seconds"], 100 * point["accuracy"]) for point in curve)]
        for name, curve in drawn.items()
    }
    axes = learning_curve.Axes([point for curve in curves.values() for point in curve])
    classes = {name: f"run{number}" for number, name in enumerate(curves)}
    style = learning_curve.STYLE + "".join(
        f" .{classes[name]} {{ fill: none; stroke: {DRAWN[name]}; stroke-width: 2 }}" for name in curves
    )
    lines = [
        learning_curve.polyline(classes[name], [axes.place(point) for point in curve]) for name, curve in curves.items()
    ]
    entries = learning_curve.legend([(classes[name], name) for name in curves])
    text = learning_curve.framed(axes, [*lines, *entries], "seconds", "right answers, %", style)
    learning_curve.write_picture(os.fspath(path), text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", metavar="RUN", help=f"only these of distilld: {'; '.join(RUNS)}")
    parser.add_argument("--trl", action="store_true", help="run TRL as well")
    parser.add_argument("--report", type=pathlib.Path, metavar="FILE", help="write the figures as JSON")
    parser.add_argument("--svg", type=pathlib.Path, metavar="FILE", help="write a picture of the curves")
    parser.add_argument("--quick", action="store_true", help="small models and short runs: whether it works")
    parser.add_argument("--work", type=pathlib.Path, metavar="FOLDER", help="for all results, of one size")
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin", help="folder of the programs")
    options = parser.parse_args()
    unknown = set(options.runs) - set(RUNS)
    if unknown:
        parser.error(f"there is no run {sorted(unknown)[0]!r}")
    work = options.work or ROOT / ".quickstart" / ("on-policy-task-quick" if options.quick else "on-policy-task")
    task = Task(work.resolve(), options.bin.resolve(), QUICK if options.quick else FULL)
    result = figures(task, options.trl, options.runs or [*RUNS])
    print(f"base {100 * result['base']:.0f} %, teacher {100 * result['teacher']:.0f} %\n\n" + "\n".join(table(result)))
    if options.svg:
        draw(result, options.svg)
    if options.report:
        options.report.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
