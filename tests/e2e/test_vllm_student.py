"""The same student served by vLLM and by `distilld teacher`: equal greedy answers, log-probabilities within 1e-4.
scripts/test-vllm.sh runs this."""

import concurrent.futures
import json
import urllib.request

import pytest
from support import jobs
from support.trained_tokenizers import write_tokenizer
from support.vllm import needs_vllm, served

pytestmark = needs_vllm

TOLERANCE = 1e-4
IDS = {"return_token_ids": True}
TEMPLATE = (
    "{% for m in messages %}{{ m.role + ': ' + m.content + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)
LINES = [" ".join(jobs.text_lines(8, seed)) for seed in range(60)]
# Of a few tokens up to more than the 256 that distilld reads at once.
PROMPTS = [" ".join(LINES[i : 2 * i + 1])[: 9 + 90 * i] for i in range(16)]


@pytest.fixture(scope="module")
def students(distilld_session, tmp_path_factory):
    """The folders of a student with untied weights and of an adapter, both trained by distilld."""
    made = tmp_path_factory.mktemp("students")
    tokens = write_tokenizer(made / "tokenizer", "qwen-2.5", LINES, 400).get_vocab_size()
    (made / "tokenizer" / "chat_template.jinja").write_text(TEMPLATE)
    config = jobs.llama_config(
        64,
        tokens,
        num_attention_heads=2,
        num_key_value_heads=1,
        tie_word_embeddings=False,
        max_position_embeddings=1024,
    )
    training = {"batch_size": 8, "micro_batches": 1, "max_steps": 200, "learning_rate": 5e-3, "threads": 1}
    plain = {"init": "random", "config": config, "tokenizer": str(made / "tokenizer"), "dtype": "fp32"}
    adapted = {"model": str(made / "plain"), "dtype": "fp32", "lora": {"r": 8}}
    backwards = [" ".join(reversed(line.split())) for line in LINES]
    for name, student, lines in [("plain", plain, LINES), ("adapted", adapted, backwards)]:
        data = jobs.write_jsonl(made / f"{name}.jsonl", ({"text": line} for line in lines))
        spec = {
            "student": student,
            "dataset": {"train": str(data), "sequence_length": 128},
            "training": training,
            "output": str(made / name),
        }
        distilld_session.run("run", jobs.write_spec(made / f"{name}.json", spec))
    return made


@pytest.fixture(scope="module")
def ours(students, distilld_session):
    """The URL of a `distilld teacher` that serves the student and the adapter."""
    url = distilld_session.teacher(students / "plain", "--dtype", "fp32", "--model-name", "student").url
    load_adapter(url, students / "adapted")
    return url


@pytest.fixture(scope="module")
def servers(students, ours, tmp_path_factory):
    """The URLs of vLLM and of distilld."""
    with served(students / "plain", "student", tmp_path_factory.mktemp("vllm") / "log") as vllm:
        yield vllm, ours


@pytest.fixture(scope="module")
def adapting_servers(students, ours, tmp_path_factory):
    """The same with the adapter. On CPUs, vLLM 0.32 with --enable-lora ends at log-probabilities of prompts, and adds
    the adapter in the last place to requests without one: --max-loras 2 leaves that place empty."""
    log = tmp_path_factory.mktemp("vllm") / "log"
    allowed = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
    with served(students / "plain", "student", log, "--enable-lora", "--max-loras", "2", **allowed) as vllm:
        load_adapter(vllm, students / "adapted")
        yield vllm, ours


def load_adapter(url, folder):
    said = post(url, "/v1/load_lora_adapter", {"lora_name": "adapted", "lora_path": str(folder)})
    assert said == "Success: LoRA adapter 'adapted' added successfully."


def post(url, path, body):
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        said = answer.read().decode()
    return json.loads(said) if said.startswith("{") else said


def answers(url, path, wishes):
    """All at once."""
    with concurrent.futures.ThreadPoolExecutor(len(wishes)) as pool:
        return list(pool.map(lambda wish: post(url, path, {"temperature": 0, **wish}), wishes))


def furthest(theirs, ours):
    """The largest difference of numbers that are not whole; asserts that everything else is equal."""
    if isinstance(ours, float) and isinstance(theirs, float):
        return abs(theirs - ours)
    if isinstance(ours, dict):
        assert ours.keys() <= theirs.keys()
        return max((furthest(theirs[key], ours[key]) for key in ours), default=0.0)
    if isinstance(ours, list):
        return max((furthest(a, b) for a, b in zip(theirs, ours, strict=True)), default=0.0)
    assert theirs == ours
    return 0.0


def held_against_vllm(servers, path, wishes):
    """Asserts that both say the same to the wishes, and returns the choices of distilld."""
    theirs, ours = (answers(url, path, wishes) for url in servers)
    for answer in ours:
        del answer["id"], answer["created"]
    most = furthest(theirs, ours)
    print(f"{path}: {len(wishes)} equal answers, log-probabilities within {most:.1e}")
    assert most <= TOLERANCE
    return [answer["choices"][0] for answer in ours]


def test_completions_are_those_of_vllm(servers):
    wishes = [
        {"model": "student", "prompt": prompt, "max_tokens": 48, "logprobs": 1, "ignore_eos": i % 2 == 0, **IDS}
        for i, prompt in enumerate(PROMPTS)
    ]
    ours = held_against_vllm(servers, "/v1/completions", wishes)
    assert len({choice["text"] for choice in ours}) > 8
    assert max(len(choice["prompt_token_ids"]) for choice in ours) > 256


def test_prompts_have_the_log_probabilities_of_vllm(servers):
    # Without token ids: with them, vLLM 0.32 leaves the prompt out of the text.
    wish = {"model": "student", "max_tokens": 1, "logprobs": 1, "echo": True}
    held_against_vllm(servers, "/v1/completions", [{**wish, "prompt": prompt} for prompt in PROMPTS])


def test_chats_are_those_of_vllm(servers):
    wish = {"model": "student", "max_tokens": 24, "logprobs": True, "top_logprobs": 1, **IDS}
    talks = [
        {**wish, "messages": [{"role": "system", "content": line}, {"role": "user", "content": "Which bird sings?"}]}
        for line in LINES[:16]
    ]
    held_against_vllm(servers, "/v1/chat/completions", talks)


def test_an_adapter_beside_its_model_says_what_it_says_in_vllm(adapting_servers):
    wishes = [
        {"model": ("student", "adapted")[i % 2], "prompt": PROMPTS[i - i % 2], "max_tokens": 32, "logprobs": 1, **IDS}
        for i in range(16)
    ]
    ours = held_against_vllm(adapting_servers, "/v1/completions", wishes)
    assert all(plain["text"] != adapted["text"] for plain, adapted in zip(ours[::2], ours[1::2], strict=True))
