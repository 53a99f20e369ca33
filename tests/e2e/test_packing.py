"""Rows with several documents that are kept apart: the losses of documents with a row each, however answers come."""

import json
import re
import signal

import pytest
from chaos_proxy import ChaosProxy, Script
from support import jobs

LENGTH = 32
STEPS = 6


def documents(count=40):
    """Of 2 to LENGTH + 1 tokens, mostly short; some have tokens without loss."""
    for number, line in enumerate(jobs.text_lines(count, seed=9)):
        ids = list((line * 2).encode())[: 2 + (number * number * 7) % (LENGTH if number % 3 == 0 else 12)]
        document = {"input_ids": ids}
        if number % 4 == 1:
            document["labels"] = [-100] * (len(ids) // 2) + ids[len(ids) // 2 :]
        yield document


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return jobs.write_jsonl(tmp_path_factory.mktemp("documents") / "train.jsonl", documents())


class Training:
    """Trains the one student in many ways."""

    def __init__(self, distilld, data, folder):
        self.distilld = distilld
        self.data = data
        self.folder = folder

    def spec(self, name, teacher, changes=None):
        output = self.folder / name.replace(" ", "-").replace(",", "")
        output.mkdir(exist_ok=True)
        spec = jobs.distil_spec(self.data, output / "student", "http://unused:1", STEPS, top_k=8)
        spec["teacher"] = {"top_k": 8, "timeout_secs": 30, **teacher}
        spec["dataset"].update({"sequence_length": LENGTH, "packing": "documents"})
        spec["metrics"] = {"jsonl_file": str(output / "figures.jsonl")}
        return output, jobs.changed(spec, changes or {})

    def run(self, name, teacher, changes=None):
        output, spec = self.spec(name, teacher, changes)
        done = self.distilld.run("run", jobs.write_spec(output / "spec.json", spec), "--report", output / "report.json")
        report = json.loads((output / "report.json").read_text())
        figures = [json.loads(line) for line in (output / "figures.jsonl").read_text().splitlines()]
        losses = {line["step"]: line["loss"] for line in figures if "grad_norm" in line}
        return report, losses, done.out


@pytest.fixture
def training(distilld, data, tmp_path):
    return Training(distilld, data, tmp_path)


def test_each_step_has_the_loss_of_the_same_documents_with_a_row_each(training, teacher):
    url = {"endpoints": [teacher.url]}
    # A step is the whole file, in one micro-batch.
    whole = {"/training/micro_batches": 1, "/training/logging_steps": 1}
    _, _, out = training.run("how many rows", url, {**whole, "/training/batch_size": 1})
    said = next(line for line in out.splitlines() if " documents lie in " in line)
    count, rows = (int(word) for word in said.split("which")[0].split() if word.isdigit())
    assert count == 40 and rows < 20
    packed, losses, out = training.run("packed", url, {**whole, "/training/batch_size": rows})
    assert "padding was" not in out
    alone, expected, out = training.run(
        "alone", url, {**whole, "/training/batch_size": count, "/dataset/packing": False}
    )
    assert "padding was" in out
    assert sorted(losses) == sorted(expected) == list(range(1, STEPS + 1))
    for step, loss in expected.items():
        assert losses[step] == pytest.approx(loss, rel=1e-6), f"step {step}"
    assert packed["last"]["tokens"] == alone["last"]["tokens"], "padding is not counted"
    _, others, _ = training.run("joined", url, {**whole, "/training/batch_size": rows, "/dataset/packing": True})
    assert others[1] != pytest.approx(expected[1], rel=1e-4), "the comparison can tell"


def test_weights_do_not_depend_on_where_answers_come_from(training, distilld, teacher, teacher_folder, data, tmp_path):
    url = {"endpoints": [teacher.url]}
    calm = training.run("calm", url)[0]["weights_sha256"]
    table = {"live": calm}
    for name, given, changes in (
        ("1 in flight", url, {"/teacher/max_concurrent": 1}),
        ("not parallel", url, {"/training/parallel": False}),
        ("window of 1 byte", url, {"/teacher/window_bytes": 1}),
        ("in the process", {"model_dir": str(teacher_folder), "dtype": "fp32"}, {}),
        ("filling a store", {**url, "store": str(tmp_path / "store")}, {}),
        ("from the store", {"store": str(tmp_path / "store")}, {}),
    ):
        table[name] = training.run(name, given, changes)[0]["weights_sha256"]
    # A store is of the documents: one that was made without packing serves rows that are packed.
    spec = {
        "kind": "generate",
        "teacher": {**url, "top_k": 8, "store": str(tmp_path / "made")},
        "student": {"config": {"vocab_size": 257}},
        "dataset": {"train": str(data), "sequence_length": LENGTH, "packing": False},
        "training": {"batch_size": 3},
    }
    distilld.run("generate", jobs.write_spec(tmp_path / "generate.json", spec))
    made = {"store": str(tmp_path / "made")}
    table["from a store made without packing"] = training.run("made", made)[0]["weights_sha256"]
    print("\n" + "\n".join(f"{name:36} {sha256[:16]}" for name, sha256 in table.items()))
    assert set(table.values()) == {calm}
    output, spec = training.spec("joined", made, {"/dataset/packing": "joined"})
    refused = distilld.run("run", jobs.write_spec(output / "spec.json", spec), code=1)
    assert "/teacher/store: the store's number of rows is" in refused.err


def test_requests_go_out_together_and_never_more_than_may(training, data, teacher):
    """Those of a micro-batch, with those of other micro-batches and about held-out rows."""
    most = {}
    changes = {"/dataset/eval": str(data), "/eval/max_rows": 6, "/training/eval_steps": 2, "/teacher/hedge": False}
    for name, more in {
        "3 in flight": {"/teacher/max_concurrent": 3},
        "1 in flight": {"/teacher/max_concurrent": 1},
        "a window of one micro-batch": {"/teacher/max_concurrent": 3, "/teacher/window": 1},
        "not parallel": {"/training/parallel": False},
    }.items():
        with ChaosProxy(teacher.url, Script(delay=0.03)) as proxy:
            report, _, _ = training.run(name, {"endpoints": [proxy.url]}, {**changes, **more})
            most[name] = (proxy.max_in_flight, report["weights_sha256"])
    print("\n" + "\n".join(f"{name:30} {count} at most" for name, (count, _) in most.items()))
    counts = {name: count for name, (count, _) in most.items()}
    assert counts.pop("a window of one micro-batch") in (2, 3)
    assert counts == {"3 in flight": 3, "1 in flight": 1, "not parallel": 1}
    assert len({weights for _, weights in most.values()}) == 1


@pytest.mark.parametrize("packing", ["documents", False])
def test_a_run_that_is_stopped_goes_on_to_the_same_bits(training, distilld, teacher, packing):
    url = {"endpoints": [teacher.url]}
    changes = {"/dataset/packing": packing, "/training/max_steps": 40}
    whole = training.run("whole", url, changes)[0]["weights_sha256"]
    output, spec = training.spec("stopped", url, {**changes, "/checkpoint/every_steps": 1})
    file = jobs.write_spec(output / "spec.json", spec)
    process = distilld.start("run", file)
    process.wait_for_line(r"checkpoint .*step-")
    process.send(signal.SIGINT)
    process.expect(130)
    done = distilld.run("run", file, "--report", output / "report.json")
    assert "resumed from" in done.out
    assert json.loads((output / "report.json").read_text())["weights_sha256"] == whole


def test_a_run_that_an_earlier_version_began_keeps_its_order(training, distilld, teacher):
    url = {"endpoints": [teacher.url]}
    weights = []
    for name, forgets in (("new", False), ("old", True)):
        output, spec = training.spec(name, url, {"/dataset/packing": False, "/training/max_steps": 2})
        distilld.run("run", jobs.write_spec(output / "spec.json", spec))
        [manifest] = (output / "student" / "checkpoints").glob("*/state.json")
        if forgets:
            said = r",\"row_order\":\"by length\""
            state = manifest.read_text()
            assert said in state
            state, hashes = re.subn(r',"sha256":"[0-9a-f]{64}"}\s*$', "}", state.replace(said, ""))
            assert hashes == 1  # an earlier version wrote none
            manifest.write_text(state)
        spec["training"]["max_steps"] = 8
        done = distilld.run("run", jobs.write_spec(output / "spec.json", spec), "--report", output / "report.json")
        assert "resumed from" in done.out
        weights.append(json.loads((output / "report.json").read_text())["weights_sha256"])
    assert weights[0] != weights[1]


def test_the_checkpoint_says_how_rows_were_ordered(training, distilld, teacher):
    url = {"endpoints": [teacher.url]}
    orders = {}
    for packing in (False, "documents", True):
        output, spec = training.spec(str(packing), url, {"/dataset/packing": packing, "/training/max_steps": 2})
        distilld.run("run", jobs.write_spec(output / "spec.json", spec))
        [manifest] = (output / "student" / "checkpoints").glob("*/state.json")
        orders[packing] = "row_order" in manifest.read_text()
    assert orders == {False: True, "documents": False, True: False}
