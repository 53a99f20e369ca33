#!/usr/bin/env python3
"""Rates of `distilld run` with several ranks of one thread each over one rank of one thread.

Trains random students on random tokens, each number of ranks in turn, round by round. With --apart also as many runs of
one rank at once that exchange nothing: what the machine gives to that many threads. Prints a table of the medians and
one JSON object.
"""

import argparse
import concurrent.futures
import json
import pathlib
import random
import statistics
import subprocess
import tempfile

SHAPES = {
    "12M": {"vocab_size": 4096, "hidden_size": 384, "intermediate_size": 1024, "layers": 6, "heads": 6},
    "42M": {"vocab_size": 32000, "hidden_size": 512, "intermediate_size": 1408, "layers": 8, "heads": 8},
}
POSITIONS = 256
MICRO_BATCHES = 8


def spec_of(shape, steps, data, output):
    sizes = SHAPES[shape]
    return {
        "student": {
            "init": "random",
            "dtype": "fp32",
            "config": {
                "model_type": "llama",
                "vocab_size": sizes["vocab_size"],
                "hidden_size": sizes["hidden_size"],
                "intermediate_size": sizes["intermediate_size"],
                "num_hidden_layers": sizes["layers"],
                "num_attention_heads": sizes["heads"],
                "num_key_value_heads": 2,
                "max_position_embeddings": 2048,
                "tie_word_embeddings": True,
            },
        },
        "dataset": {"train": str(data), "sequence_length": POSITIONS},
        "training": {
            "batch_size": 4,
            "micro_batches": MICRO_BATCHES,
            "gradient_groups": MICRO_BATCHES,
            "max_steps": steps,
            "threads": 1,
            "replicas": 1,
        },
        "output": str(output),
    }


def measure(program, shape, steps, ranks, data):
    """Tokens per second and the shares of the time after the fill that are the end of steps and communication."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        spec = spec_of(shape, steps, data, folder / "student")
        spec["training"]["ranks"] = ranks
        file = folder / "spec.json"
        file.write_text(json.dumps(spec))
        report = folder / "report.json"
        subprocess.run([program, "run", file, "--report", report], check=True, stdout=subprocess.DEVNULL)
        last = json.loads(report.read_text())["last"]
    stages = {stage["stage"]: stage for stage in last["stages"]}
    # Without a teacher, the student waits for input during the fill only.
    seconds = last["seconds_elapsed"] - stages["student"]["wait_input_seconds"]
    return {
        "tokens_per_second": last["tokens_per_second"],
        "end_of_step": stages["optimizer"]["busy_seconds"] / seconds,
        "communication": communication_seconds(last.get("ranks", [])) / seconds,
    }


def communication_seconds(ranks):
    """The slowest rank waits for bytes on their way only, the others also for the slowest."""
    return min((rank["wait_ranks_seconds"] for rank in ranks), default=0.0)


def measure_apart(program, shape, steps, runs, data):
    """The sum of the rates of runs of one rank that train at the same time."""
    with concurrent.futures.ThreadPoolExecutor(runs) as pool:
        each = list(pool.map(lambda _: measure(program, shape, steps, 1, data), range(runs)))
    return {
        "tokens_per_second": sum(run["tokens_per_second"] for run in each),
        "end_of_step": max(run["end_of_step"] for run in each),
        "communication": 0.0,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--distilld", default="build/release/bin/distilld", help="the program")
    parser.add_argument("--shape", action="append", choices=SHAPES, help="may be repeated; all by default")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2], help="must divide 8")
    parser.add_argument("--steps", type=int, default=4, help="per run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--apart", action="store_true", help="also runs that exchange nothing")
    arguments = parser.parse_args()
    ways = [(str(ranks), measure, ranks) for ranks in arguments.ranks]
    if arguments.apart:
        ways += [(f"{runs} apart", measure_apart, runs) for runs in arguments.ranks if runs > 1]
    program = pathlib.Path(arguments.distilld).resolve()
    source = random.Random(1)
    report = {}
    print("| shape | ranks | tokens/s | over one rank | end of the step | communication |")
    print("| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as name:
        data = pathlib.Path(name) / "data.jsonl"
        rows = ({"input_ids": [source.randrange(4096) for _ in range(POSITIONS + 1)]} for _ in range(200))
        data.write_text("".join(json.dumps(row) + "\n" for row in rows))
        for shape in arguments.shape or SHAPES:
            found = {way: [] for way, _, _ in ways}
            for _ in range(arguments.rounds):
                for way, measured, count in ways:
                    found[way].append(measured(program, shape, arguments.steps, count, data))
            report[shape] = {}
            first = None
            for way, measured in found.items():
                row = {name: statistics.median(run[name] for run in measured) for name in measured[0]}
                first = first or row["tokens_per_second"]
                row["ratio"] = row["tokens_per_second"] / first
                report[shape][way] = row
                rates = f"{row['tokens_per_second']:,.0f} | {row['ratio']:.2f}"
                shares = f"{row['end_of_step']:.1%} | {row['communication']:.1%}"
                print(f"| {shape} | {way} | {rates} | {shares} |", flush=True)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
