#!/usr/bin/env python3
"""Fuzzes what the teacher client makes of answers, protocol by protocol, from the recorded answers of real servers.

    run.py --program build/asan/bin/fuzz_teacher_answers [--seconds 30] [--jobs 2] [--corpus FOLDER] [PROTOCOL ...]

Fails when an input crashes it, hangs it, breaks a promise of decoding (shapes), or makes it take too much memory; the
input is then kept, and its path is printed: as tests/fuzz/found/PROTOCOL/NAME it is tried first from then on. With
--corpus what reached further is kept for the next time.

An input is a byte of options (k, sequences, whether prompts are sent whole, whether the probe's dialogue is played),
then answers with a border between them; an answer is a byte of the status, a line with the value of the headers that
were asked for, and the body. teacher_answers.cpp reads them.
"""

import argparse
import base64
import concurrent.futures
import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

RECORDINGS = pathlib.Path(__file__).resolve().parents[1] / "fixtures" / "teachers"
FOUND = pathlib.Path(__file__).resolve().parent / "found"
BORDER = b"\n\x1e\n"
LOGITS, TOP_5, TOP_20 = 0, 1, 2
THREE, WHOLE, NEGOTIATE = 8, 16, 32
OK, BAD_REQUEST, UNAUTHORISED, NOT_FOUND, FAILED, UNAVAILABLE = 0, 3, 4, 5, 6, 7

# The recordings whose names begin so are of interest to a protocol.
RECORDED = {
    "kserve": ("kserve", "triton", "mlserver"),
    "seed": (),
    "vllm": ("vllm",),
    "vllm-generate": ("vllm",),
    "sglang": ("sglang",),
    "trl": ("vllm",),
    "auto": ("kserve", "triton", "mlserver", "vllm", "sglang", "llama"),
}
PROMPTS = [entry["prompt"][:10] for entry in json.loads((RECORDINGS / "reference.json").read_text())[:3]]


def trl_answer(k):
    """As TRL's server writes one: rows for the tokens of the first prompts but their first."""

    def base64_of(code, values):
        return base64.b64encode(struct.pack(f"<{len(values)}{code}", *values)).decode()

    tokens = [token for prompt in PROMPTS for token in prompt[1:]]
    return json.dumps(
        {
            "logprobs": None,
            "logprobs_b64": base64_of("f", [-1.0 - i % k for i in range(len(tokens) * k)]),
            "token_ids_b64": base64_of("i", [i % k for i in range(len(tokens) * k)]),
            "actual_logprobs_b64": base64_of("f", [-2.0] * len(tokens)),
            "actual_token_ids_b64": base64_of("i", tokens),
            "shape": [len(PROMPTS), 9, k],
            "completion_lengths": [9] * len(PROMPTS),
        }
    ).encode()


# Made by hand: for these no server was recorded.
WRITTEN = {
    "seed": [
        json.dumps({"logits": [[[t / 8] * 512 for t in range(9)]]}).encode(),
        b'{"logits":[[[0.5,-1e3,2.25e-7],[1,2,3]]]}',
        b'{"error":"overloaded"}',
        b'{"logits":[[[NaN]]]}',
    ],
    "trl": [trl_answer(5), trl_answer(20)],
}
MODEL_PAGES = (
    "kserve-model-meta.json",
    "triton-model-meta.json",
    "triton-model-config.json",
    "mlserver-model-meta.json",
)
MODEL_LISTS = ("vllm-models.json", "sglang-models.json", "llama-models.json")


def answer(body, status=OK, header=b""):
    return bytes([status]) + header + b"\n" + body


def json_bytes(name):
    """The value of Inference-Header-Content-Length that was recorded with a binary body."""
    headers = RECORDINGS / (name.removesuffix(".bin") + ".headers.txt")
    if not headers.exists():
        headers = RECORDINGS / "triton-infer-binary.headers.txt"
    found = re.search(rb"(?i)inference-header-content-length: *(\d+)", headers.read_bytes())
    return found.group(1)


def recorded_answers(prefixes):
    for file in sorted(RECORDINGS.iterdir()):
        if not file.name.startswith(prefixes or ("-",)) or ".request." in file.name or ".headers." in file.name:
            continue
        body = file.read_bytes()
        status = BAD_REQUEST if "-err-" in file.name else OK
        yield answer(body, status, json_bytes(file.name) if file.suffix == ".bin" else b"")


def seeds(protocol):
    for file in sorted((FOUND / protocol).glob("*")):
        yield file.read_bytes()
    answers = list(recorded_answers(RECORDED.get(protocol))) + [answer(body) for body in WRITTEN.get(protocol, [])]
    for body in answers:
        for options in (LOGITS, TOP_5, TOP_20, TOP_5 | WHOLE, LOGITS | WHOLE, TOP_5 | THREE, TOP_20 | THREE):
            yield bytes([options]) + body
    pages = [answer((RECORDINGS / name).read_bytes()) for name in MODEL_PAGES + MODEL_LISTS]
    for page in pages:
        for body in answers:
            yield bytes([TOP_5 | NEGOTIATE]) + BORDER.join([page, body, body])
            yield bytes([LOGITS | NEGOTIATE | WHOLE]) + BORDER.join([answer(b""), page, body, body])
    yield bytes([NEGOTIATE]) + BORDER.join([answer(b"", UNAVAILABLE)] * 3)
    yield bytes([NEGOTIATE]) + BORDER.join([answer(b'{"detail":"Not Found"}', NOT_FOUND)] * 8)


def fuzz(protocol, options):
    """What there is to say of it, and whether nothing was found."""
    with tempfile.TemporaryDirectory(prefix="distilld-fuzz-") as folder:
        first = pathlib.Path(folder) / "first"
        first.mkdir()
        for number, seed in enumerate(seeds(protocol)):
            (first / f"{number:04}").write_bytes(seed)
        found = pathlib.Path(options.corpus or folder) / protocol
        found.mkdir(parents=True, exist_ok=True)
        kept = pathlib.Path(tempfile.mkdtemp(prefix=f"distilld-fuzz-{protocol}-"))
        command = [options.program, f"--protocol={protocol}", f"-max_total_time={options.seconds}"]
        # A body of 1 MiB at most, so 1 GiB is far above what decoding it can take.
        command += ["-max_len=1048576", "-timeout=20", "-rss_limit_mb=1024", "-malloc_limit_mb=256"]
        command += ["-print_final_stats=1", f"-artifact_prefix={kept}/", found, first]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    text = done.stdout.decode(errors="replace")
    executed = re.search(r"stat::number_of_executed_units: *(\d+)", text)
    covered = re.findall(r"cov: (\d+)", text)
    if done.returncode != 0 or not executed or not covered:
        return f"{text[-8000:]}\n{protocol}: the input that did it is in {kept}", False
    kept.rmdir()
    return f"{protocol}: {executed.group(1)} inputs, {covered[-1]} branches reached, nothing found", True


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--program", required=True)
    parser.add_argument("protocols", nargs="*", metavar="PROTOCOL", help="all unless some are named")
    parser.add_argument("--protocol", help="one more, by its name")
    parser.add_argument("--seconds", type=int, default=30, help="for each protocol")
    parser.add_argument("--jobs", type=int, default=2, help="protocols at once")
    parser.add_argument("--corpus", help="folder where inputs that reach further are kept")
    options = parser.parse_args()
    options.protocols += [options.protocol] if options.protocol else []
    listed = subprocess.run([options.program, "--list"], stdout=subprocess.PIPE, check=True, text=True).stdout.split()
    if unknown := set(options.protocols) - set(listed):
        parser.error(f"{', '.join(sorted(unknown))}: no such protocol; there are {', '.join(listed)}")
    clean = True
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for text, is_clean in pool.map(lambda protocol: fuzz(protocol, options), options.protocols or listed):
            print(text, flush=True)
            clean = clean and is_clean
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
