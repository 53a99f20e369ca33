"""Tokens of a large dataset are kept beside the output: the next start maps them, to the bits of a start without."""

import json
import re
import shutil

import pytest
from support import jobs

TOKENS = 1_100_000  # of bytes, above the 1 MiB of data from which its tokens are kept


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    lines = jobs.text_lines(2000, seed=3)
    rounds = TOKENS // sum(len(line) for line in lines) + 1
    texts = ({"text": f"{turn} {line}"} for turn in range(rounds) for line in lines)
    return jobs.write_jsonl(tmp_path_factory.mktemp("large") / "train.jsonl", texts)


class Runs:
    def __init__(self, distilld, data, folder):
        self.distilld = distilld
        self.folder = folder
        self.spec = jobs.changed(jobs.base_spec(data, folder / "student", 4), {"/dataset/sequence_length": 64})
        self.spec = jobs.changed(self.spec, {"/dataset/eval": str(data), "/eval/max_rows": 8})

    def __call__(self, changes=None, code=0):
        """What the run says, and the hash of its weights."""
        report = self.folder / "report.json"
        file = jobs.write_spec(self.folder / "spec.json", jobs.changed(self.spec, changes or {}))
        done = self.distilld.run("run", file, "--report", report, code=code)
        return done.out + done.err, json.loads(report.read_text())["weights_sha256"] if code == 0 else None

    def kept(self):
        return sorted((self.folder / "student" / ".cache").glob("*.tokens"))


@pytest.fixture
def runs(distilld, data, tmp_path):
    return Runs(distilld, data, tmp_path)


@pytest.mark.parametrize("packing", ["joined", "documents", False])
def test_the_next_start_maps_the_tokens_to_the_same_weights(runs, packing):
    changes = {"/dataset/packing": packing, "/overwrite": True}
    without, wanted = runs({**changes, "/dataset/cache": False})
    assert ".tokens" not in without
    assert not (runs.folder / "student" / ".cache").exists()
    first, weights = runs(changes)
    assert weights == wanted
    [kept] = runs.kept()
    # The held-out set is of the same file: it is mapped at once.
    assert len(re.findall(r"\d+ tokens of .*train.jsonl are kept in " + re.escape(str(kept)), first)) == 1
    assert len(re.findall(r"\d+ tokens of .*train.jsonl are mapped from " + re.escape(str(kept)), first)) == 1
    again, weights = runs(changes)
    assert weights == wanted
    assert len(re.findall(r"\d+ tokens of .*train.jsonl are mapped from ", again)) == 2
    assert " are kept in " not in again


def test_a_run_goes_on_to_the_same_bits_with_its_tokens_and_without(runs):
    whole = {"/training/max_steps": 6, "/training/lr_scheduler_type": "constant", "/checkpoint/every_steps": 1}
    wanted = runs(whole)[1]
    for loses in (False, True):
        shutil.rmtree(runs.folder / "student")
        runs({**whole, "/training/max_steps": 3})
        if loses:
            shutil.rmtree(runs.folder / "student" / ".cache")
        said, weights = runs(whole)
        assert "resumed from" in said
        assert ("are kept in" in said) == loses
        assert weights == wanted


def test_damaged_tokens_are_read_anew(runs):
    wanted = runs()[1]
    [kept] = runs.kept()
    ids = kept / "0.ids"
    content = bytearray(ids.read_bytes())
    content[len(content) // 2] ^= 1
    ids.write_bytes(content)
    said, weights = runs({"/overwrite": True})
    assert "cannot be used, reading the data again" in said
    assert f"{ids}: is damaged" in said
    assert "are kept in" in said
    assert weights == wanted
    assert "are kept in" not in runs({"/overwrite": True})[0]


def test_tokens_of_earlier_data_go_when_a_run_has_others(runs, data, tmp_path):
    runs()
    [old] = runs.kept()
    runs({"/overwrite": True, "/dataset/sequence_length": 32})
    [new] = runs.kept()
    assert new != old
    # Another's folder is not touched by a run that is refused.
    said, _ = runs({"/dataset/sequence_length": 48}, code=1)
    assert "overwrite" in said
    assert new in runs.kept()
