#!/usr/bin/env python3
"""Compares our decoding of JSON answers with a Python client's, on the same bytes: prints one JSON object.

Python uses orjson.loads and the conversion to the arrays that a student takes: numpy arrays of float32 and int32, for
prompt_logprobs the k best per position. `distilld-bench decode` writes the answers and alternates with Python, so that
a drift of the machine affects both; figures are medians over the rounds, by CPU time.

    bench/compare_orjson.py [--bench build/release/bin/distilld-bench] [--rounds 5] [--top-k 64]
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

import numpy as np
import orjson

NUMPY_TYPES = {"FP32": np.float32, "UINT32": np.uint32}


def read_logits(answer, _):
    return np.asarray(answer["logits"], dtype=np.float32)


def read_tensors(answer, _):
    return [
        np.asarray(tensor["data"], dtype=NUMPY_TYPES[tensor["datatype"]]).reshape(tensor["shape"])
        for tensor in answer["outputs"]
    ]


def read_prompt_logprobs(answer, top_k):
    ids, values = [], []
    for choice in answer["choices"]:
        for entries in choice["prompt_logprobs"][1:]:
            best = sorted(((-entry["logprob"], int(token)) for token, entry in entries.items()))[:top_k]
            ids.append([token for _, token in best])
            values.append([-negative for negative, _ in best])
    return np.asarray(ids, dtype=np.int32), np.asarray(values, dtype=np.float32)


READERS = {
    "seed_logits": read_logits,
    "kserve_json_topk": read_tensors,
    "vllm_prompt_logprobs": read_prompt_logprobs,
}


def seconds_of_python(body, reader, top_k):
    began = time.thread_time()
    reader(orjson.loads(body), top_k)
    return time.thread_time() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", default="build/release/bin/distilld-bench")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--top-k", type=int, default=64)
    arguments = parser.parse_args()
    ours = {name: [] for name in READERS}
    theirs = {name: [] for name in READERS}
    with tempfile.TemporaryDirectory() as folder:
        command = [arguments.bench, "decode", "--top-k", str(arguments.top_k), "--repeat", "3"]
        for number in range(arguments.rounds):
            extra = ["--write-bodies", folder] if number == 0 else []
            report = json.loads(subprocess.run(command + extra, check=True, capture_output=True).stdout)
            for answer in report["answers"]:
                if answer["name"] in READERS:
                    ours[answer["name"]].append(answer["decode_gb_per_second"])
            for name, reader in READERS.items():
                body = pathlib.Path(folder, name + ".json").read_bytes()
                theirs[name].append(len(body) / seconds_of_python(body, reader, arguments.top_k) / 1e9)
    answers = [
        {
            "name": name,
            "decode_gb_per_second": statistics.median(ours[name]),
            "orjson_gb_per_second": statistics.median(theirs[name]),
            "ratio": statistics.median(a / b for a, b in zip(ours[name], theirs[name], strict=True)),
        }
        for name in READERS
    ]
    print(json.dumps({"command": "compare_orjson", "orjson": orjson.__version__, "answers": answers}))


if __name__ == "__main__":
    main()
