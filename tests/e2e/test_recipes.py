"""scripts/recipes.py in its quick size: it prints what its runs reported; and docs/recipes.md has all of its rows."""

import importlib.util
import json
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "recipes.py"
SECONDS = 300


@pytest.fixture(scope="module")
def recipes():
    """The script as a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPT.parent))
        spec = importlib.util.spec_from_file_location("recipes", SCRIPT)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def quick(programs, tmp_path_factory):
    """(what it printed, its report, the folder of it all)"""
    pytest.importorskip("tokenizers")
    folder = tmp_path_factory.mktemp("recipes")
    command = [
        sys.executable,
        SCRIPT,
        "stored-top-k",
        "logits",
        "--quick",
        "--bin",
        programs,
        "--work",
        folder / "work",
    ]
    command += ["--report", folder / "report.json", "--svg", folder]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads((folder / "report.json").read_text()), folder


def test_a_recipe_prints_what_its_runs_reported(quick):
    printed, results, folder = quick
    assert [result["recipe"] for result in results] == ["stored-top-k", "logits"]
    for result in results:
        rows = {row["settings"]: row for row in result["rows"]}
        assert list(rows) == ["before", "the teacher", "defaults", "the data alone"]
        for row in rows.values():
            assert f"| {row['settings']} | {row['loss']:.3f} | " in printed
        run = folder / "work" / "runs" / rows["defaults"]["run"]
        records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        held_out = [record["loss"] for record in records if record["kind"] == "evaluation"]
        assert rows["defaults"]["loss"] == pytest.approx(held_out[-1], rel=1e-3), "judged as the run judged itself"
        assert rows["the teacher"]["kl"] == pytest.approx(0, abs=1e-3) and rows["before"]["kl"] > 0.5
        assert rows["defaults"]["kl"] < 0.8 * rows["before"]["kl"] and rows["defaults"]["loss"] < rows["before"]["loss"]
        assert rows["the data alone"]["requests"] == rows["the data alone"]["bytes"] == 0
        assert "<polyline" in (folder / f"recipe-{result['recipe']}.svg").read_text()


def test_the_cost_of_a_store_is_that_of_its_making(quick):
    _, (stored, live), folder = quick
    made = json.loads((folder / "work/runs/generate-64/report.json").read_text())["last"]["fetch"]
    cost = {row["settings"]: (row["requests"], row["bytes"]) for row in stored["rows"] if "run" in row}
    assert cost["defaults"] == (made["requests"], made["bytes_received"]) > (0, 0)
    costs = {row["settings"]: row["requests"] for row in live["rows"] if "run" in row}
    assert costs["defaults"] >= 20, "one per step"


def test_each_setting_of_the_grids_is_a_field(recipes, distilld):
    tried = {change.split("=")[0] for recipe in recipes.RECIPES.values() for sets in recipe["grid"] for change in sets}
    assert len(tried) > 5
    for field in sorted(tried):
        distilld.run("spec", "explain", field)


def test_the_page_has_a_table_of_each_recipe_with_all_its_rows(recipes):
    page = (ROOT / "docs" / "recipes.md").read_text()
    sections = re.split(r"^## ", page, flags=re.MULTILINE)
    for name, recipe in recipes.RECIPES.items():
        (section,) = [text for text in sections if f"images/recipe-{name}.svg" in text]
        shown = re.findall(r"^\| (.+?) \| [\d.]+ \| ", section, flags=re.MULTILINE)
        expected = ["defaults", *(" ".join(sets) for sets in recipe["grid"]), "the data alone"]
        assert [row.strip("`") for row in shown if row not in ("before", "the teacher")] == expected, name
        assert shown[0] == "before"
        assert (ROOT / "docs" / "images" / f"recipe-{name}.svg").is_file()
