"""`distilld teacher` as an inference server: what it says is what transformers says, alone and in company."""

import concurrent.futures
import json
import random
import shutil
import subprocess
import urllib.error
import urllib.request

import pytest
from support.processes import Programs, wait_until

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: E402

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
RUNNING = "distilld_teacher_server_sequences_running"
GENERATED = "distilld_teacher_server_generated_tokens_total"
TEXT = "The student reads what the teacher wrote. 世界 é A spider has eight legs, and a teacher has two. " * 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A Qwen2 with random weights that say different things, and a tokenizer of their own."""
    made = tmp_path_factory.mktemp("student")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        [TEXT], trainers.BpeTrainer(vocab_size=400, special_tokens=SPECIAL, initial_alphabet=alphabet)
    )
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    fast.chat_template = CHATML
    fast.save_pretrained(made)
    torch.manual_seed(1)
    config = transformers.Qwen2Config(
        vocab_size=len(fast),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        eos_token_id=fast.eos_token_id,
        bos_token_id=None,
        initializer_range=0.3,
    )
    transformers.Qwen2ForCausalLM(config).save_pretrained(made)
    return made


@pytest.fixture(scope="module")
def reference(folder):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval(), tokenizer


@pytest.fixture(scope="module")
def server(programs, folder, tmp_path_factory):
    started = Programs(programs, tmp_path_factory.mktemp("logs"))
    yield started.teacher(folder, "--dtype", "fp32", "--model-name", "student")
    started.stop_all()


def post(server, path, **body):
    request = urllib.request.Request(server.url + path, json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return {"status": error.code, **json.load(error)}


def complete(server, prompt, **fields):
    return post(server, "/v1/completions", prompt=prompt, return_token_ids=True, **fields)["choices"][0]


def metric(server, name):
    with urllib.request.urlopen(server.url + "/metrics", timeout=60) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
    raise AssertionError(f"no metric {name}")


def test_the_likeliest_tokens_are_those_of_transformers(server, reference):
    model, tokenizer = reference
    for prompt in ["The student", "A spider has", "世界", TEXT[:400]]:
        ids = tokenizer(prompt, return_tensors="pt").input_ids
        with torch.no_grad():
            made = model.generate(ids, max_new_tokens=24, do_sample=False, pad_token_id=0)[0, ids.shape[1] :]
        choice = complete(server, prompt, max_tokens=24, temperature=0)
        assert choice["prompt_token_ids"] == ids[0].tolist()
        assert choice["token_ids"] == made.tolist()
        assert choice["text"] == tokenizer.decode(made, skip_special_tokens=True)
        assert choice["finish_reason"] == ("stop" if made[-1] == tokenizer.eos_token_id else "length")


def test_an_echo_has_the_log_probabilities_of_the_prompt(server, reference):
    model, tokenizer = reference
    ids = tokenizer(TEXT[:700]).input_ids
    answer = complete(server, ids, max_tokens=1, temperature=0, logprobs=1, echo=True)
    said = answer["logprobs"]["token_logprobs"]
    assert len(said) == len(ids) + 1 and said[0] is None
    with torch.no_grad():
        rows = model(torch.tensor([ids])).logits[0].log_softmax(-1)
    wanted = rows[:-1].gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
    assert torch.allclose(torch.tensor(said[1:-1]), wanted, atol=1e-4)
    assert answer["text"] == TEXT[:700] + tokenizer.decode(answer["token_ids"], skip_special_tokens=True)
    best = [max(one, key=one.get) for one in answer["logprobs"]["top_logprobs"][1:]]
    names = [tokenizer.decode([i]) for i in rows.argmax(-1).tolist()]
    # Of the tokens that are no whole character, each is named U+FFFD.
    assert sum(a == b for a, b in zip(best, names, strict=True)) >= 0.9 * len(names)


def test_no_answer_depends_on_the_others(server):
    wishes = [
        {
            "prompt": TEXT[i : i + 5 + 37 * (i % 5)],
            "max_tokens": 4 + i,
            "temperature": (0, 0.7, 1.5)[i % 3],
            "seed": i,
            "top_p": 0.95,
            "logprobs": 2,
            "n": 1 + i % 2,
            "ignore_eos": i % 4 == 0,
        }
        for i in range(16)
    ]
    alone = [post(server, "/v1/completions", **wish)["choices"] for wish in wishes]
    order = list(range(16))
    random.Random(5).shuffle(order)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        together = dict(
            zip(order, pool.map(lambda i: post(server, "/v1/completions", **wishes[i])["choices"], order), strict=True)
        )
    for i in range(16):
        assert together[i] == alone[i], wishes[i]
    assert len({json.dumps(one["logprobs"]) for choices in alone for one in choices}) > 16


def test_a_chat_is_rendered_as_transformers_does(server, reference):
    model, tokenizer = reference
    talk = [{"role": "system", "content": "You help."}, {"role": "user", "content": "How many legs? 世界"}]
    ids = tokenizer.apply_chat_template(talk, add_generation_prompt=True, return_dict=True)["input_ids"]
    answer = post(server, "/v1/chat/completions", messages=talk, max_tokens=12, temperature=0, return_token_ids=True)
    assert answer["prompt_token_ids"] == ids
    with torch.no_grad():
        made = model.generate(torch.tensor([ids]), max_new_tokens=12, do_sample=False, pad_token_id=0)[0, len(ids) :]
    choice = answer["choices"][0]
    assert choice["token_ids"] == made.tolist()
    assert choice["message"]["content"] == tokenizer.decode(made, skip_special_tokens=True)
    assert post(server, "/tokenize", messages=talk)["tokens"] == ids
    assert post(server, "/tokenize", prompt="A spider")["tokens"] == tokenizer("A spider").input_ids
    assert post(server, "/detokenize", tokens=ids)["prompt"] == tokenizer.decode(ids)


def test_curl_reads_a_stream(server):
    wish = {"prompt": "The teacher", "max_tokens": 30, "temperature": 1.0, "seed": 3}
    whole = post(server, "/v1/completions", **wish)["choices"][0]
    said = subprocess.run(
        ["curl", "-sN", server.url + "/v1/completions", "-d", json.dumps({**wish, "stream": True})],
        check=True,
        capture_output=True,
        timeout=60,
    ).stdout.decode()
    events = [line.removeprefix("data: ") for line in said.splitlines() if line]
    assert events.pop() == "[DONE]"
    pieces = [json.loads(event)["choices"][0] for event in events]
    assert "".join(piece["text"] for piece in pieces) == whole["text"]
    assert [piece["finish_reason"] for piece in pieces][:-1] == [None] * (len(pieces) - 1)
    assert pieces[-1]["finish_reason"] == whole["finish_reason"]
    assert len(pieces) > 1


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_leaves_no_work(server, stream):
    whole = 8 * 500
    wish = {"prompt": "A", "max_tokens": 500, "ignore_eos": True, "stream": stream, "n": 8}

    def tokens_without_client():
        before = metric(server, GENERATED)
        client = subprocess.Popen(
            ["curl", "-sN", server.url + "/v1/completions", "-d", json.dumps(wish)], stdout=subprocess.DEVNULL
        )
        wait_until(lambda: metric(server, GENERATED) > before, "the answers begin")
        client.kill()
        client.wait()
        wait_until(lambda: metric(server, RUNNING) == 0, "the answers end")
        return metric(server, GENERATED) - before

    # On a busy machine the answers may end before the client is killed.
    wait_until(lambda: tokens_without_client() < whole, "answers that end with their client")


def test_what_is_wrong_is_said_in_openais_shape(server):
    for path, body, status, param in [
        ("/v1/completions", {"prompt": "a", "max_tokens": 10**6}, 400, "prompt"),
        ("/v1/completions", {"prompt": "a", "temprature": 1}, 400, "temprature"),
        ("/v1/completions", {"prompt": "a", "model": "gpt"}, 404, "model"),
        ("/v1/completions", {"prompt": [10**6]}, 400, "prompt"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": {"a": 1}}]}, 400, "messages"),
        ("/detokenize", {"tokens": "x"}, 400, "tokens"),
    ]:
        answer = post(server, path, **body)
        assert (answer["status"], answer["error"]["param"]) == (status, param), answer


def test_a_template_is_held_to_its_process(programs, folder, tmp_path):
    made = tmp_path / "model"
    shutil.copytree(folder, made)
    message = [{"role": "user", "content": "x"}]
    started = Programs(programs, tmp_path)
    for template, said in [
        ("{{ raise_exception('only one turn') }}", "only one turn"),
        ("{{ messages.__class__.__mro__ }}", "unsafe"),
        ("{{ 'a' * 99999999999 }}", "MemoryError"),
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "too long"),
    ]:
        (made / "chat_template.jinja").write_text(template)
        server = started.teacher(made)
        answer = post(server, "/v1/chat/completions", messages=message, max_tokens=1)
        assert answer["status"] == 400 and said in answer["error"]["message"], answer
        server.destroy()
    (made / "chat_template.jinja").unlink()
    server = started.teacher(made)
    answer = post(server, "/v1/chat/completions", messages=message, max_tokens=1)
    assert answer["status"] == 400 and "no chat template" in answer["error"]["message"], answer
    started.stop_all()


@pytest.fixture(scope="module")
def adapter(folder, tmp_path_factory):
    """A PEFT folder whose B is not 0."""
    peft = pytest.importorskip("peft")
    made = tmp_path_factory.mktemp("adapters") / "one"
    base = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    torch.manual_seed(4)
    config = peft.LoraConfig(r=4, lora_alpha=16, target_modules=["q_proj", "v_proj", "down_proj"])
    model = peft.get_peft_model(base, config)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(made)
    return made


def test_an_adapter_is_a_model_of_its_own(server, reference, folder, adapter):
    import peft

    def load(name, path):
        request = json.dumps({"lora_name": name, "lora_path": str(path)}).encode()
        with urllib.request.urlopen(urllib.request.Request(server.url + "/v1/load_lora_adapter", request)) as answer:
            return answer.read().decode()

    _, tokenizer = reference
    ids = tokenizer("The student reads", return_tensors="pt").input_ids
    plain = complete(server, ids[0].tolist(), max_tokens=20, temperature=0)
    wish = {"max_tokens": 20, "temperature": 0, "model": "one"}
    assert post(server, "/v1/completions", prompt="a", model="one")["status"] == 404
    answer = post(server, "/v1/load_lora_adapter", lora_name="one", lora_path=str(folder))
    assert answer["status"] == 400 and "adapter_config.json" in answer["error"]["message"]
    assert load("one", adapter) == "Success: LoRA adapter 'one' added successfully."
    base = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model = peft.PeftModel.from_pretrained(base, adapter).eval()
    with torch.no_grad():
        made = model.generate(input_ids=ids, max_new_tokens=20, do_sample=False, pad_token_id=0)[0, ids.shape[1] :]
    adapted = complete(server, ids[0].tolist(), **wish)
    assert adapted["token_ids"] == made.tolist() != plain["token_ids"]
    # Together with the model itself, both say what they say alone.
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        together = list(
            pool.map(
                lambda i: complete(
                    server, ids[0].tolist(), max_tokens=20, temperature=0, logprobs=1, model=("student", "one")[i % 2]
                ),
                range(8),
            )
        )
    for i, choice in enumerate(together):
        assert choice["token_ids"] == (plain, adapted)[i % 2]["token_ids"]
        assert choice["logprobs"] == together[i % 2]["logprobs"]
    with urllib.request.urlopen(server.url + "/v1/models") as answer:
        assert [one["id"] for one in json.load(answer)["data"]] == ["student", "one"]
    with urllib.request.urlopen(
        urllib.request.Request(server.url + "/v1/unload_lora_adapter", b'{"lora_name": "one"}')
    ) as answer:
        assert answer.status == 200
    assert post(server, "/v1/completions", prompt="a", model="one")["status"] == 404


def test_other_weights_take_the_models_place(programs, folder, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    model.save_pretrained(other)
    started = Programs(programs, tmp_path)
    first, second = started.teacher(folder, "--dtype", "fp32"), started.teacher(other, "--dtype", "fp32")
    wish = {"prompt": [5, 6, 7], "max_tokens": 20, "temperature": 1, "seed": 3, "logprobs": 0, "return_token_ids": True}
    before, expected = post(first, "/v1/completions", **wish), post(second, "/v1/completions", **wish)
    assert before["choices"] != expected["choices"]
    shorter = tmp_path / "shorter"
    shutil.copytree(folder, shorter)
    config = json.loads((folder / "config.json").read_text())
    (shorter / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 64}))
    for path, said in ((tmp_path / "absent", "absent"), (shorter, "64 positions, and the model that is served 512")):
        refused = post(first, "/update_weights_from_disk", model_path=str(path))
        assert refused["status"] == 400 and said in refused["error"]["message"]
    assert post(first, "/v1/completions", **wish)["choices"] == before["choices"]
    done = post(first, "/update_weights_from_disk", model_path=str(other), weight_version="step-7")
    assert done["success"] is True
    after = post(first, "/v1/completions", **wish)
    assert after["choices"] == expected["choices"] and after["weight_version"] == "step-7"
    started.stop_all()


def test_keys_and_roots_hold_for_a_served_model(programs, folder, adapter, tmp_path):
    started = Programs(programs, tmp_path)
    key = started.run("keys", "add", "me", "--role", "submit", "--data-dir", tmp_path / "keys").out.splitlines()[0]
    server = started.teacher(folder, "--keys", tmp_path / "keys", "--root", adapter.parent)

    def ask(path, body, token):
        headers = {"Authorization": "Bearer " + token} if token else {}
        request = urllib.request.Request(server.url + path, json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    wish = {"prompt": "a", "max_tokens": 1}
    assert ask("/v1/completions", wish, None)[0] == 401
    assert ask("/v1/completions", wish, "nonsense")[0] == 401
    assert ask("/v1/completions", wish, key)[0] == 200
    assert ask("/v1/load_lora_adapter", {"lora_name": "one", "lora_path": str(adapter)}, key)[0] == 200
    assert ask("/update_weights_from_disk", {"model_path": str(folder)}, key)[0] == 403, "others use the model, too"
    link = tmp_path / "link"
    link.symlink_to(adapter)
    copy = tmp_path / "copy"
    shutil.copytree(adapter, copy)
    for place in (copy, adapter.parent / ".." / copy.name, "/etc"):
        status, said = ask("/v1/load_lora_adapter", {"lora_name": "two", "lora_path": str(place)}, key)
        assert status == 400, said
    (adapter.parent / "out").symlink_to(copy)
    status, said = ask("/v1/load_lora_adapter", {"lora_name": "two", "lora_path": str(adapter.parent / "out")}, key)
    assert status == 400 and "not below" in said, said
    (adapter.parent / "out").unlink()
    started.stop_all()
