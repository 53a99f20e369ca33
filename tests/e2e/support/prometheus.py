"""A real Prometheus, and what Grafana would ask it: the queries of grafana/dashboards with its variables filled in."""

import json
import math
import pathlib
import re
import shutil
import urllib.parse

import pytest

from support.processes import Process, wait_until
from support.rest import Rest, free_port

ROOT = pathlib.Path(__file__).resolve().parents[3]
GRAFANA = ROOT / "grafana"
SCRAPE_SECONDS = 2


def program(name):
    """Path of prometheus or promtool: where the shell finds it, or where scripts/setup.sh unpacks it. Skips without."""
    found = shutil.which(name) or shutil.which(name, path=ROOT / ".deps" / "prometheus" / "usr" / "bin")
    if found is None:
        pytest.skip(f"{name} is not installed; scripts/setup.sh fetches it")
    return found


def panel_queries(file):
    """[(title of the panel, query)] of a dashboard."""
    panels = json.loads((GRAFANA / "dashboards" / file).read_text())["panels"]
    return [(panel["title"], target["expr"]) for panel in panels for target in panel.get("targets", [])]


def filled_in(query, job_id=".+"):
    """The query as Grafana sends it: its variables have values."""
    values = {"__rate_interval": "20s", "__range": "1m", "instance": ".+", "teacher": ".+", "job_id": job_id}
    return re.sub(r"\$(\w+)", lambda match: values[match.group(1)], query)


def metrics_of(query):
    """Names of the exported metrics that a query names; those of recording rules have colons, and are left out."""
    return set(re.findall(r"(?<![\w:])(?:distilld|process)_\w+(?![\w:])", query))


def exported(text):
    """Names that the exposition has: families, and the series of its histograms."""
    names = set()
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE):
        names.add(name)
        if kind == "histogram":
            names.update(name + suffix for suffix in ("_bucket", "_sum", "_count"))
    return names


class Prometheus:
    """A running Prometheus with our rules that reads /metrics of services and teachers every SCRAPE_SECONDS."""

    def __init__(self, folder, services, teachers):
        targets = {"distilld": services, "distilld-teacher": teachers}
        config = {
            "global": {"scrape_interval": f"{SCRAPE_SECONDS}s", "scrape_timeout": f"{SCRAPE_SECONDS}s"},
            "rule_files": [str(GRAFANA / "rules" / "distilld.yaml")],
            "scrape_configs": [
                {
                    "job_name": name,
                    "static_configs": [{"targets": [urllib.parse.urlsplit(url).netloc for url in urls]}],
                }
                for name, urls in targets.items()
            ],
        }
        (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        port = free_port()
        self._process = Process(
            [
                program("prometheus"),
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            folder / "prometheus",
        )
        self.url = f"http://127.0.0.1:{port}"
        self._rest = Rest(self.url, ours=False)
        try:
            wait_until(self._ready, "Prometheus to be ready")
        except AssertionError:
            self.stop()
            raise

    def _ready(self):
        assert self._process.code is None, self._process.describe()
        try:
            return self._rest.get("/-/ready").status == 200
        except ConnectionError:
            return False

    def ask(self, path, **parameters):
        answer = self._rest.get(f"/api/v1/{path}?{urllib.parse.urlencode(parameters)}")
        assert answer.status == 200, answer.text
        return answer.json["data"]

    def has_data(self, query):
        """Whether the query has a result now that is a number."""
        return any(math.isfinite(float(series["value"][1])) for series in self.ask("query", query=query)["result"])

    def stop(self):
        self._process.destroy()
