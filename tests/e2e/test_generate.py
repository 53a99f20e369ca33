"""Stored answers: generate jobs, training from a store, filling one while training. Whichever way, the same bits."""

import json
import random
import re
import time

import pytest
from chaos_proxy import ChaosProxy, Script
from support import jobs
from support.moments import kill
from support.processes import wait_until
from support.rest import Rest, closed_port

STEPS = 12  # of 8 rows: more than two epochs of the data
ROWS_OF_A_STEP = 8


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return jobs.write_text_data(tmp_path_factory.mktemp("data") / "few.jsonl", 14, seed=3)


def generate_spec(data, endpoints, store=None):
    spec = {
        "kind": "generate",
        "teacher": {
            "endpoints": [endpoints] if isinstance(endpoints, str) else list(endpoints),
            "top_k": 16,
            "timeout_secs": 30,
        },
        "student": {"config": {"vocab_size": 257}},
        "dataset": {"train": str(data), "sequence_length": jobs.SEQUENCE_LENGTH},
        "training": {"batch_size": 2},
    }
    if store is not None:
        spec["teacher"]["store"] = str(store)
    return spec


def manifest_of(store):
    return json.loads((store / "manifest.json").read_text())


def sealed_rows(store):
    """By the list of sealed shards."""
    shards = [json.loads(line) for line in (store / "shards.jsonl").read_text().splitlines()]
    assert len({shard["shard"] for shard in shards}) == len(shards)
    for shard in shards:
        assert (store / shard["file"]).stat().st_size == shard["bytes"]
    return sum(shard["rows"] for shard in shards)


def shard_bytes(store):
    return {file.name: file.read_bytes() for file in sorted(store.glob("*.safetensors"))}


class Generate:
    """Runs `distilld generate` and keeps the report."""

    def __init__(self, distilld, folder):
        self.distilld = distilld
        self.folder = folder
        self.count = 0

    def files(self, spec):
        self.count += 1
        file = self.folder / f"generate-{self.count}.json"
        return jobs.write_spec(file, spec), file.with_suffix(".report")

    def run(self, spec, store, *flags, **options):
        file, report = self.files(spec)
        done = self.distilld.run("generate", file, "--store", store, "--report", report, *flags, **options)
        return json.loads(report.read_text()) if report.exists() else None, done


@pytest.fixture
def generate(distilld, tmp_path):
    return Generate(distilld, tmp_path)


def dead_url():
    return f"http://127.0.0.1:{closed_port()}"


class Ways:
    """Trains the one student in many ways; each gives the hash of its weights."""

    def __init__(self, distilld, data, folder):
        self.distilld = distilld
        self.data = data
        self.folder = folder
        self.table = {}

    def train(self, name, teacher, changes=None):
        output = self.folder / name.replace(" ", "-").replace(",", "")
        output.mkdir()
        spec = jobs.distil_spec(self.data, output / "student", "http://unused:1", STEPS)
        spec["teacher"] = {"top_k": 16, "patience_secs": 60, **teacher}
        file = jobs.write_spec(output / "spec.json", jobs.changed(spec, changes or {}))
        self.distilld.run("run", file, "--report", output / "report.json")
        report = json.loads((output / "report.json").read_text())
        self.table[name] = (report["weights_sha256"], report["last"]["fetch"])
        return report["last"]["fetch"]

    def asked(self, name):
        """Micro-batches that came over the wire: all answers are of about one size."""
        fetch = self.table[name][1]
        return round(fetch["bytes_received"] / self.table["live"][1]["bytes_received"] * STEPS * 4)

    def __str__(self):
        lines = [f"{'way to the answers':44}  {'sha256 of the weights':21}  answers over the wire"]
        for name, (sha256, _) in self.table.items():
            lines.append(f"{name:44}  {sha256[:16]:21}  {self.asked(name):>8}")
        return "\n".join(lines)


def test_weights_do_not_depend_on_where_the_answers_come_from(
    distilld, teacher, teacher_folder, data, generate, tmp_path
):
    ways = Ways(distilld, data, tmp_path)
    url = {"endpoints": [teacher.url]}
    ways.train("live", url)
    through = tmp_path / "through"
    # A window that does not reach from one epoch into the next.
    first = ways.train("live, filling a store", {**url, "store": str(through), "max_concurrent": 2, "window": 2})
    assert first["completed"] == ways.asked("live") and ways.asked("live, filling a store") < 0.7 * ways.asked("live")
    rows = manifest_of(through)["rows"]
    assert first["store"] == {
        "rows": rows,
        "held_rows": rows,
        "sealed_rows": rows,
        "sealed_bytes": first["store"]["sealed_bytes"],
    }
    assert 2 * rows < STEPS * ROWS_OF_A_STEP
    whole = ways.train("live, store, no request twice", {**url, "store": str(through), "cache": "readwrite"})
    assert whole["bytes_received"] == 0
    ways.train("from that store", {"store": str(through)})
    dead = ways.train("from that store, the teacher dead", {"endpoints": [dead_url()], "store": str(through)})
    assert dead["bytes_received"] == 0
    ways.train("write only", {**url, "store": str(tmp_path / "write"), "cache": "write"})
    assert shard_bytes(tmp_path / "write") == shard_bytes(through)
    for form in ("topk", "packed"):
        store = tmp_path / form
        generate.run(generate_spec(data, teacher.url), store, "--format", form)
        ways.train(f"from a generated store, {form}", {"store": str(store)})
    assert shard_bytes(tmp_path / "topk") == shard_bytes(through), "neither order nor batches show in a shard"
    ways.train("read only, what is lacking live", {**url, "store": str(tmp_path / "topk"), "cache": "read"})
    # The same model in the process, as the fixture serves it.
    local = {"model_dir": str(teacher_folder), "dtype": "fp32", "threads": 1}
    assert ways.train("in the process", local)["bytes_received"] == 0
    beside = ways.train("in the process, filling a store", {**local, "store": str(tmp_path / "local")})
    assert beside["store"]["sealed_rows"] == rows
    assert shard_bytes(tmp_path / "local") == shard_bytes(through)
    ways.train("from that store, made in the process", {"store": str(tmp_path / "local")})
    spec = jobs.changed(generate_spec(data, []), {"/teacher/endpoints": None})
    spec["teacher"] |= local
    report, _ = generate.run(spec, tmp_path / "made")
    assert report["last"]["step"] == rows
    assert shard_bytes(tmp_path / "made") == shard_bytes(through)
    print("\n" + str(ways))
    assert len({sha256 for sha256, _ in ways.table.values()}) == 1, str(ways)


def test_one_store_for_one_generation(distilld, teacher, data, generate, tmp_path):
    """A store that is whole needs no teacher, and one that is generated is not filled by a training job meanwhile."""
    store = tmp_path / "store"
    with ChaosProxy(teacher.url) as proxy:
        file, report = generate.files(generate_spec(data, proxy.url))
        proxy.hold_after = 2 + 5
        first = distilld.start("generate", file, "--store", store, "--report", report)
        wait_until(lambda: proxy.counts["held"] > 0 and proxy.answered == 7, "the teacher to fall silent")
        wait_until(lambda: any(store.glob("*.part")), "rows to be written")
        training = jobs.distil_spec(data, tmp_path / "student", teacher.url, 1)
        training["teacher"] |= {"top_k": 16, "store": str(store)}
        second = distilld.run("run", jobs.write_spec(tmp_path / "training.json", training))
        told = second.out + second.err
        assert f"{store}: another process writes this store; this run reads from the store and does not write" in told
        assert first.code is None
        kill(first.worker())
        proxy.hold_after = None
        first.expect(0)
    assert "restart 1 of 3" in first.out
    report = json.loads(report.read_text())
    rows = manifest_of(store)["rows"]
    assert sealed_rows(store) == rows
    # What was answered before the kill was not asked for again: at most what was on its way to the disk is.
    assert report["last"]["fetch"]["completed"] <= (rows + 1) // 2 - 3
    assert report["last"]["step"] == report["last"]["total_steps"] == rows
    before = shard_bytes(store)
    again, done = generate.run(generate_spec(data, dead_url()), store)
    assert "holds all rows already" in done.out
    assert again["last"]["fetch"]["requests"] == 0
    assert shard_bytes(store) == before


def test_a_student_follows_the_writer(module_service, teacher, data, tmp_path):
    """Both jobs at once: the student starts with the first rows, and its status says what it waits for."""
    rest = Rest(module_service.url)
    store = tmp_path / "store"
    with ChaosProxy(teacher.url) as proxy:
        proxy.hold_after = 2 + 6
        spec = jobs.distil_spec(data, tmp_path / "student", "http://unused:1", STEPS)
        spec["teacher"] = {"top_k": 16, "store": str(store)}
        spec["dataset"] |= {"shuffle": "blocks", "shuffle_block_rows": 8}
        student = rest.submit(spec)
        waits = lambda: (rest.job(student)["status_reason"] or {}).get("code") == "teacher_unavailable"  # noqa: E731
        wait_until(waits, "the student to wait for the store")
        assert "there is no store in" in rest.job(student)["status_reason"]["message"]
        writer = rest.submit(generate_spec(data, proxy.url, store))
        refused = rest.post("/v1/jobs", generate_spec(data, proxy.url, store))
        assert refused.status == 409, refused.text
        wait_until(lambda: proxy.counts["held"] > 0, "the teacher to fall silent")

        def waits_for_rows():
            reason = rest.job(student)["status_reason"] or {}
            return "is not there yet" in reason.get("message", "")

        wait_until(waits_for_rows, "the student to wait for rows")
        half = rest.job(writer)
        assert half["kind"] == "generate" and half["output"] == str(store)
        assert 0 < half["progress"]["step"] < half["progress"]["total_steps"]
        assert half["progress"]["generates"] is True
        assert half["progress"]["fetch"]["store"]["held_rows"] == half["progress"]["step"]
        proxy.hold_after = None
        done = rest.wait_job(writer)
    assert done["state"] == "succeeded", done
    assert done["progress"]["percent"] == 100
    assert sealed_rows(store) == done["progress"]["total_steps"]
    trained = rest.wait_job(student)
    assert trained["state"] == "succeeded", trained
    metrics = rest.get("/metrics").text
    assert f'distilld_teacher_store_rows{{job_id="{writer}",state="sealed"}} {sealed_rows(store)}' in metrics
    assert f'distilld_job_loss{{job_id="{writer}"}}' not in metrics


def test_what_does_not_fit_is_named(distilld, teacher, data, generate, tmp_path):
    store = tmp_path / "store"
    generate.run(generate_spec(data, teacher.url), store)
    other = jobs.write_text_data(tmp_path / "other.jsonl", 14, seed=4)

    def refusal(name, changes):
        spec = jobs.distil_spec(data, tmp_path / name, "http://unused:1", STEPS)
        spec["teacher"] = {"top_k": 16, "store": str(store), "patience_secs": 1}
        file = jobs.write_spec(tmp_path / f"{name}.json", jobs.changed(spec, changes))
        return distilld.run("run", file, code=1).err

    length = refusal("length", {"/dataset/sequence_length": 12})
    assert "/teacher/store: the store's sequence length is 24, not 12 as /dataset/sequence_length has it" in length
    assert "/teacher/store: the store's" in refusal("data", {"/dataset/train": str(other)})
    entries = refusal("entries", {"/teacher/top_k": 8})
    assert "/teacher/store: the store's number of entries per token is 16, not 8 as /teacher/top_k has it" in entries
    nothing = refusal("nothing", {"/teacher/store": str(tmp_path / "nothing-there")})
    assert "/teacher/store: there is no store in" in nothing and "/teacher/patience_secs is over" in nothing
    _, again = generate.run(generate_spec(data, teacher.url), store, "--format", "packed", code=1)
    assert "/teacher/store_format: is packed, but the store in" in again.err


def test_what_a_job_has_left_of_a_store_is_read_and_the_rest_named(distilld, teacher, teacher_folder, data, tmp_path):
    store = tmp_path / "store"

    def run(name, teacher_spec, steps, code=0):
        spec = jobs.distil_spec(data, tmp_path / name, "http://unused:1", steps)
        spec["teacher"] = {"top_k": 16, **teacher_spec}
        report = tmp_path / f"{name}.report"
        done = distilld.run(
            "run", jobs.write_spec(tmp_path / f"{name}.json", spec), "--report", report, seconds=60, code=code
        )
        return json.loads(report.read_text())["weights_sha256"] if code == 0 else done.err, done.out

    filled, _ = run("filling", {"endpoints": [teacher.url], "store": str(store), "window": 1}, 2)
    rows = manifest_of(store)["rows"]
    text = distilld.run("store", "inspect", store).out
    unsealed = int(re.search(r"^unsealed +(\d+) whole rows", text, re.M)[1])
    assert 2 * ROWS_OF_A_STEP <= unsealed < rows, text
    assert f"missing   {rows - unsealed} rows: distilld generate SPEC --store {store} adds them" in text
    text = distilld.run("store", "verify", store).out
    assert f"unsealed: {unsealed} whole rows in" in text and f"incomplete: 0 shards, 0 whole rows of {rows}" in text
    again, out = run("again", {"store": str(store)}, 2)
    assert again == filled
    assert f"through the store, which has {unsealed} of {rows} rows" in out
    error, out = run("longer", {"store": str(store), "patience_secs": 3}, STEPS, code=1)
    assert f"no process writes this store; {unsealed} of {rows} rows are there" in error
    assert f"run distilld generate SPEC --store {store} for the other {rows - unsealed}" in out
    assert out.count("waiting: ") == 1
    held = sorted(teacher_folder.iterdir())
    for name, beside in (
        ("alone", {}),
        ("endpoint", {"endpoints": [teacher.url]}),
        ("dir", {"model_dir": str(teacher_folder)}),
    ):
        error, _ = run(f"foreign-{name}", {**beside, "store": str(teacher_folder)}, 2, code=1)
        assert f"/teacher/store: {teacher_folder} is not a store: it has no manifest.json, but " in error
    assert sorted(teacher_folder.iterdir()) == held


def test_who_reads_text_is_said_before_it_is_read(distilld, teacher, teacher_folder, data, tmp_path):
    spec = generate_spec(data, teacher.url, tmp_path / "bytes")
    del spec["student"]
    refused = distilld.run("generate", jobs.write_spec(tmp_path / "none.json", spec), code=1).err
    assert (
        "/student/tokenizer: neither it nor /student/model is given" in refused
        and "/student/config/vocab_size" in refused
    )
    assert not (tmp_path / "bytes").exists()
    spec["teacher"] = {"top_k": 16, "model_dir": str(teacher_folder), "dtype": "fp32", "store": str(tmp_path / "of-it")}
    told = distilld.run("generate", jobs.write_spec(tmp_path / "local.json", spec)).out
    assert f"tokenizer: {teacher_folder} (" in told


def test_a_damaged_row_is_asked_for_again_or_named(distilld, teacher, data, generate, tmp_path):
    store = tmp_path / "store"
    generate.run(generate_spec(data, teacher.url), store)
    shard = sorted(store.glob("*.safetensors"))[0]
    content = bytearray(shard.read_bytes())
    content[-100] ^= 0xFF
    shard.write_bytes(content)
    spec = jobs.distil_spec(data, tmp_path / "alone", teacher.url, STEPS)
    alone = jobs.changed(spec, {"/teacher": {"top_k": 16, "store": str(store)}})
    failed = distilld.run("run", jobs.write_spec(tmp_path / "alone.json", alone), code=1)
    assert shard.name in failed.err, failed.err

    def weights(name, changes):
        changes = {**changes, "/output": str(tmp_path / name), "/teacher/top_k": 16}
        file = jobs.write_spec(tmp_path / f"{name}.json", jobs.changed(spec, changes))
        done = distilld.run("run", file, "--report", tmp_path / f"{name}.report")
        return json.loads((tmp_path / f"{name}.report").read_text()), done.out + done.err

    live, _ = weights("live", {})
    for cache in ("readwrite", "read"):
        mended, told = weights(cache, {"/teacher/store": str(store), "/teacher/cache": cache})
        assert mended["weights_sha256"] == live["weights_sha256"]
        assert told.count("asking the teacher instead\n") == 1 and shard.name in told, told
        assert 0 < mended["last"]["fetch"]["bytes_received"] < live["last"]["fetch"]["bytes_received"]
    dead = jobs.changed(spec, {"/teacher/store": str(store), "/teacher/endpoints": [dead_url()], "/teacher/top_k": 16})
    dead = jobs.changed(dead, {"/teacher/patience_secs": 1, "/output": str(tmp_path / "dead")})
    failed = distilld.run("run", jobs.write_spec(tmp_path / "dead.json", dead), code=1)
    assert shard.name in failed.out + failed.err, failed.err


def seconds_beside_ideal(proxies, dead, killed):
    """How long it took from the first answer to the last, and how long it would have taken had the others gone on, from
    the kill on, at the pace that each had before, with nothing lost."""
    begun = min(proxy.answer_times[proxy.script.calm] for proxy in proxies)  # behind the probe
    ended = max(proxy.answer_times[-1] for proxy in proxies)
    pace = sum(
        sum(begun <= at <= killed for at in proxy.answer_times) / (killed - begun)
        for proxy in proxies
        if proxy is not dead
    )
    left = sum(at > killed for proxy in proxies for at in proxy.answer_times)
    return ended - begun, killed - begun + left / pace


def test_four_teachers_one_of_which_dies(distilld, teacher_folder, generate, tmp_path):
    """10,000 short rows: each is stored once, and the three that are left do the work of the fourth."""
    rows = 10_000
    source = random.Random(5)
    data = jobs.write_jsonl(
        tmp_path / "short.jsonl", ({"input_ids": [source.randrange(256) for _ in range(5)]} for _ in range(rows))
    )

    def run(name, kills=False):
        teachers = [distilld.teacher(teacher_folder, "--dtype", "fp32") for _ in range(4)]
        # Two requests at a time, a tenth of a second each: a pace that does not depend on the load of this machine.
        proxies = [ChaosProxy(one.url, Script(delay=0.1, lanes=2)) for one in teachers]
        spec = generate_spec(data, [one.url for one in proxies])
        spec["dataset"] |= {"sequence_length": 4, "packing": False}
        spec["training"]["batch_size"] = 16
        spec["teacher"]["max_concurrent"] = 16
        file, report = generate.files(spec)
        store = tmp_path / name
        process = distilld.start("generate", file, "--store", store, "--report", report)
        ratio = 0
        if kills:
            process.wait_for_line(r"rows \d+/10000")
            time.sleep(source.uniform(1.0, 4.0))
            dead = source.randrange(4)
            killed = time.monotonic()
            kill(teachers[dead].pid)
        process.expect(0)
        if kills:
            took, ideal = seconds_beside_ideal(proxies, proxies[dead], killed)
            ratio = took / ideal
            print(f"\n{took:.2f} s with one killed, {ideal:.2f} s for the three that are left: {ratio:.3f}×")
        for one, proxy in zip(teachers, proxies, strict=True):
            proxy.stop()
            one.destroy()
        return store, json.loads(report.read_text())

    _, calm = run("calm")
    store, report = run("killed", kills=True)
    last = report["last"]
    assert sealed_rows(store) == last["step"] == last["total_steps"] == rows
    assert last["fetch"]["completed"] == calm["last"]["fetch"]["completed"], "each request was done once"
    tokens = sorted(one["tokens"] for one in last["fetch"]["endpoints"])
    print(f"tokens by teacher {tokens}")
    assert tokens[0] < tokens[1], "one of them did less"
    assert shard_bytes(store) == shard_bytes(tmp_path / "calm")
    assert sum(one["tokens"] for one in calm["last"]["fetch"]["endpoints"]) >= rows * 4


@pytest.mark.parametrize("seconds", [0.15])
def test_a_slow_teacher_is_not_the_pace_of_all(distilld, teacher, data, generate, tmp_path, seconds):
    """Of two endpoints one answers late: it gets fewer of the rows."""
    with ChaosProxy(teacher.url, Script(delay=seconds)) as slow:
        spec = generate_spec(data, [slow.url, teacher.url])
        spec["training"]["batch_size"] = 1
        spec["teacher"]["max_concurrent"] = 4
        report, _ = generate.run(spec, tmp_path / "store")
    by_endpoint = {one["endpoint"]: one["tokens"] for one in report["last"]["fetch"]["endpoints"]}
    late = next(tokens for endpoint, tokens in by_endpoint.items() if endpoint.startswith(slow.url))
    assert late < sum(by_endpoint.values()) - late, by_endpoint
