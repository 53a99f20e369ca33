"""scripts/quickstart.sh, in its quick size: what it reports is true, it can be run again, and it cleans up."""

import json
import math
import os
import pathlib
import re
import signal
import subprocess

import pytest
from support import jobs
from support.moments import alive
from support.processes import PATIENCE, Process, wait_until
from support.rest import Rest
from transformers import AutoModelForCausalLM, AutoTokenizer

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "quickstart.sh"
SECONDS = 3 * PATIENCE
FIGURES = {
    "teacher_loss",
    "student_alone_loss",
    "distilled_loss",
    "tokens_per_second_sequential",
    "tokens_per_second_parallel",
    "teacher_hidden_fraction",
    "student_folder",
    "as_expected",
}
VOCABULARY = 512  # of the quick size
MARK = "TORCH_TEST_MARK"  # workers inherit few names: server/supervisor/worker_environment.cpp


class Quickstart:
    """Runs the script in one folder. Every process that it starts inherits a mark."""

    def __init__(self, programs, folder):
        self.programs = programs
        self.work = folder / "work"
        self.folder = folder
        self.mark = str(folder)
        self.started = []

    def start(self, *flags):
        process = Process(
            [SCRIPT, "--quick", "--bin", self.programs, "--work", self.work, *flags],
            self.folder / f"log-{len(self.started)}",
            env={MARK: self.mark},
        )
        self.started.append(process)
        return process

    def left(self):
        """The program's name of each process that carries the mark and runs."""
        names = []
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and f"{MARK}={self.mark}\0".encode() in (entry / "environ").read_bytes():
                    names.append(pathlib.Path(os.readlink(entry / "exe")).name)
            except OSError:
                pass  # ended meanwhile, or somebody else's
        return sorted(names)


@pytest.fixture(scope="module")
def quickstart(programs, tmp_path_factory):
    made = Quickstart(programs, tmp_path_factory.mktemp("quickstart"))
    yield made
    for process in made.started:
        if process.code is None:
            process.destroy()
    pids = made.work / "pids"
    for pid in pids.read_text().split() if pids.exists() else []:
        if alive(int(pid)):
            os.kill(int(pid), signal.SIGKILL)


def result(quickstart, name):
    return json.loads((quickstart.work / f"{name}.result.json").read_text())


def test_it_reports_what_happened_and_runs_again(quickstart):
    report_file = quickstart.folder / "report.json"
    first = quickstart.start("--report", report_file, "--keep").expect(0, SECONDS)
    report = json.loads(report_file.read_text())
    assert report.keys() == FIGURES
    for field, job in (
        ("teacher_loss", "teacher"),
        ("student_alone_loss", "alone"),
        ("distilled_loss", "distilled"),
    ):
        assert report[field] == result(quickstart, job)["eval_loss"]
        assert f"{report[field]:.4f}" in first.out
    # All have learned something, the larger model more, and the teacher was of use to the student.
    assert (
        1
        < report["teacher_loss"]
        < report["distilled_loss"]
        < report["student_alone_loss"]
        < math.log(VOCABULARY) - 0.5
    )
    assert report["as_expected"] is True and "yes, as expected" in first.out
    for field, job in (("tokens_per_second_sequential", "sequential"), ("tokens_per_second_parallel", "distilled")):
        progress = result(quickstart, job)["progress"]
        assert report[field] == pytest.approx(progress["tokens"] / progress["seconds_elapsed"])
        # Each row at most once; the last one of all may be shorter, and padding does not count.
        assert 0 <= progress["total_steps"] * 4 * 64 - progress["tokens"] < 64
    assert 0 < report["teacher_hidden_fraction"] <= 1
    student = pathlib.Path(report["student_folder"])
    assert student == quickstart.work / "distilled"
    assert jobs.sha256(student / "model.safetensors") == result(quickstart, "distilled")["weights_sha256"]
    config = AutoModelForCausalLM.from_pretrained(student).config
    assert (config.model_type, config.hidden_size, config.vocab_size) == ("qwen3", 48, VOCABULARY)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (student / name).read_bytes() == (quickstart.work / "tokenizer" / name).read_bytes()
    assert AutoTokenizer.from_pretrained(student).eos_token_id == VOCABULARY - 1

    # With --keep the service is there for the curious, and the teacher; the next run ends them.
    assert quickstart.left() == ["distilld", "distilld-worker"]
    job = result(quickstart, "distilled")
    serve, ask = first.out.splitlines()[-2:]
    assert re.search(r"/distilld teacher /\S+/distilled$", serve) and "curl http://127.0.0.1:8600/v1/comp" in ask, (
        first.out
    )
    url = next(line.split()[-1] for line in first.out.splitlines() if line.split()[:1] == ["job"])
    assert Rest(url).get(f"/v1/jobs/{job['id']}").json["weights_sha256"] == job["weights_sha256"]

    text = quickstart.folder / "text.txt"
    text.write_text("\n\n".join(" ".join(jobs.text_lines(40, seed)) for seed in range(60)))
    report_file.unlink()
    quickstart.start("--report", report_file, "--text", text).expect(0, SECONDS)
    again = json.loads(report_file.read_text())
    assert again.keys() == FIGURES
    assert again["teacher_loss"] < report["teacher_loss"] - 0.5, "the second text is far simpler than the first"
    wait_until(lambda: not quickstart.left(), "every process of the quickstart to end")


def test_it_leaves_nothing_behind_when_it_is_interrupted(quickstart):
    process = quickstart.start()
    process.wait_for_line("== Student distilled", SECONDS)
    wait_until(lambda: quickstart.left().count("distilld-worker") == 2, "teacher and student to run")
    process.send(signal.SIGTERM)
    process.expect(130)
    wait_until(lambda: not quickstart.left(), "every process of the quickstart to end")


@pytest.mark.parametrize(
    "flags", [["--colour"], ["--bin", "/nowhere"], ["--text"], ["--report"], ["--seed", "one"]], ids=" ".join
)
def test_wrong_usage_is_refused(flags, tmp_path):
    done = subprocess.run([SCRIPT, "--work", tmp_path / "work", *flags], capture_output=True, timeout=60, check=False)
    assert done.returncode in (1, 2) and done.stderr
    assert not (tmp_path / "work").exists()
