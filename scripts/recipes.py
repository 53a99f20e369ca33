#!/usr/bin/env python3
"""Runs a recipe of docs/recipes.md with the programs of this checkout: makes the text and the models, distils a student
with each of some settings, and prints a table.

    .deps/venv/bin/python scripts/recipes.py NAME…

A row of the table is a run of `distilld run`; its name is what was given to --set. All students are judged in the same
way: held-out loss, and KL divergence and agreement with the teacher over all its tokens. "the data alone" is the same
run without a teacher. Text, tokenizer and teachers are kept in the work folder for the next recipe. Needs the Python
packages tokenizers and, for lora-chat and context, transformers.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import recipes_data

ROOT = pathlib.Path(__file__).resolve().parents[1]
DEFAULTS, ALONE = "defaults", "the data alone"
FULL = {"megabytes": 2, "kilobytes": 48, "vocabulary": 1024, "teacher": 256, "student": 128, "teacher_steps": 1200}
QUICK = {"megabytes": 0.1, "kilobytes": 4, "vocabulary": 300, "teacher": 64, "student": 32, "teacher_steps": 60}
QUICK_STEPS = 20
NOTHING = {"requests": 0, "bytes": 0, "seconds": 0}
TEACHER_SECONDS = 60

TEXT = {"train": "data/train.jsonl", "eval": "data/eval.jsonl", "sequence_length": 128}
PART = {**TEXT, "train": "data/part.jsonl"}
CHAT = {"train": "chats/chat.jsonl", "eval": "chats/chat-eval.jsonl", "sequence_length": 128, "packing": False}
STYLE = {"train": "chats/style.jsonl", "eval": "chats/style-eval.jsonl", "sequence_length": 128, "packing": False}
SERVED = {"endpoints": ["TEACHER"], "max_concurrent": 2}
LORA = {"model": "plain", "lora": {"r": 16, "alpha": 32, "merge": True}}

# teacher: the model to learn from. student: None is a new one. job: the fields of its spec; "TEACHER" is the address
# of the served model. stored: the teacher is asked once, before. grid: further runs, as values of --set.
RECIPES = {
    "logits": {
        "teacher": "teacher",
        "student": None,
        "job": {"dataset": TEXT, "teacher": {**SERVED, "targets": "logits"}},
        "training": {"max_steps": 400, "batch_size": 4, "learning_rate": 3e-3},
        "grid": [
            ["training.learning_rate=1e-3"],
            ["training.learning_rate=6e-3"],
            ["training.temperature=2"],
            ["training.kd_ratio=0.5"],
        ],
    },
    "hidden-states": {
        "teacher": "teacher",
        "student": None,
        "job": {"dataset": TEXT, "teacher": {**SERVED, "targets": "hidden"}},
        "training": {"max_steps": 400, "batch_size": 4, "learning_rate": 3e-3},
        "grid": [["training.beta=0.5"], ["training.beta=1"], ["training.batch_size=2"], ["training.batch_size=8"]],
    },
    "stored-top-k": {
        "teacher": "teacher",
        "student": None,
        "stored": True,
        "job": {"dataset": PART, "teacher": {"top_k": 64}},
        "training": {"max_steps": 400, "batch_size": 4, "learning_rate": 3e-3},
        "grid": [
            ["teacher.top_k=4"],
            ["teacher.top_k=16"],
            ["training.learning_rate=6e-3"],
            ["training.max_steps=800"],
        ],
    },
    "lora-chat": {
        "teacher": "chat",
        "student": LORA,
        "job": {"dataset": CHAT, "teacher": {**SERVED, "top_k": 64}},
        "training": {"max_steps": 600, "batch_size": 8, "learning_rate": 5e-3},
        "grid": [
            ["student.lora.r=4", "student.lora.alpha=8"],
            ["student.lora.r=64", "student.lora.alpha=128"],
            ["training.learning_rate=1e-2"],
            ["training.kd_ratio=0.5"],
        ],
    },
    "context": {
        "teacher": "chat",
        "student": {"model": "chat"},
        "job": {"dataset": STYLE, "teacher": {"model_dir": "chat", "threads": 1}},
        "training": {"max_steps": 40, "batch_size": 4, "learning_rate": 3e-4},
        "grid": [
            ["training.learning_rate=1e-4"],
            ["training.learning_rate=1e-3"],
            ["training.beta=1"],
            ["training.max_steps=120"],
        ],
    },
}


class Workshop:
    """The work folder, in which all programs run, with what recipes share."""

    def __init__(self, folder, programs, size):
        self.folder, self.programs, self.size = folder, programs, size
        self.stores = set()  # made by this run
        folder.mkdir(parents=True, exist_ok=True)

    def call(self, program, *arguments):
        """Runs it to its end, with its output in a log."""
        log = self.folder / "log"
        with open(log, "ab") as out:
            done = subprocess.run([program, *map(str, arguments)], cwd=self.folder, stdout=out, stderr=out, check=False)
        if done.returncode != 0:
            tail = log.read_text(errors="replace").splitlines()[-5:]
            sys.exit("\n".join([f"recipes: {pathlib.Path(program).name}: failed; its log is {log}:", *tail]))

    def python(self, script, *arguments):
        self.call(sys.executable, ROOT / script, *arguments)

    def run(self, name, spec, *sets, command="run"):
        """The last progress of a job, which has the folder runs/NAME."""
        place = self.folder / "runs" / name
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        spec = {**spec, "output": f"runs/{name}/student"}
        if command == "run":
            spec["metrics"] = {"jsonl_file": f"runs/{name}/metrics.jsonl"}
        (place / "spec.json").write_text(json.dumps(spec, indent=2))
        flags = [flag for change in sets for flag in ("--set", change)]
        self.call(self.programs / "distilld", command, place / "spec.json", "--report", place / "report.json", *flags)
        return json.loads((place / "report.json").read_text())["last"]

    def evaluations(self, name):
        with open(self.folder / "runs" / name / "metrics.jsonl", encoding="utf-8") as file:
            return [record for record in map(json.loads, file) if record["kind"] == "evaluation"]

    @contextlib.contextmanager
    def served(self, model, *flags):
        """The address of a teacher on one core."""
        command = [self.programs / "distilld", "teacher", model, "--listen", "127.0.0.1:0", "--threads", "1", *flags]
        with open(self.folder / f"{model}.log", "w+") as log:
            process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)
            try:
                deadline = time.monotonic() + TEACHER_SECONDS
                while not (found := re.search(r"ready on (http://\S+)", pathlib.Path(log.name).read_text())):
                    if process.poll() is not None or time.monotonic() > deadline:
                        sys.exit(f"recipes: the teacher {model} is not ready; its log is {log.name}")
                    time.sleep(0.05)
                yield found.group(1)
            finally:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(TEACHER_SECONDS)
                process.kill()
                process.wait()

    def config(self, hidden):
        return {
            "architectures": ["Qwen3ForCausalLM"],
            "model_type": "qwen3",
            "vocab_size": self.size["vocabulary"],
            "hidden_size": hidden,
            "intermediate_size": 11 * hidden // 4,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": hidden // 4,
            "max_position_embeddings": 256,
            "initializer_range": 0.06,
            "tie_word_embeddings": True,
        }

    def new(self, hidden):
        return {"init": "random", "config": self.config(hidden), "tokenizer": "tokenizer"}

    # What a recipe needs is made once; a folder that is there is whole.

    def needs(self, name, make):
        if not (self.folder / name).exists():
            print(f"recipes: making {name}", file=sys.stderr)
            make()

    def make_text(self):
        self.python(
            "scripts/quickstart_data.py",
            *("data.part", "--megabytes", self.size["megabytes"], "--eval-kilobytes", self.size["kilobytes"]),
        )
        lines = (self.folder / "data.part" / "train.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
        (self.folder / "data.part" / "part.jsonl").write_text("".join(lines[: len(lines) // 4]), encoding="utf-8")
        for name, parts in (("chat", recipes_data.conversations()), ("style", recipes_data.with_style())):
            for ending, rows in zip(("", "-eval"), parts, strict=True):
                with open(self.folder / "data.part" / f"{name}{ending}.jsonl", "w", encoding="utf-8") as file:
                    file.writelines(json.dumps(row) + "\n" for row in rows)
        os.rename(self.folder / "data.part", self.folder / "data")

    def make_tokenizer(self):
        size = ["--vocabulary", self.size["vocabulary"]]
        self.python("tools/train_tokenizer.py", "tokenizer.part", *size, TEXT["train"])
        os.rename(self.folder / "tokenizer.part", self.folder / "tokenizer")

    def make_model(self, name, spec):
        self.run(name, spec)
        os.rename(self.folder / "runs" / name / "student", self.folder / name)

    def make_plain(self, name, hidden, steps):
        job = {"student": self.new(hidden), "dataset": TEXT, "training": training(steps, 2, 3e-3)}
        self.make_model(name, job)

    def make_chats(self):
        template = ["--chat-template", ROOT / "examples/chat.jinja", "--save-tokenizer", "chat-tokenizer"]
        (self.folder / "chats.part").mkdir(exist_ok=True)
        for name in ("chat", "chat-eval", "style", "style-eval"):
            files = (f"data/{name}.jsonl", f"chats.part/{name}.jsonl")
            self.python("tools/render_chat.py", "--tokenizer", "tokenizer", *template, *files)
        os.rename(self.folder / "chats.part", self.folder / "chats")

    def make_chat(self):
        student = {"model": "teacher", "tokenizer": "chat-tokenizer"}
        steps = self.size["teacher_steps"] // 2
        self.make_model("chat", {"student": student, "dataset": CHAT, "training": training(steps, 16, 2e-3)})

    def prepare(self, recipe):
        """The text and the models that it needs."""
        size = self.size
        self.needs("data", self.make_text)
        self.needs("tokenizer", self.make_tokenizer)
        self.needs("teacher", lambda: self.make_plain("teacher", size["teacher"], size["teacher_steps"]))
        if recipe["teacher"] == "chat":
            self.needs("chats", self.make_chats)
            self.needs("chat", self.make_chat)
        if recipe["student"] == LORA:
            self.needs("plain", lambda: self.make_plain("plain", size["student"], size["teacher_steps"] // 2))


def training(max_steps, batch_size, learning_rate):
    return {
        "batch_size": batch_size,
        "max_steps": max_steps,
        "learning_rate": learning_rate,
        "lr_scheduler_type": "cosine",
        "warmup_ratio": 0.05,
        "threads": 1,
        "logging_steps": 5,
        "eval_steps": max(1, max_steps // 10),
    }


def judged(workshop, recipe, student):
    """Held-out figures of a student: a run of one step that changes nothing, with all that its teacher has to say."""
    job = {
        "student": student,
        "dataset": recipe["job"]["dataset"],
        "teacher": {"model_dir": recipe["teacher"], "targets": "hidden"},
        "training": {"max_steps": 1, "learning_rate": 1e-12},
    }
    workshop.run("judge", job)
    return {
        name: workshop.evaluations("judge")[-1][name] for name in ("loss", "kl", "top1_agreement", "acceptance_rate")
    }


def stored(workshop, job, model, top_k):
    """(teacher section, what its answers cost): the answers to all of the data, asked for once."""
    folder = f"stores/{top_k}"
    section = {"store": folder, "top_k": top_k}
    if folder in workshop.stores:
        return section, NOTHING
    shutil.rmtree(workshop.folder / folder, ignore_errors=True)
    with workshop.served(model) as url:
        teacher = {**SERVED, **section, "endpoints": [url]}
        made = workshop.run(f"generate-{top_k}", {**job, "teacher": teacher}, command="generate")
    workshop.stores.add(folder)
    return section, cost_of(made)


def cost_of(last, asks=True):
    """asks: whether what it fetched came from a teacher."""
    fetch = last["fetch"]
    requests = fetch["requests"] if asks else 0
    return {"requests": requests, "bytes": fetch["bytes_received"], "seconds": last["seconds_elapsed"]}


def distilled(workshop, name, recipe, sets, quick):
    """A row of the table."""
    student = recipe["student"] or workshop.new(workshop.size["student"])
    steps = {"max_steps": QUICK_STEPS} if quick else {}
    job = {
        "student": student,
        **recipe["job"],
        "training": training(**{**recipe["training"], **steps}),
        "eval": {"ask_teacher": False},
    }
    label = " ".join(sets) or DEFAULTS
    run = f"{name}/{re.sub(r'[^a-z0-9.]+', '-', label)}"
    before = NOTHING
    with contextlib.ExitStack() as stack:
        if sets == [ALONE]:
            sets = ["teacher=null", "eval=null"]
        elif recipe.get("stored"):
            entries = [int(change.split("=")[1]) for change in sets if change.startswith("teacher.top_k=")]
            top_k = (entries or [job["teacher"]["top_k"]])[0]
            job["teacher"], before = stored(workshop, job, recipe["teacher"], top_k)
        elif "endpoints" in job["teacher"]:
            url = stack.enter_context(workshop.served(recipe["teacher"]))
            job["teacher"] = {**job["teacher"], "endpoints": [url]}
        last = workshop.run(run, job, *sets)
    cost = {name: before[name] + value for name, value in cost_of(last, "store" not in job["teacher"]).items()}
    model = {"model": f"runs/{run}/student" + ("/merged" if "lora" in student else "")}
    return {"settings": label, **judged(workshop, recipe, model), **cost, "tokens": last["tokens"], "run": run}


def figures(workshop, name, quick):
    recipe = RECIPES[name]
    workshop.prepare(recipe)
    started = time.monotonic()
    student = recipe["student"] or workshop.new(workshop.size["student"])
    rows = [{"settings": "before", **judged(workshop, recipe, student)}]
    if student != {"model": recipe["teacher"]}:
        rows.append({"settings": "the teacher", **judged(workshop, recipe, {"model": recipe["teacher"]})})
    grid = [[], *([] if quick else recipe["grid"]), [ALONE]]
    rows += [distilled(workshop, name, recipe, sets, quick) for sets in grid]
    return {"recipe": name, "rows": rows, "seconds": round(time.monotonic() - started, 1)}


def table(rows):
    yield "| settings | held-out loss | KL | agreement | acceptance | requests | MB | seconds |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for row in rows:
        cost = ["–"] * 3
        if "run" in row:
            cost = [f"{row['requests']:,}", f"{row['bytes'] / 1e6:.1f}", f"{row['seconds']:.0f}"]
        nats = [f"{round(row[name], 3) + 0:.3f}" for name in ("loss", "kl")]  # + 0: no "-0.000"
        shares = [f"{100 * row[name]:.1f} %" for name in ("top1_agreement", "acceptance_rate")]
        yield f"| {' | '.join([row['settings'], *nats, *shares, *cost])} |"


def draw(workshop, result, folder):
    """The curves of the default run beside those of the data alone."""
    runs = {
        row["settings"]: workshop.folder / "runs" / row["run"] / "metrics.jsonl"
        for row in result["rows"]
        if "run" in row
    }
    picture = folder / f"recipe-{result['recipe']}.svg"
    workshop.python("tools/learning_curve.py", runs[DEFAULTS], "--beside", runs[ALONE], "--svg", picture)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="+", choices=RECIPES, metavar="NAME", help=", ".join(RECIPES))
    parser.add_argument("--report", type=pathlib.Path, metavar="FILE", help="write the figures as JSON")
    parser.add_argument("--svg", type=pathlib.Path, metavar="FOLDER", help="write a picture of each recipe's curves")
    parser.add_argument("--quick", action="store_true", help="small models, few steps and no grid: whether it works")
    parser.add_argument("--work", type=pathlib.Path, metavar="FOLDER", help="for all results, of one size")
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin", help="folder of the programs")
    options = parser.parse_args()
    work = options.work or ROOT / ".quickstart" / ("recipes-quick" if options.quick else "recipes")
    workshop = Workshop(work.resolve(), options.bin.resolve(), QUICK if options.quick else FULL)
    results = []
    for name in options.recipes:
        results.append(figures(workshop, name, options.quick))
        print(f"\n{name}, {results[-1]['seconds']:.0f} s:\n\n" + "\n".join(table(results[-1]["rows"])), flush=True)
        if options.svg:
            draw(workshop, results[-1], options.svg.resolve())
    if options.report:
        options.report.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
