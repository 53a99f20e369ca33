"""`distilld run`: exit codes, overrides, interruption, what it reads and writes."""

import json
import math
import os
import pty
import select
import signal
import time

import pytest
import torch
from chaos_proxy import ChaosProxy, Script
from support import jobs
from support.processes import PATIENCE, wait_until
from support.rest import closed_port
from transformers import LlamaConfig, LlamaForCausalLM


def run_report(distilld, spec, folder, *flags, **options):
    """Runs the spec to its end and reads the report."""
    folder.mkdir(parents=True, exist_ok=True)
    file = jobs.write_spec(folder / "spec.json", spec)
    distilld.run("run", file, "--report", folder / "report.json", *flags, **options)
    return json.loads((folder / "report.json").read_text())


@pytest.fixture
def spec(teacher, text_data, tmp_path):
    return jobs.distil_spec(text_data, tmp_path / "student", teacher.url, steps=4)


def test_help_and_version(distilld):
    assert "Run one job in the foreground" in distilld.run("--help").out
    for command in (["serve"], ["run"], ["teacher"], ["jobs"], ["jobs", "submit"], ["healthcheck"]):
        assert "Usage" in distilld.run(*command, "--help").out
        assert distilld.run(*command, "--version").out.startswith("distilld ")
    assert distilld.run("--version", program="distilld-worker").out.startswith("distilld-worker ")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["walk"],
        ["run"],
        ["run", "SPEC", "--no-such-flag"],
        ["run", "SPEC", "--set", "=3"],
        ["run", "SPEC", "--set", "/training/max_steps"],
        ["run", "SPEC", "--micro-batches", "many"],
        ["run", "SPEC", "--parallel", "perhaps"],
        ["jobs"],
        ["jobs", "submit"],
        ["serve"],
        ["run", "SPEC", "--report", "/nowhere/report.json"],
        ["teacher", "/nowhere"],
        ["teacher", "FOLDER", "--dtype", "fp8"],
        ["run", "/nowhere.json"],
        ["run", "FOLDER"],
    ],
)
def test_wrong_usage_is_2(distilld, spec, tmp_path, arguments):
    file = jobs.write_spec(tmp_path / "spec.json", spec)
    given = {"SPEC": str(file), "FOLDER": str(tmp_path)}
    ended = distilld.run(*(given.get(argument, argument) for argument in arguments), code=2)
    assert ended.err.strip(), "an exit code needs a reason"
    assert not (tmp_path / "student").exists()


def test_a_run_tells_its_progress_in_plain_lines(distilld, spec, tmp_path):
    ended = distilld.run("run", jobs.write_spec(tmp_path / "spec.json", spec))
    assert "\r" not in ended.out
    assert "step 4/4" in ended.out
    for word in ("loss", "tok/s", "ETA", "stall"):
        assert word in ended.out
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        assert (tmp_path / "student" / name).is_file()


def test_a_terminal_gets_a_bar_that_is_redrawn(distilld, spec, tmp_path):
    ours, theirs = pty.openpty()
    try:
        process = distilld.start("run", jobs.write_spec(tmp_path / "spec.json", spec), stdout=theirs)
        os.close(theirs)
        shown = b""
        deadline = time.monotonic() + PATIENCE
        while select.select([ours], [], [], max(0.0, deadline - time.monotonic()))[0]:
            try:
                shown += os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
        process.expect(0)
    finally:
        os.close(ours)
    assert shown.count(b"\r") > 2
    assert b"4/4" in shown


def test_overrides_change_the_spec(distilld, teacher, spec, tmp_path):
    wrong = jobs.changed(
        spec,
        {
            "/teacher/endpoints": ["http://127.0.0.1:9/"],
            "/training/epochs": 1,
            "/training/max_steps": None,
            "/checkpoint": {"every_steps": 2},
        },
    )
    report = run_report(
        distilld,
        wrong,
        tmp_path,
        "--teacher-endpoint",
        teacher.url,
        "--parallel",
        "false",
        "--micro-batches",
        "3",
        "--batch-size",
        "5",
        "--max-steps",
        "2",
        "--timeout",
        "17.5",
        "--checkpoint-dir",
        str(tmp_path / "elsewhere"),
        "--output",
        str(tmp_path / "moved"),
        "--set",
        "/training/seed=9",
        "--set",
        "/name=from the command line",
        "--set",
        "/dataset/sequence_length=16",
    )
    last = report["last"]
    assert (last["step"], last["total_steps"]) == (2, 2)
    assert last["tokens"] == 2 * 3 * 5 * 16
    assert last["fetch"]["concurrency"] == 1  # not parallel
    assert report["output"] == str(tmp_path / "moved")
    assert report["weights_sha256"] == jobs.sha256(tmp_path / "moved" / "model.safetensors")
    assert (tmp_path / "elsewhere" / "step-00000002").is_dir()
    assert not (tmp_path / "moved" / "checkpoints").exists()
    assert not (tmp_path / "student").exists()


def test_a_checkpoint_folder_may_be_named_in_the_spec_and_resumed_from(distilld, spec, tmp_path):
    apart = jobs.changed(spec, {"/checkpoint": {"every_steps": 2, "dir": str(tmp_path / "apart")}})
    whole = run_report(distilld, apart, tmp_path)
    assert sorted(entry.name for entry in (tmp_path / "apart").glob("[!.]*")) == ["step-00000002", "step-00000004"]
    longer = run_report(distilld, apart, tmp_path, "--resume")
    assert longer["weights_sha256"] == whole["weights_sha256"]


def test_a_spec_can_come_from_stdin_or_have_relative_paths(distilld, spec, text_data, tmp_path):
    relative = jobs.changed(spec, {"/dataset/train": os.path.relpath(text_data, tmp_path), "/output": "here/student"})
    jobs.write_spec(tmp_path / "spec.json", relative)
    distilld.run("run", "spec.json", cwd=tmp_path)
    with open(tmp_path / "spec.json", "rb") as stdin:
        distilld.run("run", "-", "--output", "there", stdin=stdin, cwd=tmp_path)
    assert jobs.sha256(tmp_path / "here" / "student" / "model.safetensors") == jobs.sha256(
        tmp_path / "there" / "model.safetensors"
    )


def test_the_trace_names_who_ran_when(distilld, spec, tmp_path):
    distilld.run("run", jobs.write_spec(tmp_path / "spec.json", spec), "--trace", tmp_path / "trace.json")
    named = [event.get("name") for event in json.loads((tmp_path / "trace.json").read_text())]
    assert named.count("train") == 16  # 4 steps of 4 micro-batches
    assert named.count("request") + named.count("retry") + named.count("hedge") >= 16
    assert {"stage", "finish_step", "checkpoint"} <= set(named)


@pytest.mark.parametrize("where", ["in mid-step, waiting for the teacher", "while it trains"])
def test_an_interrupt_leaves_a_checkpoint_and_resume_ends_with_the_same_bits(distilld, teacher, spec, tmp_path, where):
    spec = jobs.changed(spec, {"/training/max_steps": 12, "/checkpoint/every_steps": 4, "/teacher/hedge": False})
    calm = run_report(distilld, spec, tmp_path / "calm", "--output", tmp_path / "calm" / "student")
    # In the steps after the fourth it is to be met while it trains: they take a second.
    with ChaosProxy(teacher.url, Script(delay=0.25 if where == "while it trains" else 0.02)) as proxy:
        if where != "while it trains":
            proxy.hold_after = 2 + 4 * 6 + 2  # the probe, six steps, half a step
        flags = ["--teacher-endpoint", proxy.url]
        file = jobs.write_spec(tmp_path / "spec.json", spec)
        process = distilld.start("run", file, *flags)
        if where == "while it trains":
            process.wait_for_line(r"checkpoint .*step-00000004|step [4-9]/12")
        else:
            wait_until(
                lambda: proxy.counts["held"] > 0 and proxy.answered == proxy.hold_after, "the teacher to fall silent"
            )
            wait_until(lambda: (tmp_path / "student" / "checkpoints" / "step-00000004").is_dir(), "a checkpoint")
        process.send(signal.SIGINT)
        process.expect(130)
        steps = sorted(entry.name for entry in (tmp_path / "student" / "checkpoints").glob("[!.]*"))
        assert "step-00000004" in steps or where == "while it trains"
        assert steps[-1] < "step-00000012"
        assert not (tmp_path / "student" / "model.safetensors").exists()
        proxy.hold_after = None
        report = tmp_path / "report.json"
        resumed = distilld.run("run", file, *flags, "--resume", "--report", report)
    assert f"resumed from {tmp_path}/student/checkpoints/{steps[-1]}" in resumed.out
    resumed = json.loads(report.read_text())
    assert resumed["last"]["fetch"]["completed"] == 4 * (12 - int(steps[-1].removeprefix("step-")))
    assert resumed["weights_sha256"] == calm["weights_sha256"]
    assert jobs.sha256(tmp_path / "student" / "model.safetensors") == calm["weights_sha256"]


def test_signals_that_ask_for_the_end(distilld, teacher, spec, tmp_path):
    """SIGTERM is like an interrupt; a second signal does not wait; a probe that waits is given up."""
    with ChaosProxy(teacher.url) as proxy:
        proxy.hold_after = 2 + 4 * 2 + 1
        flags = ["--teacher-endpoint", proxy.url, "--set", "/teacher/hedge=false"]
        process = distilld.start("run", jobs.write_spec(tmp_path / "spec.json", spec), *flags)
        wait_until(
            lambda: proxy.counts["held"] > 0 and proxy.answered == proxy.hold_after, "the teacher to fall silent"
        )
        process.send(signal.SIGTERM)
        process.expect(130)
        assert "interrupted after step" in process.out
    nobody = ["--teacher-endpoint", f"http://127.0.0.1:{closed_port()}", "--output", tmp_path / "probing"]
    process = distilld.start("run", tmp_path / "spec.json", *nobody)
    wait_until(lambda: (tmp_path / "probing").is_dir(), "the worker to get to the teacher")
    process.send(signal.SIGINT)
    process.expect(130, seconds=30)
    assert "no step was done" in process.out


def test_two_runs_do_not_write_to_one_folder(distilld, teacher, spec, tmp_path):
    """The second waits until the first is done with it, and then goes on from what that left."""
    # One request at a time: several arrive in any order, and the one that is held could belong to the first step.
    changes = {"/checkpoint/every_steps": 2, "/teacher/max_concurrent": 1, "/teacher/hedge": False}
    file = jobs.write_spec(tmp_path / "spec.json", jobs.changed(spec, changes))
    with ChaosProxy(teacher.url) as proxy:
        proxy.hold_after = 2 + 4 * 2 + 1  # the probe, two steps, part of the third
        first = distilld.start("run", file, "--teacher-endpoint", proxy.url)
        # The answers of a step are there before the step is done.
        wait_until(lambda: (tmp_path / "student" / "checkpoints" / "step-00000002").is_dir(), "the second step")
        second = distilld.start("run", file, "--resume")
        second.wait_for_line("waiting for another run to finish with .*student")
        first.send(signal.SIGTERM)
        first.expect(130)
        second.expect(0)
    assert "resumed from" in second.out and "from step 2" in second.out


def test_resuming_on_another_device_is_told(distilld, spec, tmp_path):
    spec = jobs.changed(spec, {"/student/device": "cpu"})
    file = jobs.write_spec(tmp_path / "spec.json", spec)
    distilld.run("run", file)
    # `cpu` and what `auto` comes to are compared as devices, not as words.
    flags = [] if torch.cuda.is_available() else ["--set", "/student/device=auto"]
    same = distilld.run("run", file, "--resume", *flags)
    assert "/student/device" not in same.out + same.err

    (state,) = (tmp_path / "student" / "checkpoints").glob("step-*4/state.json")
    told = json.loads(state.read_text())
    told.pop("sha256")  # as an earlier version wrote it
    run = json.loads(told["spec"])
    assert run["spec"]["student"]["device"] == "cpu"
    run["spec"]["student"]["device"] = "cuda:1"
    state.write_text(json.dumps({**told, "spec": json.dumps(run)}))
    other = distilld.run("run", file, "--resume")
    assert '/student/device: is "cpu", but the checkpoint was made with "cuda:1"' in other.out + other.err


def test_resuming_with_another_spec_is_refused(distilld, spec, tmp_path):
    file = jobs.write_spec(tmp_path / "spec.json", spec)
    distilld.run("run", file)
    refused = distilld.run("run", file, "--resume", "--set", "/training/learning_rate=0.5", code=1)
    assert "/training/learning_rate" in refused.err
    # Nothing there: a first run may be started with --resume, as restart scripts do.
    fresh = distilld.run("run", file, "--resume", "--output", tmp_path / "fresh")
    assert "nothing to resume" in fresh.out


def saved_by_transformers(folder, dtype):
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=jobs.BYTE_VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.uniform_(0.5, 1.5)
        # Values that careless arithmetic changes: a negative zero, and the smallest number there is.
        model.model.embed_tokens.weight[5, :3] = torch.tensor([-0.0, 1e-45, -1e-45])
    model.to(dtype).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("arithmetic", ["fp32", "bf16"])
def test_a_run_that_moves_no_bit_exports_the_tensors_it_read(distilld, spec, tmp_path, dtype, arithmetic):
    source = saved_by_transformers(tmp_path / "source", getattr(torch, dtype))
    report = run_report(
        distilld,
        jobs.changed(
            spec,
            {
                "/student": {"model": str(source), "dtype": arithmetic},
                "/training/learning_rate": 1e-30,
                "/training/weight_decay": 0.1,
            },
        ),
        tmp_path,
    )
    assert report["last"]["grad_norm"] > 0
    read = jobs.safetensors_entries(source / "model.safetensors")
    written = jobs.safetensors_entries(tmp_path / "student" / "model.safetensors")
    assert written.keys() == read.keys()
    assert {entry[0] for entry in written.values()} == {"F32" if dtype == "float32" else "BF16"}
    for name, entry in read.items():
        assert written[name] == entry, f"{name} is not what was read"


def test_text_and_ids_of_the_same_bytes_are_the_same_data(distilld, spec, text_data, tmp_path):
    from_text = run_report(distilld, jobs.changed(spec, {"/output": str(tmp_path / "text")}), tmp_path)
    end_of_text = 256
    documents = [
        {"input_ids": [*json.loads(line)["text"].encode(), end_of_text]} for line in text_data.read_text().splitlines()
    ]
    documents[-1]["input_ids"].pop()
    ids = jobs.write_jsonl(tmp_path / "ids.jsonl", documents)
    from_ids = run_report(
        distilld, jobs.changed(spec, {"/dataset/train": str(ids), "/output": str(tmp_path / "ids")}), tmp_path
    )
    assert from_ids["weights_sha256"] == from_text["weights_sha256"]


def test_tokens_without_a_label_are_not_learned(distilld, spec, tmp_path):
    """Rows of five tokens, each a document. The last one is no target in the first two rows, and an input of none."""

    def weights(name, last, labels):
        documents = [
            {"input_ids": [n + 1, n + 2, n + 3, n + 4, n + last], **({"labels": labels(n)} if labels else {})}
            for n in range(40)
        ]
        data = jobs.write_jsonl(tmp_path / f"{name}.jsonl", documents)
        changes = {"/dataset/train": str(data), "/dataset/packing": False, "/training/kd_ratio": 0.5}
        changes["/output"] = str(tmp_path / name)
        return run_report(distilld, jobs.changed(spec, changes), tmp_path)["weights_sha256"]

    def masked(n):
        return [-100, -100, n + 3, n + 4, -100]

    some = weights("masked", 5, masked)
    assert weights("another last token", 6, masked) == some
    every = weights("whole", 5, lambda n: [n + 1, n + 2, n + 3, n + 4, n + 5])
    assert every == weights("without labels", 5, None)
    assert every != some
    assert every != weights("another last token that counts", 6, None)


PROTOCOLS = {
    "kserve, top 16": {"/teacher/protocol": "kserve", "/teacher/top_k": 16},
    "kserve, all of the vocabulary as top-k": {"/teacher/protocol": "kserve", "/teacher/top_k": jobs.BYTE_VOCABULARY},
    "kserve, full logits": {"/teacher/protocol": "kserve", "/teacher/top_k": 0},
    "seed": {"/teacher/protocol": "seed", "/teacher/top_k": 0},
}


def test_protocols_tell_the_student_the_same(distilld, spec, tmp_path):
    """One teacher, three ways to ask it: half precision and, in the first row, a tail are all that differs."""
    losses = {}
    for number, (name, changes) in enumerate(PROTOCOLS.items()):
        changes = {**changes, "/output": str(tmp_path / str(number)), "/training/temperature": 1.0}
        losses[name] = run_report(distilld, jobs.changed(spec, changes), tmp_path)["last"]["kd_loss"]
    exact = losses["seed"]
    assert exact > 0.05
    for name, loss in losses.items():
        if name != "kserve, top 16":
            assert loss == pytest.approx(exact, rel=2e-3), losses
    # Lumping the tail together hides some of the difference (the log sum inequality).
    assert 0.2 * exact < losses["kserve, top 16"] <= exact * 1.002, losses


def test_an_endpoint_with_a_path_is_taken_as_it_is(distilld, teacher, spec, tmp_path):
    for number, (protocol, path) in enumerate([("kserve", "/v2/models/teacher/infer"), ("seed", "/v1/completions")]):
        run_report(
            distilld,
            jobs.changed(
                spec,
                {
                    "/teacher/protocol": protocol,
                    "/teacher/endpoints": [teacher.url + path],
                    "/teacher/top_k": 0,
                    "/output": str(tmp_path / str(number)),
                },
            ),
            tmp_path,
        )


def test_cross_entropy_joins_in_with_kd_ratio(distilld, spec, tmp_path):
    last = run_report(
        distilld, jobs.changed(spec, {"/training/kd_ratio": 0.25, "/training/temperature": 2.0}), tmp_path
    )["last"]
    assert last["kd_loss"] > 0 and last["ce_loss"] > 0
    # The square of the temperature is part of kd_loss.
    assert last["loss"] == pytest.approx(0.75 * last["ce_loss"] + 0.25 * last["kd_loss"], rel=1e-9), last


def test_epochs_and_evaluation(distilld, spec, text_data, tmp_path):
    held_out = jobs.write_text_data(tmp_path / "eval.jsonl", 10, seed=5)
    report = run_report(
        distilld,
        jobs.changed(
            spec,
            {
                "/training/max_steps": None,
                "/training/epochs": 1,
                "/training/batch_size": 16,
                "/dataset/eval": str(held_out),
                "/training/eval_steps": 2,
            },
        ),
        tmp_path,
    )
    tokens = sum(len(json.loads(line)["text"].encode()) + 1 for line in text_data.read_text().splitlines())
    rows = math.ceil((tokens - 2) / jobs.SEQUENCE_LENGTH)
    assert report["last"]["total_steps"] == math.ceil(rows / (16 * 4))
    assert report["last"]["tokens"] == tokens - 2  # every row once
    assert 0 < report["eval_loss"] < 7


def test_a_teacher_that_hangs_is_named_and_its_return_told(distilld, teacher_folder, text_data, tmp_path):
    """Five seconds pass before it is said."""
    frozen = distilld.teacher(teacher_folder, "--dtype", "fp32")
    spec = jobs.distil_spec(text_data, tmp_path / "student", frozen.url, steps=100_000)
    process = distilld.start("run", jobs.write_spec(tmp_path / "spec.json", spec))
    process.wait_for_line(r"step \d+/100000 ")
    frozen.send(signal.SIGSTOP)
    endpoint = process.wait_for_line(r"waiting: no answer from (\S+); a request may take \d+ s").group(1)
    assert endpoint.startswith(frozen.url)
    frozen.send(signal.SIGCONT)
    process.wait_for_line(r"\nthe teacher answers again, after \d+ s\n")
    process.send(signal.SIGINT)
    process.expect(130)
    assert process.out.count("waiting: ") == 1
