#!/usr/bin/env python3
"""Exports a cellular automaton of logic gates that learns to draw a checkerboard, and its data.

    python3 automaton.py FOLDER [--size 16] [--width 256] [--rollout 20] [--rows 1000]
    python3 automaton.py --test out/automaton/model.pt [--size 16] [--rollout 20]

As in "Differentiable Logic Cellular Automata" (Miotti et al., 2025), a cell has 8 bits, 16 perception kernels per bit,
and an update network. Each gate has two fixed inputs and learns which of the 16 logic functions it computes. In
training mode, a gate is the mean of the functions by their probabilities; in evaluation mode, the most probable one.
Writes FOLDER/automaton.pt, FOLDER/train.safetensors and FOLDER/eval.safetensors. With --test, prints how many cells a
trained automaton draws wrong.
"""

import argparse
import itertools
import pathlib

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional

CHANNELS, KERNELS = 8, 16
PASS_ON = 0b1100  # the function that is its first input
CENTRE = 4  # of the 9 cells of a neighbourhood


def polynomials():
    """Row f: function f of bits a, b as c₀ + c₁·a + c₂·b + c₃·a·b. Bit 2·a + b of f is its value."""
    values = torch.tensor([[float(f >> bits & 1) for bits in range(4)] for f in range(16)])
    at_00, at_01, at_10, at_11 = values.unbind(1)
    return torch.stack([at_00, at_10 - at_00, at_01 - at_00, at_11 - at_10 - at_01 + at_00], 1)


def wires(inputs, gates):
    """The two inputs of each gate: neighbours first, then pairs that are further and further apart."""
    pairs = [(i, i + 1) for first in (0, 1) for i in range(first, inputs - 1, 2)]
    pairs += [(i, i + apart) for apart in range(2, inputs) for i in range(inputs - apart)]
    return torch.tensor(pairs[:gates])[torch.randperm(gates)].T


class Layer(nn.Module):
    """Gates over [inputs, kernels or 1, cells]; the kernels have their own gates on the same wires."""

    def __init__(self, pairs, kernels: int):
        super().__init__()
        self.register_buffer("first", pairs[0].contiguous())
        self.register_buffer("second", pairs[1].contiguous())
        self.register_buffer("polynomials", polynomials())
        logits = torch.zeros(pairs.size(1), kernels, 16)
        logits[..., PASS_ON] = 10.0
        self.logits = nn.Parameter(logits)

    def coefficients(self):
        """Of 1, a, b and a·b, each [gates, kernels, 1]; the same in all steps of a rollout."""
        if self.training:
            functions = torch.softmax(self.logits, -1)
        else:
            functions = functional.one_hot(self.logits.argmax(-1), 16).to(self.logits.dtype)
        return (functions @ self.polynomials).unsqueeze(-1).unbind(-2)

    def forward(self, x, c: list[torch.Tensor]):
        a = x.index_select(0, self.first)
        b = x.index_select(0, self.second)
        return (b * c[3] + c[1]) * a + (b * c[2] + c[0])


class Automaton(nn.Module):
    def __init__(self, width: int, steps: int):
        super().__init__()
        torch.manual_seed(23)
        self.steps = steps
        around = torch.tensor([i for i in range(9) if i != CENTRE])[torch.randperm(8)]
        self.perception = nn.ModuleList([Layer(torch.stack([around, torch.full_like(around, CENTRE)]), KERNELS)])
        self.perception.extend(Layer(wires(2 * gates, gates), KERNELS) for gates in (4, 2))
        sizes = [CHANNELS + 2 * KERNELS * CHANNELS] + [width] * 10
        while sizes[-1] > CHANNELS:
            sizes.append(sizes[-1] // 2)
        sizes.append(CHANNELS)
        self.update = nn.ModuleList(Layer(wires(inputs, gates), 1) for inputs, gates in itertools.pairwise(sizes))

    def forward(self, start):
        """start: bits [samples, 8, height, width]; the result: the first channel after the steps of a rollout."""
        rows, channels, height, width = start.shape
        cells = rows * height * width
        seen = [layer.coefficients() for layer in self.perception]
        made = [layer.coefficients() for layer in self.update]
        x = start.to(seen[0][0].dtype).transpose(0, 1)
        for _ in range(self.steps):
            wide = functional.pad(x, (1, 1, 1, 1))
            shifted = [wide[:, :, i // 3 : i // 3 + height, i % 3 : i % 3 + width] for i in range(9)]
            found = torch.stack(shifted).reshape(9, 1, -1)
            for i, layer in enumerate(self.perception):
                found = layer(found, seen[i])
            state = torch.cat([x.reshape(channels, 1, cells), found.reshape(-1, 1, cells)])
            for i, layer in enumerate(self.update):
                state = layer(state, made[i])
            x = state.reshape(channels, rows, height, width)
        return x[0]


def samples(rows, size, seed):
    """Random bits to start from, and the checkerboard of squares of 2 x 2 cells."""
    source = torch.Generator().manual_seed(seed)
    start = torch.randint(0, 2, (rows, CHANNELS, size, size), generator=source, dtype=torch.uint8)
    square = torch.arange(size) // 2
    board = ((square[:, None] + square) % 2).to(torch.uint8)
    return {"start": start, "board": board.expand(rows, size, size).contiguous()}


def test(automaton, arguments):
    automaton.eval().steps = arguments.rollout
    batch = samples(2, arguments.size, 3)
    with torch.no_grad():
        wrong = automaton(batch["start"]) != batch["board"]
    print(f"{wrong.sum()} of {wrong.numel()} cells are wrong after {arguments.rollout} steps")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, nargs="?")
    parser.add_argument("--test", metavar="FILE", help="a trained automaton")
    parser.add_argument("--size", type=int, default=16, help="cells per side of the grid")
    parser.add_argument("--width", type=int, default=256, help="gates per layer of the update network")
    parser.add_argument("--rollout", type=int, default=20, help="steps of the automaton per sample")
    parser.add_argument("--rows", type=int, default=1000, help="samples to train on")
    arguments = parser.parse_args()
    if arguments.test:
        return test(torch.jit.load(arguments.test), arguments)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    torch.jit.script(Automaton(arguments.width, arguments.rollout)).save(str(arguments.folder / "automaton.pt"))
    save_file(samples(arguments.rows, arguments.size, 1), arguments.folder / "train.safetensors")
    save_file(samples(8, arguments.size, 2), arguments.folder / "eval.safetensors")


if __name__ == "__main__":
    main()
