"""What `cmake --install` writes runs from wherever it is put, and shells, man and systemd take their files."""

import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest
from support import jobs
from support.processes import Programs

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHELLS = {
    "bash": ("share/bash-completion/completions/distilld", ["bash", "-n"]),
    "zsh": ("share/zsh/vendor-completions/_distilld", ["zsh", "-n"]),
    "fish": ("share/fish/vendor_completions.d/distilld.fish", ["fish", "-n"]),
}
JOBS = "submit list get watch cancel pause resume checkpoint set delete checkpoints metrics logs download".split()

# Completes the words given, the last of which may be empty.
BASH = """
source "$1"; shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
_distilld
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def tree(programs, tmp_path_factory):
    """The installed files, in another folder than the one that they were installed to."""
    build = programs.parent
    if not (build / "cmake_install.cmake").exists():
        pytest.skip(f"{build} is no build folder")
    folder = tmp_path_factory.mktemp("install")
    subprocess.run(
        ["cmake", "--install", build, "--prefix", folder / "first"], check=True, capture_output=True, text=True
    )
    (folder / "first").rename(folder / "moved")
    yield folder / "moved"
    shutil.rmtree(folder)  # half a gigabyte


def test_programs_and_nothing_of_the_tests(tree):
    assert sorted(file.name for file in (tree / "bin").iterdir()) == ["distilld", "distilld-worker"]


@pytest.mark.parametrize("program", ["distilld", "distilld-worker"])
def test_libraries_come_from_the_tree_or_the_system(tree, program):
    listed = subprocess.run(["ldd", tree / "bin" / program], check=True, capture_output=True, text=True).stdout
    assert "not found" not in listed
    found = dict(re.findall(r"^\s*(\S+) => (\S+)", listed, re.MULTILINE))
    brought = {name for name, path in found.items() if str(tree) in path}
    assert brought == {file.name for file in (tree / "lib/distilld").iterdir()} & found.keys()
    # Names that differ between Debian 12 and 13, and libtorch, may not come from elsewhere.
    foreign = re.compile(r"lib(spdlog|fmt|boost|simdjson|prometheus|torch|c10|gomp)")
    assert [name for name in found if foreign.match(name) and name not in brought] == []
    run_path = subprocess.run(["readelf", "-d", tree / "bin" / program], check=True, capture_output=True, text=True)
    assert re.findall(r"R(?:UN)?PATH.*\[(.*)\]", run_path.stdout) == ["$ORIGIN/../lib/distilld"]


def test_a_job_runs_from_the_moved_tree(tree, text_data, tmp_path):
    programs = Programs(tree / "bin", tmp_path)
    spec = jobs.write_spec(tmp_path / "spec.json", jobs.base_spec(text_data, tmp_path / "student", steps=2))
    try:
        programs.run("run", spec, "--report", tmp_path / "report.json")
    finally:
        programs.stop_all()
    assert (tmp_path / "student/model.safetensors").exists()
    assert json.loads((tmp_path / "report.json").read_text())


def test_links_of_the_documents_hold(tree):
    """Those to what an installation has: not those into the sources."""
    doc = tree / "share/doc/distilld"
    installed = {entry.name for entry in doc.iterdir()}
    broken = []
    for page in doc.rglob("*.md"):
        text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        for target in re.findall(r"(?<!!)\[[^\]\n]+\]\(([^)\s#]+)[^)]*\)", text):
            path = pathlib.PurePath(os.path.relpath(page.parent / target, doc))
            if ":" not in target and path.parts[0] in installed and not (doc / path).exists():
                broken.append(f"{page.relative_to(doc)}: {target}")
    assert broken == []


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (
            [""],
            [
                "serve",
                "run",
                "generate",
                "teacher",
                "jobs",
                "keys",
                "store",
                "spec",
                "tokenize",
                "nodes",
                "healthcheck",
                "completion",
                "man",
            ],
        ),
        (["jobs", ""], JOBS),
        (["keys", ""], ["add", "list", "revoke"]),
        (["jobs", "c"], ["cancel", "checkpoint", "checkpoints"]),
        (["serve", "--data"], ["--data-dir"]),
        (["serve", "--data-dir", "bi"], ["bin"]),
        (["run", "bin/distilld-w"], ["bin/distilld-worker"]),
        (["run", "bin/distilld", "--micro"], ["--micro-batches"]),
        (["jobs", "list", "--output", ""], ["table", "wide", "json", "text"]),
        (["jobs", "list", "--output", "=", "j"], ["json"]),
        (["serve", "--listen", "run", "--slots-"], ["--slots-by"]),  # an option's value is no command
        (["teacher", "--dtype", "b"], ["bf16"]),
        (["completion", "z"], ["zsh"]),
        (["serve", "--listen", ""], [""]),
        (["--"], ["--help", "--version"]),
    ],
)
def test_bash_completes(tree, words, wanted):
    script = tree / SHELLS["bash"][0]
    done = subprocess.run(
        ["bash", "-c", BASH, "bash", script, "distilld", *words],
        check=True,
        capture_output=True,
        text=True,
        cwd=tree,
        env={**os.environ, "PATH": f"{tree / 'bin'}:{os.environ['PATH']}"},
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == wanted


@pytest.mark.parametrize("shell", SHELLS)
def test_shells_can_read_their_scripts(tree, shell):
    file, check = SHELLS[shell]
    assert (tree / file).stat().st_size > 500
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    subprocess.run([*check, tree / file], check=True)


@pytest.mark.parametrize("page", ["distilld.1", "distilld-worker.1"])
def test_man_has_nothing_to_say_of_the_pages(tree, page):
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-Kutf8", "-ww", tree / "share/man/man1" / page],
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    text = re.sub(".\b|\x1b\\[[0-9;]*m", "", done.stdout)  # bold: letter, backspace, letter; or escape sequences
    assert "Exit codes: 0 done" in " ".join(text.split()) and "--version" in text


@pytest.fixture
def unit(tree, tmp_path):
    """The systemd unit, with the path that it has in this tree."""
    text = (tree / "lib/systemd/system/distilld.service").read_text()
    start = re.search(r"^ExecStart=(\S+)/bin/distilld serve ", text, re.MULTILINE)
    file = tmp_path / "distilld.service"
    file.write_text(text.replace(start.group(1) + "/bin", str(tree / "bin")))
    return file


def test_the_unit_leaves_the_service_its_drain_timeout(tree, unit):
    printed = subprocess.run(
        [tree / "bin/distilld", "serve", "--print-config"], capture_output=True, text=True, check=True
    ).stdout
    drain = int(re.search(r'^drain_timeout = "(\d+)s"', printed, re.MULTILINE).group(1))
    assert int(re.search(r"^TimeoutStopSec=(\d+)$", unit.read_text(), re.MULTILINE).group(1)) >= drain + 10


def test_the_unit_is_told_how_the_service_is(unit):
    text = unit.read_text()
    for line in ("Type=notify", "NotifyAccess=main", "KillMode=mixed"):
        assert line in text.splitlines()
    assert int(re.search(r"^WatchdogSec=(\d+)$", text, re.MULTILINE).group(1)) >= 60


def test_systemd_takes_the_unit(unit):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False
    )
    assert (verified.returncode, verified.stderr) == (0, "")
    # 0 is shut off from everything, 10 is open; an unconfined service has 9.6.
    exposed = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=25", "--no-pager", unit],
        capture_output=True,
        text=True,
        check=False,
    )
    assert exposed.returncode == 0, exposed.stdout[-3000:]
