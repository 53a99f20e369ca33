#!/usr/bin/env python3
"""Makes docs/images/fleet.png and docs/images/job.png: a service, two teachers that answer late, two jobs and a real
Prometheus for some minutes; both teachers are away for a while, and one for longer, so that there is something to see.
Then render_panels.py draws what Prometheus knows.

.deps/venv/bin/python grafana/render_docs.py [--minutes 4] [--out docs/images] [--bin build/release/bin]
"""

import argparse
import pathlib
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

import render_panels  # noqa: E402
from support import jobs  # noqa: E402
from support.processes import Programs  # noqa: E402
from support.prometheus import SCRAPE_SECONDS, Prometheus  # noqa: E402
from support.rest import Rest, free_port  # noqa: E402

DELAYS = (120, 250)  # of the two teachers, in milliseconds


def arguments_of():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=4)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs" / "images")
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "release" / "bin")
    return parser.parse_args()


def make_teacher(programs, folder):
    data = jobs.write_text_data(folder / "train.jsonl", 4000)
    model = {"/student/config": jobs.llama_config(128), "/dataset/sequence_length": 96, "/training/learning_rate": 3e-3}
    spec = jobs.changed(jobs.base_spec(data, folder / "teacher", steps=200), model)
    programs.run("run", jobs.write_spec(folder / "teacher.json", spec))
    return data


def start_teacher(programs, folder, number, port):
    return programs.start(
        "teacher", folder / "teacher", "--listen", f"127.0.0.1:{port}", "--threads", "1", "--delay-ms", DELAYS[number]
    )


def job(folder, name, data, endpoints, steps, hidden):
    shape = {
        "/student/config": jobs.llama_config(hidden),
        "/dataset/sequence_length": 96,
        "/dataset/eval": str(data),
        "/dataset/eval_rows": 16,
        "/training/batch_size": 4,
        "/training/eval_steps": 100,
        "/checkpoint": {"every_steps": 50, "keep": 1},
        "/training/learning_rate": 5e-4,
        "/teacher/max_concurrent": 12,
    }
    return jobs.changed(jobs.distil_spec(data, folder / name, endpoints, steps), {"/name": name, **shape})


def record(programs, folder, minutes):
    """Runs all of it. The Prometheus, still running, and the id of the job that is shown."""
    data = make_teacher(programs, folder)
    ports = [free_port() for _ in DELAYS]
    teachers = [start_teacher(programs, folder, number, port) for number, port in enumerate(ports)]
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    service = programs.service(folder / "service", "--slots", "2")
    (folder / "prometheus").mkdir()
    prometheus = Prometheus(folder / "prometheus", [service.url], urls)
    rest = Rest(service.url)
    begin = time.time()

    def until(share):
        time.sleep(max(0, begin + share * 60 * minutes - time.time()))

    until(0.04)
    shown = rest.submit(job(folder, "student", data, urls, steps=1_000_000, hidden=64))
    until(0.25)
    rest.submit(job(folder, "second", data, urls[:1], steps=60, hidden=32))
    until(0.5)
    for teacher in teachers:
        teacher.destroy()
    until(0.56)
    start_teacher(programs, folder, 0, ports[0])
    until(0.7)
    start_teacher(programs, folder, 1, ports[1])
    until(1)
    return prometheus, shown


def main():
    arguments = arguments_of()
    arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        programs = Programs(arguments.bin, folder)
        prometheus = None
        try:
            prometheus, job_id = record(programs, folder, arguments.minutes)
            common = ["--prometheus", prometheus.url, "--minutes", str(arguments.minutes)]
            common += ["--scrape-seconds", str(SCRAPE_SECONDS)]
            for dashboard, chosen in (("fleet", []), ("job", ["--set", f"job_id={job_id}"])):
                file = ROOT / "grafana" / "dashboards" / f"{dashboard}.json"
                code = render_panels.main(
                    [str(file), *common, *chosen, "--out", str(arguments.out / f"{dashboard}.png")]
                )
                if code != 0:
                    return code
        finally:
            if prometheus is not None:
                prometheus.stop()
            programs.stop_all()
    return 0


if __name__ == "__main__":
    sys.exit(main())
