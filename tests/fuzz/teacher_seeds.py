"""The first inputs of fuzz_teacher_answers: what the teacher client makes of answers, protocol by protocol, from the
recorded answers of real servers.

An input is a byte of options (k, sequences, whether prompts are sent whole, whether the probe's dialogue is played),
then answers with a border between them; an answer is a byte of the status, a line with the value of the headers that
were asked for, and the body. teacher_answers.cpp reads them.
"""

import base64
import json
import pathlib
import re
import struct

RECORDINGS = pathlib.Path(__file__).resolve().parents[1] / "fixtures" / "teachers"
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
