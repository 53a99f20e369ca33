"""On-policy distillation: the student's own answers, written by its weights of exactly k steps before."""

# ruff: noqa: F811 - fixtures that are imported

import os
import random

import pytest
from support import jobs
from support.moments import kill
from support.processes import wait_until
from support.rest import Rest
from support.rollouts import MICRO_BATCHES, STEPS, kept, killed, models, run, servers, spec  # noqa: F401
from support.small_disk import fill, small_disk_at


@pytest.mark.parametrize("staleness", [0, 1, 2])
def test_weights_depend_on_the_data_the_seed_and_k_alone(distilld, spec, servers, models, tmp_path, staleness):
    spec = jobs.changed(spec, {"/rollout/staleness": staleness})
    reference = run(distilld, jobs.changed(spec, {"/training/parallel": False}), tmp_path / "sequential")
    answers = kept(tmp_path / "sequential")
    assert len(answers) == STEPS * MICRO_BATCHES
    for number, line in enumerate(answers):
        step = number // MICRO_BATCHES
        assert line["version"] == max(0, step - staleness), "written by the weights of exactly k steps before"
    adapters = {path.name for path in (tmp_path / "sequential").glob("rollout/v*")}
    newest = range(STEPS - staleness - 2, STEPS) if staleness else []
    assert adapters == {f"v{step}" for step in newest}, "a run of more steps would need them"

    two = jobs.changed(spec, {"/rollout/endpoints": [server.url for server in servers]})
    assert run(distilld, two, tmp_path / "parallel") == reference
    assert kept(tmp_path / "parallel") == answers
    draw = random.Random(staleness)
    for number in range(int(os.environ.get("DISTILLD_ROLLOUT_KILLS", "1"))):
        folder = tmp_path / f"killed-{number}"
        assert killed(distilld, two if number % 2 == 0 else spec, folder, draw.randrange(1, STEPS)) == reference
        assert kept(folder) == answers
    for server in servers:
        assert len(Rest(server.url).get("/v1/models").json["data"]) == 1, (
            "no adapter is left, nor those of who was killed"
        )
    replay = {"/rollout/endpoints": None, "/rollout/replay": str(tmp_path / "parallel" / "rollouts.jsonl")}
    assert run(distilld, jobs.changed(spec, replay), tmp_path / "replayed") == reference

    other = run(distilld, jobs.changed(spec, {"/training/seed": 43}), tmp_path / "seed")
    assert other != reference

    grader = distilld.teacher(models / "teacher", "--dtype", "fp32")
    remote = jobs.changed(two, {"/teacher": {"endpoints": [grader.url], "top_k": 8}})
    one, eight = (
        run(distilld, jobs.changed(remote, {"/teacher/max_concurrent": count}), tmp_path / f"concurrency-{count}")
        for count in (1, 8)
    )
    assert one == eight, "requests to the teacher at once"


def test_rows_of_the_dataset_take_the_places_of_prompts_by_their_numbers(distilld, spec, servers, tmp_path):
    draw = random.Random(5)
    rows = [[draw.randrange(2, 64) for _ in range(draw.randrange(2, 22))] for _ in range(17)]
    jobs.write_jsonl(tmp_path / "rows.jsonl", [{"input_ids": ids} for ids in rows])
    mixed = {"/rollout/lmbda": 0.5, "/rollout/staleness": 1, "/dataset/train": str(tmp_path / "rows.jsonl")}
    spec = jobs.changed(spec, mixed)
    reference = run(distilld, jobs.changed(spec, {"/training/parallel": False}), tmp_path / "sequential")
    answers = [answer for line in kept(tmp_path / "sequential") for answer in line["answers"]]
    share = sum(bool(answer["ids"]) for answer in answers) / len(answers)
    assert 0.3 < share < 0.7, "of 80"
    two = jobs.changed(spec, {"/rollout/endpoints": [server.url for server in servers]})
    assert run(distilld, two, tmp_path / "parallel") == reference
    assert killed(distilld, two, tmp_path / "killed", 4) == reference
    assert run(distilld, jobs.changed(spec, {"/rollout/lmbda": 0.6}), tmp_path / "more") != reference
    run(distilld, jobs.changed(spec, {"/rollout/lmbda": 0}), tmp_path / "none")
    assert not any(answer["ids"] for line in kept(tmp_path / "none") for answer in line["answers"])


def test_an_earlier_runs_answers_are_replayed_to_the_same_bits(distilld, spec, tmp_path):
    spec = jobs.changed(spec, {"/rollout/staleness": 1})
    reference = run(distilld, spec, tmp_path / "live")
    file = tmp_path / "live" / "rollouts.jsonl"
    again = jobs.changed(spec, {"/rollout/endpoints": None, "/rollout/replay": str(file)})
    assert run(distilld, again, tmp_path / "replayed") == reference
    assert kept(tmp_path / "replayed") == kept(tmp_path / "live")
    assert killed(distilld, again, tmp_path / "killed", 3) == reference

    other = jobs.changed(again, {"/training/seed": 9})
    assert f"/rollout/replay: {file}: /training/seed: is 9" in run(distilld, other, tmp_path / "seed", code=1)
    part = tmp_path / "part.jsonl"
    part.write_text("".join(file.read_text().splitlines(keepends=True)[:5]))
    short = jobs.changed(again, {"/rollout/replay": str(part)})
    assert ": it is of a shorter run" in run(distilld, short, tmp_path / "part", code=1)
    part.write_text(file.read_text().replace('"ids":[', '"ids":[64,', 1).replace('ities":[', 'ities":[-1,', 1))
    assert "not of the student's tokens" in run(distilld, short, tmp_path / "ids", code=1)
    own = jobs.changed(again, {"/rollout/replay": str(tmp_path / "part" / "rollouts.jsonl")})
    assert "is the file that this job writes" in run(distilld, own, tmp_path / "part", code=1)


def test_a_run_of_more_steps_goes_on_with_the_adapters_of_the_last_ones(distilld, spec, tmp_path):
    changes = {"/rollout/staleness": 2, "/training/lr_scheduler_type": "constant"}
    spec = jobs.changed(spec, changes)
    whole = run(distilld, spec, tmp_path / "whole")
    first = run(distilld, jobs.changed(spec, {"/training/max_steps": STEPS - 4}), tmp_path / "parts")
    assert first != whole
    assert run(distilld, spec, tmp_path / "parts") == whole
    assert kept(tmp_path / "parts") == kept(tmp_path / "whole")


def test_staleness_and_temperature_decide_what_is_written(distilld, spec, tmp_path):
    hashes = {run(distilld, jobs.changed(spec, {"/rollout/staleness": k}), tmp_path / f"k{k}") for k in (0, 1)}
    assert len(hashes) == 2
    run(distilld, jobs.changed(spec, {"/rollout/temperature": 0}), tmp_path / "greedy")
    first = kept(tmp_path / "greedy")
    by_row = {}
    for line in first[: 4 * MICRO_BATCHES]:
        for row, answer in zip(line["rows"], line["answers"], strict=True):
            by_row.setdefault((line["version"], row), []).append(answer["ids"])
    drawn = [answer["ids"] for line in kept(tmp_path / "k0") for answer in line["answers"]]
    assert len({tuple(ids) for ids in drawn}) > len(drawn) // 2
    assert all(len({tuple(ids) for ids in same}) == 1 for same in by_row.values())


def test_a_server_that_starts_again_gets_its_adapters_again(distilld, spec, models, tmp_path):
    reference = run(distilld, spec, tmp_path / "calm")
    server = distilld.teacher(models / "base", "--dtype", "fp32")
    port = server.url.rsplit(":", 1)[1]
    restarted = jobs.changed(spec, {"/rollout/endpoints": [server.url], "/output": str(tmp_path / "restarted")})
    process = distilld.start("run", jobs.write_spec(tmp_path / "restarted.json", restarted))
    file = tmp_path / "restarted" / "rollouts.jsonl"
    wait_until(lambda: file.exists() and file.read_bytes().count(b"\n") > 4, "answers", pause=0.001)
    kill(server.pid)
    server.wait()
    distilld.teacher(models / "base", "--dtype", "fp32", listen=f"127.0.0.1:{port}")
    process.expect(0, seconds=120)
    assert jobs.sha256(tmp_path / "restarted" / "adapter_model.safetensors") == reference


def test_one_of_two_servers_without_the_adapter_changes_nothing(distilld, spec, servers, models, tmp_path):
    """It takes no adapters at all, so it never passes the probe."""
    useless = distilld.teacher(models / "base", "--dtype", "fp32", "--max-adapters", "0")
    reference = run(distilld, spec, tmp_path / "one")
    spec = jobs.changed(spec, {"/rollout/endpoints": [useless.url, servers[0].url]})
    assert run(distilld, spec, tmp_path / "two") == reference


def test_a_server_needs_room_for_two_adapters_more_than_the_staleness(distilld, spec, models, tmp_path):
    spec = jobs.changed(spec, {"/rollout/staleness": 1})
    reference = run(distilld, spec, tmp_path / "ample")
    enough = distilld.teacher(models / "base", "--dtype", "fp32", "--max-adapters", "3")
    assert run(distilld, jobs.changed(spec, {"/rollout/endpoints": [enough.url]}), tmp_path / "enough") == reference
    adapters = Rest(enough.url).get("/v1/models").json["data"][1:]
    assert not adapters, "all have been taken away"
    small = distilld.teacher(models / "base", "--dtype", "fp32", "--max-adapters", "1")
    said = run(distilld, jobs.changed(spec, {"/rollout/endpoints": [small.url]}), tmp_path / "small", code=1)
    assert "and hold 3 adapters" in said and "--max-adapters" in said


def test_a_full_disk_is_waited_for_and_changes_nothing(distilld, spec, tmp_path):
    spec = jobs.changed(spec, {"/training/max_steps": 60})  # so that it is not over when the disk is full
    reference = run(distilld, spec, tmp_path / "calm")
    with small_disk_at(tmp_path / "small", 8) as disk:
        changes = {"/output": str(disk / "student"), "/checkpoint/every_steps": None}
        process = distilld.start("run", jobs.write_spec(tmp_path / "full.json", jobs.changed(spec, changes)))
        file = disk / "student" / "rollouts.jsonl"
        wait_until(lambda: file.exists() and file.read_bytes().count(b"\n") > 2, "answers", pause=0.001)
        ballast = fill(disk)
        wait_until(lambda: "No space left on device" in process.out + process.err, "a wait for space")
        ballast.unlink()
        process.expect(0, seconds=120)
        assert jobs.sha256(disk / "student" / "adapter_model.safetensors") == reference


def test_a_service_tells_what_the_student_writes(distilld, spec, tmp_path):
    service = distilld.service(tmp_path / "service")
    rest = Rest(service.url)
    ended = rest.wait_job(rest.submit(jobs.write_spec(tmp_path / "spec.json", spec).read_bytes()))
    assert ended["state"] == "succeeded", ended
    rollout = ended["progress"]["rollout"]
    answers = [answer for line in kept(tmp_path / "student") for answer in line["answers"]]
    assert rollout["answers"] == len(answers) == STEPS * MICRO_BATCHES * 4
    assert rollout["tokens"] == sum(len(answer["ids"]) for answer in answers)
    assert rollout["cut"] == sum(len(answer["ids"]) == 10 for answer in answers)
    said = [-p for answer in answers for p in answer["log_probabilities"]]
    assert rollout["entropy"] == pytest.approx(sum(said) / len(said))
    assert "rollout" in [stage["stage"] for stage in ended["progress"]["stages"]]
