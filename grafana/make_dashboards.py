#!/usr/bin/env python3
"""Writes dashboards/fleet.json and dashboards/job.json from the rows of fleet_panels.py and job_panels.py. The same
rows give the same bytes.

python3 grafana/make_dashboards.py           writes them
python3 grafana/make_dashboards.py --check   exit code 1 where what is there differs
"""

import json
import pathlib
import sys

import fleet_panels
import job_panels

FOLDER = pathlib.Path(__file__).resolve().parent / "dashboards"
COLUMNS = 24
HEIGHTS = {"stat": 4, "timeseries": 8, "bargauge": 8, "heatmap": 8}
# The datasource is a variable with a default: ${DS_...} is filled in by the import dialogue alone, not by provisioning.
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
SELECTORS = {
    "INSTANCE": 'instance=~"$instance"',
    "TEACHER": 'instance=~"$teacher"',
    "JOB": 'instance=~"$instance", job_id=~"$job_id"',
}


def promql(query):
    """The query as Grafana takes it."""
    for name, selector in SELECTORS.items():
        query = query.replace("{" + name, "{" + selector)
    return query.replace("[RATE]", "[$__rate_interval]")


def targets(panel):
    made = []
    for index, (query, legend) in enumerate(panel.queries):
        target = {
            "datasource": DATASOURCE,
            "editorMode": "code",
            "expr": promql(query),
            "legendFormat": legend,
            "refId": chr(ord("A") + index),
        }
        if panel.kind in ("stat", "bargauge"):
            target |= {"instant": True, "range": False}
        if panel.kind == "heatmap":
            target |= {"format": "heatmap"}
        made.append(target)
    return made


def defaults(panel):
    steps = [{"color": "green", "value": None}]
    if panel.warn_above is not None:
        steps.append({"color": "yellow", "value": panel.warn_above})
    made = {"unit": panel.unit, "thresholds": {"mode": "absolute", "steps": steps}, "mappings": []}
    if panel.unit == "percentunit":
        made |= {"min": 0}
    if panel.kind == "bargauge" and panel.unit == "percentunit":
        made |= {"max": 1}
    if panel.words:
        options = {str(value): {"text": text, "color": color} for value, text, color in panel.words}
        made["mappings"] = [{"type": "value", "options": options}]
    if panel.kind == "timeseries":
        made["custom"] = {"drawStyle": "line", "lineWidth": 1, "fillOpacity": 5, "showPoints": "auto"}
        if panel.warn_above is not None:
            made["custom"]["thresholdsStyle"] = {"mode": "dashed"}
    return made


OPTIONS = {
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {
        "colorMode": "value",
        "graphMode": "none",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "textMode": "auto",
    },
    "bargauge": {
        "displayMode": "basic",
        "orientation": "horizontal",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    },
    "heatmap": {
        "calculate": False,
        "cellGap": 1,
        "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64},
        "yAxis": {"unit": "s"},
    },
}


def options(panel):
    return OPTIONS[panel.kind] | ({"textMode": "value_and_name"} if panel.named else {})


def panel_json(panel, number, x, y):
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": DATASOURCE,
        "gridPos": {"h": HEIGHTS[panel.kind], "w": panel.width, "x": x, "y": y},
        "fieldConfig": {"defaults": defaults(panel), "overrides": []},
        "options": options(panel),
        "targets": targets(panel),
    }


def laid_out(sections):
    """The panels of (heading, rows), left to right and top to bottom under a heading each."""
    made = []
    y = 0
    for heading, rows in sections:
        made.append(
            {
                "id": len(made) + 1,
                "type": "row",
                "title": heading,
                "collapsed": False,
                "gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": y},
                "panels": [],
            }
        )
        y += 1
        x = height = 0
        for panel in rows:
            if x + panel.width > COLUMNS or (x and height != HEIGHTS[panel.kind]):
                x, y = 0, y + height
            height = HEIGHTS[panel.kind]
            made.append(panel_json(panel, len(made) + 1, x, y))
            x += panel.width
        y += height
    return made


def chooser(name, label, metric, value_of, several):
    """A variable with the values that a label has."""
    query = f"label_values({metric}, {value_of})"
    made = {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": several,
        "includeAll": several,
    }
    if several:
        made |= {"allValue": ".+", "current": {"selected": True, "text": ["All"], "value": ["$__all"]}}
    return made


PROMETHEUS = {
    "name": "datasource",
    "label": "Data source",
    "type": "datasource",
    "query": "prometheus",
    "current": {"selected": False, "text": "Prometheus", "value": "distilld-prometheus"},
    "refresh": 1,
}


def dashboard(uid, title, description, sections, variables):
    return {
        "uid": uid,
        "title": title,
        "description": description,
        "tags": ["distilld"],
        "schemaVersion": 39,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [PROMETHEUS, *variables]},
        "links": [
            {
                "title": "distilld",
                "type": "dashboards",
                "tags": ["distilld"],
                "asDropdown": False,
                "includeVars": True,
                "keepTime": True,
            }
        ],
        "panels": laid_out(sections),
    }


def dashboards():
    """{file name: dashboard}."""
    services = chooser("instance", "Service", "distilld_build_info", "instance", several=True)
    return {
        "fleet.json": dashboard(
            "distilld-fleet",
            "distilld: fleet",
            "All services, their jobs and the teachers.",
            fleet_panels.FLEET,
            [
                services,
                chooser("teacher", "Teacher", "distilld_teacher_server_model_info", "instance", several=True),
            ],
        ),
        "job.json": dashboard(
            "distilld-job",
            "distilld: job",
            "One job that runs, or ended less than a minute ago.",
            job_panels.JOB,
            [
                services,
                chooser("job_id", "Job", 'distilld_job_step{instance=~"$instance"}', "job_id", several=False),
            ],
        ),
    }


def text_of(made):
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


def main(arguments):
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    differs = False
    for name, made in dashboards().items():
        path, text = FOLDER / name, text_of(made)
        if not arguments:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            print(f"{path} is not what the rows make; run: python3 grafana/make_dashboards.py", file=sys.stderr)
            differs = True
    return 1 if differs else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
