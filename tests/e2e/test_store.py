"""The store as others see it: shards read by Python's safetensors against what numpy makes of the same logits, and
`distilld store`."""

import json
import subprocess

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

ROWS, COLUMNS, VOCABULARY, K, P, SAMPLES = 5, 6, 300, 8, 0.7, 40
BITS = 9  # of an id below 300
STORED = COLUMNS - 1  # the first position of a row carries no loss


@pytest.fixture(scope="module")
def logits():
    return np.random.default_rng(7).normal(0, 3, (ROWS, COLUMNS, VOCABULARY)).astype("<f4")


@pytest.fixture(scope="module")
def write_store(programs, logits, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores")
    raw = folder / "logits.f32"
    raw.write_bytes(logits.tobytes())
    made = {}

    def write(store_format, values="f16"):
        name = f"{store_format}-{values}"
        if name not in made:
            manifest = dict(format=store_format, values=values, k=K, p=P, samples=SAMPLES, vocabulary=VOCABULARY)
            manifest |= dict(rows=ROWS, sequence_length=COLUMNS, shard_rows=2, dataset_hash="d", teacher_name="numpy")
            command = [programs / "store_probe", folder / name, json.dumps(manifest), raw]
            subprocess.run(list(map(str, command)), check=True, timeout=60)
            made[name] = folder / name
        return made[name]

    return write


def run(programs, *arguments, code=0):
    command = [str(programs / "distilld"), "store", *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == code, result.stdout + result.stderr
    return result


def report(programs, *arguments, code=0):
    return json.loads(run(programs, *arguments, "--output", "json", code=code).stdout)


def log_softmax(logits):
    wide = logits.astype(np.float64)
    shifted = wide - wide.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def shards(folder):
    """(shard, rows of the dataset) in order; what is the same for each format is checked."""
    for number, first in enumerate(range(0, ROWS, 2)):
        shard = load_file(folder / f"shard-{number:06}.safetensors")
        rows = list(range(first, min(first + 2, ROWS)))
        assert shard["mask"].tolist() == [[0b111110]] * len(rows)
        assert shard["row_starts"].tolist() == [STORED * i for i in range(len(rows) + 1)]
        assert shard["checksums"].shape == (len(rows),)
        yield shard, rows


def positions(rows):
    """(place in the shard, row, position) of each stored position."""
    return [(i * STORED + t - 1, row, t) for i, row in enumerate(rows) for t in range(1, COLUMNS)]


def unpack(raw, count):
    number = int.from_bytes(raw.tobytes(), "little")
    return [number >> (BITS * i) & (1 << BITS) - 1 for i in range(count)]


def best(logits, row, position):
    """Ids and log-probabilities of the K most probable, and the log of the rest."""
    log_p = log_softmax(logits[row, position])
    ids = np.argsort(-log_p, kind="stable")[:K]
    return ids.tolist(), log_p[ids], np.log(1 - np.exp(log_p[ids]).sum())


def test_full(write_store, logits):
    for values, dtype in (("f16", "<f2"), ("f32", "<f4")):
        for shard, rows in shards(write_store("full", values)):
            for place, row, position in positions(rows):
                np.testing.assert_array_equal(shard["logits"][place], logits[row, position].astype(dtype))


def test_topk(write_store, logits):
    for values, tolerance in (("f16", 4e-3), ("f32", 1e-6)):
        for shard, rows in shards(write_store("topk", values)):
            for place, row, position in positions(rows):
                ids, log_p, tail = best(logits, row, position)
                assert shard["ids"][place].tolist() == ids
                np.testing.assert_allclose(shard["logprobs"][place], log_p, atol=tolerance)
                np.testing.assert_allclose(shard["tail"][place], tail, rtol=1e-5)


@pytest.mark.parametrize("values", ["f16", "u8"])
def test_packed(write_store, logits, values):
    for shard, rows in shards(write_store("packed", values)):
        assert shard["ids"].shape[1] == K * BITS // 8
        for place, row, position in positions(rows):
            ids, log_p, tail = best(logits, row, position)
            assert unpack(shard["ids"][place], K) == ids
            np.testing.assert_allclose(shard["tail"][place], tail, atol=2e-3)
            if values == "f16":
                np.testing.assert_allclose(shard["logprobs"][place], log_p, atol=4e-3)
            else:
                first, last = shard["range"][place].astype(np.float64)
                got = first - (first - last) / 255 * shard["codes"][place]
                np.testing.assert_allclose(got, log_p, atol=(first - last) / 510 + 4e-3)


@pytest.mark.parametrize("values", ["f16", "u8"])
def test_topp(write_store, logits, values):
    counts = set()
    for shard, rows in shards(write_store("topp", values)):
        entry = byte = 0
        for place, row, position in positions(rows):
            ids, log_p, _ = best(logits, row, position)
            count = min(int(np.searchsorted(np.cumsum(np.exp(log_p)), P)) + 1, K)
            counts.add(count)
            assert shard["counts"][place] == count
            assert unpack(shard["ids"][byte : byte + (count * BITS + 7) // 8], count) == ids[:count]
            np.testing.assert_allclose(shard["tail"][place], np.log(1 - np.exp(log_p[:count]).sum()), atol=2e-3)
            if values == "f16":
                np.testing.assert_allclose(shard["logprobs"][entry : entry + count], log_p[:count], atol=4e-3)
            if position == 1 and row == rows[-1]:
                assert shard["ids_starts"][-2] == byte
                assert shard["logprobs_starts" if values == "f16" else "codes_starts"][-2] == entry
            entry, byte = entry + count, byte + (count * BITS + 7) // 8
    assert len(counts) > 2


def test_sampled(write_store, logits):
    for shard, rows in shards(write_store("sampled")):
        entry = byte = 0
        for place, row, position in positions(rows):
            count = int(shard["counts"][place])
            draws = shard["draws"][entry : entry + count].astype(int)
            ids = unpack(shard["ids"][byte : byte + (count * BITS + 7) // 8], count)
            assert draws.sum() == SAMPLES
            assert len(set(ids)) == count and sorted(draws, reverse=True) == draws.tolist()
            assert np.exp(log_softmax(logits[row, position]))[ids].min() > 1e-7
            entry, byte = entry + count, byte + (count * BITS + 7) // 8


def test_metadata_says_what_a_shard_is(write_store):
    with safe_open(write_store("packed") / "shard-000001.safetensors", "numpy") as shard:
        assert shard.metadata() == {
            "format": "distilld-store",
            "store_format": "packed",
            "values": "f16",
            "vocabulary": str(VOCABULARY),
            "first_row": "2",
        }


def test_inspect_tells_bytes_a_token_and_what_storing_has_cost(programs, write_store, logits):
    folder = write_store("packed")
    told = report(programs, "inspect", folder, "--against", write_store("full", "f32"))
    sizes = [file.stat().st_size for file in folder.glob("shard-*.safetensors")]
    assert (told["rows"], told["sealed_rows"], told["sealed_shards"]) == (ROWS, ROWS, 3)
    assert (told["tokens"], told["bytes"]) == (ROWS * STORED, sum(sizes))
    assert told["bytes_per_token"] == pytest.approx(sum(sizes) / (ROWS * STORED))
    assert told["manifest"]["teacher_name"] == "numpy"

    wanted = []
    for row in range(ROWS):
        for position in range(1, COLUMNS):
            ids, log_p, tail = best(logits, row, position)
            teacher = log_softmax(logits[row, position])
            stored = np.full(VOCABULARY, tail - np.log(VOCABULARY - K))
            stored[ids] = log_p.astype("<f2")
            wanted.append((np.exp(teacher) * (teacher - log_softmax(stored))).sum())
    assert told["against"]["tokens"] == ROWS * STORED
    assert told["against"]["kl_teacher_stored"] == pytest.approx(np.mean(wanted), rel=1e-4)
    # When it was written each eighth token was measured: the first of each row here.
    assert told["kl"] == {
        "direction": "teacher_stored",
        "mean": pytest.approx(np.mean(wanted[::STORED]), rel=1e-4),
        "tokens": ROWS,
    }
    text = run(programs, "inspect", folder).stdout
    assert "packed, k 8, f16, vocabulary 300" in text and "bytes per token" in text


def test_verify_names_file_and_row(programs, write_store, tmp_path):
    whole = report(programs, "verify", write_store("topk"))
    assert whole["whole"] and whole["rows"] == ROWS and whole["defects"] == []

    for file in write_store("topk").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    shard = tmp_path / "shard-000001.safetensors"
    damaged = bytearray(shard.read_bytes())
    damaged[-1] ^= 1
    shard.write_bytes(damaged)
    (tmp_path / "shard-000000.safetensors").unlink()
    (tmp_path / "foreign").touch()
    told = report(programs, "verify", tmp_path, code=1)
    assert [text.split(": ")[0] for text in told["defects"]] == [
        str(tmp_path / "shard-000000.safetensors"),
        str(shard),
    ]
    assert "row 3 is damaged" in told["defects"][1]
    assert told["foreign"] == [str(tmp_path / "foreign")]
    text = run(programs, "verify", tmp_path, code=1).stdout
    assert "row 3 is damaged" in text and "is not a file of the store" in text and text.endswith("tokens\n")
    assert "none is not a store: no such folder" in run(programs, "verify", tmp_path / "none", code=1).stderr


def test_export_makes_smaller_stores_and_lines(programs, write_store, logits, tmp_path):
    full = write_store("full", "f32")
    told = report(programs, "export", full, "--to", tmp_path / "p", "--format", "packed", "--entries", K)
    assert told["sealed_rows"] == ROWS and told["manifest"]["k"] == K
    ours = run(programs, "export", tmp_path / "p", "--jsonl", "-").stdout
    assert ours == run(programs, "export", write_store("packed"), "--jsonl", "-").stdout

    file = tmp_path / "lines"
    run(programs, "export", write_store("topk", "f32"), "--jsonl", file, "--first-row", 2, "--rows", 1)
    lines = list(map(json.loads, file.read_text().splitlines()))
    assert [(line["row"], line["position"]) for line in lines] == [(2, t) for t in range(1, COLUMNS)]
    ids, log_p, tail = best(logits, 2, 3)
    assert lines[2]["ids"] == ids
    assert lines[2]["logprobs"] == pytest.approx(log_p.tolist(), abs=1e-5)
    assert lines[2]["tail"] == pytest.approx(tail, abs=1e-4)

    refused = run(programs, "export", write_store("topk"), "--to", tmp_path / "q", "--format", "sampled", code=2)
    assert "is made of logits, which it does not have" in refused.stderr
    assert "--to or --jsonl" in run(programs, "export", full, code=2).stderr


def test_a_store_of_a_real_vocabulary_takes_the_bytes_that_are_promised(programs):
    command = [programs / "distilld-bench", "store", "--sequence-length", 64, "--rows", 8, "--repeat", 1]
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300, check=True)
    formats = json.loads(result.stdout)["formats"]
    of = {(f["format"], f["values"], f["k"] or f["samples"]): f for f in formats}
    assert of["packed", "f16", 64]["bytes_per_token"] <= 300
    assert of["packed", "u8", 36]["bytes_per_token"] <= 128
    # Eight bits lose next to nothing beside sixteen, and fewer entries only the spread of a larger tail.
    assert of["packed", "u8", 64]["kl"] < of["packed", "f16", 64]["kl"] + 0.001
    assert of["packed", "u8", 36]["kl"] < of["packed", "f16", 64]["kl"] + 0.1
