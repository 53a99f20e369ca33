"""On-policy distillation: the student's own answers, written by its weights of exactly k steps before."""

import http.server
import itertools
import json
import random
import shutil
import threading

import pytest
from support import jobs
from support.moments import kill
from support.processes import Programs, wait_until
from support.rest import Rest
from support.small_disk import fill, small_disk_at

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

STEPS = 10
EVERY = 3
MICRO_BATCHES = 2


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Folders of a base and of a teacher, and a file of prompts."""
    made = tmp_path_factory.mktemp("models")
    for seed, name in enumerate(("base", "teacher")):
        torch.manual_seed(seed)
        config = transformers.LlamaConfig(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=64,
            eos_token_id=1,
            bos_token_id=None,
            initializer_range=0.2,
        )
        transformers.LlamaForCausalLM(config).save_pretrained(made / name)
    draw = random.Random(3)
    prompts = [[draw.randrange(2, 64) for _ in range(draw.randrange(1, 12))] for _ in range(17)]
    jobs.write_jsonl(made / "prompts.jsonl", [{"input_ids": ids} for ids in prompts])
    return made


@pytest.fixture(scope="module")
def servers(programs, models, tmp_path_factory):
    """Two servers of the base."""
    started = Programs(programs, tmp_path_factory.mktemp("logs"))
    yield [started.teacher(models / "base", "--dtype", "fp32") for _ in range(2)]
    started.stop_all()


@pytest.fixture
def spec(models, servers, tmp_path):
    return {
        "student": {"model": str(models / "base"), "lora": {"r": 4}, "dtype": "fp32"},
        "teacher": {"model_dir": str(models / "teacher"), "dtype": "fp32", "threads": 1},
        "rollout": {
            "endpoints": [servers[0].url],
            "prompts": [str(models / "prompts.jsonl")],
            "max_prompt_tokens": 12,
            "max_tokens": 10,
        },
        "training": {
            "batch_size": 4,
            "micro_batches": MICRO_BATCHES,
            "max_steps": STEPS,
            "learning_rate": 0.02,
            "beta": 1.0,
            "threads": 1,
        },
        "checkpoint": {"every_steps": EVERY},
        "output": str(tmp_path / "student"),
    }


def run(distilld, spec, folder, code=0):
    """The hash of the adapter that a run writes, or what it says on its way out."""
    spec = jobs.changed(spec, {"/output": str(folder)})
    process = distilld.run("run", jobs.write_spec(f"{folder}.json", spec), code=code, seconds=120)
    return jobs.sha256(folder / "adapter_model.safetensors") if code == 0 else process.err


def kept(folder):
    """The micro-batches of answers in the order of their numbers."""
    lines = [json.loads(line) for line in (folder / "rollouts.jsonl").read_text().splitlines()]
    assert [*lines[0]] == ["rollouts_of_run"]
    assert [line["micro_batch"] for line in lines[1:]] == list(range(len(lines) - 1)), "each is there once, in order"
    return lines[1:]


def killed(distilld, spec, folder, steps):
    """Starts the run, kills it when it has kept the answers of `steps` steps, and lets it go on."""
    spec = jobs.changed(spec, {"/output": str(folder)})
    path = jobs.write_spec(f"{folder}.json", spec)
    process = distilld.start("run", path)
    file = folder / "rollouts.jsonl"
    enough = 1 + steps * MICRO_BATCHES
    wait_until(lambda: file.exists() and file.read_bytes().count(b"\n") >= enough, "answers", pause=0.001)
    worker = process.worker()
    kill(process.pid)
    kill(worker)
    process.wait()
    with open(file, "ab") as torn:
        torn.write(b'{"micro_batch":99,"vers')
    return run(distilld, spec, folder)


@pytest.mark.parametrize("staleness", [0, 1, 2])
def test_weights_depend_on_the_data_the_seed_and_k_alone(distilld, spec, servers, tmp_path, staleness):
    spec = jobs.changed(spec, {"/rollout/staleness": staleness})
    reference = run(distilld, jobs.changed(spec, {"/training/parallel": False}), tmp_path / "sequential")
    answers = kept(tmp_path / "sequential")
    assert len(answers) == STEPS * MICRO_BATCHES
    for number, line in enumerate(answers):
        step = number // MICRO_BATCHES
        assert line["version"] == max(0, step - staleness), "written by the weights of exactly k steps before"
    adapters = {path.name for path in (tmp_path / "sequential").glob("rollout/*")}
    newest = range(STEPS - staleness - 2, STEPS) if staleness else []
    assert adapters == {f"v{step}" for step in newest}, "a run of more steps would need them"

    two = jobs.changed(spec, {"/rollout/endpoints": [server.url for server in servers]})
    assert run(distilld, two, tmp_path / "parallel") == reference
    assert kept(tmp_path / "parallel") == answers
    assert killed(distilld, two, tmp_path / "killed", random.Random(staleness).randrange(1, STEPS)) == reference
    assert kept(tmp_path / "killed") == answers

    other = run(distilld, jobs.changed(spec, {"/training/seed": 43}), tmp_path / "seed")
    assert other != reference


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


def test_a_full_disk_is_waited_for_and_changes_nothing(distilld, spec, tmp_path):
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
    rest = Rest(distilld.service(tmp_path / "service").url)
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


class Pretender(http.server.BaseHTTPRequestHandler):
    """A server that says that it has loaded adapters."""

    choice = staticmethod(lambda body: ([5, 6], [-1.0, -1.0]))

    def do_GET(self):
        self.reply({"object": "list", "data": [{"id": "base", "owned_by": "vllm"}]})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/v1/completions":
            return self.reply({})
        ids, logprobs = self.choice(body)
        self.reply({"choices": [{"index": 0, "token_ids": ids, "logprobs": {"token_logprobs": logprobs}}]})

    def reply(self, body):
        text = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def pretender():
    """start(choice): the URL of a Pretender whose answers are choice(body)."""
    started = []

    def start(choice):
        handler = type("Handler", (Pretender,), {"choice": staticmethod(choice)})
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        started.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in started:
        server.shutdown()


NUMBERS = itertools.count()


def drawn(body):
    """Another answer each time, and another of an adapter than of the base."""
    greedy = body["temperature"] == 0
    return [5 if greedy else 5 + next(NUMBERS) % 50], [-1.0 if body["model"] == "base" else -2.0]


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (lambda body: ([5, 6], [-1.0, -1.0]), "adapters do not reach the model"),
        (lambda body: ([64], [-1.0]), "outside the student's vocabulary of 64"),
        (drawn, "is not reproducible: the same seed wrote"),
        (lambda body: ([], []), "the server ignored 'return_token_ids'"),
        (lambda body: ([5] * 11, [-1.0] * 11), "at most 8 were asked for"),
        (lambda body: ([5, 6], [-1.0]), "has 1 entries for 2 tokens"),
    ],
)
def test_the_probe_finds_servers_that_cannot_write_for_the_student(distilld, spec, tmp_path, pretender, choice, said):
    spec = jobs.changed(spec, {"/rollout/endpoints": [pretender(choice)]})
    error = run(distilld, spec, tmp_path / "refused", code=1)
    assert "rollout: http://127.0.0.1:" in error and said in error
    assert not (tmp_path / "refused" / "adapter_model.safetensors").exists()


def test_a_server_that_does_not_repeat_itself_can_be_accepted(distilld, spec, tmp_path, pretender):
    changes = {"/rollout/endpoints": [pretender(drawn)], "/rollout/require_repeatable": False}
    process = distilld.run("run", jobs.write_spec(tmp_path / "spec.json", jobs.changed(spec, changes)), seconds=120)
    assert "is not reproducible" in process.out + process.err
    shutil.rmtree(tmp_path / "student")
