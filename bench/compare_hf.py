#!/usr/bin/env python3
"""Compares a distillation step of distilld with the same work in transformers: prints a table and one JSON object.

Every way of training is a separate process. They alternate in rounds, so that a drift of the machine affects all of
them; figures are medians over the rounds. The step: forward, KL to top-k targets with their tail on every position,
backward, AdamW. Tokens and targets are synthetic and have the same shape on both sides.

    bench/compare_hf.py [--shape 0.9M --shape 12M --shape 42M] [--rounds 3] [--threads 2] [--ways …]
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time


def decoder(vocab_size, hidden_size, intermediate_size, layers, heads, key_heads, **others):
    return {
        "model_type": "llama",
        "vocab_size": vocab_size,
        "hidden_size": hidden_size,
        "intermediate_size": intermediate_size,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": key_heads,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": True,
        **others,
    }


# Name: configuration, rows and positions per micro-batch, micro-batches per step, steps per round. Heads have 32, 64
# or 128 numbers, as in real models; a step of the Llama models has 8,192 tokens. The last is a size for GPUs.
SHAPES = {
    "0.9M": (decoder(512, 128, 384, 4, 4, 2), 8, 256, 4, 4),
    "12M": (decoder(4096, 384, 1024, 6, 6, 2), 8, 256, 4, 1),
    "42M": (decoder(32000, 512, 1408, 8, 8, 2), 4, 256, 8, 1),
    "Qwen3-0.6B": (decoder(151936, 1024, 3072, 28, 16, 8, model_type="qwen3", head_dim=128), 1, 256, 4, 1),
    "1.2B": (decoder(128256, 2048, 8192, 16, 32, 8), 8, 1024, 2, 2),
}
WAYS = ["distilld fp32", "distilld bf16", "HF fp32", "HF autocast", "HF bf16", "HF compile fp32", "HF compile autocast"]
# Each of distilld's ways may be slower than its rival by at most a twentieth.
RIVALS = {"distilld fp32": "HF fp32", "distilld bf16": "HF bf16"}
SHARES = {
    "share_of_gemm_rate": "over the rate of a square matrix product (MFU)",
    "share_of_product_rate": "over the rate of its own products",
}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--bench", default="build/release/bin/distilld-bench", help="the program distilld-bench")
    parser.add_argument("--shape", action="append", choices=SHAPES, help="may be repeated; all but the last by default")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=0, help="of a round; the shape's own by default")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--top-k", type=int, default=64)
    parser.add_argument("--side", help=argparse.SUPPRESS)  # the process that trains with transformers
    return parser.parse_args()


def kd_loss(logits, ids, log_p, log_tail, torch):
    """KL over the k tokens and all others, summed, in fp32."""
    log_q = torch.log_softmax(logits.float(), -1)
    top = log_q.gather(-1, ids)
    rest = torch.log1p(-top.exp().sum(-1).clamp(max=1 - 1e-6))
    return (log_p.exp() * (log_p - top)).sum() + (log_tail.exp() * (log_tail - rest)).sum()


def train_with_transformers(arguments):
    """Prints one JSON line with the tokens/s of one round."""
    import torch
    import transformers

    shape, way = arguments.side.split("/")
    config, rows, positions, micro_batches, steps = SHAPES[shape]
    steps = arguments.steps or steps
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    fields = {name: value for name, value in config.items() if name != "model_type"}
    model_config = transformers.AutoConfig.for_model(config["model_type"], **fields)
    model = transformers.AutoModelForCausalLM.from_config(model_config)
    if way == "HF bf16":
        model = model.to(torch.bfloat16)
    model = model.to(arguments.device).train()
    forward = torch.compile(model) if "compile" in way else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.0)
    k, vocabulary = arguments.top_k, config["vocab_size"]
    weights = 1.0 / torch.arange(1, k + 1)
    log_p = (0.9 * weights / weights.sum()).log().expand(rows, positions, k).to(arguments.device)
    log_tail = torch.full((rows, positions), 0.1, device=arguments.device).log()
    batches = []
    for _ in range(micro_batches):
        first = torch.randint(vocabulary, (rows, positions, 1))
        ids = (first + torch.arange(k) * (vocabulary // k)) % vocabulary
        batches.append([tensor.to(arguments.device) for tensor in (torch.randint(vocabulary, (rows, positions)), ids)])

    def step():
        for tokens, ids in batches:
            with torch.autocast(arguments.device, torch.bfloat16, enabled="autocast" in way):
                logits = forward(tokens, use_cache=False).logits
            loss = kd_loss(logits, ids, log_p, log_tail, torch) / (micro_batches * rows * positions)
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    def wait():
        if arguments.device != "cpu":
            torch.cuda.synchronize()

    for _ in range(2):
        step()
    wait()
    began = time.perf_counter()
    for _ in range(steps):
        step()
    wait()
    seconds = time.perf_counter() - began
    print(json.dumps({"tokens_per_second": steps * micro_batches * rows * positions / seconds}))


def one_round(arguments, shape, way):
    config, rows, positions, micro_batches, steps = SHAPES[shape]
    steps = arguments.steps or steps
    common = ["--threads", str(arguments.threads), "--top-k", str(arguments.top_k), "--device", arguments.device]
    if way.startswith("distilld"):
        command = [arguments.bench, "train", "--student", json.dumps(config), "--dtype", way.split()[1], *common]
        command += ["--batch-size", str(rows), "--sequence-length", str(positions), "--repeat", "1"]
        command += ["--micro-batches", str(micro_batches), "--steps", str(steps)]
    else:
        command = [sys.executable, __file__, "--side", f"{shape}/{way}", "--steps", str(steps), *common]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def compare(arguments, shape):
    rates = {way: [] for way in arguments.ways}
    shares = {name: {} for name in SHARES}
    for number in range(arguments.rounds):
        turn = arguments.ways if number % 2 == 0 else list(reversed(arguments.ways))
        for way in turn:
            report = one_round(arguments, shape, way)
            rates[way].append(report["tokens_per_second"])
            for name, of in shares.items():
                if name in report:
                    of.setdefault(way, []).append(report[name])
    return {
        "tokens_per_second": {way: round(statistics.median(of), 1) for way, of in rates.items()},
        **{name: {way: round(statistics.median(of), 3) for way, of in ways.items()} for name, ways in shares.items()},
        # From the same round.
        "ratio": {
            way: round(statistics.median(a / b for a, b in zip(rates[way], rates[rival], strict=True)), 3)
            for way, rival in RIVALS.items()
            if way in rates and rival in rates
        },
    }


def main():
    arguments = parse_arguments()
    if arguments.side:
        train_with_transformers(arguments)
        return 0
    if not pathlib.Path(arguments.bench).exists():
        print(f"compare_hf: {arguments.bench} is not there: scripts/build.sh release distilld-bench", file=sys.stderr)
        return 2
    report = {shape: compare(arguments, shape) for shape in arguments.shape or list(SHAPES)[:-1]}
    print("| tokens/s | " + " | ".join(arguments.ways) + " |")
    print("| --- |" + " --- |" * len(arguments.ways))
    for shape, of in report.items():
        print(f"| {shape} | " + " | ".join(f"{of['tokens_per_second'][way]:,.0f}" for way in arguments.ways) + " |")
        for name, text in SHARES.items():
            if of[name]:
                cells = (f"{of[name][way]:.2f}" if way in of[name] else "" for way in arguments.ways)
                print(f"| … {text} | " + " | ".join(cells) + " |")
    print(json.dumps({"threads": arguments.threads, "rounds": arguments.rounds, "shapes": report}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
