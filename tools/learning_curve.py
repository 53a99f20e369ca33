#!/usr/bin/env python3
"""Draws the learning curve of a run from its metrics.jsonl_file, and prints it as a table in Markdown.

    python3 tools/learning_curve.py out/metrics.jsonl --svg curve.svg

The picture has the training loss of each reported step and the held-out loss of each evaluation, over the tokens or
samples read. With --beside and the file of another run, it has the held-out losses of both. The table has a row for
each evaluation and, below it, what the student made of eval.sample_prompts. Needs nothing but Python.
"""

import argparse
import html
import json
import math
import os
import sys

WIDTH, HEIGHT = 720, 360
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 30, 44
MAX_POINTS = 300  # of the training loss; more steps are averaged in runs
TICKS = 6
GREY, BLUE, ORANGE = "#8a8f98", "#9db8d9", "#c2571a"  # legible on light and dark pages
STYLE = (
    f"text {{ font: 12px sans-serif; fill: {GREY} }} "
    f".grid {{ stroke: {GREY}; stroke-opacity: 0.25 }} "
    f".train {{ fill: none; stroke: {BLUE}; stroke-width: 1.2 }} "
    f".held {{ fill: none; stroke: {ORANGE}; stroke-width: 2 }} .dot {{ fill: {ORANGE} }} "
    f".beside {{ fill: none; stroke: {GREY}; stroke-width: 2; stroke-dasharray: 6 3 }}"
)


class BadFileError(Exception):
    """What is wrong with the file, in one sentence."""


def read_records(path):
    """The lines of a run, the steps and the evaluations: those that say a loss."""
    steps, evaluations = [], []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                record = json.loads(line)
                kind = record["kind"]
            except (ValueError, KeyError, TypeError):
                raise BadFileError(f"{path}:{number}: is not a line of metrics.jsonl_file") from None
            if kind == "step" and record["loss"] is not None:
                steps.append(record)
            elif kind == "evaluation" and record["loss"] is not None:
                evaluations.append(record)
    if len(steps) < 2:
        raise BadFileError(f"{path}: has {len(steps)} steps; a curve needs two (training.logging_steps)")
    return steps, evaluations


def at_step(steps, evaluation):
    """What had been trained when it was evaluated: the last reported step up to it."""
    return max(
        (step for step in steps if step["step"] <= evaluation["step"]), key=lambda step: step["step"], default=None
    )


def averaged(points, count):
    """At most this many points: means of runs of equal length."""
    size = math.ceil(len(points) / count)
    runs = [points[first : first + size] for first in range(0, len(points), size)]
    return [tuple(sum(values) / len(run) for values in zip(*run, strict=True)) for run in runs]


def round_step(span):
    """1, 2 or 5 times a power of ten, so that TICKS of it are about the span."""
    raw = span / TICKS
    power = 10 ** math.floor(math.log10(raw))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw)


def ticks(low, high):
    step = round_step(high - low)
    return [step * number for number in range(math.ceil(low / step), math.floor(high / step + 1e-9) + 1)]


def short(value):
    """1500000 as 1.5M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


class Axes:
    """Where a point (tokens, loss) lies in the picture."""

    def __init__(self, points):
        self.right = max(x for x, _ in points)
        losses = [y for _, y in points]
        margin = 0.05 * (max(losses) - min(losses)) or 0.5
        self.low, self.high = min(losses) - margin, max(losses) + margin

    def place(self, point):
        x = LEFT + (WIDTH - LEFT - RIGHT) * point[0] / self.right
        y = TOP + (HEIGHT - TOP - BOTTOM) * (self.high - point[1]) / (self.high - self.low)
        return x, y

    def grid(self):
        for value in ticks(0, self.right):
            x, _ = self.place((value, self.low))
            yield f'<line class="grid" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}"/>'
            yield f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{short(value)}</text>'
        for value in ticks(self.low, self.high):
            _, y = self.place((0, value))
            yield f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>'
            yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'


def polyline(name, places):
    return f'<polyline class="{name}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in places)}"/>'


def legend(entries):
    x = LEFT
    for name, words in entries:
        yield f'<line class="{name}" x1="{x}" y1="14" x2="{x + 22}" y2="14"/>'
        yield f'<text x="{x + 28}" y="18">{words}</text>'
        x += 40 + 7 * len(words)


def held_out(steps, evaluations):
    """(tokens, loss) of each evaluation."""
    placed = [(at_step(steps, evaluation), evaluation["loss"]) for evaluation in evaluations]
    return [(step["tokens"], loss) for step, loss in placed if step]


def units(evaluations):
    """What is counted, and what the loss is in."""
    of_samples = any(evaluation.get("of_samples") for evaluation in evaluations)
    return ("samples", "loss") if of_samples else ("tokens", "nats per token")


def picture(steps, evaluations, beside):
    """beside: what read_records() gave for another run, whose held-out loss replaces the training loss; or None."""
    points = held_out(*beside) if beside else [(step["tokens"], step["loss"]) for step in steps]
    first = averaged(points, MAX_POINTS)
    held = held_out(steps, evaluations)
    axes = Axes(first + held)
    dots = [axes.place(point) for point in held]
    counted, measured = units(evaluations)
    name, words = ("beside", "held-out loss of the other run") if beside else ("train", "training loss")
    parts = [
        polyline(name, [axes.place(point) for point in first]),
        polyline("held", dots),
        *(f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in dots),
        *legend([(name, words), ("held", "held-out loss")] if held else [(name, words)]),
    ]
    return framed(axes, parts, f"{counted} trained on", measured)


def framed(axes, parts, across, up, style=STYLE):
    """The picture of these parts, with a grid and the names of both axes."""
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">',
        f"<style>{style}</style>",
        *axes.grid(),
        *parts,
        f'<text x="{(LEFT + WIDTH) / 2:.0f}" y="{HEIGHT - 8}" text-anchor="middle">{across}</text>',
        f'<text x="14" y="{HEIGHT / 2:.0f}" text-anchor="middle" transform="rotate(-90 14 {HEIGHT / 2:.0f})">'
        f"{up}</text>",
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def table(steps, evaluations):
    counted, _ = units(evaluations)
    yield f"| step | {counted} | training loss | held-out loss | {counted}/s |"
    yield "| --- | --- | --- | --- | --- |"
    for evaluation in evaluations:
        step = at_step(steps, evaluation)
        trained = ("–", "–", "–")
        if step:
            trained = (f"{step['tokens']:,}", f"{step['loss']:.2f}", f"{step['tokens_per_second']:,.0f}")
        tokens, loss, speed = trained
        yield f"| {evaluation['step']:,} | {tokens} | {loss} | {evaluation['loss']:.3f} | {speed} |"


def said(evaluations):
    prompts = {sample["prompt"]: None for evaluation in evaluations for sample in evaluation.get("samples", [])}
    for prompt in prompts:
        yield ""
        yield f"| step | {cell(prompt)} … |"
        yield "| --- | --- |"
        for evaluation in evaluations:
            for sample in evaluation.get("samples", []):
                if sample["prompt"] == prompt:
                    yield f"| {evaluation['step']:,} | {cell(sample['text'])} |"


def cell(text):
    """On one line, with what would mean something to Markdown made harmless."""
    text = html.escape(" ".join(text.split()), quote=False)
    return "".join("\\" + letter if letter in "\\`*_[]|~#" else letter for letter in text)


def write_picture(path, text):
    with open(path + ".tmp", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".tmp", path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="METRICS.jsonl")
    parser.add_argument("--svg", metavar="FILE", help="write the picture there")
    parser.add_argument("--beside", metavar="METRICS.jsonl", help="another run, to compare held-out losses with")
    arguments = parser.parse_args()
    try:
        steps, evaluations = read_records(arguments.file)
        beside = read_records(arguments.beside) if arguments.beside else None
        if beside and not (beside[1] and evaluations):
            raise BadFileError("--beside compares held-out losses, and a run has none (training.eval_steps)")
        if arguments.svg:
            write_picture(arguments.svg, picture(steps, evaluations, beside))
    except OSError as error:
        sys.exit(f"learning_curve: {error.filename}: {error.strerror}")
    except (BadFileError, UnicodeDecodeError) as error:
        sys.exit(f"learning_curve: {error}")
    print("\n".join([*table(steps, evaluations), *said(evaluations)]))


if __name__ == "__main__":
    main()
