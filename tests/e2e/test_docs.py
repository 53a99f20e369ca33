"""The documentation does what it says: its commands run, its job specs are taken, its outputs are what is printed."""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys

import pytest
from support import jobs
from support.documents import Block, blocks_of, missing
from support.own_network import own_network
from support.rest import Rest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ["README.md", "CONTRIBUTING.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
PAGE_SECONDS = 240  # a page takes a few; this ends one that hangs on a machine that is busy
PORTS = (8500, 8600)  # those that the documentation uses
MAX_NOT_RUN = 12  # of one page
MARK = "== end of block"


def blocks(page):
    return blocks_of((ROOT / page).read_text())


def in_own_network():
    """Pages use the ports that people would: without a network of their own these have to be free."""
    if words := own_network():
        return words
    for port in PORTS:
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                taken.bind(("127.0.0.1", port))
            except OSError:
                pytest.fail(f"port {port} is in use, and no network namespace can be made here")
    return []


def script_of(page_blocks):
    """One bash session of all blocks, which says where each ends and takes along what it started with &."""
    lines = ["set -e", "trap 'code=$?; kill $(jobs -p) 2>/dev/null || true; wait; exit $code' EXIT"]
    for number, block in enumerate(page_blocks):
        lines += [block.text, f"printf '\\n%s\\n' '{MARK} {number}'"]
    return "\n".join(lines) + "\n"


def run_page(page_blocks, folder, programs):
    """What each block printed, standard output and errors together."""
    (folder / "page.sh").write_text(script_of(page_blocks))
    log = folder / "page.log"
    # python3 is the one with the packages of the tests, which a page tells its reader to install.
    path = f"{programs.resolve()}:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "SOURCE": str(ROOT), "PATH": path}
    command = [*in_own_network(), "bash", "page.sh"]
    with open(log, "wb") as out:
        session = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = session.wait(PAGE_SECONDS)
        except subprocess.TimeoutExpired:
            code = "none: it did not end"
        finally:
            if session.poll() is None:
                os.killpg(session.pid, signal.SIGKILL)
                session.wait()
    printed = re.split(rf"\n{MARK} \d+\n", log.read_text(errors="replace"))
    if code != 0:
        at = page_blocks[min(len(printed), len(page_blocks)) - 1]
        pytest.fail(f"line {at.line}: exit code {code}\n{at.text}\nprinted\n{printed[-1][-4000:]}")
    return printed


@pytest.fixture
def reader(tmp_path, teacher_folder, text_data):
    """The folder that a reader of the documentation is in: a small teacher that reads bytes, and data."""
    shutil.copytree(teacher_folder, tmp_path / "teacher", ignore=shutil.ignore_patterns("checkpoints"))
    (tmp_path / "data").mkdir()
    shutil.copy(text_data, tmp_path / "data" / "train.jsonl")
    jobs.write_text_data(tmp_path / "data" / "eval.jsonl", 12, seed=2)
    return tmp_path


@pytest.mark.parametrize("page", [page for page in PAGES if any(block.is_run for block in blocks(page))])
def test_what_a_page_says_to_type_does_what_it_says(page, reader, programs):
    run = [block for block in blocks(page) if block.is_run]
    printed = run_page(run, reader, programs)
    for block, text in zip(run, printed, strict=False):
        if block.output is not None:
            line = missing(block.output, text)
            assert line is None, f"{page}:{block.line}: this was not printed: {line}\nbut\n{text[-6000:]}"


@pytest.mark.parametrize("page", PAGES)
def test_shell_blocks_that_are_not_run_say_why(page):
    odd = []
    for block in blocks(page):
        if block.language != "sh" or block.is_run:
            continue
        named = re.findall(r"[\w.-]+/[\w./-]*\w", block.reason or "")
        if not block.reason or not all((ROOT / name).exists() for name in named):
            odd.append(f"{page}:{block.line}: not run, and no reason that holds: {block.words}")
    assert odd == []
    assert sum(block.language == "sh" and not block.is_run for block in blocks(page)) <= MAX_NOT_RUN


def json_specs():
    """(where, document) of each job spec, or part of one, in the documentation and in examples/."""
    for page in PAGES:
        for block in blocks(page):
            if block.language == "json":
                yield f"{page}:{block.line}", json.loads(block.text)
    for path in sorted((ROOT / "examples").rglob("*.json")):
        yield str(path.relative_to(ROOT)), json.loads(path.read_text())


@pytest.fixture(scope="module")
def checker(distilld_session, teacher_folder, text_data, tmp_path_factory):
    """A service that stands in a folder with the data and models that the documentation names."""
    folder = tmp_path_factory.mktemp("specs")
    (folder / "models").mkdir()
    for name in ("models/student", "models/teacher", "teacher", "tokenizer"):
        shutil.copytree(teacher_folder, folder / name)
        config = json.loads((folder / name / "config.json").read_text())
        (folder / name / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 4096}))
    (folder / "data").mkdir()
    for name in ("train.jsonl", "eval.jsonl"):
        (folder / "data" / name).symlink_to(text_data)
    first, *_ = text_data.read_text().splitlines()
    jobs.write_jsonl(folder / "data" / "several.jsonl", [json.loads(first), {**json.loads(first), "teacher": "math"}])
    flags = ["--listen", "127.0.0.1:0", "--data-dir", folder / "service", "--allow-eval-command"]
    process = distilld_session.start("serve", *flags, cwd=folder)
    return Rest(process.wait_for_line(r"listening on (http://\S+)").group(1))


# What a part of a spec is laid over.
WHOLE = {
    "student": {"model": "models/student"},
    "dataset": {"train": "data/train.jsonl", "sequence_length": 64},
    "training": {"max_steps": 1},
    "output": "out",
}


def laid_over(base, part):
    made = {**base, **part}
    for name, value in part.items():
        if isinstance(value, dict) and isinstance(base.get(name), dict):
            made[name] = {**base[name], **value}
    if "teacher" in part:
        made["teacher"] = {"endpoints": ["http://127.0.0.1:8600"], **part["teacher"]}
    return made


@pytest.mark.parametrize(("where", "spec"), [pytest.param(*case, id=case[0]) for case in json_specs()])
def test_the_service_takes_each_job_spec(where, spec, checker):
    whole = spec if "output" in spec else laid_over(WHOLE, spec)
    if "teachers" in whole:
        whole["dataset"] = {**whole["dataset"], "train": "data/several.jsonl"}
    answer = checker.post("/v1/jobs?dry_run=true", whole)
    # A page may name files of its own, and a spec may be for a cluster, which this service has not.
    elsewhere = answer.status == 400 and all(
        error["code"] == "not_found"
        or " is not a folder" in error["detail"]
        or "this service runs jobs on its own machine" in error["detail"]
        for error in answer.json["errors"]
    )
    assert answer.status == 200 or elsewhere, f"{where}: {answer.text}"


def test_there_are_commands_and_specs():
    assert sum(block.is_run for page in PAGES for block in blocks(page)) >= 10
    assert len(list(json_specs())) >= 5


def test_blocks_are_found_with_their_outputs():
    page = "```sh\na\n```\nprints\n```\nb\n```\n```sh not-run: needs x\nc\n```\n# H\n```\nd\n```\n"
    found = blocks_of(page)
    assert [(block.language, block.text.strip(), block.line) for block in found] == [
        ("sh", "a", 1), ("", "b", 5), ("sh", "c", 8), ("", "d", 12)
    ]  # fmt: skip
    assert [block.output for block in found] == ["b\n", None, None, None]
    assert [block.is_run for block in found] == [True, False, False, False]
    assert found[2].reason == "needs x" and Block("sh", "slow", "", 1).reason is None


def test_outputs_are_compared_loosely_and_lines_in_order():
    printed = 'log line\n{"id":"job-8c74f379885e732c4d74fca4","loss":-1.5e-3,"state":"queued"}\ndone in 12 s\n'
    assert missing('{"id":"job-000000000000000000000001","loss":2, …}\ndone in 3 s', printed) is None
    assert missing('"state": "queued" }', printed) is None
    assert missing('"state":"running"', printed) == '"state":"running"'
    assert missing("done in 3 s\n{…}", printed) == "{"
    assert missing('"loss":null', printed) == '"loss":null'
