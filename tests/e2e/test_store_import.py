"""llama.cpp's file of log-probabilities as a teacher: `distilld store import`, and a job that trains on it."""

import json
import struct
import subprocess

import numpy as np
import pytest
from support import jobs

CONTEXT, CHUNKS, VOCABULARY = 17, 12, jobs.BYTE_VOCABULARY
FIRST = CONTEXT // 2  # position of the first row
BOS = 256


@pytest.fixture(scope="module")
def told():
    """[chunk, position from FIRST, vocabulary] log-probabilities, rounded as the file has them; and the tokens."""
    random = np.random.default_rng(5)
    tokens = random.integers(0, 256, (CHUNKS, CONTEXT))
    logits = random.normal(0, 2, (CHUNKS, CONTEXT - 1 - FIRST, VOCABULARY))
    logprobs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    smallest = logprobs.min(-1, keepdims=True).astype("<f4")
    scale = ((logprobs.max(-1, keepdims=True) - smallest) / 65535).astype("<f4")
    codes = np.rint((logprobs - smallest) / scale).clip(0, 65535).astype("<u2")
    return tokens, scale, smallest, codes


@pytest.fixture(scope="module")
def kld_file(told, tmp_path_factory):
    tokens, scale, smallest, codes = told
    file = tmp_path_factory.mktemp("kld") / "base.kld"
    padded = np.concatenate([codes, np.zeros((*codes.shape[:2], VOCABULARY % 2), "<u2")], -1)
    rows = b"".join(
        scale[c, j].tobytes() + smallest[c, j].tobytes() + padded[c, j].tobytes()
        for c, j in np.ndindex(codes.shape[:2])
    )
    head = b"_logits_" + struct.pack("<3i", CONTEXT, VOCABULARY, CHUNKS)
    file.write_bytes(head + tokens.astype("<i4").tobytes() + rows)
    return file


def store(programs, *arguments, code=0):
    command = [str(programs / "distilld"), "store", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def lines(programs, folder):
    return [json.loads(line) for line in store(programs, "export", folder, "--jsonl", "-").stdout.splitlines()]


def test_dataset_and_answers_are_those_of_the_file(programs, kld_file, told, tmp_path):
    tokens, scale, smallest, codes = told
    command = ("import", kld_file, "--to", tmp_path / "store", "--dataset", tmp_path / "data.jsonl", "--bos", BOS)
    report = json.loads(store(programs, *command, "--format", "full", "--values", "f32", "--output", "json").stdout)
    assert report["sealed_rows"] == CHUNKS
    assert report["tokens"] == CHUNKS * (CONTEXT - 1 - FIRST)
    rows = [json.loads(line) for line in (tmp_path / "data.jsonl").read_text().splitlines()]
    assert [row["input_ids"][1:] for row in rows] == tokens[:, 1:].tolist()
    assert {row["input_ids"][0] for row in rows} == {BOS}
    assert {tuple(row["labels"][: FIRST + 1]) for row in rows} == {(-100,) * (FIRST + 1)}
    assert [row["labels"][FIRST + 1 :] for row in rows] == tokens[:, FIRST + 1 :].tolist()
    expected = (scale * codes.astype("f4") + smallest).reshape(-1, VOCABULARY)
    stored = lines(programs, tmp_path / "store")
    assert [(line["row"], line["position"]) for line in stored] == [
        (c, FIRST + j) for c, j in np.ndindex(codes.shape[:2])
    ]
    np.testing.assert_allclose([line["logits"] for line in stored], expected, rtol=0, atol=1e-6)


def test_a_student_learns_from_it(programs, distilld, kld_file, tmp_path):
    command = ("import", kld_file, "--to", tmp_path / "store", "--dataset", tmp_path / "data.jsonl")
    said = store(programs, *command, "-k", 32).stdout
    assert "packed, k 32" in said and "llama.cpp, base.kld" in said
    again = store(programs, *command, "-k", 32).stdout  # goes on with what is there
    assert again == said
    spec = jobs.base_spec(tmp_path / "data.jsonl", tmp_path / "student", steps=30)
    spec["teacher"] = {"store": str(tmp_path / "store")}
    spec["dataset"] |= {"sequence_length": CONTEXT - 1, "packing": False}
    report = tmp_path / "report.json"
    distilld.run("run", jobs.write_spec(tmp_path / "spec.json", spec), "--report", report)
    steps = json.loads(report.read_text())["last"]
    assert steps["step"] == 30
    assert steps["kd_loss"] < 1.5  # of logits with a deviation of 2; it begins at about 1.9


def test_what_is_no_such_file_is_named(programs, kld_file, tmp_path):
    command = ("--to", tmp_path / "store", "--dataset", tmp_path / "data.jsonl")
    (tmp_path / "cut").write_bytes(kld_file.read_bytes()[:-1])
    assert "cut: is cut off" in store(programs, "import", tmp_path / "cut", *command, code=2).stderr
    (tmp_path / "text").write_text("hello")
    assert "--kl-divergence-base" in store(programs, "import", tmp_path / "text", *command, code=2).stderr
    (tmp_path / "data.jsonl").write_text("{}\n")
    assert "is there already" in store(programs, "import", kld_file, *command, code=2).stderr
    assert (tmp_path / "data.jsonl").read_text() == "{}\n"
    assert not (tmp_path / "store").exists()
