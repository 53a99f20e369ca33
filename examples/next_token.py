"""How well a model predicts the next token of some texts: a program for eval.command (docs/training.md).

    python3 examples/next_token.py FOLDER TEXTS.jsonl [--rows N]

FOLDER is an exported student, TEXTS.jsonl has a "text" a line. Prints {"accuracy": …, "loss": …, "tokens": …}.
"""

import argparse
import itertools
import json
import pathlib

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


@torch.no_grad()
def figures(folder, texts):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    right, loss, tokens = 0, 0.0, 0
    for text in texts:
        ids = tokenizer(text, return_tensors="pt", add_special_tokens=False).input_ids
        ids = ids[:, : model.config.max_position_embeddings]
        scores = model(ids).logits[0, :-1].log_softmax(-1)
        targets = ids[0, 1:]
        right += (scores.argmax(-1) == targets).sum().item()
        loss -= scores.gather(1, targets[:, None]).sum().item()
        tokens += len(targets)
    return {"accuracy": right / tokens, "loss": loss / tokens, "tokens": tokens}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("texts", type=pathlib.Path)
    parser.add_argument("--rows", type=int, default=20, help="texts to read, from the first")
    options = parser.parse_args()
    with options.texts.open() as lines:
        texts = [json.loads(line)["text"] for line in itertools.islice(lines, options.rows)]
    print(json.dumps(figures(options.folder, texts)))


if __name__ == "__main__":
    main()
