"""Documents with a prompt of their own for the teacher: it reads "teacher_prompt" and the completion, the student
"prompt" and the completion, and the answers about the completion are the student's targets."""

import json
import pathlib
import random

import pytest
from support import jobs

torch = pytest.importorskip("torch")
AutoModelForCausalLM = pytest.importorskip("transformers").AutoModelForCausalLM

STEPS = 6
RULES = "Answer in words of the sea. "


def pairs(count, **more):
    source = random.Random(3)
    for line in jobs.text_lines(count, seed=5):
        words = line.split()
        middle = source.randrange(2, len(words) - 1)
        prompt = " ".join(words[:middle]) + " "
        made = {name: form(prompt) for name, form in more.items()}
        yield {"prompt": prompt, "completion": " ".join(words[middle:]), **made}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    return {
        "none": jobs.write_jsonl(folder / "none.jsonl", pairs(60)),
        "same": jobs.write_jsonl(folder / "same.jsonl", pairs(60, teacher_prompt=lambda prompt: prompt)),
        "rules": jobs.write_jsonl(folder / "rules.jsonl", pairs(60, teacher_prompt=lambda prompt: RULES + prompt)),
        "less": jobs.write_jsonl(folder / "less.jsonl", pairs(60, teacher_prompt=lambda prompt: prompt[-3:])),
    }


class Runs:
    def __init__(self, distilld, files, folder):
        self.distilld = distilld
        self.files = files
        self.folder = folder

    def spec(self, name, data, teacher, changes=None):
        output = self.folder / name
        output.mkdir()
        spec = jobs.base_spec(self.files.get(data, data), output / "student", STEPS)
        form = {
            "/teacher": teacher,
            "/dataset/sequence_length": 96,
            "/dataset/teacher_sequence_length": 120,
            "/dataset/packing": "documents",
        }
        spec = jobs.changed(spec, {**form, **(changes or {})})
        return jobs.write_spec(output / "spec.json", spec), output / "report.json"

    def run(self, name, data, teacher, changes=None):
        file, report = self.spec(name, data, teacher, changes)
        done = self.distilld.run("run", file, "--report", report)
        return json.loads(report.read_text()), done.out

    def weights(self, *args, **kwargs):
        return self.run(*args, **kwargs)[0]["weights_sha256"]

    def refusal(self, name, lines, teacher, changes=None):
        data = jobs.write_jsonl(self.folder / f"{name}.jsonl", lines)
        file, _ = self.spec(name, data, teacher, changes)
        done = self.distilld.start("run", file)
        done.wait()
        assert done.code == 1, done.out + done.err
        return done.out + done.err


@pytest.fixture
def runs(distilld, files, tmp_path):
    return Runs(distilld, files, tmp_path)


@pytest.mark.parametrize("packing", ["documents", False])
def test_the_prompt_of_the_student_as_the_teachers_changes_no_bit(runs, teacher_folder, packing):
    local = {"model_dir": str(teacher_folder), "dtype": "fp32", "threads": 1}
    changes = {"/dataset/packing": packing, "/dataset/teacher_sequence_length": None}
    plain, _ = runs.run("plain", "none", local, changes)
    same, log = runs.run("same", "same", local, changes)
    assert same["weights_sha256"] == plain["weights_sha256"]
    assert "documents have a prompt of their own for the teacher" in log
    assert runs.weights("rules", "rules", local, {"/dataset/packing": packing}) != plain["weights_sha256"]


def test_served_local_and_stored_answers_give_the_same_student(runs, teacher, teacher_folder):
    """One table: what the teacher reads more or less than the student, and how it is asked."""
    local = {"model_dir": str(teacher_folder), "dtype": "fp32", "threads": 1, "top_k": 16}
    for data in ("rules", "less"):
        table = {"local": runs.weights(f"{data}-local", data, local)}
        table["served"] = runs.weights(f"{data}-served", data, {"endpoints": [teacher.url], "top_k": 16})
        store = runs.folder / f"{data}-store"
        stored = {**local, "store": str(store), "store_values": "f32"}
        generate, _ = runs.spec(f"{data}-generate", data, stored)
        runs.distilld.run("generate", generate)
        table["stored"] = runs.weights(f"{data}-stored", data, {"store": str(store), "top_k": 16})
        table["kept"] = runs.weights(
            f"{data}-kept", data, {**stored, "store": str(store) + "2"}, {"/dataset/packing": False}
        )
        again = {"store": str(store) + "2", "top_k": 16}
        table["kept again"] = runs.weights(f"{data}-again", data, again, {"/dataset/packing": False})
        print(data, {way: weights[:16] for way, weights in table.items()})
        assert table["local"] == table["served"] == table["stored"]
        assert table["kept"] == table["kept again"] != table["local"], "rows in another order"


def test_each_of_several_teachers_reads_its_own(runs, teacher, teacher_folder, tmp_path):
    """Two names of one model, one of them remote: as if all documents had the one."""
    lines = list(pairs(60, teacher_prompt=lambda prompt: RULES + prompt))
    named = [{**line, "teacher": ("math", "code")[number % 2]} for number, line in enumerate(lines)]
    local = {"model_dir": str(teacher_folder), "dtype": "fp32", "threads": 1, "top_k": 16}
    two = {"math": local, "code": {"endpoints": [teacher.url], "top_k": 16}}
    changes = {"/dataset/packing": False, "/dataset/shuffle": "off", "/teachers": two}
    file = jobs.write_jsonl(tmp_path / "named.jsonl", named)
    _, log = runs.run("two", str(file), None, changes)
    assert log.count("documents have a prompt of their own for the teacher") == 2
    of_two = runs.weights("again", str(file), None, changes)
    assert of_two == runs.weights("one", "rules", local, {**changes, "/teachers": None})


def oracle(file, student, teacher):
    """Mean KL of the student from what the teacher says with its own prompt, per token of the completions."""
    models = [AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval() for folder in (student, teacher)]
    kl, tokens = 0.0, 0
    for line in pathlib.Path(file).read_text().splitlines():
        pair = json.loads(line)
        answer = [*pair["completion"].encode(), jobs.BYTE_VOCABULARY - 1]
        rows = []
        for model, prompt in zip(models, (pair["prompt"], pair["teacher_prompt"]), strict=True):
            ids = [*prompt.encode(), *answer]
            with torch.no_grad():
                logits = model(torch.tensor([ids[:-1]])).logits[0, -len(answer) :]
            rows.append(logits.double().log_softmax(1))
        log_q, log_p = rows
        kl += (log_p.exp() * (log_p - log_q)).sum().item()
        tokens += len(answer)
    return kl / tokens, tokens


@pytest.mark.parametrize("packing", ["documents", False])
def test_the_divergence_is_that_of_both_models_each_with_its_prompt(runs, teacher_folder, packing):
    """The teacher is the student's own start: only the prompts differ."""
    itself = {"model_dir": str(teacher_folder), "dtype": "fp32", "threads": 1, "targets": "logits"}
    for data in ("rules", "less"):
        file = runs.files[data]
        changes = {"/student": {"model": str(teacher_folder), "dtype": "fp32"}, "/dataset/eval": str(file)}
        figures = runs.folder / f"{data}.jsonl"
        changes |= {"/training/eval_steps": STEPS, "/training/beta": 1, "/dataset/packing": packing}
        report, _ = runs.run(data, data, itself, {**changes, "/metrics/jsonl_file": str(figures)})
        lines = map(json.loads, figures.read_text().splitlines())
        evaluation = [line for line in lines if line["kind"] == "evaluation"][-1]
        kl, tokens = oracle(file, report["output"], teacher_folder)
        print(f"\n{data}: KL {evaluation['kl']:.7f}, oracle {kl:.7f}", end="")
        assert evaluation["kl"] == pytest.approx(kl, rel=1e-3)
        assert evaluation["tokens"] == tokens


def test_every_document_it_cannot_use_is_named(runs, teacher_folder):
    local = {"model_dir": str(teacher_folder), "dtype": "fp32", "threads": 1}
    pair = {"prompt": "a ", "completion": "bc"}
    told = {**pair, "teacher_prompt": "x"}
    table = {
        "joined": ([told], {"/dataset/packing": True}, "needs documents that are read by themselves"),
        "some": ([told, pair], {}, ':2: has no "teacher_prompt"'),
        "late": ([pair, told], {}, ":2: has a prompt for the teacher, but the documents before it have none"),
        "text": ([{"text": "abc", "teacher_prompt": "x"}], {}, '"teacher_prompt" goes with "prompt"'),
        "ids": ([{**pair, "teacher_input_ids": [1]}], {}, '"teacher_input_ids" goes with "input_ids"'),
        "type": ([{**pair, "teacher_prompt": 3}], {}, '"teacher_prompt" is a number, expected a string'),
        "empty": ([{"input_ids": [1, 2], "teacher_input_ids": []}], {}, '"teacher_input_ids" is empty'),
        "other": ([{"input_ids": [1, 2], "teacher_input_ids": [1, 3]}], {}, "does not end with the same tokens"),
        "range": ([{"input_ids": [1, 2], "teacher_input_ids": [999, 2]}], {}, "teacher_input_ids[0] is 999"),
        "long": ([{**pair, "teacher_prompt": "x" * 130}], {}, "raise /dataset/teacher_sequence_length"),
        "model": ([told], {"/dataset/teacher_sequence_length": 200}, "/dataset/teacher_sequence_length is 200"),
        "split": ([{**told, "completion": "y" * 120}], {}, "cannot be split into rows"),
    }
    for name, (lines, changes, words) in table.items():
        said = runs.refusal(name, lines, local, changes)
        assert words in said and "/dataset/t" in said, (name, said)
