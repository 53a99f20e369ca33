"""The peak of memory does not grow with the number of micro-batches that a step adds up.

It is the peak of the worker's resident memory as the kernel counts it. glibc moves the size from which it gives memory
back at once with what it sees; held where it begins, resident memory is what the program holds. (Left to itself, it
keeps 2% more for each eight times as many micro-batches that a process has seen, whatever a step makes of them.)
"""

import pathlib
import time

import pytest
from support import jobs

FIXED_THRESHOLDS = {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"}

# What a micro-batch holds is a tenth of the peak, so that one that is kept for too long shows. 32 micro-batches in all,
# however many make a step: the window of the fetch is filled in each run.
STUDENT = jobs.llama_config(128)
SEQUENCE_LENGTH = 128
BATCH_SIZE = 8
MICRO_BATCHES = 32


def peak_mib(distilld, file):
    """Of the worker of a run, which succeeds."""
    process = distilld.start("run", file, env=FIXED_THRESHOLDS)
    status = pathlib.Path(f"/proc/{process.worker()}/status")
    peak = 0
    while process.code is None:
        try:
            lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
            peak = int(lines["VmHWM"].split()[0])
        except (FileNotFoundError, ProcessLookupError, KeyError):
            pass  # it has ended
        time.sleep(0.002)
    process.expect(0)
    return peak / 1024


@pytest.fixture
def peak(distilld, teacher, tmp_path):
    data = jobs.write_text_data(tmp_path / "train.jsonl", 400)

    def measure(batch_size, micro_batches, steps):
        name = f"{batch_size}-{micro_batches}-{steps}"
        spec = jobs.changed(
            jobs.distil_spec(data, tmp_path / name, teacher.url, steps),
            {
                "/student/config": STUDENT,
                "/dataset/sequence_length": SEQUENCE_LENGTH,
                "/training/batch_size": batch_size,
                "/training/micro_batches": micro_batches,
                "/teacher/window": 8,
            },
        )
        return peak_mib(distilld, jobs.write_spec(tmp_path / f"{name}.json", spec))

    return measure


def test_the_peak_is_flat_over_micro_batches_1_to_32(peak, capsys):
    one = peak(BATCH_SIZE, 1, MICRO_BATCHES)
    many = peak(BATCH_SIZE, MICRO_BATCHES, 1)
    # The measure sees what a micro-batch holds: one of twice the size is another figure.
    twice = peak(2 * BATCH_SIZE, 1, 1)
    with capsys.disabled():
        print(
            f"\npeak: {one:.1f} MiB with 1 micro-batch a step, {many:.1f} with {MICRO_BATCHES}, {twice:.1f} with "
            "micro-batches of twice the size"
        )
    assert many == pytest.approx(one, rel=0.02)
    assert twice > 1.06 * one
