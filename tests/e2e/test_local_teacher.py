"""A teacher in the process (`teacher.model_dir`): what `distilld teacher` would say of the model, without the wire."""

import json
import pathlib
import re
import signal
import time

import pytest
from support import jobs
from support.processes import wait_until
from support.rest import Rest

STEPS = 6
TARGETS = {"topk": {"top_k": 16}, "logits": {"targets": "logits"}, "hidden": {"targets": "hidden"}}


def local(folder, **more):
    """As the fixture `teacher` serves it."""
    return {"model_dir": str(folder), "dtype": "fp32", "threads": 1, **more}


class Runs:
    def __init__(self, distilld, data, folder):
        self.distilld = distilld
        self.data = data
        self.folder = folder

    def spec(self, name, teacher, changes=None):
        output = self.folder / name
        output.mkdir()
        spec = jobs.base_spec(self.data, output / "student", STEPS)
        spec = jobs.changed(spec, {"/teacher": teacher, "/training/temperature": 2.0, **(changes or {})})
        return jobs.write_spec(output / "spec.json", spec), output / "report.json"

    def run(self, name, teacher, changes=None):
        file, report = self.spec(name, teacher, changes)
        done = self.distilld.run("run", file, "--report", report)
        return json.loads(report.read_text()), done.out

    def refusal(self, name, teacher, changes=None):
        file, _ = self.spec(name, teacher, changes)
        done = self.distilld.start("run", file)
        done.wait()
        assert done.code not in (0, None)
        return done.out + done.err


@pytest.fixture
def runs(distilld, text_data, tmp_path):
    return Runs(distilld, text_data, tmp_path)


def test_weights_are_those_of_the_served_model(runs, teacher, teacher_folder):
    """One table: what is asked for, and the weights of the student over HTTP and in the process."""
    table = {}
    for name, wanted in {**TARGETS, "auto": {}}.items():
        table[name, "served"], _ = runs.run(f"{name}-served", {"endpoints": [teacher.url], **wanted})
        table[name, "local"], log = runs.run(f"{name}-local", local(teacher_folder, **wanted))
        assert "in the process" in log
    for placement in ("cpu", "balanced", "shared"):
        table["topk", placement], log = runs.run(placement, local(teacher_folder, top_k=16, placement=placement))
        assert ("weights shared" in log) == (placement == "shared")
    print()
    for (name, way), report in table.items():
        print(f"{name:8}{way:10}{report['weights_sha256'][:16]}")
    for (name, way), report in table.items():
        assert report["weights_sha256"] == table[name, "served"]["weights_sha256"], (name, way)
        [endpoint] = report["last"]["fetch"]["endpoints"]
        assert endpoint["tokens"] > 0
        if way != "served":
            assert endpoint["endpoint"] == str(teacher_folder)
            assert (endpoint["bytes_sent"], endpoint["bytes_received"]) == (0, 0)
            assert report["last"]["fetch"]["latency_p50_seconds"] > 0
    hidden = {table[name, way]["weights_sha256"] for name in ("hidden", "auto") for way in ("served", "local")}
    assert len(hidden) == 1, "auto is hidden where all tokens are wanted"


def test_threads_of_the_teacher_are_not_the_students(runs, teacher, teacher_folder):
    """The student's arithmetic, which depends on its number of threads, stays what it is."""
    threads = {"/training/threads": 2, "/student/config": jobs.llama_config(128)}
    served, _ = runs.run("served", {"endpoints": [teacher.url], "top_k": 16}, threads)
    beside, _ = runs.run("beside", local(teacher_folder, top_k=16), threads)
    assert beside["weights_sha256"] == served["weights_sha256"]


def test_a_run_goes_on_with_the_same_model_elsewhere(runs, distilld, teacher, teacher_folder):
    """Begun with a server and gone on in the process, and the other way round."""
    ways = ({"endpoints": [teacher.url], "top_k": 16}, local(teacher_folder, top_k=16))
    for name, (first, second) in {"out-of-it": ways, "into-it": ways[::-1]}.items():
        half = {"/training/max_steps": STEPS, "/checkpoint/every_steps": 2, "/training/lr_scheduler_type": "constant"}
        file, report = runs.spec(name, first, half)
        spec = json.loads(file.read_text())
        jobs.write_spec(file, jobs.changed(spec, {"/training/max_steps": 2}))
        distilld.run("run", file)
        jobs.write_spec(file, jobs.changed(spec, {"/teacher": second}))
        done = distilld.run("run", file, "--resume", "--report", report)
        assert "resumed from" in done.out
        whole, _ = runs.run(f"whole-{name}", first, half)
        assert json.loads(report.read_text())["weights_sha256"] == whole["weights_sha256"]
        # Another model is not the same teacher, wherever it computes.
        other = jobs.changed(spec, {"/teacher": local(runs.folder / name / "student", top_k=16)})
        other["training"]["max_steps"] = STEPS + 2
        refused = distilld.run("run", jobs.write_spec(file, other), "--resume", code=1)
        assert "/teacher/model_dir: the teacher is not the one" in refused.err


@pytest.mark.parametrize("began", ["fp32", "bf16"])
def test_a_run_goes_on_with_the_arithmetic_that_its_teacher_began_with(runs, distilld, teacher_folder, began):
    """Where the spec leaves it to the machine. One of the two is not what this machine would take."""
    open_one = local(teacher_folder, top_k=16)
    del open_one["dtype"]
    changes = {"/checkpoint/every_steps": 2, "/training/lr_scheduler_type": "constant"}
    whole, _ = runs.run("whole", {**open_one, "dtype": began}, changes)
    file, report = runs.spec("parts", {**open_one, "dtype": began}, changes)
    spec = json.loads(file.read_text())
    distilld.run("run", jobs.write_spec(file, jobs.changed(spec, {"/training/max_steps": 2})))
    jobs.write_spec(file, jobs.changed(spec, {"/teacher": open_one}))
    done = distilld.run("run", file, "--resume", "--report", report)
    assert "resumed from" in done.out
    assert f"parameters, {began} on cpu" in done.out
    assert json.loads(report.read_text())["weights_sha256"] == whole["weights_sha256"]
    last = report.parent / "student" / "checkpoints" / f"step-{STEPS:08d}" / "state.json"
    identity = json.loads(json.loads(last.read_text())["spec"])
    assert identity["spec"]["teacher"]["dtype"] == began
    _, anew = runs.run("anew", open_one, changes)
    stays = f"teacher.dtype auto stays {began} as at the start of the run"
    assert (stays in done.out) == (f"parameters, {began} on cpu" not in anew)
    # Checkpoints of earlier versions say auto, and are gone on from.
    identity["spec"]["teacher"]["dtype"] = "auto"
    state = json.loads(last.read_text())
    state["spec"] = json.dumps(identity)
    last.write_text(json.dumps(state))
    jobs.write_spec(file, jobs.changed(spec, {"/training/max_steps": STEPS + 2}))
    assert "resumed from" in distilld.run("run", file, "--resume").out


def test_what_does_not_fit_is_named(runs, teacher, teacher_folder, tmp_path):
    missing = runs.refusal("missing", local(tmp_path / "nothing"))
    assert f"/teacher/model_dir: '{tmp_path}/nothing' is not a folder" in missing, missing
    (tmp_path / "nothing").mkdir()
    empty = runs.refusal("empty", local(tmp_path / "nothing"))
    assert f"/teacher/model_dir: {tmp_path}/nothing/config.json" in empty, empty
    both = runs.refusal("both", local(teacher_folder, endpoints=[teacher.url]))
    assert "/teacher/model_dir: give endpoints or model_dir, not both" in both
    neither = runs.refusal("neither", {"top_k": 16})
    assert re.search(r"/teacher/endpoints: .*model_dir.*store", neither), neither
    shared = runs.refusal("shared", local(teacher_folder, placement="shared", dtype="bf16"))
    assert "/teacher/placement: weights can be shared only as they are" in shared
    far = {
        "/dataset/sequence_length": 200,
        "/student/config": jobs.llama_config(32, max_position_embeddings=256),
    }
    long_rows = runs.refusal("long", local(teacher_folder), far)
    assert "/dataset/sequence_length is 200, the model takes 128 positions at most" in long_rows


def test_it_is_cancelled_like_any_job(runs, distilld, teacher_folder):
    file, _ = runs.spec("cancelled", local(teacher_folder, top_k=16), {"/training/max_steps": 100_000})
    process = distilld.start("run", file)
    process.wait_for_line(r"step \d+/100000")
    began = time.monotonic()
    process.send(signal.SIGINT)
    process.wait()
    assert process.code == 130, process.describe()
    assert time.monotonic() - began < 30


def test_the_batch_size_is_found_beside_the_model(runs, teacher_folder):
    changes = {"/training/batch_size": "auto", "/training/max_steps": 1}
    for name in ("topk", "hidden"):
        report, log = runs.run(name, local(teacher_folder, **TARGETS[name]), changes)
        assert "batch_size auto:" in log
        assert log.count("loading the teacher of") == 1, "it is loaded once"
        assert log.index("loading the teacher of") < log.index("batch_size auto:")
        assert report["last"]["step"] == 1


def mapped_kib(pid, file):
    """(resident, proportional) KiB of the mappings of a file."""
    sums = {"Rss": 0, "Pss": 0}
    ours = False
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        first, *rest = line.split()
        if re.fullmatch(r"[0-9a-f]+-[0-9a-f]+", first):
            ours = rest[-1] == str(file)
        elif ours and first.rstrip(":") in sums:
            sums[first.rstrip(":")] += int(rest[0])
    return sums["Rss"], sums["Pss"]


def test_processes_hold_one_copy_of_shared_weights(runs, distilld, programs, text_data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("wide")
    spec = jobs.changed(
        jobs.base_spec(text_data, folder / "model", 1),
        {"/student/config": jobs.llama_config(512, intermediate_size=4096)},
    )
    distilld.run("run", jobs.write_spec(folder / "spec.json", spec))
    weights = folder / "model" / "model.safetensors"
    size = weights.stat().st_size / 1024
    processes = []
    sums = {}
    for count in (1, 2, 3):
        file, _ = runs.spec(
            f"shared-{count}",
            local(folder / "model", top_k=16, placement="shared"),
            {"/training/max_steps": 100_000},
        )
        process = distilld.start("run", file)
        process.wait_for_line(r"step \d+/100000")
        processes.append(process.worker())
        both = [mapped_kib(pid, weights) for pid in processes]
        sums[count] = sum(pss for _, pss in both)
        print(
            f"\n{count} processes: weights of {size:.0f} KiB, resident in each {[rss for rss, _ in both]}, "
            f"together (PSS) {sums[count]}"
        )
        assert all(rss > 0.95 * size for rss, _ in both), "each has all of them at hand"
        assert 0.9 * size < sums[count] < 1.1 * size, "and together they hold one copy"


def test_the_service_shows_it(module_service, text_data, teacher_folder, tmp_path):
    rest = Rest(module_service.url)
    teacher = local(teacher_folder, top_k=16)
    spec = jobs.changed(jobs.base_spec(text_data, tmp_path / "student", 200), {"/teacher": teacher})
    job = rest.submit(spec)

    def labelled():
        text = rest.get("/metrics").text
        return re.search(
            rf'distilld_teacher_endpoint_tokens_total{{[^}}]*endpoint="{teacher_folder}"[^}}]*}} [1-9]', text
        )

    wait_until(labelled, "the teacher's tokens in the metrics")
    done = rest.wait_job(job)
    assert done["state"] == "succeeded", done
    refused = rest.post("/v1/jobs", jobs.changed(spec, {"/teacher/endpoints": ["http://a:1"]}))
    assert refused.status in (400, 422)
    assert "/teacher/model_dir" in refused.text
