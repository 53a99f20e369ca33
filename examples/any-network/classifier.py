#!/usr/bin/env python3
"""Trains a classifier of pictures as the teacher, and exports it with a smaller student and their data.

    python3 classifier.py FOLDER [--rows 600] [--steps 600]
    python3 classifier.py FOLDER --test out/classifier/model.pt

The teacher sees new pictures in each step, the student only those of FOLDER/train.safetensors. Writes
FOLDER/teacher.pt, FOLDER/student.pt, FOLDER/train.safetensors and FOLDER/eval.safetensors, and prints the teacher's
held-out loss and accuracy. With --test, prints those of a student.
"""

import argparse
import pathlib

import torch
from safetensors.torch import load_file, save_file
from shapes import KINDS, PIXELS, shapes
from torch import nn
from torch.nn import functional


class Classifier(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(2 * width, 4 * width, 3, padding=1), nn.ReLU(), nn.Flatten(),
            nn.Linear(4 * width * (PIXELS // 4) ** 2, KINDS),
        )  # fmt: skip

    def forward(self, picture):
        return self.layers(picture)


def noisy_shapes(count, source):
    pictures, kinds = shapes(count, source)
    return pictures + torch.randn(pictures.shape, generator=source), kinds


def trained(teacher, steps, source):
    optimizer = torch.optim.AdamW(teacher.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps + 1)
    for _ in range(steps):
        pictures, kinds = noisy_shapes(64, source)
        optimizer.zero_grad()
        functional.cross_entropy(teacher(pictures), kinds).backward()
        optimizer.step()
        schedule.step()
    return teacher


def report(name, classifier, pictures, kinds):
    with torch.no_grad():
        scores = classifier(pictures)
    right = (scores.argmax(1) == kinds).float().mean()
    print(f"{name}: loss {functional.cross_entropy(scores, kinds):.3f}, {right:.1%} right")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--rows", type=int, default=600, help="pictures for the student")
    parser.add_argument("--steps", type=int, default=600, help="steps of the teacher's training")
    parser.add_argument("--test", metavar="FILE", help="a student")
    arguments = parser.parse_args()
    if arguments.test:
        held_out = load_file(arguments.folder / "eval.safetensors")
        return report("student", torch.jit.load(arguments.test), held_out["picture"], held_out["kind"])
    arguments.folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    source = torch.Generator().manual_seed(2)
    teacher = trained(Classifier(24), arguments.steps, source)
    for name, rows in (("train", arguments.rows), ("eval", 1000)):
        pictures, kinds = noisy_shapes(rows, source)
        save_file({"picture": pictures, "kind": kinds}, arguments.folder / f"{name}.safetensors")
    report("teacher", teacher, pictures, kinds)
    torch.jit.script(teacher).save(str(arguments.folder / "teacher.pt"))
    torch.jit.script(Classifier(6)).save(str(arguments.folder / "student.pt"))


if __name__ == "__main__":
    main()
