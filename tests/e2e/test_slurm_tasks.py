"""Tasks of a generate job, and a student behind them, on two nodes of Slurm with a core each."""

from support import jobs
from support.processes import wait_until
from support.rest import Rest, free_port

CLUSTER = {"cores": 1}

ROWS = 640


def test_teacher_nodes_become_student_nodes(distilld, cluster, teacher_folder, tmp_path):
    listen = f"127.0.0.1:{free_port()}"
    flags = ("--launcher", "slurm", "--launcher-url", f"http://{listen}")
    service = distilld.service(tmp_path / "service", *flags, listen=listen, env=cluster.environment())
    rest = Rest(service.url)
    data = jobs.write_jsonl(tmp_path / "short.jsonl", ({"input_ids": [n % 251, 1, 2, 3, 4]} for n in range(ROWS)))
    dataset = {"train": str(data), "sequence_length": 4, "packing": False}
    later = f"127.0.0.1:{free_port()}"
    source = {"endpoints": [f"http://{later}"], "top_k": 16, "max_concurrent": 1, "store": str(tmp_path / "store")}
    generate = {"kind": "generate", "tasks": "auto", "teacher": source, "dataset": dataset}
    first = rest.submit(generate | {"name": "answers", "student": {"config": {"vocab_size": 257}}})
    tasks = rest.job(first)["tasks"]
    assert len(tasks) == 2, "one per idle node"
    spec = jobs.base_spec(data, tmp_path / "student", 20)
    spec["teacher"] = {"top_k": 16, "store": source["store"]}
    student = rest.submit(spec | {"dataset": dataset})

    def places():
        return {node["name"]: node["jobs"] for node in rest.get("/v1/nodes").json["data"]}

    one_each = sorted([task] for task in tasks)
    wait_until(lambda: sorted(places().values()) == one_each, "the tasks to be on their nodes, one each")
    assert rest.job(student)["status_reason"]["code"] == "waiting_for_store"
    assert student not in cluster.run("squeue", "-h", "-o", "%j"), "it takes no place in Slurm either"
    distilld.teacher(teacher_folder, "--dtype", "fp32", "--delay-ms", "50", listen=later)
    ended = [rest.wait_job(job) for job in [*tasks, student]]
    assert [job["state"] for job in ended] == ["succeeded"] * 3
    assert [job["attempt"] for job in ended] == [1, 1, 1]
    assert ended[0]["progress"]["fetch"]["store"]["sealed_rows"] == ROWS
    assert all(job["progress"]["fetch"]["completed"] > 0 for job in ended[:2]), "both tasks asked"
