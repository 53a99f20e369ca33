#!/usr/bin/env python3
"""Memory and speed of several ranks with a teacher in the process, for each teacher.placement.

Trains a small random student with a random teacher. Memory is the proportional set size of each worker
(/proc/PID/smaps_rollup): a page that several processes map is divided between them, so the sum counts it once. The
workers are looked at during the whole run; the table has the moment with the median sum of the middle half. The
reference is one teacher and the students: the workers of a run without a teacher, and the bytes of the teacher's
weights. Prints a table and one JSON object.
"""

import argparse
import contextlib
import json
import pathlib
import random
import shutil
import subprocess
import tempfile
import time

PLACEMENTS = ("duplicated", "rank0", "cpu", "shared", "balanced")
POSITIONS = 128
VOCABULARY = 4096
STUDENT = {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 2, "num_attention_heads": 4}
TEACHER = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 14, "num_attention_heads": 16}
ONE = b"\x80\x3f"  # in bf16
# The upper byte of a random weight: a number of either sign between 2**-7 and 2**-5.
UPPER_BYTES = bytes(0x3C if byte % 2 else 0xBC for byte in range(256))


def config_of(shape):
    return {
        "model_type": "llama",
        "vocab_size": VOCABULARY,
        "num_key_value_heads": shape["num_attention_heads"],
        "max_position_embeddings": 1024,
        "tie_word_embeddings": True,
        **shape,
    }


def shapes_of(config):
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    yield "model.embed_tokens.weight", [config["vocab_size"], hidden]
    yield "model.norm.weight", [hidden]
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{name}{norm}.weight", [hidden]
        for matrix in "qkvo":
            yield f"{name}self_attn.{matrix}_proj.weight", [hidden, hidden]
        yield f"{name}mlp.gate_proj.weight", [inner, hidden]
        yield f"{name}mlp.up_proj.weight", [inner, hidden]
        yield f"{name}mlp.down_proj.weight", [hidden, inner]


def write_teacher(folder, layers):
    """A model folder with random weights in bf16. Returns their bytes."""
    folder.mkdir()
    config = config_of({**TEACHER, "num_hidden_layers": layers})
    (folder / "config.json").write_text(json.dumps({**config, "torch_dtype": "bfloat16"}))
    source = random.Random(1)
    entries, end = {}, 0
    for name, shape in shapes_of(config):
        begin, end = end, end + 2 * shape[0] * (shape[1] if len(shape) == 2 else 1)
        entries[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 64 + 56)  # tensors are aligned
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for entry in entries.values():
            begin, stop = entry["data_offsets"]
            values = bytearray(source.randbytes(stop - begin))
            values[1::2] = values[1::2].translate(UPPER_BYTES)
            file.write(ONE * (len(values) // 2) if len(entry["shape"]) == 1 else values)
    return end


def spec_of(arguments, folder, data, placement):
    spec = {
        "student": {"init": "random", "dtype": "fp32", "config": config_of(STUDENT)},
        "dataset": {"train": str(data), "sequence_length": POSITIONS},
        "training": {
            "batch_size": 2,
            "micro_batches": 2 * arguments.ranks,
            "gradient_groups": arguments.ranks,
            "ranks": arguments.ranks,
            "replicas": 1,
            "threads": 1,
            "max_steps": arguments.steps,
        },
        "output": str(folder / "student"),
    }
    if placement is not None:
        model = {"model_dir": str(folder.parent / "teacher"), "placement": placement}
        spec["teacher"] = {**model, "dtype": "bf16", "threads": 1, "top_k": 32}
    return spec


def memory_of(pid):
    """MiB of one process."""
    kinds = {"pss": 0, "private": 0, "shared": 0}
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, amount = line.split(":")
        kind = name.lower().split("_", maxsplit=1)[0]
        if kind in kinds and name in ("Pss", "Private_Clean", "Private_Dirty", "Shared_Clean", "Shared_Dirty"):
            kinds[kind] += int(amount.split()[0]) / 1024
    return kinds


def look_at(pid):
    """Memory of the workers, in the order of their starts."""
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [memory_of(child) for child in sorted(children, key=int)]


def measure(arguments, root, data, placement):
    """(tokens per second, memory of each worker)"""
    folder = root / "run"
    folder.mkdir()
    spec = folder / "spec.json"
    spec.write_text(json.dumps(spec_of(arguments, folder, data, placement)))
    report = folder / "report.json"
    seen = []
    command = [arguments.program, "run", spec, "--report", report]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as run:
        while run.poll() is None:
            time.sleep(0.2)
            with contextlib.suppress(OSError, ValueError):  # a process has ended meanwhile
                seen.append(look_at(run.pid))
    if run.returncode != 0:
        raise SystemExit(f"distilld run with placement {placement} has ended with {run.returncode}")
    complete = [workers for workers in seen if len(workers) == arguments.ranks]
    middle = complete[len(complete) // 4 : -(len(complete) // 4) or None]
    middle.sort(key=lambda workers: sum(worker["pss"] for worker in workers))
    rate = json.loads(report.read_text())["last"]["tokens_per_second"]
    shutil.rmtree(folder)
    return rate, middle[len(middle) // 2]


def has_gpu():
    return any(pathlib.Path("/dev").glob("nvidia[0-9]*"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--distilld", default="build/release/bin/distilld", help="the program")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=8, help="per run")
    parser.add_argument(
        "--layers", type=int, default=TEACHER["num_hidden_layers"], help="of the teacher, 13M parameters each"
    )
    parser.add_argument("--placement", action="append", choices=PLACEMENTS, help="may be repeated; all by default")
    arguments = parser.parse_args()
    arguments.program = pathlib.Path(arguments.distilld).resolve()
    placements = arguments.placement or PLACEMENTS
    source = random.Random(2)
    rows = arguments.steps * 4 * arguments.ranks + 8
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        data = root / "data.jsonl"
        data.write_text(
            "".join(
                json.dumps({"input_ids": [source.randrange(VOCABULARY) for _ in range(POSITIONS + 1)]}) + "\n"
                for _ in range(rows)
            )
        )
        teacher = write_teacher(root / "teacher", arguments.layers) / 2**20
        _, students = measure(arguments, root, data, None)
        reference = sum(worker["pss"] for worker in students) + teacher
        found = {}
        for placement in placements:
            found[placement] = measure(arguments, root, data, placement)
    print(f"teacher: {teacher:,.0f} MiB; {arguments.ranks} students: {reference - teacher:,.0f} MiB")
    if "balanced" in found and not has_gpu():
        print("balanced: computed on the CPU, because this machine has no GPU")
    print("\n| placement | MiB per worker, the first rank's first | MiB | over one teacher and the students | speed |")
    print("| --- | --- | --- | --- | --- |")
    report = {"ranks": arguments.ranks, "teacher_mib": teacher, "students": students, "placements": {}}
    base = found[placements[0]][0]
    for placement, (rate, workers) in found.items():
        total = sum(worker["pss"] for worker in workers)
        each = ", ".join(f"{worker['pss']:,.0f}" for worker in reversed(workers))  # rank 0 is started last
        print(f"| `{placement}` | {each} | {total:,.0f} | {total / reference:.2f} | {rate / base:.2f} |")
        ratios = {"over_reference": total / reference, "speed": rate / base}
        report["placements"][placement] = {"tokens_per_second": rate, "workers": workers, "mib": total, **ratios}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
