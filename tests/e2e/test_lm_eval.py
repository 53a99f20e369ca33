"""lm-eval says the same of a served student as of its folder in transformers."""

import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("lm_eval")

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_a_served_student_has_the_figures_of_its_folder(programs):
    done = subprocess.run(
        [sys.executable, "scripts/check_lm_eval.py", "--documents", "10", "--program", programs / "distilld"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "equal"
    for task in ("legs     acc,none", "rolling  byte_perplexity,none", "go_on    exact_match,none"):
        assert task in done.stdout
