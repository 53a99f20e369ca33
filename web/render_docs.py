#!/usr/bin/env python3
"""Makes docs/images/page-job.png and docs/images/page-phone.png: a service, a teacher that answers late and a job that
waits for it, looked at in Chromium.

.deps/venv/bin/python web/render_docs.py [--out docs/images] [--bin build/release/bin]
"""

import argparse
import pathlib
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

from playwright.sync_api import sync_playwright  # noqa: E402
from support import browser, jobs  # noqa: E402
from support.processes import Programs, wait_until  # noqa: E402
from support.rest import Rest  # noqa: E402

DELAY_MS = 60
SECONDS = 25


def arguments_of():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs" / "images")
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "release" / "bin")
    return parser.parse_args()


def start(programs, folder):
    """A service with one job that has ended, one that runs and one that waits; the URL and the job that runs."""
    data = jobs.write_text_data(folder / "train.jsonl", 400)
    model = jobs.changed(
        jobs.base_spec(data, folder / "teacher", steps=40),
        {"/student/config": jobs.llama_config(48), "/training/learning_rate": 5e-3},
    )
    programs.run("run", jobs.write_spec(folder / "teacher.json", model))
    teacher = programs.teacher(folder / "teacher", "--delay-ms", str(DELAY_MS))
    service = programs.service(folder / "service")
    rest = Rest(service.url)
    made = {}
    for name, steps in (("warm-up", 60), ("student-48k", 20000), ("student-lora", 500)):
        spec = jobs.distil_spec(data, folder / name, teacher.url, steps)
        shape = {"/name": name, "/dataset/eval": str(data), "/eval/max_rows": 8}
        often = {"/training/eval_steps": 60, "/checkpoint/every_steps": 100, "/training/learning_rate": 1e-3}
        made[name] = rest.submit(jobs.changed(spec, {**shape, **often}))
    wait_until(lambda: len(rest.job(made["student-48k"])["checkpoints"]) >= 1, "a checkpoint", seconds=180)
    return service.url, made["student-48k"]


def main():
    arguments = arguments_of()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        programs = Programs(arguments.bin, folder)
        try:
            url, job = start(programs, folder)
            with sync_playwright() as playwright:
                chrome = browser.launch(playwright)
                views = (
                    ("page-job", f"#/jobs/{job}", {"width": 1120, "height": 1000}, "light"),
                    ("page-phone", f"#/jobs/{job}", {"width": 390, "height": 900}, "dark"),
                )
                for picture, address, size, scheme in views:
                    tab = browser.Tab(chrome, url, size, scheme)
                    tab.go(address)
                    time.sleep(SECONDS)  # for the stages to say what they do now
                    tab.shot(picture, arguments.out, full=False)
                    tab.close()
                chrome.close()
        finally:
            programs.stop_all()


if __name__ == "__main__":
    main()
