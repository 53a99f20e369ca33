#!/usr/bin/env python3
"""Fuzzes what reads the input of others, target by target: the answers of teachers by protocol (fuzz_teacher_answers),
and requests, answers, job specs, safetensors headers, stores, checkpoints, the worker's messages and what Slurm prints
(fuzz_inputs).

    run.py --program build/asan/bin/fuzz_inputs [--seconds 30] [--jobs 2] [--corpus FOLDER] [TARGET ...]

Fails when an input crashes it, hangs it, breaks a promise, or makes it take too much memory; the input is then kept,
and its path is printed: as tests/fuzz/found/TARGET/NAME it is tried first from then on. With --corpus what reached
further is kept for the next time.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

import teacher_seeds

FOUND = pathlib.Path(__file__).resolve().parent / "found"


def write_seeds(target, program, folder):
    for number, file in enumerate(sorted((FOUND / target).glob("*"))):
        (folder / f"found-{number:04}").write_bytes(file.read_bytes())
    if target in teacher_seeds.RECORDED:
        for number, seed in enumerate(teacher_seeds.seeds(target)):
            (folder / f"{number:04}").write_bytes(seed)
    else:
        subprocess.run([program, f"--target={target}", f"--seeds={folder}"], check=True)


def cpu_seconds(pid):
    stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    user, system = stat[stat.rindex(")") + 2 :].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def run_for(seconds, command, environment):
    """The exit code and what was printed; after so many CPU-seconds, libFuzzer is asked to end."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
        while True:
            try:
                process.wait(0.1)
                break
            except subprocess.TimeoutExpired:
                if cpu_seconds(process.pid) >= seconds:
                    process.send_signal(signal.SIGUSR1)
        output.seek(0)
        return process.returncode, output.read().decode(errors="replace")


def fuzz(target, options):
    """What there is to say of it, and whether nothing was found."""
    with tempfile.TemporaryDirectory(prefix="distilld-fuzz-") as folder:
        first = pathlib.Path(folder) / "first"
        first.mkdir()
        write_seeds(target, options.program, first)
        found = pathlib.Path(options.corpus or folder) / target
        found.mkdir(parents=True, exist_ok=True)
        kept = pathlib.Path(tempfile.mkdtemp(prefix=f"distilld-fuzz-{target}-"))
        # CPU-seconds say how much is tried, however busy the machine is; twenty times as many seconds are a limit.
        command = [options.program, f"--target={target}", f"-max_total_time={20 * options.seconds}"]
        # An input of 1 MiB at most, so 1 GiB is far above what reading it can take.
        command += ["-max_len=1048576", "-timeout=20", "-rss_limit_mb=1024", "-malloc_limit_mb=256"]
        command += ["-print_final_stats=1", f"-artifact_prefix={kept}/", found, first]
        # Targets that read files write them first, which is faster where nothing is synced.
        memory = {"TMPDIR": "/dev/shm"} if os.access("/dev/shm", os.W_OK) else {}
        environment = {**os.environ, **memory}
        code, text = run_for(options.seconds, command, environment)
    executed = re.search(r"stat::number_of_executed_units: *(\d+)", text)
    covered = re.findall(r"cov: (\d+)", text)
    if code != 0 or not executed or not covered:
        return f"{text[-8000:]}\n{target}: the input that did it is in {kept}", False
    kept.rmdir()
    return f"{target}: {executed.group(1)} inputs, {covered[-1]} branches reached, nothing found", True


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--program", required=True)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="all of the program unless some are named")
    parser.add_argument("--seconds", type=int, default=30, help="CPU-seconds for each target")
    parser.add_argument("--jobs", type=int, default=2, help="targets at once")
    parser.add_argument("--corpus", help="folder where inputs that reach further are kept")
    options = parser.parse_args()
    listed = subprocess.run([options.program, "--list"], stdout=subprocess.PIPE, check=True, text=True).stdout.split()
    if unknown := set(options.targets) - set(listed):
        parser.error(f"{', '.join(sorted(unknown))}: no such target; there are {', '.join(listed)}")
    clean = True
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for text, is_clean in pool.map(lambda target: fuzz(target, options), options.targets or listed):
            print(text, flush=True)
            clean = clean and is_clean
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
