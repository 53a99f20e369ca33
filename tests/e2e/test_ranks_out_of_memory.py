"""A rank that runs out of memory: all ranks end, and go on with half the micro-batch."""

import json
import resource

from support import jobs

STEPS = 10
ROWS = 64


def spec_of(data, output):
    changes = {
        # One tensor of the feed-forward layer is so large that malloc asks the kernel for it each time.
        "/student/config": jobs.llama_config(
            32, max_position_embeddings=128, num_hidden_layers=1, intermediate_size=2048
        ),
        "/dataset/sequence_length": 128,
        "/training/batch_size": ROWS,
        "/training/micro_batches": 2,
        "/training/gradient_groups": 2,
        "/training/ranks": 2,
        "/training/replicas": 1,
        "/checkpoint": {"every_steps": 2, "every_secs": 0, "keep": 2},
    }
    return jobs.changed(jobs.base_spec(data, output, STEPS), changes)


def test_all_ranks_go_on_with_half_the_micro_batch_of_one_without_memory(distilld, tmp_path):
    data = jobs.write_text_data(tmp_path / "train.jsonl", 400)
    file = jobs.write_spec(tmp_path / "spec.json", spec_of(data, tmp_path / "student"))
    report = tmp_path / "report.json"
    run = distilld.start("run", file, "--report", report)
    last = min(run.workers(2))  # rank 0 is started last
    run.wait_for_line(r"step 2\b|step-0*2\b")
    # It keeps what it has and gets no more.
    resource.prlimit(last, resource.RLIMIT_AS, (1 << 20, resource.RLIM_INFINITY))
    run.expect(0)
    said = run.out + run.err
    assert "rank 1 of 2: /training/batch_size: a micro-batch of 8192 positions does not fit into the memory" in said
    assert (
        f"out-of-memory restart 1 of 3 from the newest checkpoint in 1 s, with batch_size {ROWS // 2} and "
        f"micro_batches 4 in place of batch_size {ROWS} and micro_batches 2"
    ) in said
    assert said.count("restart 1 of") == 1 and "restart 2 of" not in said
    last_progress = json.loads(report.read_text())["last"]
    assert last_progress["step"] == STEPS and len(last_progress["ranks"]) == 2
