"""A teacher with another tokenizer than its student's: it reads the same texts in its own tokens."""

import json
import re
import shutil

import numpy
import pytest
from support import jobs
from support.trained_tokenizers import STYLES, token_bytes, write_spaced_tokenizer, write_tokenizer

torch = pytest.importorskip("torch")
AutoModelForCausalLM = pytest.importorskip("transformers").AutoModelForCausalLM

STEPS = 6
TOP_K = 16
SIZES = {"llama-3": 330, "qwen-2.5": 400}


def lines_with_numbers(count, seed):
    return [f"{line} {1990 + 7 * number % 80} caf\u00e9s." for number, line in enumerate(jobs.text_lines(count, seed))]


@pytest.fixture(scope="module")
def pair(distilld_session, tmp_path_factory):
    """{"llama-3", "qwen-2.5"}: tokenizers, and {style: folder}; a trained teacher in Llama-3 style; texts."""
    folder = tmp_path_factory.mktemp("pair")
    texts = lines_with_numbers(120, 1)
    made = {
        "texts": texts,
        "data": jobs.write_jsonl(folder / "data.jsonl", ({"text": text} for text in texts)),
        "eval": jobs.write_jsonl(folder / "eval.jsonl", ({"text": text} for text in lines_with_numbers(24, 9))),
        "folder": {style: folder / style for style in SIZES},
        "teacher": folder / "teacher",
    }
    for style, size in SIZES.items():
        made[style] = write_tokenizer(made["folder"][style], style, texts if style == "llama-3" else texts[:60], size)
    spec = jobs.base_spec(made["data"], made["teacher"], steps=40)
    changes = {
        "/student/config": jobs.llama_config(48, made["llama-3"].get_vocab_size()),
        "/student/tokenizer": str(made["folder"]["llama-3"]),
        "/dataset/packing": False,
        "/dataset/sequence_length": 64,
        "/training/batch_size": 8,
        "/training/micro_batches": 1,
        "/training/learning_rate": 5e-3,
    }
    distilld_session.run("run", jobs.write_spec(folder / "teacher.json", jobs.changed(spec, changes)))
    return made


class Runs:
    def __init__(self, distilld, pair, folder):
        self.distilld = distilld
        self.pair = pair
        self.folder = folder

    def teacher(self, **more):
        own = {"tokenizer": str(self.pair["folder"]["llama-3"]), "top_k": TOP_K}
        fields = {"model_dir": str(self.pair["teacher"]), "dtype": "fp32", "threads": 1, **own, **more}
        return {name: value for name, value in fields.items() if value is not None}

    def spec(self, name, teacher, changes=None):
        output = self.folder / name
        output.mkdir()
        spec = jobs.base_spec(self.pair["data"], output / "student", STEPS)
        form = {
            "/student/config": jobs.llama_config(32, self.pair["qwen-2.5"].get_vocab_size()),
            "/student/tokenizer": str(self.pair["folder"]["qwen-2.5"]),
            "/teacher": teacher,
            "/dataset/sequence_length": 64,
            "/dataset/packing": "documents",
        }
        spec = jobs.changed(spec, {**form, **(changes or {})})
        return jobs.write_spec(output / "spec.json", spec), output / "report.json"

    def run(self, name, teacher, changes=None):
        file, report = self.spec(name, teacher, changes)
        done = self.distilld.run("run", file, "--report", report)
        return json.loads(report.read_text()), done.out

    def weights(self, *args, **kwargs):
        return self.run(*args, **kwargs)[0]["weights_sha256"]

    def refusal(self, name, teacher, changes=None):
        file, _ = self.spec(name, teacher, changes)
        done = self.distilld.start("run", file)
        done.wait()
        assert done.code != 0, done.out + done.err
        return done.out + done.err


@pytest.fixture
def runs(distilld, pair, tmp_path):
    return Runs(distilld, pair, tmp_path)


@pytest.mark.parametrize("packing", ["documents", False])
def test_the_students_tokenizer_as_the_teachers_changes_no_bit(runs, pair, packing):
    changes = {
        "/student/config": jobs.llama_config(32, pair["llama-3"].get_vocab_size()),
        "/student/tokenizer": str(pair["folder"]["llama-3"]),
        "/dataset/packing": packing,
    }
    plain = runs.weights("plain", runs.teacher(tokenizer=None), changes)
    report, log = runs.run("named", runs.teacher(), changes)
    assert report["weights_sha256"] == plain
    size = pair["llama-3"].get_vocab_size()
    assert f"the teacher reads documents in tokens of its own, {size} of {size} are the student's too" in log
    assert report["last"]["fetch"]["alignment"]["aligned"] == report["last"]["fetch"]["alignment"]["positions"]


def aligned(pair, text):
    """[(student's position, teacher's position)], and the ids of both."""
    ids, ends = {}, {}
    for style in SIZES:
        ids[style] = pair[style].encode(text).ids
        table = token_bytes(pair[style])
        before = len(pair[style].encode("").ids)
        lengths = [0 if place < before else len(table[number]) for place, number in enumerate(ids[style][:-1])]
        ends[style] = numpy.cumsum(lengths)
    places = {int(end): place for place, end in enumerate(ends["llama-3"])}
    return [(i, places[int(end)]) for i, end in enumerate(ends["qwen-2.5"]) if int(end) in places], ids


def equal_ids(pair):
    """{the teacher's id: the student's}"""
    ends = {style: pair[style].token_to_id(STYLES[style]["end"]) for style in SIZES}
    tables = {style: token_bytes(pair[style]) for style in SIZES}
    ours = {data: number for number, data in enumerate(tables["qwen-2.5"]) if number != ends["qwen-2.5"]}
    made = {number: ours[data] for number, data in enumerate(tables["llama-3"]) if data in ours}
    made.pop(ends["llama-3"], None)
    return {**made, ends["llama-3"]: ends["qwen-2.5"]}


def mapped_row(logits, equal, common):
    """The student's ids, their probabilities, and the tail's; and the probability of the mapped entries."""
    p = numpy.exp(logits - logits.max())
    p /= p.sum()
    top = numpy.argsort(-p, kind="stable")[:TOP_K]
    named = {equal[number]: p[number] for number in top if number in equal}
    mapped = sum(named.values())
    share = (1 - p[top].sum()) / (len(p) - TOP_K)
    for number in common:
        if len(named) == TOP_K:
            break
        named.setdefault(number, share)
    return list(named), numpy.array(list(named.values())), 1 - sum(named.values()), mapped


def reference(pair, student, texts):
    """Means over the aligned positions of KL(teacher, student) over k + 1 buckets and of the mapped probability; how
    many are aligned, of how many; mean cross entropy over all. In fp64."""
    models = {"qwen-2.5": student, "llama-3": pair["teacher"]}
    models = {
        style: AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).eval()
        for style, folder in models.items()
    }
    equal = equal_ids(pair)
    common = sorted(set(equal.values()), reverse=True)
    kl = mapped_sum = entropy = 0.0
    count = positions = 0
    for text in texts:
        partners, ids = aligned(pair, text)
        logits = {}
        for style, model in models.items():
            with torch.no_grad():
                logits[style] = model(torch.tensor([ids[style][:-1]])).logits[0].numpy()
        log_q = logits["qwen-2.5"] - logits["qwen-2.5"].max(1, keepdims=True)
        log_q -= numpy.log(numpy.exp(log_q).sum(1, keepdims=True))
        entropy -= sum(log_q[place, following] for place, following in enumerate(ids["qwen-2.5"][1:]))
        positions += len(ids["qwen-2.5"]) - 1
        count += len(partners)
        for i, j in partners:
            named, p, tail, mapped = mapped_row(logits["llama-3"][j], equal, common)
            q = numpy.exp(log_q[i])
            kl += (p * (numpy.log(p) - log_q[i][named])).sum()
            kl += tail * (numpy.log(tail) - numpy.log(q.sum() - q[named].sum())) if tail > 1e-12 else 0
            mapped_sum += mapped
    return {
        "kl": kl / count,
        "mapped": mapped_sum / count,
        "aligned": count,
        "of": positions,
        "ce": entropy / positions,
    }


def texts_of(file):
    return [json.loads(line)["text"] for line in file.read_text().splitlines()]


def test_targets_are_those_of_a_reference_in_fp64(runs, pair):
    """The figures of an evaluation, and those of an epoch of training."""
    figures = runs.folder / "figures.jsonl"
    changes = {
        "/dataset/eval": str(pair["eval"]),
        "/metrics/jsonl_file": str(figures),
        "/training/max_steps": None,
        "/training/epochs": 1,
        "/student/dtype": "fp32",
    }
    report, log = runs.run("eval", runs.teacher(), changes)
    lines = [json.loads(line) for line in figures.read_text().splitlines()]
    evaluation = [line for line in lines if line["kind"] == "evaluation"][-1]
    expected = reference(pair, report["output"], texts_of(pair["eval"]))
    print(f"\nevaluation {evaluation}, reference {expected}")
    assert evaluation["kl"] == pytest.approx(expected["kl"], rel=1e-3)
    assert evaluation["loss"] == pytest.approx(expected["ce"], rel=1e-4), "over all positions"
    assert evaluation["tokens"] == expected["of"]
    alignment = report["last"]["fetch"]["alignment"]
    expected = reference(pair, report["output"], texts_of(pair["data"]))
    print(f"training {alignment}, reference {expected}")
    assert (alignment["aligned"], alignment["positions"]) == (expected["aligned"], expected["of"])
    assert 0 < alignment["aligned"] < alignment["positions"]
    assert alignment["mapped_mass"] == pytest.approx(expected["mapped"], rel=1e-4)
    told = log.index("the teacher has read the same bytes at")
    assert told < re.search(r"step\s+1\b", log).start(), log


def test_served_local_and_stored_answers_give_the_same_student(runs, pair, distilld):
    server = distilld.teacher(pair["teacher"], "--dtype", "fp32")
    served = {"endpoints": [server.url], "tokenizer": str(pair["folder"]["llama-3"]), "top_k": TOP_K}
    table = {"local": runs.weights("local", runs.teacher()), "served": runs.weights("served", served)}
    store = runs.folder / "store"
    stored = {"store": str(store), "store_values": "f32"}
    generate, _ = runs.spec("generate", runs.teacher(**stored))
    runs.distilld.run("generate", generate)
    alone = {"store": str(store), "tokenizer": str(pair["folder"]["llama-3"]), "top_k": TOP_K}
    table["stored"] = runs.weights("stored", alone)
    table["kept"] = runs.weights("kept", runs.teacher(store=str(store) + "2", store_values="f32"))
    print({way: weights[:16] for way, weights in table.items()})
    assert len(set(table.values())) == 1, table
    lengths = {"/dataset/sequence_length": 120, "/dataset/teacher_sequence_length": 64}
    bytes_alone = {"/student/config": jobs.llama_config(32), "/student/tokenizer": None, **lengths}
    of_bytes = runs.weights("bytes", runs.teacher(), bytes_alone)
    assert runs.weights("bytes-stored", alone, bytes_alone) == of_bytes, "a store serves students with any tokenizer"
    said = runs.refusal("other", {**alone, "tokenizer": str(pair["folder"]["qwen-2.5"])})
    assert "/teacher/store: the store's tokenizer is " in said, said


def test_only_completions_carry_loss_and_fields_that_do_not_fit_are_named(runs, pair):
    folder = runs.folder
    lines = [{"prompt": text[:12], "completion": text[12:]} for text in pair["texts"]]
    data = jobs.write_jsonl(folder / "pairs.jsonl", lines)
    report, _ = runs.run("pairs", runs.teacher(), {"/dataset/train": str(data), "/training/kd_ratio": 0.5})
    assert report["last"]["fetch"]["alignment"]["aligned"] > 0
    text = {"text": "the sea"}
    names = {
        "ids": ([text, {"input_ids": [1, 2]}], {}, ':2: "input_ids" cannot be used with /teacher/tokenizer'),
        "prompt": ([{**lines[0], "teacher_prompt": "x"}], {}, ':1: "teacher_prompt" cannot be used with'),
        "long": ([{"text": "sea " * 90}], {}, "cannot be split into rows"),
        "joined": ([text], {"/dataset/packing": True}, "/dataset/packing: with /teacher/tokenizer, documents"),
        "hidden": ([text], {"/teacher/targets": "hidden", "/teacher/top_k": None}, "/teacher/targets: is hidden, but"),
        "no k": ([text], {"/teacher/top_k": None}, "/teacher/top_k: top_k is required: with /teacher/tokenizer"),
        "folder": ([text], {"/teacher/tokenizer": str(folder)}, "/teacher/tokenizer: "),
        "wrong": (
            [text],
            {"/teacher/tokenizer": str(pair["folder"]["qwen-2.5"])},
            "another tokenizer than /teacher/to",
        ),
    }
    for name, (rows, changes, words) in names.items():
        data = jobs.write_jsonl(folder / f"{name}.jsonl", rows)
        said = runs.refusal(name, runs.teacher(), {"/dataset/train": str(data), **changes})
        assert words in said, (name, said)


def test_a_run_with_another_tokenizer_is_not_resumed(runs, pair):
    file, _ = runs.spec("first", runs.teacher(), {"/checkpoint": {"every_steps": 2}})
    runs.distilld.run("run", file)
    spec = json.loads(file.read_text())
    copy = runs.folder / "copy"
    shutil.copytree(pair["folder"]["llama-3"], copy)
    spec = jobs.changed(spec, {"/teacher/tokenizer": str(copy), "/training/max_steps": STEPS + 2})
    other = jobs.write_spec(runs.folder / "other.json", spec)
    done = runs.distilld.start("run", other, "--resume")
    done.wait()
    assert done.code != 0 and "/teacher/tokenizer" in done.out + done.err, done.out + done.err


def ends(tokenizer, text):
    """Where the tokens end in the text, without the last one."""
    return [end for _, end in tokenizer.encode(text, add_special_tokens=False).offsets[:-1]]


def test_a_space_that_a_tokenizer_adds_is_not_the_texts(runs, pair):
    """The positions that meet are those that `tokenizers` says are at the same place of the text."""
    folder = runs.folder / "spaced"
    spaced = write_spaced_tokenizer(folder, pair["texts"], 400)
    changes = {
        "/student/config": jobs.llama_config(32, spaced.get_vocab_size()),
        "/student/tokenizer": str(folder),
        "/training/max_steps": None,
        "/training/epochs": 1,
    }
    report, _ = runs.run("run", runs.teacher(), changes)
    alignment = report["last"]["fetch"]["alignment"]
    expected = sum(len(set(ends(spaced, text)) & set(ends(pair["llama-3"], text))) for text in pair["texts"])
    print(alignment, expected)
    assert alignment["aligned"] == expected
    assert alignment["positions"] == sum(len(spaced.encode(text).ids) - 1 for text in pair["texts"])
    assert alignment["mapped_mass"] > 0.3, "also of tokens that begin with a space"


def test_ranks_and_batches_of_any_size_map_tokens_too(runs, pair, distilld):
    groups = {"/training/gradient_groups": 2}
    one = runs.weights("one", runs.teacher(), groups)
    assert runs.weights("two", runs.teacher(), {**groups, "/training/ranks": 2}) == one
    server = distilld.teacher(pair["teacher"], "--dtype", "fp32")
    served = {"endpoints": [server.url], "tokenizer": str(pair["folder"]["llama-3"]), "top_k": TOP_K}
    for name, teacher in {"served": served, "local": runs.teacher()}.items():
        report, _ = runs.run(f"{name}-auto", teacher, {"/training/batch_size": "auto"})
        alignment = report["last"]["fetch"]["alignment"]
        assert 0.5 < alignment["aligned"] / alignment["positions"] < 1
        assert 0.3 < alignment["mapped_mass"] < 1
