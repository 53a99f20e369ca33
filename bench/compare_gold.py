#!/usr/bin/env python3
"""Holds the targets of teacher.tokenizer against GOLD of TRL 1.16, on a Llama-3 and a Qwen-2.5 style tokenizer.

    .deps/trl/bin/python bench/compare_gold.py [--texts 120] [--bin build/release/bin]

Run it with a Python that has torch, transformers and trl==1.16.0, such as that which bench/compare_trl.py makes. It
trains both tokenizers, a teacher and a student, and prints three figures of `distilld run` beside those that GOLD's own
functions give for the same models and texts. The exit code is 1 if they differ.

Where both define the same:
- aligned positions: those that predict the first token of a group of GOLD's _align_by_byte_offsets()
- tokens of both: those of its _initialize_vocabulary_mapping()
- divergence: its _compute_jsd_loss_for_matched_tokens() with beta 0, at the aligned positions

Where they differ:
- GOLD's mapping has no end of text if its name differs. Here the ends of text are one token.
- GOLD's divergence covers the tokens of both alone, and it compares what is left by rank (ULD). Here the rest is a
  bucket of its own, which this script adds to GOLD's figure.
- Of a group with several tokens, GOLD takes the distribution of the last one times the probabilities of the earlier
  ones ("bayesian"), or that of the first one times those of the later ones ("observed", with logits that are not
  shifted). Here it is that of the first token, and no probability is multiplied. Groups of one token on both sides
  agree with "bayesian"; their share is printed.
- GOLD cuts probabilities off at 1e-8.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import types

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import torch  # noqa: E402
from support import jobs  # noqa: E402
from support.trained_tokenizers import STYLES, write_tokenizer  # noqa: E402
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast  # noqa: E402
from trl.experimental.gold.gold_trainer import ULDLoss  # noqa: E402

SIZES = {"llama-3": 330, "qwen-2.5": 400}
STUDENT, TEACHER = "qwen-2.5", "llama-3"
TOLERANCE = 1e-3


def run(bin_folder, spec, folder, name):
    report = folder / f"{name}-report.json"
    file = jobs.write_spec(folder / f"{name}.json", spec)
    command = [bin_folder / "distilld", "run", file, "--report", report]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return json.loads(report.read_text())


def specs(folder, data, tokenizers):
    for style in (TEACHER, STUDENT):
        spec = jobs.base_spec(data, folder / f"{style}-model", 30)
        changes = {
            "/student/config": jobs.llama_config(48, tokenizers[style].get_vocab_size()),
            "/student/tokenizer": str(folder / style),
            "/dataset/packing": "documents",
            "/dataset/sequence_length": 96,
            "/training/batch_size": 8,
            "/training/learning_rate": 5e-3,
        }
        yield style, jobs.changed(spec, changes)


def distilled(folder, data, tokenizers, figures):
    """An evaluation of a student that does not move, and an epoch over the same texts."""
    size = tokenizers[TEACHER].get_vocab_size()
    own = {"model_dir": str(folder / f"{TEACHER}-model"), "tokenizer": str(folder / TEACHER), "dtype": "fp32"}
    return {
        "student": {"model": str(folder / f"{STUDENT}-model"), "dtype": "fp32"},
        "teacher": {**own, "top_k": size - 1, "threads": 1},
        "dataset": {"train": str(data), "eval": str(data), "sequence_length": 96, "packing": "documents"},
        "training": {"batch_size": 8, "epochs": 1, "learning_rate": 1e-12, "threads": 1},
        "metrics": {"jsonl_file": str(figures)},
        "output": str(folder / "distilled"),
    }


def gold(wrapped):
    names = {
        "uld_crossentropy_weight": 0.0,
        "uld_distillation_weight": 1.0,
        "uld_student_temperature": 1.0,
        "uld_teacher_temperature": 1.0,
        "uld_skip_student_eos": False,
        "uld_skip_teacher_eos": False,
        "use_extended_uld": True,
        "uld_token_merge_strategy": "bayesian",
        "uld_use_hybrid_loss": True,
        "beta": 0.0,
    }
    return ULDLoss(types.SimpleNamespace(**names), wrapped[STUDENT], wrapped[TEACHER])


def byte_offsets(tokenizer, text):
    """[begin, end) in UTF-8 of each token; a token that begins texts has none."""
    bytes_before = [len(text[:place].encode()) for place in range(len(text) + 1)]
    encoded = tokenizer.encode(text, add_special_tokens=False)
    return [(bytes_before[begin], bytes_before[end]) for begin, end in encoded.offsets]


class Sums:
    positions = groups = alone = 0
    mass = end_mass = divergence = rest = 0.0


def compare(texts, tokenizers, wrapped, models):
    """Sums over the aligned positions by GOLD's functions."""
    loss = gold(wrapped)
    matched = torch.tensor(sorted(loss._teacher_matched_ids))
    ends = {style: tokenizers[style].token_to_id(STYLES[style]["end"]) for style in SIZES}
    indices = {TEACHER: matched, STUDENT: loss.mapping_tensor[matched]}
    sums = Sums()
    for text in texts:
        ids = {style: tokenizers[style].encode(text).ids for style in SIZES}
        before = {style: len(tokenizers[style].encode("").ids) for style in SIZES}
        groups = dict(
            zip(
                (STUDENT, TEACHER),
                loss._align_by_byte_offsets(*(byte_offsets(tokenizers[style], text) for style in (STUDENT, TEACHER))),
                strict=True,
            )
        )
        pairs = list(zip(groups[STUDENT], groups[TEACHER], strict=True))
        firsts = [(s[0] + before[STUDENT] - 1, t[0] + before[TEACHER] - 1) for s, t in pairs]
        kept = [(pair, place) for pair, place in zip(pairs, firsts, strict=True) if min(place) >= 0]
        sums.groups += len(kept)
        sums.alone += sum(len(s) == len(t) == 1 for (s, t), _ in kept)
        sums.positions += len(ids[STUDENT]) - 1
        rows = {}
        for side, style in enumerate((STUDENT, TEACHER)):
            with torch.no_grad():
                logits = models[style](torch.tensor([ids[style][:-1]])).logits[0].double()
            rows[style] = logits.softmax(1)[[place[side] for _, place in kept]]
        p, q = rows[TEACHER][:, indices[TEACHER]], rows[STUDENT][:, indices[STUDENT]]
        sums.divergence += loss._compute_jsd_loss_for_matched_tokens(q, p).item() * len(kept)
        end_p, end_q = rows[TEACHER][:, ends[TEACHER]], rows[STUDENT][:, ends[STUDENT]]
        sums.divergence += (end_p * (end_p.clamp_min(1e-8) / end_q.clamp_min(1e-8)).log()).sum().item()
        rest_p, rest_q = ((1 - of.sum(1) - end).clamp_min(0) for of, end in ((p, end_p), (q, end_q)))
        sums.rest += (rest_p * (rest_p.clamp_min(1e-8) / rest_q.clamp_min(1e-8)).log()).sum().item()
        sums.mass += p.sum().item()
        sums.end_mass += end_p.sum().item()
    return sums, len(matched)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=120)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "release" / "bin")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="distilld-gold-") as scratch:
        folder = pathlib.Path(scratch)
        texts = [f"{line} {1990 + number % 80}." for number, line in enumerate(jobs.text_lines(arguments.texts))]
        data = jobs.write_jsonl(folder / "data.jsonl", ({"text": text} for text in texts))
        halves = {TEACHER: texts, STUDENT: texts[: len(texts) // 4]}
        tokenizers = {style: write_tokenizer(folder / style, style, halves[style], SIZES[style]) for style in SIZES}
        for style, spec in specs(folder, data, tokenizers):
            run(arguments.bin, spec, folder, style)
        figures = folder / "figures.jsonl"
        report = run(arguments.bin, distilled(folder, data, tokenizers, figures), folder, "distilled")
        lines = [json.loads(line) for line in figures.read_text().splitlines()]
        evaluation = [line for line in lines if line["kind"] == "evaluation"][-1]
        alignment = report["last"]["fetch"]["alignment"]
        wrapped = {style: PreTrainedTokenizerFast(tokenizer_object=tokenizers[style]) for style in SIZES}
        models = {
            style: AutoModelForCausalLM.from_pretrained(folder / f"{style}-model", dtype=torch.float64).eval()
            for style in SIZES
        }
        sums, common = compare(texts, tokenizers, wrapped, models)
    count = sums.groups
    rows = [
        ("aligned positions", alignment["aligned"], count),
        ("of", alignment["positions"], sums.positions),
        ("probability on tokens of both", alignment["mapped_mass"], (sums.mass + sums.end_mass) / count),
        ("divergence", evaluation["kl"], (sums.divergence + sums.rest) / count),
    ]
    differ = False
    for name, ours, theirs in rows:
        same = abs(ours - theirs) <= TOLERANCE * abs(theirs)
        differ = differ or not same
        print(f"{name:32} distilld {ours:12.6g}   GOLD {theirs:12.6g}   {'equal' if same else 'DIFFERENT'}")
    print(f"tokens of both for GOLD, without the ends of text: {common}")
    print(f"groups of one token on both sides: {sums.alone} of {count} ({100 * sums.alone / count:.1f}%)")
    print(f"of GOLD's divergence, the bucket with the rest: {sums.rest / count:.6g}")
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
