"""The servers that write a student's answers: what they speak, how they take weights, and what is wrong with them."""

# ruff: noqa: F811 - fixtures that are imported

import contextlib
import http.server
import itertools
import json
import shutil
import threading
import urllib.error
import urllib.request

import pytest
from support import jobs
from support.moments import kill
from support.processes import wait_until
from support.rollouts import kept, models, run, servers, spec  # noqa: F401


class Translator(http.server.BaseHTTPRequestHandler):
    """SGLang's pages in front of `distilld teacher`, as they are recorded and documented."""

    behind = ""  # URL
    refuses = ""  # end of an adapter's name
    loses = ""  # the same; as if SGLang were started again before the first answer

    def ask(self, path, body):
        request = urllib.request.Request(self.behind + path, json.dumps(body).encode() if body is not None else None)
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def do_GET(self):
        status, body = self.ask(self.path, None)
        models = json.loads(body)
        for model in models["data"]:
            model["owned_by"] = "sglang"
        self.reply(status, models)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.headers["Content-Type"] == "application/json", "SGLang reads no other body"
        if self.refuses and body.get("lora_name", "").endswith(self.refuses):
            return self.reply(400, {"success": False, "error_message": "no room for adapters"})
        if self.path in ("/load_lora_adapter", "/unload_lora_adapter"):
            status, text = self.ask("/v1" + self.path, body)
            return self.reply(status, {"success": status == 200, "error_message": text.decode()})
        if self.path == "/update_weights_from_disk":
            status, text = self.ask(self.path, body)
            return self.reply(status, {"success": status == 200, "message": text.decode(), "num_paused_requests": 0})
        assert self.path == "/generate" and body["return_logprob"]
        sampling = body["sampling_params"]
        asked = {
            "prompt": body["input_ids"],
            "max_tokens": sampling["max_new_tokens"],
            "temperature": sampling["temperature"],
            "top_p": sampling["top_p"],
            "seed": sampling["sampling_seed"],
            "logprobs": 0,
            "return_token_ids": True,
            **({"model": body["lora_path"]} if "lora_path" in body else {}),
        }
        if self.loses and body.get("lora_path", "").endswith(self.loses):
            type(self).loses = ""
            self.ask("/v1/unload_lora_adapter", {"lora_name": body["lora_path"]})
        status, text = self.ask("/v1/completions", asked)
        answer = json.loads(text)
        if status == 404:
            lost = f"Got LoRA adapter that has never been loaded: {asked['model']}\nAll loaded adapters: dict_keys([])."
            return self.reply(400, {"error": {"message": lost}})
        if status != 200:
            return self.reply(status, answer)
        choice = answer["choices"][0]
        triples = [[p, i, None] for p, i in zip(choice["logprobs"]["token_logprobs"], choice["token_ids"], strict=True)]
        meta = {"weight_version": answer.get("weight_version", "default"), "output_token_logprobs": triples}
        self.reply(200, {"text": choice["text"], "output_ids": choice["token_ids"], "meta_info": meta})

    def reply(self, status, body):
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *arguments):
        pass


@contextlib.contextmanager
def translator(behind, **settings):
    """URL of a server that speaks as SGLang."""
    handler = type("Handler", (Translator,), {"behind": behind, **settings})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture
def sglang(servers):
    with translator(servers[0].url) as url:
        yield url


def test_an_adapter_that_is_refused_in_mid_run_is_written_with_elsewhere(distilld, spec, servers, tmp_path):
    reference = run(distilld, spec, tmp_path / "calm")
    with translator(servers[1].url, refuses="-v4") as url:
        two = jobs.changed(spec, {"/rollout/endpoints": [url, servers[0].url]})
        assert run(distilld, two, tmp_path / "two") == reference
        alone = jobs.changed(spec, {"/rollout/endpoints": [url]})
        said = run(distilld, alone, tmp_path / "alone", code=1)
    assert "no room for adapters" in said and "/load_lora_adapter" in said and "--max-loras-per-batch" in said
    assert run(distilld, spec, tmp_path / "alone") == reference, "it goes on from its checkpoint"


@pytest.mark.parametrize("protocol", ["auto", "sglang"])
def test_a_server_that_speaks_as_sglang_writes_the_same(distilld, spec, sglang, tmp_path, protocol):
    spec = jobs.changed(spec, {"/rollout/staleness": 1, "/rollout/top_p": 0.9})
    reference = run(distilld, spec, tmp_path / "distilld")
    other = jobs.changed(spec, {"/rollout/endpoints": [sglang], "/rollout/protocol": protocol})
    assert run(distilld, other, tmp_path / "sglang") == reference


def test_an_sglang_that_has_lost_an_adapter_gets_it_again(distilld, spec, servers, tmp_path):
    reference = run(distilld, spec, tmp_path / "calm")
    with translator(servers[1].url, loses="-v4") as url:
        lost = jobs.changed(spec, {"/rollout/endpoints": [url]})
        assert run(distilld, lost, tmp_path / "lost") == reference


def weights(folder):
    return jobs.sha256(folder / "model.safetensors")


def run_whole(distilld, spec, folder):
    process = distilld.run("run", jobs.write_spec(f"{folder}.json", jobs.changed(spec, {"/output": str(folder)})))
    return jobs.sha256(folder / "model.safetensors"), process


def test_a_student_of_full_weights_is_given_to_servers_whole(distilld, spec, servers, sglang, models, tmp_path):
    spec = jobs.changed(spec, {"/student/lora": None, "/rollout/staleness": 1, "/training/learning_rate": 0.002})
    reference, process = run_whole(distilld, jobs.changed(spec, {"/training/parallel": False}), tmp_path / "sequential")
    assert "rollout: weights change the answers, and the same seed repeats them" in process.out
    assert reference != weights(models / "base")
    changes = {"/rollout/endpoints": [servers[1].url, sglang]}
    assert run_whole(distilld, jobs.changed(spec, changes), tmp_path / "parallel")[0] == reference
    assert kept(tmp_path / "parallel") == kept(tmp_path / "sequential")

    server = distilld.teacher(models / "base", "--dtype", "fp32")
    changes = {"/rollout/endpoints": [server.url], "/output": str(tmp_path / "restarted")}
    process = distilld.start("run", jobs.write_spec(tmp_path / "restarted.json", jobs.changed(spec, changes)))
    file = tmp_path / "restarted" / "rollouts.jsonl"
    wait_until(lambda: file.exists() and file.read_bytes().count(b"\n") > 4, "answers", pause=0.001)
    kill(server.pid)
    server.wait()
    distilld.teacher(models / "base", "--dtype", "fp32", listen=f"127.0.0.1:{server.url.rsplit(':', 1)[1]}")
    process.expect(0, seconds=120)
    assert weights(tmp_path / "restarted") == reference, "the server has the base's weights when it starts again"


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
        (lambda body: ([], []), "the answer has no 'token_ids'"),
        (lambda body: ([5] * 11, [-1.0] * 11), "at most 8 were asked for"),
        (lambda body: ([5, 6], [-1.0]), "has 1 log-probabilities for 2 tokens"),
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
