#!/usr/bin/env python3
"""Finds the OpenMP runtime and wait policy to start a worker with: prints one JSON object.

Runs `distilld-bench pipeline --student` with all cores under each setting of the environment, alone on the machine and
next to a process that computes all the time (like a teacher or another job). Rounds cycle through the settings, so that
a drift of the machine affects all of them. Milliseconds are per micro-batch with the live teacher.

    bench/openmp_policy.py [--bench build/release/bin/distilld-bench] [--rounds 7] [--libomp FILE]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

STUDENT = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 257,
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "tie_word_embeddings": True,
}
DECIDING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "LD_PRELOAD")


def settings(libomp):
    found = {
        "libgomp as it comes": {},
        "OMP_WAIT_POLICY=ACTIVE": {"OMP_WAIT_POLICY": "ACTIVE"},
        "GOMP_SPINCOUNT=10000": {"GOMP_SPINCOUNT": "10000"},
        "GOMP_SPINCOUNT=3000": {"GOMP_SPINCOUNT": "3000"},
        "GOMP_SPINCOUNT=1000": {"GOMP_SPINCOUNT": "1000"},
        "GOMP_SPINCOUNT=300": {"GOMP_SPINCOUNT": "300"},
        "OMP_WAIT_POLICY=PASSIVE": {"OMP_WAIT_POLICY": "PASSIVE"},
    }
    if libomp:
        found["libomp as it comes"] = {"LD_PRELOAD": libomp}
        found["libomp KMP_BLOCKTIME=0"] = {"LD_PRELOAD": libomp, "KMP_BLOCKTIME": "0"}
    return found


def milliseconds(arguments, extra):
    environment = {name: value for name, value in os.environ.items() if name not in DECIDING} | extra
    command = [
        arguments.bench,
        "pipeline",
        "--student",
        json.dumps(STUDENT),
        "--threads",
        str(os.cpu_count()),
        "--teacher-ms",
        "50",
        "--concurrency",
        "8",
        "--micro-batches",
        "8",
        "--steps",
        str(arguments.steps),
        "--batch-size",
        "4",
        "--sequence-length",
        "128",
        "--top-k",
        "64",
        "--repeat",
        "1",
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        sys.exit(f"openmp_policy: {' '.join(command)}: {done.stderr.strip()}")
    return json.loads(done.stdout)["student_ms_live"]


def measure(arguments, disturbed):
    times = {name: [] for name in settings(arguments.libomp)}
    busy = [sys.executable, "-c", "while True: pass"]
    for _ in range(arguments.rounds):
        for name, extra in settings(arguments.libomp).items():
            neighbour = subprocess.Popen(busy) if disturbed else None
            try:
                times[name].append(milliseconds(arguments, extra))
            finally:
                if neighbour:
                    neighbour.kill()
                    neighbour.wait()
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", default="build/release/bin/distilld-bench", help="the program")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=4, help="of 8 micro-batches, in each run")
    parser.add_argument("--libomp", help="LLVM's runtime (libomp.so.5), put before libgomp")
    arguments = parser.parse_args()
    report = {"command": "openmp_policy", "cores": os.cpu_count(), "rounds": arguments.rounds}
    for key, disturbed in (("alone", False), ("beside_a_busy_process", True)):
        times = measure(arguments, disturbed)
        report[key] = {
            name: {
                "ms": round(statistics.median(values), 1),
                "least": round(min(values), 1),
                "most": round(max(values), 1),
            }
            for name, values in times.items()
        }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
