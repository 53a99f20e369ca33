"""scripts/quickstart_data.py and quickstart_result.py: what is held out, and what is said of the result."""

import json
import pathlib
import random
import subprocess
import sys

import pytest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
LONG = 60  # characters of a paragraph that must not be in both parts
EVAL_KILOBYTES = 20


def script(name, *words):
    return subprocess.run(
        [sys.executable, SCRIPTS / f"{name}.py", *map(str, words)], capture_output=True, text=True, check=False
    )


def sentences(source, count):
    words = ["stone", "river", "quiet", "walks", "green", "seven", "because", "under", "letter", "makes"]
    return " ".join(" ".join(source.choices(words, k=9)) + f" {source.randrange(10**6)}." for _ in range(count))


def texts_of(path):
    return [json.loads(line)["text"] for line in path.read_text().splitlines()]


def make(folder, text, megabytes=5):
    (folder / "text.txt").write_text(text)
    flags = ["--megabytes", megabytes, "--eval-kilobytes", EVAL_KILOBYTES, "--text", folder / "text.txt"]
    return script("quickstart_data", folder / "data", *flags)


@pytest.mark.parametrize("between", ["\n\n", "\n", " "], ids=["paragraphs", "lines without a paragraph", "one line"])
def test_short_passages_of_many_documents_are_held_out(between, tmp_path):
    source = random.Random(1)
    quoted = sentences(source, 3)  # stands in every tenth place
    parts = [quoted if number % 10 == 0 else sentences(source, source.randrange(1, 8)) for number in range(900)]
    done = make(tmp_path, between.join(parts))
    assert done.returncode == 0, done.stderr
    train, held_out = (texts_of(tmp_path / "data" / f"{name}.jsonl") for name in ("train", "eval"))
    sizes = [len(text.encode()) for text in held_out]
    assert len(held_out) >= 12 and max(sizes) < 4000
    assert EVAL_KILOBYTES * 1000 <= sum(sizes) < EVAL_KILOBYTES * 1000 + 4000
    assert sum(len(text) for text in train) > 100_000
    seen = {part for text in train for part in text.split("\n\n") if len(part) >= LONG}
    assert not any(part in seen for text in held_out for part in text.split("\n\n"))


@pytest.mark.parametrize("text", ["", "one\n\ntwo\n", "a few words " * 3000], ids=["nothing", "a word", "36 KB"])
def test_too_little_text_is_refused(text, tmp_path):
    done = make(tmp_path, text)
    assert done.returncode == 1 and "bytes of text are too few" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "data").exists()


def result(folder, teacher, distilled, alone):
    progress = {"tokens": 1000, "seconds_elapsed": 2.0, "teacher_hidden_fraction": 0.5}
    for name, loss in (("teacher", teacher), ("distilled", distilled), ("sequential", 9.0), ("alone", alone)):
        job = {"id": f"job-{name}", "eval_loss": loss, "output": f"/work/{name}", "progress": progress}
        (folder / f"{name}.result.json").write_text(json.dumps(job))
    done = script("quickstart_result", folder, "http://127.0.0.1:1", "--report", folder / "report.json")
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads((folder / "report.json").read_text())


@pytest.mark.parametrize(
    ("losses", "as_expected"),
    [((1.0, 2.0, 3.0), True), ((2.5, 2.0, 3.0), False), ((1.0, 3.0, 2.0), False), ((1.0, 2.0, 2.0), False)],
    ids=["as expected", "teacher worse than student", "distilled worse than alone", "no better than alone"],
)
def test_the_result_says_whether_the_claim_holds(losses, as_expected, tmp_path):
    printed, report = result(tmp_path, *losses)
    assert report["as_expected"] is as_expected
    assert (report["teacher_loss"], report["distilled_loss"], report["student_alone_loss"]) == losses
    assert ("yes, as expected" in printed) is as_expected
    assert ("not in the order" in printed) is not as_expected
