"""Compares what lm-eval says of a model in transformers (`--model hf`) and behind `distilld teacher` (`--model
local-completions`): accuracies and generations must be equal, the logarithms of perplexities to a millionth, and
log-likelihoods within 1e-4.

    scripts/check-lm-eval.sh [FOLDER]

FOLDER is a model with a tokenizer; without one, a Qwen2 with random weights is made. Prints one line per task and
figure; exits with 1 if something differs."""

import argparse
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile

TASKS = {
    "legs": """
output_type: multiple_choice
doc_to_choice: "{{choices}}"
doc_to_target: "{{answer}}"
metric_list: [{metric: acc}, {metric: acc_norm}]
""",
    "rolling": """
output_type: loglikelihood_rolling
doc_to_target: "{{question}}{{choices[0]}}"
metric_list: [{metric: word_perplexity}, {metric: byte_perplexity}, {metric: bits_per_byte}]
""",
    "go_on": """
output_type: generate_until
doc_to_target: "{{choices[answer]}}"
generation_kwargs: {until: ["\\n"], max_gen_toks: 16, do_sample: false}
metric_list: [{metric: exact_match}]
""",
}
HEAD = """task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {data}}}
test_split: train
doc_to_text: "{text}"
"""
MAX_LENGTH = 512
TOLERANCE = 1e-4


def write_tasks(folder, documents):
    rng = random.Random(1)
    data = folder / "documents.jsonl"
    with open(data, "w") as file:
        for number in range(documents):
            days = rng.randint(1, 99)
            question = f"Question {number}: How many legs has a spider of {days} days?\nAnswer:"
            choices = [" eight", " two legs", " none of them at all"]
            file.write(json.dumps({"question": question, "choices": choices, "answer": number % 3}) + "\n")
    for name, task in TASKS.items():
        text = "" if name == "rolling" else "{{question}}"
        (folder / f"{name}.yaml").write_text(HEAD.format(name=name, data=data, text=text) + task)


def make_model(folder):
    import torch
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=1000, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet)
    tokenizer.train([str(path) for path in pathlib.Path("docs").glob("*.md")], trainer)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>")
    fast.save_pretrained(folder)
    torch.manual_seed(1)
    config = transformers.Qwen2Config(
        vocab_size=len(fast),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=MAX_LENGTH,
        eos_token_id=fast.eos_token_id,
        bos_token_id=None,
        initializer_range=0.2,
    )
    transformers.Qwen2ForCausalLM(config).save_pretrained(folder)


def evaluate(model, arguments, tasks):
    """What `lm_eval run --model MODEL --model_args ARGUMENTS` finds: figures and samples, by task."""
    import lm_eval
    import lm_eval.tasks

    manager = lm_eval.tasks.TaskManager(include_path=str(tasks), include_defaults=False)
    made = lm_eval.simple_evaluate(
        model, model_args=arguments, tasks=list(TASKS), task_manager=manager, device="cpu", batch_size=1
    )
    return made["results"], made["samples"]


def numbers_of(value):
    """Log-likelihoods as numbers; everything else as text."""
    if isinstance(value, (list, tuple)):
        return [part for one in value for part in numbers_of(one)]
    try:
        return [float(value)]
    except ValueError:
        return [value]


def equal(figure, hf, ours):
    """Whether two values of a figure are equal, apart from the order in which fp32 sums were taken."""
    if "perplexity" in figure:
        # The exponential of a mean log-likelihood multiplies its relative rounding error by that mean.
        hf, ours = math.log(hf), math.log(ours)
    elif "bits" not in figure:
        return hf == ours
    return abs(hf - ours) <= 1e-6 * abs(hf)


def differences(name, hf, ours):
    """Descriptions of the samples that differ."""
    found = []
    for number, (a, b) in enumerate(zip(hf, ours, strict=True)):
        left, right = numbers_of(a["filtered_resps"]), numbers_of(b["filtered_resps"])
        same = len(left) == len(right) and all(
            abs(x - y) <= TOLERANCE * max(1, abs(x)) if isinstance(x, float) and isinstance(y, float) else x == y
            for x, y in zip(left, right, strict=True)
        )
        if not same:
            found.append(f"{name}, document {number}: transformers {left}, distilld {right}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--program", default="build/release/bin/distilld", help="the program distilld")
    parser.add_argument("--documents", type=int, default=50)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        work = pathlib.Path(made)
        folder = arguments.folder
        if folder is None:
            folder = work / "model"
            make_model(folder)
        # Before lm-eval is loaded.
        os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(work / "cache")}
        tasks = work / "tasks"
        tasks.mkdir()
        write_tasks(tasks, arguments.documents)
        command = [arguments.program, "teacher", str(folder), "--dtype", "fp32", "--listen", "127.0.0.1:0"]
        server = subprocess.Popen([*command, "--model-name", "student"], stdout=subprocess.PIPE, text=True)
        try:
            url = server.stdout.readline().split("ready on ", 1)[-1].split()[0]
            served = f"base_url={url}/v1/completions,model=student,tokenizer={folder},tokenized_requests=True"
            served += f",num_concurrent=8,max_length={MAX_LENGTH}"
            ours, our_samples = evaluate("local-completions", served, tasks)
        finally:
            server.terminate()
            server.wait()
        local = f"pretrained={folder},dtype=float32,max_length={MAX_LENGTH}"
        hf, hf_samples = evaluate("hf", local, tasks)
    wrong = []
    for name in TASKS:
        for figure, value in hf[name].items():
            if not isinstance(value, float):
                continue
            mine = ours[name][figure]
            same = equal(figure, value, mine)
            print(f"{name:8} {figure:24} transformers {value:.4f}, distilld {mine:.4f}", flush=True)
            wrong += [] if same else [f"{name}: {figure} differs"]
        wrong += differences(name, hf_samples[name], our_samples[name])
    for line in wrong:
        print(line)
    print("equal" if not wrong else f"{len(wrong)} differences")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
