"""Held-out KL to the teacher and top-1 agreement: an oracle's figures, one answer a row, and no price for the run."""

import json
import math
import pathlib
import urllib.parse

import pytest
import torch
from chaos_proxy import ChaosProxy
from safetensors.torch import load_file
from support import jobs
from support.teacher_client import Teacher
from transformers import AutoModelForCausalLM

STEPS = 6
LENGTH = 16
HELD_OUT = 11  # documents
BATCHES = 6  # of two
EVALUATIONS = 3  # after steps 2 and 4 and at the end
ASKED = {"topk": {"top_k": 8}, "logits": {"mode": "logits"}, "hidden": {"mode": "hidden"}}
NOTHING = {"kl": None, "top1_agreement": None, "acceptance_rate": None}


def documents(count, seed, teachers=("",)):
    for number, line in enumerate(jobs.text_lines(count, seed)):
        ids = list(line.encode())[: 4 + (number * 5) % (LENGTH - 3)]
        document = {"input_ids": ids}
        if number % 4 == 1:
            document["labels"] = [-100] * (len(ids) // 2) + ids[len(ids) // 2 :]
        if teachers != ("",):
            document["teacher"] = teachers[number % len(teachers)]
        yield document


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluation")
    jobs.write_jsonl(folder / "train.jsonl", documents(40, 3))
    jobs.write_jsonl(folder / "eval.jsonl", documents(HELD_OUT, 4))
    jobs.write_jsonl(folder / "other.jsonl", documents(HELD_OUT, 5))
    return folder


class Runs:
    def __init__(self, distilld, data, folder):
        self.distilld = distilld
        self.data = data
        self.folder = folder

    def spec(self, name, url, changes=None, top_k=8):
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        spec = jobs.distil_spec(self.data / "train.jsonl", folder / "student", url, STEPS, top_k)
        spec["dataset"].update({"eval": str(self.data / "eval.jsonl"), "sequence_length": LENGTH, "packing": False})
        spec["training"].update(
            {"eval_steps": 2, "temperature": 2.0, "learning_rate": 2e-2, "lr_scheduler_type": "constant"}
        )
        spec["metrics"] = {"jsonl_file": str(folder / "figures.jsonl")}
        spec["teacher"]["hedge"] = False
        return folder, jobs.changed(spec, changes or {})

    def run(self, name, url, changes=None, top_k=8, flags=()):
        """Report, evaluations and log."""
        folder, spec = self.spec(name, url, changes, top_k)
        report = folder / "report.json"
        done = self.distilld.run("run", jobs.write_spec(folder / "spec.json", spec), "--report", report, *flags)
        lines = [json.loads(line) for line in (folder / "figures.jsonl").read_text().splitlines()]
        evaluations = [line for line in lines if line["kind"] == "evaluation"]
        return json.loads(report.read_text()), evaluations, done.out


@pytest.fixture
def runs(distilld, data, tmp_path):
    return Runs(distilld, data, tmp_path)


def client_of(url):
    client = Teacher.__new__(Teacher)
    client.port = urllib.parse.urlsplit(url).port
    client.vocabulary = jobs.BYTE_VOCABULARY
    return client


def teacher_rows(url, folder, ids, targets):
    """What the teacher sends about one document: (probabilities of its buckets, ids of those but for the last one)."""
    arrays, _ = client_of(url).infer([ids], ASKED[targets])
    if targets == "topk":
        p = torch.from_numpy(arrays["topk_logprobs"].astype("f8"))[0].exp()
        tail = torch.from_numpy(arrays["tail_logprob"].astype("f8"))[0].exp().unsqueeze(1)
        p = torch.cat([p, tail], 1)
        return p / p.sum(1, keepdim=True), torch.from_numpy(arrays["topk_ids"].astype("i8"))[0]
    if targets == "logits":
        logits = torch.from_numpy(arrays["logits"].astype("f8"))[0]
    else:
        hidden = torch.from_numpy(arrays["hidden_states"].astype("f8"))[0]
        logits = hidden @ load_file(folder / "model.safetensors")["model.embed_tokens.weight"].double().T
    return logits.softmax(1), None


def oracle(student, file, teacher_of, targets):
    """(KL, agreement, acceptance, cross entropy), of the exported student and what the teachers send."""
    model = AutoModelForCausalLM.from_pretrained(student, dtype=torch.float32).eval()
    kl, agreeing, accepted, loss, tokens = 0.0, 0, 0.0, 0.0, 0
    for line in pathlib.Path(file).read_text().splitlines():
        document = json.loads(line)
        ids = document["input_ids"]
        labels = torch.tensor(document.get("labels", ids)[1:])
        with torch.no_grad():
            log_q = model(torch.tensor([ids[:-1]])).logits[0].double().log_softmax(1)
        p, buckets = teacher_rows(*teacher_of(document), ids[:-1], targets)
        of_student, likeliest = log_q, p.argmax(1)
        if buckets is not None:
            top = log_q.gather(1, buckets)
            rest = log_q.exp().scatter(1, buckets, 0.0).sum(1, keepdim=True).log()
            of_student = torch.cat([top, rest], 1)
            likeliest = buckets.gather(1, p[:, :-1].argmax(1, keepdim=True)).squeeze(1)
        counts = labels != -100
        drafted = of_student.exp() if buckets is None else of_student[:, :-1].exp()
        accepted += torch.minimum(p[:, : drafted.shape[1]], drafted).sum(1)[counts].sum().item()
        each = torch.where(p > 0, p * (p.log() - of_student), 0.0).sum(1)
        kl += each[counts].sum().item()
        agreeing += (log_q.argmax(1) == likeliest)[counts].sum().item()
        loss -= log_q.gather(1, labels.clamp(min=0).unsqueeze(1)).squeeze(1)[counts].sum().item()
        tokens += counts.sum().item()
    return kl / tokens, agreeing / tokens, accepted / tokens, loss / tokens, tokens


def check(evaluation, expected):
    kl, agreement, accepted, loss, tokens = expected
    print(f"\nKL {evaluation['kl']:.7f}, oracle {kl:.7f}; agreement {evaluation['top1_agreement']:.4f}", end="")
    assert evaluation["kl"] == pytest.approx(kl, rel=1e-5)
    assert evaluation["top1_agreement"] == pytest.approx(agreement, abs=1e-9)
    assert evaluation["acceptance_rate"] == pytest.approx(accepted, rel=1e-5)
    assert evaluation["loss"] == pytest.approx(loss, rel=1e-5)
    assert evaluation["tokens"] == tokens


@pytest.mark.parametrize("packing", [False, "documents"])
@pytest.mark.parametrize("targets", list(ASKED))
def test_figures_are_those_of_the_logits(runs, teacher, teacher_folder, data, targets, packing):
    changes = {"/teacher/targets": targets, "/dataset/packing": packing, "/training/beta": 1}
    report, told, log = runs.run("run", teacher.url, changes, top_k=8 if targets == "topk" else 0)
    assert len(told) == EVALUATIONS
    assert all(evaluation["kl"] > 0 for evaluation in told)
    check(told[-1], oracle(report["output"], data / "eval.jsonl", lambda _: (teacher.url, teacher_folder), targets))
    assert ("at each evaluation" in log) == (targets == "hidden")


def test_in_the_process_as_over_the_wire(runs, teacher, teacher_folder):
    _, served, _ = runs.run("served", teacher.url)
    model = {"/teacher/endpoints": None, "/teacher/protocol": None, "/teacher/model_dir": str(teacher_folder)}
    _, beside, _ = runs.run("beside", teacher.url, {**model, "/teacher/dtype": "fp32"})
    assert [one["kl"] for one in beside] == [one["kl"] for one in served]


def test_each_row_is_asked_about_once_and_weights_do_not_depend_on_it(runs, teacher):
    weights, posts = {}, {}
    for name, changes in {
        "asked": {},
        "one at a time": {"/teacher/max_concurrent": 1},
        "not parallel": {"/training/parallel": False},
        "not asked": {"/eval/ask_teacher": False},
    }.items():
        with ChaosProxy(teacher.url) as proxy:
            report, told, _ = runs.run(name, proxy.url, changes)
            weights[name], posts[name] = report["weights_sha256"], proxy.posts
        assert len(told) == EVALUATIONS
        assert all((one["kl"] is None) == (name == "not asked") for one in told)
    assert len(set(weights.values())) == 1
    assert {posts[name] - posts["not asked"] for name in posts if name != "not asked"} == {BATCHES}, posts


def test_a_resumed_run_asks_nothing_again(runs, teacher):
    with ChaosProxy(teacher.url) as proxy:
        _, told, log = runs.run("run", proxy.url)
        assert "held-out rows once" in log
        before = proxy.posts
        _, more, log = runs.run("run", proxy.url, {"/training/max_steps": STEPS + 2}, flags=["--resume"])
        assert "resumed from" in log and "held-out rows once" not in log
        again = proxy.posts - before
        _, _, _ = runs.run("not asked", proxy.url, {"/training/max_steps": 2, "/eval/ask_teacher": False})
        assert proxy.posts - before - again == again, "two steps and the probe, no held-out row"
    assert more[-1]["step"] == STEPS + 2 and more[-1]["kl"] > 0
    assert math.isclose(more[-2]["kl"], told[-1]["kl"], rel_tol=1e-6)


def test_answers_about_other_rows_are_not_taken_for_them(runs, teacher, teacher_folder, data):
    runs.run("run", teacher.url)
    changes = {"/training/max_steps": STEPS + 2, "/dataset/eval": str(data / "other.jsonl")}
    report, told, log = runs.run("run", teacher.url, changes, flags=["--resume"])
    assert "answers about held-out rows are requested again" in log
    of_teacher = lambda _: (teacher.url, teacher_folder)  # noqa: E731
    check(told[-1], oracle(report["output"], data / "other.jsonl", of_teacher, "topk"))


def test_with_a_store_beside_the_teacher(runs, teacher, tmp_path):
    store = {"/teacher/store": str(tmp_path / "store"), "/training/max_steps": 12}  # all 40 rows
    with ChaosProxy(teacher.url) as proxy:
        _, told, _ = runs.run("filled", proxy.url, store)
        assert all(one["kl"] > 0 for one in told)
        before = proxy.posts
        _, told, log = runs.run("filled", proxy.url, {**store, "/training/max_steps": 14}, flags=["--resume"])
        assert "holds all answers" in log
        assert told[-1]["step"] == 14 and told[-1]["kl"] > 0, "as the first run has kept them"
        _, told, log = runs.run("other", proxy.url, store)
        assert [{name: one[name] for name in NOTHING} for one in told] == [NOTHING] * len(told)
        assert log.count("the teacher is not asked, and of the held-out rows") == 1
        assert proxy.posts == before
    alone = {**store, "/teacher/endpoints": None, "/teacher/protocol": None}
    _, told, log = runs.run("alone", teacher.url, alone)
    assert [{name: one[name] for name in NOTHING} for one in told] == [NOTHING] * len(told)
    assert log.count("there is no teacher to ask about the held-out rows") == 1


def test_several_teachers_each_for_its_rows(runs, distilld, teacher, teacher_folder, data, tmp_path):
    spec = jobs.changed(
        jobs.base_spec(data / "train.jsonl", tmp_path / "second", steps=10), {"/student/config": jobs.llama_config(48)}
    )
    distilld.run("run", jobs.write_spec(tmp_path / "second.json", spec))
    code = distilld.teacher(tmp_path / "second", "--dtype", "fp32").url
    urls = {"math": (teacher.url, teacher_folder), "code": (code, tmp_path / "second")}
    files = {}
    for name, count, teachers in (
        ("train", 40, ("math", "code")),
        ("eval", 9, ("math", "code")),
        ("some", 5, ("code",)),
    ):
        files[name] = jobs.write_jsonl(tmp_path / f"{name}.jsonl", documents(count, 6, teachers))
    _, one = runs.spec("spec", teacher.url)
    of_each = {name: {**one["teacher"], "endpoints": [url]} for name, (url, _) in urls.items()}
    several = {"/teacher": None, "/teachers": of_each, "/dataset/train": str(files["train"])}
    for name in ("eval", "some"):
        report, told, _ = runs.run(name, teacher.url, {**several, "/dataset/eval": str(files[name])})
        check(told[-1], oracle(report["output"], files[name], lambda document: urls[document["teacher"]], "topk"))
    nobodys = {**several, "/dataset/eval": str(data / "eval.jsonl")}
    _, told, log = runs.run("nobody's", teacher.url, nobodys)
    assert told[-1]["kl"] is None and told[-1]["loss"] > 0
    assert "the teachers are not asked about the held-out rows" in log


def test_a_teacher_that_is_gone_at_the_end_costs_the_figures_not_the_student(runs, teacher):
    with ChaosProxy(teacher.url) as proxy:
        calm, _, _ = runs.run("calm", proxy.url, {"/eval/ask_teacher": False})
        proxy.answer_from = 2 * proxy.posts  # when all of the training's requests are answered
        proxy.answer_with = (503, {}, b"gone")
        report, told, log = runs.run("gone", proxy.url, {"/training/eval_steps": 0})
    assert report["weights_sha256"] == calm["weights_sha256"]
    assert len(told) == 1 and told[0]["kl"] is None and told[0]["loss"] == pytest.approx(report["eval_loss"])
    assert "the teacher does not answer for the held-out rows" in log
