"""Hidden states for targets: the student that full logits give, in fewer bytes, whatever happens on the way."""

import json
import urllib.request

import pytest
from chaos_proxy import ChaosProxy, Script
from support import jobs
from support.moments import alive, kill
from support.processes import wait_until

STEPS = 12
PROBE = 4  # POSTs before the first micro-batch
HIDDEN = 48  # of the teacher that conftest.py makes
POSITIONS = STEPS * 4 * 2 * jobs.SEQUENCE_LENGTH
ROUNDING = 1e-3  # of a held-out loss, between two ways to send the same rows


def run(distilld, data, folder, url, changes=None):
    folder.mkdir(parents=True, exist_ok=True)
    spec = jobs.distil_spec(data, folder / "student", url, STEPS, top_k=0)
    spec = jobs.changed(spec, {"/dataset/eval": str(data), "/training/temperature": 2.0, **(changes or {})})
    report = folder / "report.json"
    done = distilld.run("run", jobs.write_spec(folder / "spec.json", spec), "--report", report)
    return json.loads(report.read_text()), done.out


def bytes_a_position(report):
    return report["last"]["fetch"]["bytes_received"] / POSITIONS


@pytest.fixture(scope="module")
def hidden(distilld_session, teacher, text_data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hidden")
    return run(distilld_session, text_data, folder, teacher.url, {"/teacher/targets": "hidden"})


def test_the_student_is_the_one_that_logits_give(distilld, teacher, text_data, tmp_path, hidden):
    report, log = hidden
    logits, _ = run(distilld, text_data, tmp_path, teacher.url, {"/teacher/targets": "logits"})
    print(f"\nhidden states: held-out loss {report['eval_loss']:.6f}, {bytes_a_position(report):.1f} bytes a position")
    print(f"full logits:   held-out loss {logits['eval_loss']:.6f}, {bytes_a_position(logits):.1f} bytes a position")
    assert abs(report["eval_loss"] - logits["eval_loss"]) < ROUNDING
    assert abs(report["last"]["kd_loss"] - logits["last"]["kd_loss"]) < ROUNDING
    assert f"hidden states of {HIDDEN} values" in log
    # Two bytes a value. The rest is the head, the probe, and the frame of an answer, large beside so few tokens.
    assert bytes_a_position(report) < 0.6 * bytes_a_position(logits)
    assert 2 * HIDDEN < bytes_a_position(report) < 2 * HIDDEN + 120


def test_in_bf16_as_well(distilld, teacher_folder, text_data, tmp_path):
    url = distilld.teacher(teacher_folder, "--dtype", "bf16").url
    losses = {}
    for targets in ("hidden", "logits"):
        changes = {"/teacher/targets": targets, "/student/dtype": "bf16"}
        losses[targets] = run(distilld, text_data, tmp_path / targets, url, changes)[0]["eval_loss"]
    print(f"\nbf16, held-out loss: {losses}")
    assert abs(losses["hidden"] - losses["logits"]) < ROUNDING


def test_auto_takes_what_is_smaller(distilld, teacher, text_data, tmp_path, hidden):
    report, _ = run(distilld, text_data, tmp_path / "auto", teacher.url)
    assert report["weights_sha256"] == hidden[0]["weights_sha256"]


def test_weights_do_not_depend_on_timing(distilld, teacher, text_data, tmp_path, hidden):
    with ChaosProxy(teacher.url, Script(delay=0.01, jitter=0.3)) as proxy:
        for name, changes in {
            "1 in flight": {"/teacher/max_concurrent": 1},
            "64 in flight": {"/teacher/max_concurrent": 64},
            "not parallel": {"/training/parallel": False},
        }.items():
            where = tmp_path / name.replace(" ", "-")
            report, _ = run(distilld, text_data, where, proxy.url, {"/teacher/targets": "hidden", **changes})
            assert report["weights_sha256"] == hidden[0]["weights_sha256"], name


def test_a_killed_run_goes_on_with_hidden_states(distilld, teacher, text_data, tmp_path, hidden):
    with ChaosProxy(teacher.url) as proxy:
        proxy.hold_after = PROBE + 7 * 4 + 2  # in mid-step
        check_killed_run(distilld, proxy, text_data, tmp_path, hidden[0]["weights_sha256"])


def check_killed_run(distilld, proxy, text_data, tmp_path, weights_sha256):
    changes = {"/checkpoint/every_steps": 3, "/teacher/hedge": False}  # targets: auto
    spec = jobs.distil_spec(text_data, tmp_path / "student", proxy.url, STEPS, top_k=0)
    spec = jobs.changed(spec, {"/dataset/eval": str(text_data), "/training/temperature": 2.0, **changes})
    file = jobs.write_spec(tmp_path / "spec.json", spec)
    checkpoints = tmp_path / "student" / "checkpoints"
    report = tmp_path / "report.json"
    process = distilld.start("run", file)
    wait_until(lambda: proxy.counts["held"] > 0, "the teacher to fall silent")
    wait_until(lambda: (checkpoints / "step-00000006").is_dir(), "the checkpoint of step 6")
    worker = process.worker()
    kill(process.pid)
    process.wait()
    wait_until(lambda: not alive(worker), "the worker to end")
    proxy.hold_after = None
    done = distilld.run("run", file, "--resume", "--report", report)
    assert "resumed from" in done.out
    assert json.loads(report.read_text())["weights_sha256"] == weights_sha256


def test_what_does_not_go_together_is_refused(distilld, teacher, text_data, tmp_path):
    def refusal(changes):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        spec = jobs.distil_spec(text_data, folder / "student", teacher.url, STEPS, top_k=0)
        file = jobs.write_spec(folder / "spec.json", jobs.changed(spec, changes))
        done = distilld.start("run", file)
        done.wait()
        assert done.code not in (0, None)
        return done.out + done.err

    assert "/teacher/targets: is topk, but top_k" in refusal({"/teacher/targets": "topk"})
    both = {"/teacher/targets": "hidden", "/teacher/top_k": 4}
    assert "/teacher/targets: is hidden, but top_k is above 0" in refusal(both)
    seed = {"/teacher/targets": "hidden", "/teacher/protocol": "seed"}
    assert "/teacher/targets: is hidden, but protocol 'seed' has no hidden states" in refusal(seed)


def test_the_batch_size_is_found_beside_the_head(distilld, teacher, text_data, tmp_path):
    changes = {"/teacher/targets": "hidden", "/training/batch_size": "auto", "/training/max_steps": 1}
    with ChaosProxy(teacher.url) as proxy:
        report, log = run(distilld, text_data, tmp_path, proxy.url, changes)
    assert "batch_size auto:" in log
    assert report["last"]["step"] == 1
    # The teacher is asked before and after; its head comes once, and is among the bytes that came.
    assert proxy.gets["/v2/models/teacher"] == 2
    assert proxy.gets["/v2/models/teacher/head"] == 1
    head = len(urllib.request.urlopen(f"{teacher.url}/v2/models/teacher/head").read())
    answers = report["last"]["tokens"] * 2 * HIDDEN
    fetch = report["last"]["fetch"]
    assert fetch["bytes_received"] > answers + head
    assert fetch["head"]["bytes"] == head
    assert fetch["head"]["seconds"] > 0


def test_the_batch_size_is_found_before_a_store_is_filled(distilld, teacher, text_data, tmp_path):
    """A store keeps no hidden states, so nothing is asked for before the batch size is known."""
    changes = {"/teacher/store": str(tmp_path / "store"), "/training/batch_size": "auto", "/training/max_steps": 1}
    report, log = run(distilld, text_data, tmp_path, teacher.url, changes)
    assert "batch_size auto:" in log
    assert report["last"]["fetch"]["store"]["held_rows"] > 0
    assert report["last"]["fetch"]["head"] == {"bytes": 0, "seconds": 0}
