#!/usr/bin/env python3
"""Compares the answers of `distilld teacher` with the same work in transformers: prints a table and one JSON object.

The work: the k most probable tokens of every position of a request, with their log-probabilities. distilld answers over
HTTP (KServe v2, binary), transformers in its own process: forward, log-softmax in fp32, top-k. Both sides are started
once, answer in turn, round by round, and alone; figures are medians over the rounds. The models have random weights.

With --generate N, the work is N tokens behind each row, the likeliest ones: distilld has a request per row, all at
once, at /v1/completions, transformers one generate() for the batch. --llama-cpp adds llama.cpp's server, which gets
distilld's requests; it needs the shape 32k, the Python package gguf, and on the first run 10 minutes to be built.

    bench/compare_teacher.py [--shape 32k --shape 152k] [--dtype bf16] [--rounds 5] [--threads 2]
    bench/compare_teacher.py --generate 64 --rows 16 --positions 64 [--shape 32k --llama-cpp]
"""

import argparse
import concurrent.futures
import http.client
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import llama_cpp

# Name: configuration.
SHAPES = {
    "32k": {
        "model_type": "llama",
        "vocab_size": 32000,
        "hidden_size": 768,
        "intermediate_size": 2048,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "num_key_value_heads": 4,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": True,
    },
    "152k": {
        "model_type": "qwen3",
        "vocab_size": 151936,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": True,
    },
}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--program", default="build/release/bin/distilld", help="the program distilld")
    parser.add_argument("--shape", action="append", choices=SHAPES, help="may be repeated; all by default")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="bf16")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=4, help="of a request")
    parser.add_argument("--positions", type=int, default=512, help="of a row")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--top-k", type=int, default=64)
    parser.add_argument("--generate", type=int, default=0, metavar="N", help="tokens behind each row; 0: score")
    parser.add_argument("--llama-cpp", action="store_true", help="with --generate: llama.cpp's server, too")
    parser.add_argument("--side", help=argparse.SUPPRESS)  # the folder, for the process that has transformers
    return parser.parse_args()


def random_ids(arguments, number, vocabulary):
    import numpy as np

    return np.random.default_rng(number).integers(0, vocabulary, (arguments.rows, arguments.positions), dtype=np.int32)


def make_model(shape, folder):
    import torch
    import transformers

    torch.manual_seed(1)
    fields = {name: value for name, value in SHAPES[shape].items() if name != "model_type"}
    config = transformers.AutoConfig.for_model(SHAPES[shape]["model_type"], **fields)
    transformers.AutoModelForCausalLM.from_config(config).to(torch.bfloat16).save_pretrained(folder)


def answer_with_transformers(arguments):
    """For each line of standard input, a number of a round, prints the seconds that its answer took."""
    import torch
    import transformers

    torch.set_num_threads(arguments.threads)
    dtype = torch.bfloat16 if arguments.dtype == "bf16" else torch.float32
    model = transformers.AutoModelForCausalLM.from_pretrained(arguments.side, dtype=dtype).eval()
    for line in sys.stdin:
        ids = torch.from_numpy(random_ids(arguments, int(line), model.config.vocab_size)).long()
        began = time.perf_counter()
        if arguments.generate:
            count = arguments.generate
            model.generate(ids, do_sample=False, min_new_tokens=count, max_new_tokens=count, pad_token_id=0)
            print(time.perf_counter() - began, flush=True)
            continue
        with torch.inference_mode():
            log_p = torch.log_softmax(model(ids, use_cache=False).logits.float(), -1)
            log_p.topk(arguments.top_k, -1)
            del log_p
        print(time.perf_counter() - began, flush=True)


class Distilld:
    def __init__(self, arguments, folder):
        command = [arguments.program, "teacher", folder, "--listen", "127.0.0.1:0", "--dtype", arguments.dtype]
        command += ["--threads", str(arguments.threads)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        address = self.process.stdout.readline().rsplit("://", 1)[-1].split()[0]
        self.address = address
        self.connection = http.client.HTTPConnection(address, timeout=600)

    def complete(self, row, count):
        connection = http.client.HTTPConnection(self.address, timeout=600)
        wish = {"prompt": row, "max_tokens": count, "temperature": 0, "ignore_eos": True}
        connection.request("POST", "/v1/completions", json.dumps(wish))
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200 or json.loads(body)["usage"]["completion_tokens"] != count:
            raise SystemExit(f"compare_teacher: distilld answered {answer.status}: {body[:500].decode()}")

    def seconds(self, arguments, number, vocabulary):
        ids = random_ids(arguments, number, vocabulary)
        if arguments.generate:
            began = time.perf_counter()
            with concurrent.futures.ThreadPoolExecutor(arguments.rows) as pool:
                list(pool.map(lambda row: self.complete(row, arguments.generate), ids.tolist()))
            return time.perf_counter() - began
        tensor = {"name": "input_ids", "datatype": "INT32", "shape": list(ids.shape)}
        tensor["parameters"] = {"binary_data_size": ids.nbytes}
        request = {"inputs": [tensor], "parameters": {"top_k": arguments.top_k, "binary_data_output": True}}
        head = json.dumps(request).encode()
        headers = {"Inference-Header-Content-Length": str(len(head))}
        began = time.perf_counter()
        self.connection.request("POST", "/v2/models/teacher/infer", head + ids.tobytes(), headers)
        answer = self.connection.getresponse()
        body = answer.read()
        taken = time.perf_counter() - began
        if answer.status != 200:
            raise SystemExit(f"compare_teacher: distilld answered {answer.status}: {body[:500].decode()}")
        return taken

    def stop(self):
        self.process.terminate()
        self.process.wait()


class LlamaCpp(Distilld):
    def __init__(self, arguments, folder):
        file = pathlib.Path(folder) / "model.gguf"
        llama_cpp.write_gguf(pathlib.Path(folder), file, arguments.dtype)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        context = arguments.rows * (arguments.positions + arguments.generate)
        command = [llama_cpp.server(), "--model", file, "--port", self.address.rsplit(":", 1)[1]]
        command += ["--threads", arguments.threads, "--parallel", arguments.rows, "--ctx-size", context]
        self.process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not self.ready():
            time.sleep(0.2)

    def ready(self):
        if self.process.poll() is not None:
            raise SystemExit(f"compare_teacher: llama-server ended with code {self.process.returncode}")
        try:
            return urllib.request.urlopen(f"http://{self.address}/health").status == 200
        except urllib.error.URLError:
            return False


class Transformers:
    def __init__(self, arguments, folder):
        options = {"dtype": arguments.dtype, "rows": arguments.rows, "positions": arguments.positions}
        options |= {"threads": arguments.threads, "top-k": arguments.top_k, "side": folder}
        options["generate"] = arguments.generate
        command = [sys.executable, __file__, *(f"--{name}={value}" for name, value in options.items())]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def seconds(self, arguments, number, vocabulary):
        self.process.stdin.write(f"{number}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def stop(self):
        self.process.stdin.close()
        self.process.wait()


def compare(arguments, shape):
    with tempfile.TemporaryDirectory() as folder:
        make_model(shape, folder)
        kinds = {"distilld": Distilld, "transformers": Transformers}
        kinds |= {"llama.cpp": LlamaCpp} if arguments.llama_cpp else {}
        sides = {name: kind(arguments, folder) for name, kind in kinds.items()}
        taken = {name: [] for name in sides}
        try:
            for number in range(arguments.rounds + 1):
                turn = list(sides.items())[:: 1 if number % 2 == 0 else -1]
                for name, side in turn:
                    taken[name].append(side.seconds(arguments, number, SHAPES[shape]["vocab_size"]))
        finally:
            for side in sides.values():
                side.stop()
    rounds = {name: of[1:] for name, of in taken.items()}  # the first one warms up
    positions = arguments.rows * (arguments.generate or arguments.positions)

    def ratio(other):
        return round(statistics.median(b / a for a, b in zip(rounds["distilld"], rounds[other], strict=True)), 3)

    rates = {name: round(positions / statistics.median(of), 1) for name, of in rounds.items()}
    found = {"positions_per_second": rates, "ratio": ratio("transformers")}
    return found | ({"ratio_llama_cpp": ratio("llama.cpp")} if arguments.llama_cpp else {})


def main():
    arguments = parse_arguments()
    if arguments.side:
        answer_with_transformers(arguments)
        return 0
    if arguments.llama_cpp and not (arguments.generate and arguments.shape == ["32k"]):
        print("compare_teacher: --llama-cpp needs --generate and --shape 32k", file=sys.stderr)
        return 2
    if not pathlib.Path(arguments.program).exists():
        print(f"compare_teacher: {arguments.program} is not there: scripts/build.sh release", file=sys.stderr)
        return 2
    report = {shape: compare(arguments, shape) for shape in arguments.shape or SHAPES}
    heads = ["tokens/s" if arguments.generate else "positions/s", "distilld", "transformers", "ratio"]
    heads += ["llama.cpp", "ratio"] if arguments.llama_cpp else []
    print(f"| {' | '.join(heads)} |")
    print(f"|{' --- |' * len(heads)}")
    for shape, of in report.items():
        ours, theirs, *more = (f"{rate:,.0f}" for rate in of["positions_per_second"].values())
        ratio = f"{of['ratio']:.2f}"
        more += [f"{of['ratio_llama_cpp']:.2f}"] if more else []
        print(f"| {' | '.join([shape, ours, theirs, ratio, *more])} |")
    options = {name: getattr(arguments, name) for name in ("dtype", "threads", "rounds", "rows", "positions")}
    options |= {"generate": arguments.generate} if arguments.generate else {"top_k": arguments.top_k}
    print(json.dumps({**options, "shapes": report}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
