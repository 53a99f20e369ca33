"""Several `distilld generate` fill one store together, as nodes with a common file system do."""

import json
import random
import signal

import pytest
from support import jobs
from support.moments import kill
from support.processes import wait_until

ROWS = 3200
SHARD_ROWS = 64  # of a dataset of that size
BATCH_ROWS = 32


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    source = random.Random(7)
    rows = ({"input_ids": [source.randrange(256) for _ in range(5)]} for _ in range(ROWS))
    return jobs.write_jsonl(tmp_path_factory.mktemp("nodes") / "short.jsonl", rows)


class Nodes:
    def __init__(self, distilld, teacher_folder, data, folder):
        self.distilld = distilld
        self.teacher_folder = teacher_folder
        self.data = data
        self.folder = folder
        self.nodes = []

    def start(self, store, delay_ms=60):
        """A node with a teacher of its own."""
        teacher = self.distilld.teacher(self.teacher_folder, "--dtype", "fp32", "--delay-ms", str(delay_ms))
        spec = {
            "teacher": {"endpoints": [teacher.url], "top_k": 16, "max_concurrent": 2},
            "student": {"config": {"vocab_size": 257}},
            "dataset": {"train": str(self.data), "sequence_length": 4, "packing": False},
            "training": {"batch_size": BATCH_ROWS},
        }
        number = len(self.nodes)
        file = jobs.write_spec(self.folder / f"node-{number}.json", spec)
        report = self.folder / f"node-{number}.report"
        process = self.distilld.start("generate", file, "--store", store, "--report", report)
        self.nodes.append((process, report))
        return process

    def reports(self):
        return [json.loads(report.read_text()) for _, report in self.nodes if report.exists()]


@pytest.fixture
def nodes(distilld, teacher_folder, data, tmp_path):
    return Nodes(distilld, teacher_folder, data, tmp_path)


def shard_bytes(store):
    return {file.name: file.read_bytes() for file in sorted(store.glob("*.safetensors"))}


def listed(store):
    lines = (store / "shards.jsonl").read_text().splitlines() if (store / "shards.jsonl").exists() else []
    return [json.loads(line)["shard"] for line in lines]


def busy_writers(store):
    table = store / "leases.json"
    writers = json.loads(table.read_text())["writers"] if table.exists() else []
    return sum(writer["beat"] > 3 and writer["shards"] != [] for writer in writers)


def expect_whole(distilld, store):
    assert sorted(listed(store)) == list(range(ROWS // SHARD_ROWS)), "each shard once"
    done = json.loads(distilld.run("store", "verify", store, "--output", "json").out)
    assert done["rows"] == ROWS and done["unsealed"] == [] and done["foreign"] == [], done


def test_three_nodes_and_one_that_dies(distilld, nodes, data, tmp_path):
    alone = tmp_path / "alone"
    nodes.start(alone).expect(0)
    (single,) = nodes.reports()
    assert single["last"]["fetch"]["completed"] == ROWS // BATCH_ROWS

    together = tmp_path / "together"
    for process in [nodes.start(together) for _ in range(3)]:
        process.expect(0)
    reports = nodes.reports()[1:]
    asked = [report["last"]["fetch"]["completed"] for report in reports]
    print(f"\nrequests of three nodes {asked}, of one alone {single['last']['fetch']['completed']}")
    assert sum(asked) == ROWS // BATCH_ROWS, "nothing was asked for twice"
    assert all(report["last"]["step"] == ROWS for report in reports), "each ends when the store is whole"
    expect_whole(distilld, together)
    assert shard_bytes(together) == shard_bytes(alone)

    # A student that follows them, and a node that dies with its worker.
    store = tmp_path / "killed"
    spec = jobs.distil_spec(data, tmp_path / "student", "http://unused:1", 300)
    spec["teacher"] = {"top_k": 16, "store": str(store)}
    spec["dataset"] |= {"sequence_length": 4, "packing": False, "shuffle": "blocks", "shuffle_block_rows": SHARD_ROWS}
    student = distilld.start("run", jobs.write_spec(tmp_path / "student.json", spec))
    # Slow enough that the first has not written everything by the time the third begins, however loaded the machine is.
    three = [nodes.start(store, delay_ms=300) for _ in range(3)]
    wait_until(lambda: busy_writers(store) == 3, "each to have written a shard")
    victim = three.pop(random.Random(11).randrange(3))
    worker = victim.worker()
    victim.send(signal.SIGKILL)
    kill(worker)
    before = len(listed(store))
    assert before < ROWS // SHARD_ROWS
    for process in three:
        process.expect(0)
    print(f"killed one of three nodes when {before} of {ROWS // SHARD_ROWS} shards were sealed")
    again = sum(report["last"]["fetch"]["completed"] for report in nodes.reports()[4:])
    assert again < ROWS // BATCH_ROWS, "what the dead one had written was not asked for again"
    expect_whole(distilld, store)
    assert shard_bytes(store) == shard_bytes(alone)
    student.expect(0)
