"""What the tests of the sinks share."""

import json

from support import jobs

STEPS = 6


def run_report(distilld, spec, folder, *flags, **options):
    file = jobs.write_spec(folder / "spec.json", spec)
    process = distilld.run("run", file, "--report", folder / "report.json", *flags, **options)
    return json.loads((folder / "report.json").read_text()), process


def plain(spec):
    """The same run without sinks."""
    return jobs.changed(spec, {"/metrics": None})


def lines_of(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def steps_of(lines):
    return [line["step"] for line in lines if line["kind"] == "step"]


def small_spec(text_data, output):
    """Plain training of six steps with an evaluation after the third and the last."""
    made = jobs.base_spec(text_data, output, STEPS)
    made["dataset"].update(eval=str(text_data), eval_rows=4)
    made["training"]["eval_steps"] = 3
    return made
