#!/usr/bin/env python3
"""Draws a dashboard without Grafana: asks a Prometheus for every panel's queries and renders all panels, in the
dashboard's grid, to one PNG. Needs matplotlib.

python3 grafana/render_panels.py grafana/dashboards/job.json --prometheus http://127.0.0.1:9090 --out job.png

Prints the panels that have no data, which is no failure. Exit code 1: Prometheus could not be asked.
"""

import argparse
import json
import pathlib
import sys
import time

from panel_data import Failed, Prometheus, Range, series_of, variables_of
from panel_drawing import DRAWINGS, draw, save


def arguments_of(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dashboard", type=pathlib.Path, help="its JSON file")
    parser.add_argument("--prometheus", required=True, metavar="URL")
    parser.add_argument("--out", required=True, type=pathlib.Path, metavar="FILE.png")
    parser.add_argument("--minutes", type=float, default=60, help="how far back from --end (default 60)")
    parser.add_argument("--end", type=float, default=None, help="seconds since the epoch (default: now)")
    parser.add_argument("--scrape-seconds", type=float, default=15, help="of the Prometheus (default 15)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="of a variable; else all, or the last known"
    )
    return parser.parse_args(words)


def main(words=None):
    arguments = arguments_of(words)
    dashboard = json.loads(arguments.dashboard.read_text(encoding="utf-8"))
    end = time.time() if arguments.end is None else arguments.end
    shown = Range(end - 60 * arguments.minutes, end, arguments.scrape_seconds)
    prometheus = Prometheus(arguments.prometheus)
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    unknown = {panel["type"] for panel in panels} - set(DRAWINGS)
    if unknown:
        print(f"render_panels: cannot draw panels of type {', '.join(sorted(unknown))}", file=sys.stderr)
        return 1
    try:
        values = variables_of(dashboard, prometheus, shown, dict(each.split("=", 1) for each in arguments.set))
        series = {
            panel["id"]: [one for target in panel["targets"] for one in series_of(target, prometheus, shown, values)]
            for panel in panels
        }
    except Failed as error:
        print(f"render_panels: {error}", file=sys.stderr)
        return 1
    save(draw(dashboard, series, shown), arguments.out)
    without = [panel["title"] for panel in panels if not series[panel["id"]]]
    print(f"{arguments.out}: {len(panels)} panels; without data: {', '.join(without) or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
