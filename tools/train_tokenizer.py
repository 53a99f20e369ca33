#!/usr/bin/env python3
"""Trains a byte-level BPE tokenizer (Qwen's words) on text and writes it as a folder that distilld reads.

    tools/train_tokenizer.py OUT_DIR --vocabulary 2048 FILE…

Each FILE is JSONL of {"text"}, or plain text where its name does not end in .jsonl. The vocabulary counts the 256 bytes
and <|endoftext|>, which ends a document and has the last id; of text that repeats itself it may come out smaller than
asked for. Needs the Python package tokenizers.
"""

import argparse
import json
import pathlib
import sys

# Qwen/Qwen2.5, tokenizer.json: pre_tokenizer.
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
END = "<|endoftext|>"


SMALLEST = 257  # the bytes and the end of a document


def texts(paths):
    for path in paths:
        with open(path, encoding="utf-8") as file:
            if path.suffix != ".jsonl":
                yield file.read()
                continue
            for number, line in enumerate(file, 1):
                try:
                    yield json.loads(line)["text"]
                except (ValueError, KeyError, TypeError):
                    sys.exit(f'train_tokenizer: {path}:{number}: is not {{"text": "…"}}')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path, metavar="OUT_DIR")
    parser.add_argument("files", type=pathlib.Path, nargs="+", metavar="FILE")
    parser.add_argument("--vocabulary", type=int, default=2048, help="tokens in all")
    arguments = parser.parse_args()
    if arguments.vocabulary < SMALLEST:
        parser.error(f"--vocabulary {arguments.vocabulary}: the bytes and the end of a document are {SMALLEST} tokens")
    try:
        from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    except ImportError:
        sys.exit("train_tokenizer: needs the Python package tokenizers: pip install tokenizers")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=arguments.vocabulary - 1,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    try:
        tokenizer.train_from_iterator(texts(arguments.files), trainer)
    except OSError as error:
        sys.exit(f"train_tokenizer: {error.filename}: {error.strerror}")
    except UnicodeDecodeError as error:
        sys.exit(f"train_tokenizer: a file is no UTF-8: {error}")
    tokenizer.add_special_tokens([END])
    arguments.out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(arguments.out / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "model_max_length": 1 << 20}
    (arguments.out / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
    print(f"{tokenizer.get_vocab_size()} tokens in {arguments.out}")


if __name__ == "__main__":
    main()
