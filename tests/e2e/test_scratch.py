"""A model from scratch: tools/train_tokenizer.py, examples/train-from-scratch.json, tools/learning_curve.py."""

import json
import pathlib
import subprocess
import sys
import xml.etree.ElementTree

import pytest
from support import jobs
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

ROOT = pathlib.Path(__file__).resolve().parents[2]
SVG = "{http://www.w3.org/2000/svg}"
VOCABULARY = 300
STEPS, EVALUATED = 20, 10
SMALLER = {
    "/student/config/vocab_size": VOCABULARY,
    "/student/config/hidden_size": 32,
    "/student/config/intermediate_size": 64,
    "/student/config/num_hidden_layers": 2,
    "/student/config/head_dim": 8,
    "/dataset/sequence_length": 32,
    "/training/max_steps": STEPS,
    "/training/warmup_steps": 2,
    "/training/eval_steps": EVALUATED,
    "/training/logging_steps": 1,
    "/training/threads": 1,
    "/eval/sample_prompts": ["The", "one | two\nthree"],
    "/eval/sample_tokens": 8,
}


def tool(name, *words):
    return subprocess.run(
        [sys.executable, ROOT / "tools" / f"{name}.py", *map(str, words)], capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def scratch(distilld_session, tmp_path_factory):
    """A folder in which the example has been run, smaller."""
    folder = tmp_path_factory.mktemp("scratch")
    (folder / "data").mkdir()
    jobs.write_text_data(folder / "data" / "train.jsonl", 200, seed=1)
    jobs.write_text_data(folder / "data" / "eval.jsonl", 10, seed=2)
    made = tool("train_tokenizer", folder / "tokenizer", "--vocabulary", VOCABULARY, folder / "data" / "train.jsonl")
    assert made.returncode == 0, made.stderr
    assert made.stdout.startswith(f"{VOCABULARY} tokens in ")
    spec = jobs.changed(json.loads((ROOT / "examples" / "train-from-scratch.json").read_text()), SMALLER)
    distilld_session.run("run", jobs.write_spec(folder / "spec.json", spec), cwd=folder)
    return folder


def test_the_tokenizer_is_read_alike_by_distilld_tokenizers_and_transformers(scratch, programs):
    lines = [*jobs.text_lines(20, seed=3), "  Zwölf Boxkämpfer 1234\t日本 👍", "<|endoftext|>a"]
    tokenized = subprocess.run(
        [programs / "distilld", "tokenize", scratch / "tokenizer"],
        input="\n".join(lines) + "\n", capture_output=True, text=True, check=True,
    )  # fmt: skip
    ours = [json.loads(line) for line in tokenized.stdout.splitlines()]
    theirs = Tokenizer.from_file(str(scratch / "tokenizer" / "tokenizer.json"))
    assert ours == [theirs.encode(line).ids for line in lines]
    loaded = AutoTokenizer.from_pretrained(scratch / "tokenizer")
    assert loaded.eos_token_id == VOCABULARY - 1 == ours[-1][0]
    assert [loaded.decode(ids) for ids in ours] == lines


def test_the_example_trains_a_model_that_transformers_loads(scratch):
    model = AutoModelForCausalLM.from_pretrained(scratch / "out" / "scratch")
    assert model.config.model_type == "qwen3" and model.config.vocab_size == VOCABULARY


def test_the_curve_shows_what_the_run_recorded(scratch):
    metrics = scratch / "out" / "scratch.jsonl"
    records = [json.loads(line) for line in metrics.read_text().splitlines()]
    evaluations = [record for record in records if record["kind"] == "evaluation"]
    assert [evaluation["step"] for evaluation in evaluations] == [EVALUATED, STEPS]
    drawn = tool("learning_curve", metrics, "--svg", scratch / "curve.svg")
    assert drawn.returncode == 0, drawn.stderr
    rows = [[cell.strip() for cell in line.split(" | ")] for line in drawn.stdout.splitlines()]
    steps = {record["step"]: record for record in records if record["kind"] == "step"}
    for evaluation in evaluations:
        step = steps[evaluation["step"]]
        tokens, loss = f"{step['tokens']:,}", f"{step['loss']:.2f}"
        assert [f"| {evaluation['step']}", tokens, loss, f"{evaluation['loss']:.3f}"] in [row[:4] for row in rows]
    # A table for each prompt, with a row for each evaluation; what a line of Markdown cannot hold is made harmless.
    assert "| step | The … |" in drawn.stdout and r"| step | one \| two three … |" in drawn.stdout
    assert len([row for row in rows if row[0] in (f"| {EVALUATED}", f"| {STEPS}")]) == 2 * (1 + 2)

    picture = xml.etree.ElementTree.parse(scratch / "curve.svg").getroot()
    train, held = (element.get("points").split() for element in picture.iter(f"{SVG}polyline"))
    assert len(train) == STEPS and len(held) == len(evaluations)
    places = [tuple(map(float, point.split(","))) for point in train + held]
    _, _, width, height = map(float, picture.get("viewBox").split())
    assert all(0 <= x <= width and 0 <= y <= height for x, y in places)
    # The lower the loss, the lower in the picture; evaluations lie above one another by the tokens trained on.
    losses = [steps[number]["loss"] for number in sorted(steps)]
    assert sorted(range(STEPS), key=lambda i: losses[i]) == sorted(range(STEPS), key=lambda i: -places[i][1])
    assert held[-1].split(",")[0] == train[-1].split(",")[0]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["{", ""], "metrics.jsonl:1: is not a line of metrics.jsonl_file"),
        (['{"kind": "started"}', '{"step": 1}'], "metrics.jsonl:2: is not a line"),
        (['{"kind": "step", "step": 1, "loss": 2.0, "tokens": 8}'], "has 1 steps; a curve needs two"),
    ],
    ids=["no JSON", "no kind", "one step"],
)
def test_a_file_without_a_curve_is_refused(lines, said, tmp_path):
    file = tmp_path / "metrics.jsonl"
    file.write_text("\n".join(lines) + "\n")
    done = tool("learning_curve", file, "--svg", tmp_path / "curve.svg")
    assert done.returncode == 1 and said in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "curve.svg").exists()


@pytest.mark.parametrize(
    ("name", "content", "flags", "said"),
    [
        ("a.jsonl", b'{"input_ids": [1]}\n', [], 'a.jsonl:1: is not {"text"'),
        ("a.txt", b"\xff\xfe", [], "no UTF-8"),
        ("a.txt", None, [], "No such file"),
        ("a.txt", b"text", ["--vocabulary", 256], "257 tokens"),
    ],
    ids=["ids", "no UTF-8", "no file", "too few tokens"],
)
def test_text_that_is_none_is_refused(name, content, flags, said, tmp_path):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    done = tool("train_tokenizer", tmp_path / "tokenizer", tmp_path / name, *flags)
    assert done.returncode != 0 and said in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "tokenizer").exists()
