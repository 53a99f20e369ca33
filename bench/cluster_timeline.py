#!/usr/bin/env python3
"""A generate job and the students behind it, on several nodes and on one: both times, and a timeline as an SVG.

A node is a slot with a core of its own or, with --slurm, a virtual node of a Slurm on this machine with one core
(tests/e2e/support/slurm_cluster.py; needs root). The teacher is a small random model in the generate job's process.
Prints one JSON object; the picture is that of the run on several nodes.
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

import load

SEQUENCE_LENGTH = 64
SHAPE = {"model_type": "llama", "vocab_size": 257, "max_position_embeddings": 128, "num_key_value_heads": 4}
TEACHER = {**SHAPE, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4}
STUDENT = {**SHAPE, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
COLOURS = {"generates": "#3b6ea5", "trains": "#b5643c", "waits": "#c3c3c3"}


def student_spec(data, output, config, steps):
    training = {"batch_size": 8, "max_steps": steps, "threads": 1, "decode_threads": 1}
    return {
        "student": {"init": "random", "config": config, "dtype": "fp32"},
        "dataset": {"train": str(data), "sequence_length": SEQUENCE_LENGTH, "packing": False},
        "training": training,
        "output": str(output),
    }


def make_service(program, folder, nodes, cluster):
    folder.mkdir()
    if cluster:
        listen = f"127.0.0.1:{load.free_port()}"
        flags = ("--launcher", "slurm", "--launcher-url", f"http://{listen}")
        return load.Service(program, folder, *flags, listen=listen, env=cluster.environment())
    # as many cores as nodes, which the slots divide
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))[:nodes]))
    return load.Service(program, folder, "--slots", nodes, before=("taskset", "--cpu-list", cores))


def followed(service, ids, deadline):
    """The jobs when all have ended, and [begin, end] of each one's waits: in Slurm's queue, or for the store."""
    waits, before = [[] for _ in ids], time.time()
    while time.monotonic() < deadline:
        jobs, now = [service.get(f"/v1/jobs/{job}") for job in ids], time.time()
        if bad := [job for job in jobs if job["state"] in ("failed", "cancelled")]:
            raise SystemExit(f"{bad[0]['name']}: {bad[0]['status_reason']}")
        for job, spans in zip(jobs, waits, strict=True):
            if job["terminal"] or not (job["status_reason"] or {}).get("since"):
                continue
            if spans and spans[-1][1] == before:
                spans[-1][1] = now
            else:
                spans.append([before, now])
        if all(job["terminal"] for job in jobs):
            return jobs, waits
        before = now
        time.sleep(0.2)
    raise SystemExit("the jobs did not end in time")


def seconds(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def measured(options, folder, nodes, data, teacher):
    """[(name, begin, end, waits)] of the jobs, in seconds from the submission."""
    folder.mkdir()
    with contextlib.ExitStack() as after:
        cluster = None
        if options.slurm:
            sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests" / "e2e"))
            from support.slurm_cluster import SlurmCluster

            cluster = SlurmCluster(folder / "slurm", [f"n{number + 1}" for number in range(nodes)], cores=1)
            after.callback(cluster.stop)
        service = make_service(options.program, folder / "service", nodes, cluster)
        after.callback(service.stop)
        store = str(folder / "store")
        generate = student_spec(data, folder / "unused", STUDENT, 1)
        del generate["output"], generate["training"]["max_steps"], generate["student"]["init"]
        generate |= {"name": "teacher", "kind": "generate", "tasks": nodes}
        generate["teacher"] = {"model_dir": str(teacher), "top_k": 16, "threads": 1, "store": store}
        first = service.submit(generate)
        ids = first["tasks"] or [first["id"]]
        for number in range(options.students):
            spec = student_spec(data, folder / f"student-{number}", STUDENT, options.rows // 8)
            spec |= {"name": f"student {number}", "teacher": {"store": store, "top_k": 16}}
            spec["dataset"] |= {"shuffle": "blocks", "shuffle_block_rows": 64}
            ids.append(service.submit(spec)["id"])
        jobs, waits = followed(service, ids, time.monotonic() + options.patience)
        zero = seconds(first["created_at"])
        bars = []
        for job, spans in zip(jobs, waits, strict=True):
            begin, end = (seconds(job[name]) - zero for name in ("started_at", "finished_at"))
            bars.append((job["name"], begin, end, [(since - zero, until - zero) for since, until in spans]))
        return bars


def picture(bars):
    """A line per job, in the order of their starts, and a legend."""
    bars = sorted(bars, key=lambda bar: bar[1])
    total = max(end for _, _, end, _ in bars)
    width, left, height = 560, 120, 26
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 60} {height * (len(bars) + 1)}" '
        'font-family="sans-serif" font-size="13">'
    ]

    def text(x, row, words):
        lines.append(f'<text x="{x:.1f}" y="{row * height + 17}" fill="#555">{words}</text>')

    def box(x, row, wide, what):
        place = f'x="{x:.1f}" y="{row * height + 4}" width="{wide:.1f}" height="{height - 8}"'
        lines.append(f'<rect {place} fill="{COLOURS[what]}"/>')

    scale = width / total
    for row, (name, begin, end, waits) in enumerate(bars):
        text(4, row, name)
        box(left + begin * scale, row, (end - begin) * scale, "generates" if name.startswith("teacher") else "trains")
        for since, until in waits:
            box(left + since * scale, row, (until - since) * scale, "waits")
        text(left + end * scale + 4, row, f"{end:.0f} s")
    for number, what in enumerate(COLOURS):
        box(left + 110 * number, len(bars), height - 8, what)
        text(left + 110 * number + height, len(bars), what)
    return "\n".join([*lines, "</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/release/bin/distilld")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--students", type=int, default=4)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--slurm", action="store_true", help="nodes of a Slurm on this machine")
    parser.add_argument("--patience", type=float, default=3600, help="seconds per run")
    parser.add_argument("--svg", type=pathlib.Path, help="file of the picture")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        source = random.Random(7)
        data = folder / "data.jsonl"
        with data.open("w") as file:
            for _ in range(options.rows):
                row = [source.randrange(256) for _ in range(SEQUENCE_LENGTH + 1)]
                file.write(json.dumps({"input_ids": row}) + "\n")
        teacher = folder / "teacher"
        spec = folder / "teacher.json"
        spec.write_text(json.dumps(student_spec(data, teacher, TEACHER, 1)))
        subprocess.run([options.program, "run", spec], check=True, stdout=subprocess.DEVNULL)
        several = measured(options, folder / "several", options.nodes, data, teacher)
        one = measured(options, folder / "one", 1, data, teacher)
    times = [max(end for _, _, end, _ in bars) for bars in (several, one)]
    if options.svg:
        options.svg.write_text(picture(several))
    print(json.dumps({"nodes": options.nodes, "seconds": times[0], "one_node": times[1], "ratio": times[1] / times[0]}))


if __name__ == "__main__":
    main()
