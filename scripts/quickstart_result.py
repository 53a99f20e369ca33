#!/usr/bin/env python3
"""Prints the quickstart's table, from the finished jobs in WORK/*.result.json, and says whether the losses are in the
order in which they are meant to be.

    quickstart_result.py WORK SERVICE_URL [--report FILE]
"""

import argparse
import json
import os
import pathlib


def speed(job):
    return job["progress"]["tokens"] / job["progress"]["seconds_elapsed"]


def figures_of(jobs):
    distilled = jobs["distilled"]
    figures = {
        "teacher_loss": jobs["teacher"]["eval_loss"],
        "student_alone_loss": jobs["alone"]["eval_loss"],
        "distilled_loss": distilled["eval_loss"],
        "tokens_per_second_sequential": speed(jobs["sequential"]),
        "tokens_per_second_parallel": speed(distilled),
        "teacher_hidden_fraction": distilled["progress"]["teacher_hidden_fraction"],
        "student_folder": distilled["output"],
    }
    losses = figures["teacher_loss"], figures["distilled_loss"], figures["student_alone_loss"]
    figures["as_expected"] = losses[0] < losses[1] < losses[2]
    return figures


def show(figures, service, job_id):
    rows = [
        ("held-out loss, teacher", f"{figures['teacher_loss']:.4f} nats per token"),
        ("held-out loss, student distilled", f"{figures['distilled_loss']:.4f}"),
        ("held-out loss, student trained alone", f"{figures['student_alone_loss']:.4f}"),
        ("teacher < distilled < alone", "yes, as expected" if figures["as_expected"] else "no: see below"),
        ("tokens/s, parallel: false", f"{figures['tokens_per_second_sequential']:.0f}"),
        ("tokens/s, parallel: true", f"{figures['tokens_per_second_parallel']:.0f}"),
        ("teacher time hidden", f"{100 * figures['teacher_hidden_fraction']:.1f} %"),
        ("student", figures["student_folder"]),
        ("job", f"{service}/v1/jobs/{job_id}"),
        ("metrics", f"{service}/metrics"),
    ]
    for name, value in rows:
        print(f"   {name:38} {value}")
    if not figures["as_expected"]:
        print(
            "\n   The losses are not in the order in which they are meant to be. From little text, or of many kinds,"
            "\n   so short a training learns too little: a few MB of one kind (--text) help, and so does the full"
            "\n   size where this was --quick."
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("service")
    parser.add_argument("--report")
    arguments = parser.parse_args()
    names = ("teacher", "distilled", "sequential", "alone")
    jobs = {name: json.loads((arguments.work / f"{name}.result.json").read_text(encoding="utf-8")) for name in names}
    figures = figures_of(jobs)
    show(figures, arguments.service, jobs["distilled"]["id"])
    if arguments.report:
        with open(arguments.report + ".tmp", "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=2)
            file.write("\n")
        os.replace(arguments.report + ".tmp", arguments.report)


if __name__ == "__main__":
    main()
