"""`distilld-worker teacher` against Hugging Face transformers, over real sockets and in both protocols."""

import concurrent.futures
import hashlib
import json
import re
import signal
import socket
import subprocess

import numpy as np
import pytest
import safetensors.torch
import torch
from support.processes import wait_until
from support.teacher_client import START_SECONDS, Teacher
from transformers import LlamaConfig, LlamaForCausalLM

VOCABULARY = 203
POSITIONS = 64


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=112,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=POSITIONS,
        initializer_range=0.2,
    )
    path = tmp_path_factory.mktemp("teacher") / "model"
    LlamaForCausalLM(config).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def teacher(programs, folder):
    server = Teacher(programs, folder, "--threads", 1, "--dtype", "fp32", "--max-batch-tokens", 512)
    yield server
    code, errors = server.stop()
    assert code == 0, errors


@pytest.fixture(scope="module")
def reference(folder):
    model = LlamaForCausalLM.from_pretrained(folder).eval()

    def logits(ids):
        with torch.no_grad():
            return model(torch.as_tensor(np.asarray(ids), dtype=torch.int64)).logits.float()

    return logits


def random_ids(rows, columns, seed=0):
    return np.random.default_rng(seed).integers(0, VOCABULARY, (rows, columns))


def test_requests_whose_clients_left_are_not_computed(teacher):
    def dropped():
        text = teacher.ask("GET", "/metrics")[2].decode()
        return int(re.search(r"^distilld_teacher_server_dropped_requests_total (\d+)", text, re.MULTILINE).group(1))

    before = dropped()
    body = json.dumps({"input_ids": random_ids(8, POSITIONS).tolist(), "return_logits": True}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    clients = [socket.create_connection(("127.0.0.1", teacher.port)) for _ in range(32)]
    for client in clients:
        client.sendall(head + body)
    for client in clients:
        client.close()
    wait_until(lambda: dropped() > before, "the requests to be dropped")
    status, _, _ = teacher.post("/v1/completions", {"input_ids": [[1, 2, 3]], "return_logits": True})
    assert status == 200


def test_seed_logits_agree_with_transformers(teacher, reference):
    ids = random_ids(2, 17)
    status, headers, answer = teacher.post("/v1/completions", {"input_ids": ids.tolist(), "return_logits": True})
    assert status == 200 and headers["Content-Type"] == "application/json"
    logits = torch.tensor(answer["logits"])
    assert logits.shape == (2, 17, VOCABULARY)
    torch.testing.assert_close(logits, reference(ids), atol=1e-4, rtol=0)


@pytest.mark.parametrize("datatype", ["INT32", "INT64"])
def test_kserve_logits_agree_with_transformers(teacher, reference, datatype):
    ids = random_ids(3, 20, seed=1)
    arrays, _ = teacher.infer(ids, {"mode": "logits", "logits_dtype": "FP32"}, datatype=datatype)
    assert list(arrays) == ["logits"] and arrays["logits"].dtype == np.float32
    torch.testing.assert_close(torch.tensor(arrays["logits"]), reference(ids), atol=1e-4, rtol=0)


def test_both_protocols_give_the_same_bits(teacher):
    ids = random_ids(2, 9, seed=2)
    _, _, seed = teacher.post("/v1/completions", {"input_ids": ids.tolist(), "return_logits": True})
    arrays, _ = teacher.infer(ids, {"mode": "logits", "logits_dtype": "FP32"})
    assert np.array(seed["logits"], dtype=np.float32).tobytes() == arrays["logits"].tobytes()


def test_half_logits(teacher, reference):
    ids = random_ids(1, 12, seed=3)
    arrays, _ = teacher.infer(ids, {"mode": "logits"}, outputs=["logits"])
    assert arrays["logits"].dtype == np.float16
    torch.testing.assert_close(torch.tensor(arrays["logits"]).float(), reference(ids), atol=1e-3, rtol=1e-3)


def test_topk_agrees_with_transformers(teacher, reference):
    k = 8
    ids = random_ids(2, 15, seed=4)
    arrays, _ = teacher.infer(ids, {"top_k": k})
    assert list(arrays) == ["topk_ids", "topk_logprobs", "token_logprobs", "tail_logprob"]
    logprobs = torch.log_softmax(reference(ids), -1)
    best = logprobs.topk(k + 1, -1)
    # Where neighbours are closer than the two implementations agree, their order is open.
    clear = ((best.values[..., :-1] - best.values[..., 1:]) > 1e-4).all(-1)
    assert clear.float().mean() > 0.8
    ours = torch.tensor(arrays["topk_ids"].astype(np.int64))
    assert torch.equal(ours[clear], best.indices[..., :k][clear])
    torch.testing.assert_close(torch.tensor(arrays["topk_logprobs"]).float(), best.values[..., :k], atol=5e-3, rtol=0)
    next_ids = torch.as_tensor(ids)[:, 1:, None]
    torch.testing.assert_close(
        torch.tensor(arrays["token_logprobs"])[:, :-1], logprobs[:, :-1].gather(-1, next_ids)[..., 0], atol=1e-4, rtol=0
    )
    assert (arrays["token_logprobs"][:, -1] == 0).all()
    tail = torch.log1p(-best.values[..., :k].exp().sum(-1))
    torch.testing.assert_close(torch.tensor(arrays["tail_logprob"]), tail, atol=1e-3, rtol=0)


def test_padding_does_not_reach_the_answer(teacher):
    ids = random_ids(2, 10, seed=5)
    other = ids.copy()
    other[1, 6:] = -100
    outputs = ["topk_ids", "topk_logprobs", "token_logprobs", "tail_logprob"]
    ours, _ = teacher.infer(ids, {"top_k": 4}, outputs, lengths=[10, 6])
    theirs, _ = teacher.infer(other, {"top_k": 4}, outputs, lengths=[10, 6])
    for name in outputs:
        assert ours[name].tobytes() == theirs[name].tobytes()
    assert (ours["token_logprobs"][1, 5:] == 0).all() and (ours["token_logprobs"][1, :5] < 0).all()


def test_json_in_and_out(teacher):
    ids = random_ids(1, 5, seed=6)
    status, _, answer = teacher.post(
        "/v2/models/teacher/infer",
        {
            "inputs": [{"name": "input_ids", "datatype": "INT32", "shape": [1, 5], "data": ids.ravel().tolist()}],
            "parameters": {"top_k": 3},
            "outputs": [{"name": "tail_logprob"}, {"name": "topk_ids"}],
        },
    )
    assert status == 200
    arrays, _ = teacher.infer(ids, {"top_k": 3})
    assert [output["name"] for output in answer["outputs"]] == ["tail_logprob", "topk_ids"]
    assert np.array(answer["outputs"][0]["data"], dtype=np.float32).tobytes() == arrays["tail_logprob"].tobytes()
    assert answer["outputs"][1]["data"] == arrays["topk_ids"].ravel().tolist()


def test_hidden_states_and_head_are_those_of_transformers(teacher, folder):
    model = LlamaForCausalLM.from_pretrained(folder).eval()
    ids = random_ids(2, 9, seed=5)
    with torch.no_grad():
        expected = model.model(torch.as_tensor(ids)).last_hidden_state.numpy()
    wide, _ = teacher.infer(ids, {"mode": "hidden", "hidden_dtype": "FP32"}, ["hidden_states"])
    np.testing.assert_allclose(wide["hidden_states"], expected, rtol=1e-4, atol=1e-5)
    half, _ = teacher.infer(ids, {"mode": "hidden"}, ["hidden_states"])
    np.testing.assert_array_equal(half["hidden_states"], wide["hidden_states"].astype(np.float16))

    status, headers, file = teacher.ask("GET", "/v2/models/teacher/head")
    announced = json.loads(teacher.ask("GET", "/v2/models/teacher")[2])["parameters"]["head_sha256"]
    assert status == 200
    assert hashlib.sha256(file).hexdigest() == announced == headers["ETag"].strip('"')
    head = safetensors.torch.load(file)["lm_head.weight"]
    assert torch.equal(head, model.lm_head.weight)
    piece = teacher.ask("GET", "/v2/models/teacher/head", headers={"Range": "bytes=100-299"})
    assert piece[0] == 206 and piece[2] == file[100:300]


def test_metadata_and_health(teacher):
    def get(path):
        status, _, raw = teacher.ask("GET", path)
        assert status == 200
        return json.loads(raw)

    assert get("/v2")["extensions"] == ["binary_tensor_data"]
    assert get("/v2/health/live")["live"] and get("/v2/health/ready")["ready"]
    assert get("/v2/models/teacher/ready")["ready"]
    metadata = get("/v2/models/teacher")
    assert metadata["inputs"][0] == {"name": "input_ids", "datatype": "INT32", "shape": [-1, -1]}
    assert {output["name"]: output["datatype"] for output in metadata["outputs"]} == {
        "topk_ids": "UINT32",
        "topk_logprobs": "FP16",
        "token_logprobs": "FP32",
        "tail_logprob": "FP32",
        "logits": "FP16",
        "hidden_states": "FP16",
    }
    assert metadata["parameters"]["vocab_size"] == VOCABULARY
    assert metadata["parameters"]["hidden_size"] == 64
    assert metadata["parameters"]["max_positions"] == POSITIONS
    assert get("/v1/models")["data"][0]["id"] == "teacher"


def kserve_body(shape=(1, 2), data=(1, 2), parameters=None, outputs=None, name="input_ids", datatype="INT32"):
    body = {
        "inputs": [{"name": name, "datatype": datatype, "shape": list(shape), "data": list(data)}],
        "parameters": parameters or {},
    }
    if outputs:
        body["outputs"] = [{"name": output} for output in outputs]
    return body


@pytest.mark.parametrize(
    "body, words",
    [
        ("{", ""),
        ({"inputs": []}, "input_ids"),
        (kserve_body(data=(1, VOCABULARY)), f"input_ids[0][1] is {VOCABULARY}"),
        (kserve_body(data=(-1, 2)), "input_ids[0][0] is -1"),
        (kserve_body(shape=(2,)), "input_ids has shape [2]"),
        (kserve_body(shape=(1, 3)), "input_ids"),
        (kserve_body(shape=(0, 4), data=()), "input_ids is empty"),
        (kserve_body(shape=(1, POSITIONS + 1), data=(1,) * (POSITIONS + 1)), "max_position_embeddings"),
        (kserve_body(shape=(16, 33), data=(1,) * 528), "--max-batch-tokens"),
        (kserve_body(datatype="FP32"), "input_ids has datatype FP32"),
        (kserve_body(name="tokens"), "'tokens'"),
        (kserve_body(parameters={"top_k": VOCABULARY + 1}), "top_k"),
        (kserve_body(parameters={"top_k": 0, "mode": "topk"}), "top_k is 0"),
        (kserve_body(parameters={"top_k": "8"}), "top_k"),
        (kserve_body(parameters={"mode": "attention"}), "'attention'"),
        (kserve_body(parameters={"logits_dtype": "INT8"}), "logits_dtype"),
        (kserve_body(outputs=["hidden"]), "'hidden'"),
        (kserve_body(parameters={"top_k": 2}, outputs=["topk_ids", "topk_ids"]), "twice"),
        (kserve_body(parameters={"mode": "topk"}, outputs=["logits"]), "mode topk"),
    ],
)
def test_bad_kserve_requests_are_named(teacher, body, words):
    status, headers, answer = teacher.post("/v2/models/teacher/infer", body)
    assert status == 400 and headers["Content-Type"] == "application/json"
    assert words in answer["error"]


@pytest.mark.parametrize(
    "body, words",
    [
        ("nonsense", "JSON"),
        ({"return_logits": True}, "input_ids"),
        ({"input_ids": [[1, 2]]}, "return_logits"),
        ({"input_ids": [], "return_logits": True}, "empty"),
        ({"input_ids": [[]], "return_logits": True}, "input_ids[0] is empty"),
        ({"input_ids": [[1, 2], [3]], "return_logits": True}, "input_ids[1] has 1 ids"),
        ({"input_ids": [[1, "2"]], "return_logits": True}, "input_ids[0][1]"),
        ({"input_ids": [[1, 2.5]], "return_logits": True}, "input_ids[0][1]"),
        ({"input_ids": [[VOCABULARY]], "return_logits": True}, "vocabulary"),
        ({"input_ids": [[1] * (POSITIONS + 1)], "return_logits": True}, "max_position_embeddings"),
    ],
)
def test_bad_seed_requests_are_named(teacher, body, words):
    status, _, answer = teacher.post("/v1/completions", body)
    assert status == 400 and words in answer["error"]


def test_binary_frames_that_lie(teacher):
    body = json.dumps(
        {
            "inputs": [
                {"name": "input_ids", "datatype": "INT32", "shape": [1, 4], "parameters": {"binary_data_size": 16}}
            ]
        }
    ).encode()
    for length, tail in ((str(len(body)), b"\0" * 8), (str(len(body) + 99), b"\0" * 16), ("many", b"\0" * 16)):
        status, _, raw = teacher.ask(
            "POST", "/v2/models/teacher/infer", body + tail, {"Inference-Header-Content-Length": length}
        )
        assert status == 400 and json.loads(raw)["error"]


def test_unknown_models_and_paths(teacher):
    assert teacher.post("/v2/models/other/infer", kserve_body())[0] == 404
    assert teacher.post("/v1/completions", {"model": "other", "input_ids": [[1]], "return_logits": True})[0] == 404
    assert teacher.ask("GET", "/v2/models/other")[0] == 404
    assert teacher.ask("GET", "/nowhere")[0] == 404
    assert teacher.ask("GET", "/v2/models/teacher/infer")[0] == 405


@pytest.mark.parametrize("dtype, threads", [("fp32", 1), ("fp32", 2), ("bf16", 1)])
def test_concurrent_answers_are_the_single_ones(programs, folder, dtype, threads):
    """Sizes around those where matrix products change their bits with the number of rows."""
    server = Teacher(programs, folder, "--threads", threads, "--dtype", dtype)
    try:
        shapes = [(1, 1), (1, 2), (1, 3), (1, 5), (2, 7), (1, 32), (4, 32), (3, 33)] * 2
        requests = [
            (random_ids(rows, columns, seed=100 + index), {"top_k": 16}) for index, (rows, columns) in enumerate(shapes)
        ]
        requests[3] = (requests[3][0], {"mode": "logits", "logits_dtype": "FP32"})
        alone = [server.infer(*request)[1] for request in requests]
        assert len(set(alone)) == len(requests)
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            for order in (range(16), reversed(range(16))):
                answers = {index: pool.submit(server.infer, *requests[index]) for index in order}
                for index, answer in answers.items():
                    assert answer.result()[1] == alone[index]
    finally:
        assert server.stop()[0] == 0


def test_metrics(teacher):
    def values():
        status, headers, raw = teacher.ask("GET", "/metrics")
        assert status == 200 and headers["Content-Type"].startswith("text/plain")
        lines = raw.decode().splitlines()
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if not line.startswith("#")}

    # An answer is counted just after it was sent; the next answer on the same executor comes later than that.
    teacher.infer(random_ids(1, 4), {"top_k": 2})
    before = values()
    teacher.infer(random_ids(2, 4), {"top_k": 2})
    teacher.post("/v1/completions", "{")
    after = values()

    def grown(name):
        return after.get(name, 0) - before.get(name, 0)

    assert grown('distilld_teacher_server_requests_total{code="200",protocol="kserve"}') == 1
    assert grown('distilld_teacher_server_requests_total{code="400",protocol="seed"}') == 1
    assert grown("distilld_teacher_server_tokens_total") == 8
    assert grown("distilld_teacher_server_batch_size_count") == 1
    assert grown("distilld_teacher_server_queue_wait_seconds_count") == 1
    assert grown("distilld_teacher_server_compute_seconds_total") > 0
    assert after["distilld_teacher_server_queue_length"] == 0


def test_delay_does_not_limit_concurrency(programs, folder):
    """Answers are held for three seconds; all eight are held at the same time."""
    server = Teacher(programs, folder, "--threads", 1, "--delay-ms", 3000)
    try:
        requests = [random_ids(1, 4, seed=index) for index in range(8)]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            pending = [pool.submit(server.infer, ids, {"top_k": 2}) for ids in requests]
            # All eight are computed while none is answered: that is what makes the delay free.
            while not all(future.done() for future in pending):
                _, _, raw = server.ask("GET", "/metrics")
                text = raw.decode()
                found = re.search(r"distilld_teacher_server_queue_wait_seconds_count (\S+)", text)
                computed = int(float(found.group(1)))
                if computed == 8:
                    break
            answered = sum(future.done() for future in pending)
            assert computed == 8 and answered == 0
            for future in pending:
                future.result()
    finally:
        assert server.stop()[0] == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_let_requests_finish(programs, folder, number):
    server = Teacher(programs, folder, "--threads", 1, "--delay-ms", 2000)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pending = pool.submit(server.infer, random_ids(1, 4), {"top_k": 2})
        while b"distilld_teacher_server_queue_wait_seconds_count 1" not in server.ask("GET", "/metrics")[2]:
            assert not pending.done()
        code, errors = server.stop(number)
        assert code == 0, errors
        assert pending.result()[0]["topk_ids"].shape == (1, 4, 2)


def run_briefly(programs, *arguments):
    return subprocess.run(
        [str(programs / "distilld-worker"), "teacher", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
    )


def test_bad_folders_and_addresses(programs, folder, teacher, tmp_path):
    missing = run_briefly(programs, tmp_path / "none", "--listen", "127.0.0.1:0")
    assert missing.returncode == 1 and str(tmp_path / "none") in missing.stderr and not missing.stdout

    empty = tmp_path / "empty"
    empty.mkdir()
    without = run_briefly(programs, empty, "--listen", "127.0.0.1:0")
    assert without.returncode == 1 and "config.json" in without.stderr and not without.stdout

    torn = tmp_path / "torn"
    torn.mkdir()
    (torn / "config.json").write_bytes((folder / "config.json").read_bytes())
    (torn / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:1000])
    cut = run_briefly(programs, torn, "--listen", "127.0.0.1:0")
    assert cut.returncode == 1 and "model.safetensors" in cut.stderr and not cut.stdout

    taken = run_briefly(programs, folder, "--listen", f"127.0.0.1:{teacher.port}")
    assert taken.returncode == 1 and str(teacher.port) in taken.stderr

    assert run_briefly(programs, folder, "--listen", "nowhere").returncode == 2
    assert run_briefly(programs, folder, "--listen", "127.0.0.1:0", "--max-batch-tokens", 0).returncode == 2
