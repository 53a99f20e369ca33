#!/usr/bin/env python3
"""Trains a diffusion denoiser as the teacher, and exports it with a smaller student and their data.

    python3 denoiser.py FOLDER [--rows 8000] [--steps 600]
    python3 denoiser.py FOLDER --test out/denoiser/model.pt

A sample is a noisy picture, its noise level and the noise. Both networks predict the noise and return a hidden tensor
of the same shape. Writes FOLDER/teacher.pt, FOLDER/student.pt, FOLDER/train.safetensors and FOLDER/eval.safetensors,
and prints the teacher's held-out error. With --test, prints that of a student.
"""

import argparse
import math
import pathlib

import torch
from safetensors.torch import load_file, save_file
from shapes import shapes
from torch import nn
from torch.nn import functional

HIDDEN = 24  # channels of the hidden tensor: the teacher's width


class Block(nn.Module):
    def __init__(self, width: int, dilation: int):
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=dilation, dilation=dilation)
        self.level = nn.Linear(width, width)
        self.second = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x, level):
        h = functional.silu(self.first(x) + self.level(level)[:, :, None, None])
        return x + self.second(h)


class Denoiser(nn.Module):
    def __init__(self, width: int, dilations: list[int]):
        super().__init__()
        self.register_buffer("frequencies", math.pi * torch.arange(1, 9) / 2)
        self.level = nn.Linear(16, width)
        self.first = nn.Conv2d(1, width, 3, padding=1)
        self.blocks = nn.ModuleList(Block(width, dilation) for dilation in dilations)
        self.hidden = nn.Identity() if width == HIDDEN else nn.Conv2d(width, HIDDEN, 1)
        self.last = nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, noisy, level):
        angles = level[:, None] * self.frequencies
        level = functional.silu(self.level(torch.cat([angles.sin(), angles.cos()], 1)))
        x = self.first(noisy)
        for block in self.blocks:
            x = block(x, level)
        return self.last(functional.silu(x)), self.hidden(x)


def samples(count, source):
    pictures, _ = shapes(count, source)
    level = torch.rand(count, generator=source)
    noise = torch.randn(pictures.shape, generator=source)
    angle = (level * math.pi / 2)[:, None, None, None]
    return {"noisy": angle.cos() * pictures + angle.sin() * noise, "level": level, "noise": noise}


def trained(teacher, steps, source):
    optimizer = torch.optim.AdamW(teacher.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps + 1)
    for _ in range(steps):
        batch = samples(32, source)
        noise, _ = teacher(batch["noisy"], batch["level"])
        optimizer.zero_grad()
        functional.mse_loss(noise, batch["noise"]).backward()
        optimizer.step()
        schedule.step()
    return teacher


def error(denoiser, batch):
    """Mean square of the difference between predicted and true noise."""
    with torch.no_grad():
        noise, _ = denoiser(batch["noisy"], batch["level"])
    return functional.mse_loss(noise, batch["noise"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--rows", type=int, default=8000, help="samples for the student")
    parser.add_argument("--steps", type=int, default=600, help="steps of the teacher's training")
    parser.add_argument("--test", metavar="FILE", help="a student")
    arguments = parser.parse_args()
    if arguments.test:
        held_out = load_file(arguments.folder / "eval.safetensors")
        return print(f"student: error {error(torch.jit.load(arguments.test), held_out):.4f}")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    source = torch.Generator().manual_seed(2)
    teacher = trained(Denoiser(HIDDEN, [1, 2, 4, 1]), arguments.steps, source)
    for name, rows in (("train", arguments.rows), ("eval", 500)):
        batch = samples(rows, source)
        save_file(batch, arguments.folder / f"{name}.safetensors")
    print(f"teacher: error {error(teacher, batch):.4f}")
    torch.jit.script(teacher).save(str(arguments.folder / "teacher.pt"))
    torch.jit.script(Denoiser(12, [1, 2])).save(str(arguments.folder / "student.pt"))


if __name__ == "__main__":
    main()
