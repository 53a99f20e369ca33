"""scripts/on_policy_task.py in its quick size, without TRL; and its brackets."""

import importlib.util
import json
import pathlib
import random
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "on_policy_task.py"
SECONDS = 300


@pytest.fixture(scope="module")
def brackets():
    spec = importlib.util.spec_from_file_location("brackets", SCRIPT.with_name("on_policy_task_data.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_has_a_row_of_each_run(programs, tmp_path):
    command = [sys.executable, SCRIPT, "--quick", "--bin", programs, "--work", tmp_path / "work"]
    command += ["--report", tmp_path / "report.json", "--svg", tmp_path / "curves.svg"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "report.json").read_text())
    rows = {row["run"]: row["curve"] for row in result["rows"]}
    assert list(rows) == ["off-policy", "k = 0", "k = 1"]
    printed = done.stdout.splitlines()
    for name, curve in rows.items():
        assert len(curve) == 6
        assert all(0 <= point["accuracy"] <= 1 for point in [*curve, {"accuracy": result["base"]}])
        assert curve[-1]["step"] == 4, "the last student of the run was judged"
        assert [point["step"] for point in curve] == sorted(point["step"] for point in curve)
        shares = [f"{100 * point['accuracy']:.0f} %" for point in curve]
        assert f"| {' | '.join([name, *shares, str(curve[-1]['step'])])} |" in printed
    assert (tmp_path / "curves.svg").read_text().count("<polyline") == 3
    for name, staleness in (("k---0", 0), ("k---1", 1)):
        lines = (tmp_path / "work" / "runs" / name / "student" / "rollouts.jsonl").read_text().splitlines()
        versions = [json.loads(line)["version"] for line in lines[1:3]]
        assert versions == [0, 1 - staleness], "the second step's answers are of this age"


def test_answers_close_what_is_open(brackets):
    held_out = brackets.examples(50, seed=1)
    train = brackets.examples(50, seed=2, besides=held_out)
    assert not {asked for asked, _ in held_out} & {asked for asked, _ in train}
    for asked, answer in [*held_out, *train]:
        assert brackets.is_right(asked, answer) and len(answer) < brackets.MAX_ANSWER
        assert not brackets.is_right(asked, answer[:-1]) and not brackets.is_right(asked, answer + ")")
    assert brackets.is_right("([=", "]()[])"), "an answer may open further ones"
    assert not brackets.is_right("([=", ")]") and not brackets.is_right("([=", "]) ")


def test_lessons_say_what_is_right_after_slips(brackets):
    asked, answer = "([(=", ")])"
    assert brackets.with_slips(asked, answer, 0.0, random.Random(1)) == {"prompt": asked, "completion": answer}
    slips = 0
    for seed in range(20):
        row = brackets.with_slips(asked, answer, 0.5, random.Random(seed))
        if "prompt" in row:
            continue
        read = bytes(row["input_ids"][:-1]).decode()
        assert row["labels"] == [*[-100] * len(asked), *answer.encode(), 256]
        assert read.startswith(asked) and len(read) == len(asked) + len(answer) and row["input_ids"][-1] == 256
        slips += sum(letter != right for letter, right in zip(read[len(asked) :], answer, strict=True))
        assert read != asked + answer and set(read[len(asked) :]) <= set(brackets.KINDS.values())
    assert slips > 10
