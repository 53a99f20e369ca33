"""{"prompt", "completion"} lines come to the tokens that TRL's SFT trainer makes of them, whatever the tokenizer."""

import json
import random
import subprocess

import pytest

pytest.importorskip("tokenizers")

from test_tokenizer_parity import gemma, gpt2, llama2, llama3, qwen2, random_string

PAIRS = 1_000  # for each of the tokenizers below
NO_LOSS = -100
END = {"gpt2": "<|endoftext|>", "llama3": "<|endoftext|>", "qwen2": "<|im_start|>", "llama2": "</s>", "gemma": "</s>"}


def wanted(tokenizer, prompt, completion, end):
    """TRL tokenizes the prompt and both as one, ends both by eos, and masks as many tokens as the prompt has; where the
    prompt's are not how both begin, it warns, and we mask those that are."""
    end_id = tokenizer.token_to_id(end)
    ids = tokenizer.encode(prompt + completion).ids
    if not ids or ids[-1] != end_id:
        ids = [*ids, end_id]
    given = tokenizer.encode(prompt).ids
    same = next((n for n, (one, other) in enumerate(zip(ids, given, strict=False)) if one != other), len(given))
    return [ids, [NO_LOSS] * same + ids[same:]], ids[: len(given)] == given


def folder_of(tokenizer, end, folder):
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": end}))
    return folder


@pytest.mark.parametrize("make", [gpt2, llama3, qwen2, llama2, gemma], ids=lambda make: make.__name__)
def test_tokens_and_labels_are_those_of_trl(make, programs, tmp_path):
    tokenizer, end = make(), END[make.__name__]
    folder = folder_of(tokenizer, end, tmp_path / "tokenizer")
    random_ = random.Random(make.__name__)
    pairs = [(random_string(random_), random_string(random_)) for _ in range(PAIRS)]
    pairs += [("", "Hello"), ("Hello", ""), ("hello ", "world"), ("a" + end, end), ("Say it.\n", "It" + end)]
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(json.dumps({"prompt": one, "completion": other}) + "\n" for one, other in pairs))
    probe = [programs / "distilld-tokenizer-probe", "documents", folder, file]
    done = subprocess.run(probe, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    have = [json.loads(line) for line in done.stdout.decode().splitlines()]
    made = [wanted(tokenizer, *pair, end) for pair in pairs]
    wrong = [n for n in range(len(pairs)) if have[n] != made[n][0]]
    assert len(have) == len(pairs)
    assert not wrong, f"{len(wrong)} differ; first: {pairs[wrong[0]]}: {made[wrong[0]][0]}, not {have[wrong[0]]}"
    assert sum(as_trl for _, as_trl in made) > PAIRS / 2, "most are TRL's very own"
