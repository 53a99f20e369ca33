#!/usr/bin/env python3
"""Measures what `training.replicas` gains for the automaton of docs/any-network.md: prints a table.

Each step trains two samples: one after the other on one thread, one after the other on two threads, or side by side.
The three forms alternate in rounds, and each figure is a median. The time of a step does not count the first step of a
run, and its processor time not that of a run with one step.

    bench/replicas.py [--rounds 5] [--steps 10] [--bin build/release/bin]
"""

import argparse
import itertools
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile

EXAMPLES = pathlib.Path(__file__).resolve().parents[1] / "examples" / "any-network"
FORMS = {(1, 1): "one after the other", (1, 2): "one after the other", (2, 2): "side by side"}


def processor_seconds():
    """Of all programs that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def train(arguments, folder, replicas, threads, steps):
    """Seconds of each step but the first, and processor seconds of the run."""
    spec = json.loads((EXAMPLES / "automaton.json").read_text())
    del spec["dataset"]["eval"]
    spec["training"] |= {"max_steps": steps, "eval_steps": 0, "replicas": replicas, "threads": threads}
    spec["output"] = tempfile.mkdtemp(dir=folder)
    spec["metrics"]["jsonl_file"] = spec["output"] + ".jsonl"
    (folder / "spec.json").write_text(json.dumps(spec))
    command = [arguments.bin.resolve() / "distilld", "run", "spec.json"]
    before = processor_seconds()
    subprocess.run(command, check=True, capture_output=True, cwd=folder)
    used = processor_seconds() - before
    lines = pathlib.Path(spec["metrics"]["jsonl_file"]).read_text().splitlines()
    times = [record["seconds_elapsed"] for record in map(json.loads, lines) if record["kind"] == "step"]
    return [after - before for before, after in itertools.pairwise(times)], used


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--bin", type=pathlib.Path, default="build/release/bin")
    arguments = parser.parse_args()
    seconds, used = {form: [] for form in FORMS}, {form: [] for form in FORMS}
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        subprocess.run([sys.executable, EXAMPLES / "automaton.py", folder / "automaton"], check=True)
        for _ in range(arguments.rounds):
            for form in FORMS:
                _, of_start = train(arguments, folder, *form, 1)
                times, of_all = train(arguments, folder, *form, arguments.steps)
                seconds[form] += times
                used[form].append((of_all - of_start) / (arguments.steps - 1))
    first = statistics.median(seconds[1, 1])
    print("| samples of a step | threads | ms per step | processor ms | speed-up |\n| --- | --- | --- | --- | --- |")
    for form, words in FORMS.items():
        elapsed, processor = statistics.median(seconds[form]), statistics.median(used[form])
        print(f"| {words} | {form[1]} | {1000 * elapsed:.0f} | {1000 * processor:.0f} | {first / elapsed:.2f} |")
    print(f"\nload average: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
