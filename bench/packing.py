#!/usr/bin/env python3
"""Measures each form of `dataset.packing` on documents of mixed lengths: prints a table, or with --json an object.

Trains a small student without a teacher on synthetic documents of 8 to 512 tokens, log-uniformly distributed (mean
121). All forms use the same program, threads and arithmetic and about the same number of tokens per micro-batch, and
alternate in rounds. Only the documents' tokens count, not padding.

    bench/packing.py [--rounds 3] [--steps 12] [--threads N] [--dtype fp32] [--bin build/release/bin] [--json]
"""

import argparse
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import tempfile

LENGTH = 512
ROWS = 8
CONFIG = {
    "model_type": "llama",
    "vocab_size": 2048,
    "hidden_size": 256,
    "intermediate_size": 704,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": LENGTH,
    "tie_word_embeddings": True,
}
# name: (packing, shuffle, batch size)
FORMS = {
    "`true`: joined, cut into rows": (True, "full", ROWS),
    '`"documents"`: side by side, kept apart': ("documents", "full", ROWS),
    "`false`: a row each, by length": (False, "full", 4 * ROWS),
    "`false`, `shuffle: off`: as they stand": (False, "off", 4 * ROWS),
}


def write_documents(path, count):
    source = random.Random(7)
    with open(path, "w") as file:
        for _ in range(count):
            ids = [source.randrange(CONFIG["vocab_size"]) for _ in range(int(8 * 64 ** source.random()))]
            file.write(json.dumps({"input_ids": ids}) + "\n")


def train(arguments, data, folder, form):
    packing, shuffle, batch_size = FORMS[form]
    spec = {
        "student": {"init": "random", "config": CONFIG, "dtype": arguments.dtype},
        "dataset": {"train": str(data), "sequence_length": LENGTH, "packing": packing, "shuffle": shuffle},
        "training": {
            "batch_size": batch_size,
            "micro_batches": 1,
            "max_steps": arguments.steps,
            "learning_rate": 1e-3,
            "threads": arguments.threads,
        },
        "output": str(folder / "student"),
    }
    (folder / "spec.json").write_text(json.dumps(spec))
    command = [arguments.bin / "distilld", "run", folder / "spec.json", "--report", folder / "report.json"]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    padding = re.search(r"padding was ([\d.]+)%", out)
    last = json.loads((folder / "report.json").read_text())["last"]
    return {"tokens_per_second": last["tokens_per_second"], "padding_percent": float(padding[1]) if padding else 0.0}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--dtype", default="fp32")
    parser.add_argument("--bin", type=pathlib.Path, default="build/release/bin")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    arguments.bin = arguments.bin.resolve()
    runs = {form: [] for form in FORMS}
    with tempfile.TemporaryDirectory() as scratch:
        data = pathlib.Path(scratch) / "documents.jsonl"
        write_documents(data, 4000)
        for number in range(arguments.rounds):
            for form in FORMS:
                folder = pathlib.Path(scratch) / f"{number}-{len(runs[form])}-{list(FORMS).index(form)}"
                folder.mkdir()
                runs[form].append(train(arguments, data, folder, form))
    table = {
        form: {
            "padding_percent": statistics.median(run["padding_percent"] for run in of_form),
            "tokens_per_second": round(statistics.median(run["tokens_per_second"] for run in of_form)),
        }
        for form, of_form in runs.items()
    }
    if arguments.json:
        print(json.dumps({"name": "packing", "dtype": arguments.dtype, "threads": arguments.threads, "forms": table}))
        return
    print("| `dataset.packing` | padding | tokens/s |\n| --- | --- | --- |")
    for form, figures in table.items():
        print(f"| {form} | {figures['padding_percent']:.1f}% | {figures['tokens_per_second']:,} |")


if __name__ == "__main__":
    main()
