"""What a dry run says that a job would come to, held against what it comes to."""

import json
import random

import pytest
from support import jobs
from support.rest import Rest, metric_samples


def shape(hidden, inner, layers, vocabulary=jobs.BYTE_VOCABULARY, tied=True):
    sizes = {"intermediate_size": inner, "num_hidden_layers": layers, "num_attention_heads": 8}
    more = {"max_position_embeddings": 512, "tie_word_embeddings": tied}
    return jobs.llama_config(hidden, vocabulary, **sizes, **more)


# name: (config, sequence length, batch size, further changes)
SHAPES = {
    "tiny": (shape(64, 128, 2), 64, 4, {}),
    "deep": (shape(512, 1536, 6), 256, 4, {}),
    "deep, with checkpointing": (shape(512, 1536, 6), 256, 8, {"/training/gradient_checkpointing": True}),
    "large vocabulary": (shape(256, 768, 4, 32000, tied=False), 256, 4, {}),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """{vocabulary: file}"""
    folder = tmp_path_factory.mktemp("data")
    source = random.Random(1)
    rows = [{"input_ids": [source.randrange(32000) for _ in range(600)]} for _ in range(40)]
    return {
        jobs.BYTE_VOCABULARY: jobs.write_text_data(folder / "text.jsonl", 400),
        32000: jobs.write_jsonl(folder / "ids.jsonl", rows),
    }


def spec_of(name, data, output):
    config, length, batch, changes = SHAPES[name]
    plain = jobs.base_spec(data[config["vocab_size"]], output, steps=3)
    sizes = {"/dataset/sequence_length": length, "/training/batch_size": batch, "/training/micro_batches": 1}
    return jobs.changed(plain, {"/student/config": config, **sizes, **changes})


def estimate_of(rest, spec):
    answer = rest.post("/v1/jobs?dry_run=true", spec)
    assert answer.status == 200, answer.text
    return answer.json["estimate"]


@pytest.mark.parametrize("name", SHAPES)
def test_memory_is_right_within_a_factor_of_two(name, module_service, data, tmp_path):
    rest = module_service.rest
    spec = spec_of(name, data, tmp_path / "student")
    estimate = estimate_of(rest, spec)
    memory = estimate["memory_bytes"]
    assert memory["total"] == sum(memory[part] for part in memory if part != "total")
    job_id = rest.submit(spec)
    job = rest.wait_job(job_id, ["succeeded"], seconds=300)
    assert job["progress"]["total_steps"] == estimate["steps"] == 3
    samples = metric_samples(rest.get("/metrics").text)
    peak = samples[f'distilld_worker_peak_resident_memory_bytes{{job_id="{job_id}"}}']
    ratio = memory["total"] / peak
    print(f"{name}: {memory['total'] / 1e6:.0f} MB estimated, {peak / 1e6:.0f} MB taken, {ratio:.2f}")
    assert 0.5 <= ratio <= 2
    with open(tmp_path / "student" / "model.safetensors", "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    shapes = [entry["shape"] for key, entry in header.items() if key != "__metadata__"]
    count = sum(rows[0] * (rows[1] if len(rows) > 1 else 1) for rows in shapes)
    assert estimate["parameters"] == estimate["trainable_parameters"] == count


def test_epochs_and_time_come_from_the_data_and_from_other_jobs(distilld, text_data, tmp_path):
    rest = Rest(distilld.service(tmp_path / "service").url)
    spec = jobs.changed(
        jobs.base_spec(text_data, tmp_path / "student", steps=1), {"/training/max_steps": None, "/training/epochs": 3}
    )
    before = estimate_of(rest, spec)
    assert before["seconds"] is None and before["based_on"] is None
    assert any(note.startswith("seconds: ") for note in before["notes"])
    job = rest.wait_job(rest.submit(spec), ["succeeded"])
    assert before["steps"] == job["progress"]["total_steps"] > 3
    most = before["steps"] * 8 * jobs.SEQUENCE_LENGTH
    assert most - 3 * 8 * jobs.SEQUENCE_LENGTH < before["tokens"] <= most  # the last step of an epoch may be smaller
    after = estimate_of(rest, jobs.changed(spec, {"/output": str(tmp_path / "next")}))
    assert after["based_on"].startswith("1 job with this student: ")
    assert after["seconds"] == pytest.approx(after["tokens"] / job["progress"]["tokens_per_second"])
    other = {"/output": str(tmp_path / "next"), "/student/config": jobs.llama_config(64)}
    assert estimate_of(rest, jobs.changed(spec, other))["seconds"] is None


def test_the_command_line_shows_it_and_queues_nothing(distilld, text_data, tmp_path):
    service = distilld.service(tmp_path / "service")
    server = ("--server", service.url)
    file = jobs.write_spec(tmp_path / "spec.json", jobs.base_spec(text_data, tmp_path / "student", steps=7))
    lines = distilld.run("jobs", "submit", file, "--dry-run", *server).out.splitlines()
    assert "steps             7" in lines
    assert "seconds           not known" in lines
    assert any(line.startswith("memory            ") and line.endswith(" MB") for line in lines)
    said = json.loads(distilld.run("jobs", "submit", file, "--dry-run", "-o", "json", *server).out)
    assert said["object"] == "job.validation"
    assert Rest(service.url).get("/v1/jobs").json["data"] == []
    wrong = jobs.write_spec(tmp_path / "wrong.json", {"nonsense": 1})
    assert "unknown field 'nonsense'" in distilld.run("jobs", "submit", wrong, "--dry-run", *server, code=2).err
