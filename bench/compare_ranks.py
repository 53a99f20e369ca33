#!/usr/bin/env python3
"""Rates of `distilld run` with several ranks of one thread each over one rank of one thread.

Trains random students on random tokens, each number of ranks in turn, round by round. Prints a table of the medians and
one JSON object.
"""

import argparse
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
    """(tokens per second, share of the time that is the end of steps)"""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        spec = spec_of(shape, steps, data, folder / "student")
        spec["training"]["ranks"] = ranks
        file = folder / "spec.json"
        file.write_text(json.dumps(spec))
        report = folder / "report.json"
        subprocess.run([program, "run", file, "--report", report], check=True, stdout=subprocess.DEVNULL)
        last = json.loads(report.read_text())["last"]
    busy = {stage["stage"]: stage["busy_seconds"] for stage in last["stages"]}
    return last["tokens_per_second"], busy["optimizer"] / last["seconds_elapsed"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--distilld", default="build/release/bin/distilld", help="the program")
    parser.add_argument("--shape", action="append", choices=SHAPES, help="may be repeated; all by default")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2], help="must divide 8")
    parser.add_argument("--steps", type=int, default=4, help="per run")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    program = pathlib.Path(arguments.distilld).resolve()
    source = random.Random(1)
    report = {}
    print("| shape | ranks | tokens/s | over one rank | end of the step |\n| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as name:
        data = pathlib.Path(name) / "data.jsonl"
        rows = ({"input_ids": [source.randrange(4096) for _ in range(POSITIONS + 1)]} for _ in range(200))
        data.write_text("".join(json.dumps(row) + "\n" for row in rows))
        for shape in arguments.shape or SHAPES:
            found = {ranks: [] for ranks in arguments.ranks}
            for _ in range(arguments.rounds):
                for ranks in arguments.ranks:
                    found[ranks].append(measure(program, shape, arguments.steps, ranks, data))
            first = statistics.median(rate for rate, _ in found[arguments.ranks[0]])
            report[shape] = {}
            for ranks, measured in found.items():
                rate = statistics.median(rate for rate, _ in measured)
                share = statistics.median(share for _, share in measured)
                report[shape][ranks] = {"tokens_per_second": rate, "ratio": rate / first, "end_of_step": share}
                print(f"| {shape} | {ranks} | {rate:,.0f} | {rate / first:.2f} | {share:.1%} |", flush=True)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
