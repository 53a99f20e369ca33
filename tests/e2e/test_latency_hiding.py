"""A teacher 200 ms away, eight requests at a time: the student does not wait for it.

The one test that asserts wall time, because that is what the program is for. It compares runs on the same machine a
few seconds apart with the bound that follows from latency and student time as those runs measured them.
"""

import json

import pytest
from support import jobs

CONCURRENCY = 8
SHARE_OF_BOUND = 0.9
TRIES = 3

# A micro-batch keeps the student busy for longer than a eighth of the latency on any machine of today, and the teacher,
# whose network is a fraction of the student's, does not compete for the cores.
STUDENT = jobs.llama_config(128, num_attention_heads=4, num_key_value_heads=4, intermediate_size=384)
SEQUENCE_LENGTH = 64
BATCH_SIZE = 8
STEPS = {"parallel": 36, "sequential": 6}
MICRO_BATCHES = 4


def measure(distilld, teacher_url, data, folder, parallel):
    name = "parallel" if parallel else "sequential"
    spec = jobs.changed(
        jobs.distil_spec(data, folder / name, teacher_url, STEPS[name]),
        {
            "/student/config": STUDENT,
            "/dataset/sequence_length": SEQUENCE_LENGTH,
            "/training/batch_size": BATCH_SIZE,
            "/training/micro_batches": MICRO_BATCHES,
            "/training/parallel": parallel,
            "/teacher/max_concurrent": CONCURRENCY,
            # Each try trains anew.
            "/resume": False,
            "/overwrite": True,
        },
    )
    distilld.run("run", jobs.write_spec(folder / f"{name}.json", spec), "--report", folder / f"{name}-report.json")
    last = json.loads((folder / f"{name}-report.json").read_text())["last"]
    stages = {stage["stage"]: stage["busy_seconds"] for stage in last["stages"]}
    return {
        "tokens_per_second": last["tokens_per_second"],
        "latency": last["fetch"]["latency_p50_seconds"],
        "student": (stages["student"] + stages["optimizer"]) / (STEPS[name] * MICRO_BATCHES),
        "stall": last["stall_fraction"],
    }


@pytest.mark.timing
def test_parallel_beats_sequential_by_the_bound(distilld, teacher_folder, tmp_path, capsys):
    data = jobs.write_text_data(tmp_path / "train.jsonl", 400)
    teacher = distilld.teacher(teacher_folder, "--dtype", "fp32", "--delay-ms", "200")
    shares = []
    for _ in range(TRIES):
        sequential = measure(distilld, teacher.url, data, tmp_path, parallel=False)
        parallel = measure(distilld, teacher.url, data, tmp_path, parallel=True)
        # The student undisturbed: a fetch that steals its time must not lower the bound that it is measured by.
        latency, student = sequential["latency"], min(sequential["student"], parallel["student"])
        bound = (latency + student) / max(latency / CONCURRENCY, student)
        speedup = parallel["tokens_per_second"] / sequential["tokens_per_second"]
        shares.append(speedup / bound)
        with capsys.disabled():
            print(
                f"\nT {1e3 * latency:.0f} ms, S {1e3 * student:.1f} ms "
                f"(parallel {1e3 * parallel['student']:.1f}): speedup {speedup:.2f}, bound {bound:.2f}, "
                f"share {shares[-1]:.3f}, stall {parallel['stall']:.3f}"
            )
        assert latency >= 0.2
        if shares[-1] >= SHARE_OF_BOUND:
            break
    assert max(shares) >= SHARE_OF_BOUND, shares
