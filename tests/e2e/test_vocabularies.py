"""Teachers whose tokenizer or whose number of ids is not the student's."""

import json
import shutil
import socket

import pytest
from support import jobs

STEPS = 5
PADDING = 8


def write_safetensors(path, entries):
    header, data = {}, b""
    for name, (dtype, shape, raw) in entries.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def change_json(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


@pytest.fixture(scope="module")
def padded_folder(teacher_folder, tmp_path_factory):
    """The teacher with eight ids more, which its tokenizer does not have. Their rows are those of other ids, so that
    they have as much probability."""
    folder = tmp_path_factory.mktemp("padded") / "teacher"
    shutil.copytree(teacher_folder, folder, ignore=shutil.ignore_patterns("checkpoints", ".*"))
    entries = jobs.safetensors_entries(folder / "model.safetensors")
    for name, (dtype, shape, raw) in entries.items():
        if shape[0] == jobs.BYTE_VOCABULARY:
            row = len(raw) // shape[0]
            entries[name] = (dtype, [shape[0] + PADDING, *shape[1:]], raw + raw[97 * row : (97 + PADDING) * row])
    write_safetensors(folder / "model.safetensors", entries)
    change_json(folder / "config.json", lambda config: config.update(vocab_size=jobs.BYTE_VOCABULARY + PADDING))
    return folder


@pytest.fixture(scope="module")
def shuffled_folder(teacher_folder, tmp_path_factory):
    """The teacher with a tokenizer of the same size in which two ids have changed places."""
    folder = tmp_path_factory.mktemp("shuffled") / "teacher"
    shutil.copytree(teacher_folder, folder, ignore=shutil.ignore_patterns("checkpoints", ".*"))

    def swap(content):
        vocabulary = content["model"]["vocab"]
        vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]

    change_json(folder / "tokenizer.json", swap)
    return folder


class Runs:
    def __init__(self, distilld, data, folder):
        self.distilld = distilld
        self.data = data
        self.folder = folder

    def spec(self, name, teacher, changes=None):
        folder = self.folder / name
        folder.mkdir()
        spec = jobs.changed(jobs.base_spec(self.data, folder / "student", STEPS), {"/teacher": teacher})
        return jobs.write_spec(folder / "spec.json", jobs.changed(spec, changes or {})), folder / "report.json"

    def run(self, name, teacher, changes=None):
        file, report = self.spec(name, teacher, changes)
        done = self.distilld.run("run", file, "--report", report)
        return json.loads(report.read_text()), done.out + done.err

    def refusal(self, name, teacher, changes=None):
        file, _ = self.spec(name, teacher, changes)
        done = self.distilld.start("run", file)
        done.wait()
        assert done.code not in (0, None)
        return done.out + done.err


@pytest.fixture
def runs(distilld, text_data, tmp_path):
    return Runs(distilld, text_data, tmp_path)


def local(folder, **more):
    return {"model_dir": str(folder), "dtype": "fp32", "threads": 1, **more}


def test_a_padded_teacher_teaches_what_the_unpadded_one_does(runs, distilld, teacher, padded_folder):
    served = distilld.teacher(padded_folder, "--dtype", "fp32")
    only = f"the teacher knows {jobs.BYTE_VOCABULARY + PADDING} tokens and the student {jobs.BYTE_VOCABULARY}: the 8"
    for targets, words in {"logits": "are cut from its logits", "hidden": "are cut from its head"}.items():
        plain, log = runs.run(f"{targets}-plain", {"endpoints": [teacher.url], "targets": targets})
        assert "that only the teacher has" not in log
        for name, source in {
            "served": {"endpoints": [served.url]},
            "seed": {"endpoints": [served.url], "protocol": "seed"},
            "local": local(padded_folder),
        }.items():
            if (targets, name) == ("hidden", "seed"):
                continue
            report, log = runs.run(f"{targets}-{name}", {**source, "targets": targets})
            assert f"{only} that only the teacher has {words}, and what is left is renormalised" in log, log
            # The seed protocol's numbers are fp32, kserve's rows of logits FP16.
            if name == "seed":
                assert abs(report["last"]["loss"] - plain["last"]["loss"]) < 1e-3
            else:
                assert report["weights_sha256"] == plain["weights_sha256"], (targets, name)


def test_entries_of_ids_that_the_student_lacks_are_dropped(runs, teacher_folder, padded_folder):
    """Of rows of all entries, the unpadded teacher's distribution is left. Of rows of few, some are: fewer buckets, and
    so a smaller divergence."""
    plain, _ = runs.run("all-plain", local(teacher_folder, top_k=257))
    padded, log = runs.run("all-padded", local(padded_folder, top_k=257))
    assert "the 8 that only the teacher has are dropped from its rows, and what is left is renormalised" in log
    assert abs(padded["last"]["kd_loss"] - plain["last"]["kd_loss"]) < 1e-3
    few, _ = runs.run("few", local(padded_folder, top_k=16))
    assert 0 < few["last"]["kd_loss"] < plain["last"]["kd_loss"]


def test_a_store_keeps_what_the_teacher_says(runs, padded_folder, teacher_folder, tmp_path):
    """A store over the teacher's ids, read by a student that has fewer."""
    plain, _ = runs.run("plain", local(teacher_folder, targets="logits"))
    filling, _ = runs.run("filling", local(padded_folder, store=str(tmp_path / "store"), targets="logits"))
    manifest = json.loads((tmp_path / "store" / "manifest.json").read_text())
    assert manifest["vocabulary"] == jobs.BYTE_VOCABULARY + PADDING
    assert len(manifest["teacher_tokenizer"]) == 64
    assert filling["weights_sha256"] == plain["weights_sha256"]


def test_a_smaller_teacher_gives_the_other_ids_no_probability(runs, teacher_folder):
    wider = {"/student/config": jobs.llama_config(32, vocabulary=260)}
    losses = {}
    kinds = {"logits": {"targets": "logits"}, "hidden": {"targets": "hidden"}, "topk": {"top_k": 257}}
    for name, wanted in kinds.items():
        report, log = runs.run(name, local(teacher_folder, **wanted), wider)
        assert "the teacher knows 257 tokens and the student 260: the 3 that only the student has" in log
        losses[name] = report["last"]["kd_loss"]
    assert abs(losses["logits"] - losses["hidden"]) < 1e-3
    far = {"/student/config": jobs.llama_config(32, vocabulary=1024), "/dataset/train": str(runs.folder / "ids.jsonl")}
    jobs.write_jsonl(runs.folder / "ids.jsonl", [{"input_ids": list(range(100, 124))}] * 4)
    said = runs.refusal("far", local(teacher_folder, top_k=16), far)
    assert "/student: the teacher knows 257 tokens and the student 1024, which is more than padding" in said


def test_another_tokenizer_is_refused(runs, distilld, shuffled_folder):
    url = distilld.teacher(shuffled_folder, "--dtype", "fp32").url
    for name, source in {"served": {"endpoints": [url]}, "local": local(shuffled_folder)}.items():
        said = runs.refusal(name, {**source, "top_k": 16})
        assert "/teacher/require_same_tokenizer: the teacher " in said
        assert (url if name == "served" else str(shuffled_folder)) in said
        assert "another tokenizer than the student (byte tokenizer)" in said
        _, log = runs.run(f"{name}-meant", {**source, "top_k": 16, "require_same_tokenizer": False})
        assert "has another tokenizer than the student" in log


def test_ids_without_a_tokenizer_are_not_compared(runs, shuffled_folder):
    ids = jobs.write_jsonl(runs.folder / "ids.jsonl", [{"input_ids": list(range(100, 124))}] * 4)
    _, log = runs.run("ids", local(shuffled_folder, top_k=16), {"/dataset/train": str(ids)})
    assert "tokenizers are not compared: the data has ids, and the student has no tokenizer" in log


def test_a_model_of_another_name_is_an_error_at_once(runs, teacher):
    """Under the default patience of half an hour: what the server has is known."""
    said = runs.refusal("name", {"endpoints": [teacher.url], "model": "llama", "top_k": 16})
    assert "there is no model 'llama': this server has 'teacher' (see /teacher/model)" in said
    assert "the teacher is up, after" not in said


def test_the_end_of_the_patience_is_not_the_end_of_the_wait(runs, free_url):
    said = runs.refusal("nobody", {"endpoints": [free_url], "top_k": 16, "patience_secs": 0.5})
    assert "waiting: no endpoint of the teacher is up yet" in said
    assert "(given up: /teacher/patience_secs is over)" in said
    assert "the teacher is up, after" not in said


@pytest.fixture
def free_url():
    with socket.socket() as held:  # bound and not listening: refuses
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


def test_an_adapter_without_its_base_is_no_teacher(distilld, tmp_path):
    config = {"peft_type": "LORA", "base_model_name_or_path": "base", "r": 4, "lora_alpha": 8}
    config["target_modules"] = ["q_proj"]
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    done = distilld.start("teacher", tmp_path, "--listen", "127.0.0.1:0")
    done.wait()
    assert done.code not in (0, None)
    said = done.out + done.err
    assert "adapter_config.json" in said and "base_model_name_or_path" in said
