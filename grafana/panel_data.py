"""What a dashboard's panels show, asked of a Prometheus the way that Grafana asks: variables filled in, a step and a
rate interval that suit the range, legends made of labels.
"""

import dataclasses
import json
import math
import re
import urllib.error
import urllib.parse
import urllib.request

POINTS = 240  # of a line at most
TIMEOUT_SECONDS = 30


class Failed(Exception):
    """Prometheus cannot be asked, or says no."""


class Prometheus:
    def __init__(self, url):
        self._url = url.rstrip("/")

    def ask(self, path, **parameters):
        page = f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(parameters, doseq=True)}"
        try:
            with urllib.request.urlopen(page, timeout=TIMEOUT_SECONDS) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise Failed(f"{page}: {error.read().decode(errors='replace')}") from None
        except (OSError, ValueError) as error:
            raise Failed(f"{page}: {error}") from None


@dataclasses.dataclass(frozen=True)
class Range:
    """What is shown, in seconds since the epoch."""

    start: float
    end: float
    scrape_seconds: float

    @property
    def step(self):
        return max(self.scrape_seconds, math.ceil((self.end - self.start) / POINTS))

    @property
    def rate_seconds(self):
        """Grafana's $__rate_interval: four scrapes at least, so that a rate has two samples even when one is lost."""
        return max(self.step + self.scrape_seconds, 4 * self.scrape_seconds)


@dataclasses.dataclass
class Series:
    name: str  # its legend
    labels: dict
    times: list
    values: list


def with_variables(text, values):
    """The text with $name and ${name} replaced; what is not a variable stays."""
    return re.sub(r"\$\{?(\w+)\}?", lambda match: str(values.get(match.group(1), match.group(0))), text)


def _label_values(prometheus, query, values, shown):
    """Of `label_values(metric{…}, label)`."""
    metric, label = re.fullmatch(r"label_values\((.*),\s*(\w+)\)", query).groups()
    return prometheus.ask(
        f"label/{label}/values",
        **{"match[]": with_variables(metric, values), "start": shown.start, "end": shown.end},
    )


def variables_of(dashboard, prometheus, shown, chosen):
    """{name: value} of the dashboard's variables: as chosen, else all, else the last that Prometheus knows."""
    values = {
        "__range": f"{math.ceil(shown.end - shown.start)}s",
        "__rate_interval": f"{math.ceil(shown.rate_seconds)}s",
    }
    for variable in dashboard["templating"]["list"]:
        name = variable["name"]
        if name in chosen:
            values[name] = chosen[name]
        elif "allValue" in variable:
            values[name] = variable["allValue"]
        elif variable["type"] == "query":
            known = _label_values(prometheus, variable["definition"], values, shown)
            if not known:
                raise Failed(f"no value for ${name}: {variable['definition']} gives none")
            values[name] = known[-1]
    return values


def legend_of(form, labels):
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda match: labels.get(match.group(1), ""), form)


def series_of(target, prometheus, shown, values):
    """The series of one query, ordered by name. Samples that are not numbers are left out."""
    query = with_variables(target["expr"], values)
    if target.get("instant"):
        found = prometheus.ask("query", query=query, time=shown.end)["result"]
        samples = [(each["metric"], [each["value"]]) for each in found]
    else:
        found = prometheus.ask("query_range", query=query, start=shown.start, end=shown.end, step=shown.step)["result"]
        samples = [(each["metric"], each["values"]) for each in found]
    made = []
    for labels, points in samples:
        numbers = [(time, float(value)) for time, value in points if math.isfinite(float(value))]
        if numbers:
            times, heights = zip(*numbers, strict=True)
            made.append(Series(legend_of(target["legendFormat"], labels), labels, list(times), list(heights)))
    return sorted(made, key=lambda series: series.name)


def buckets_of(series):
    """(upper bounds, times, counts[bound][time]) of a histogram's cumulative series, as counts of each bucket."""
    by_bound = {float(each.labels["le"]): dict(zip(each.times, each.values, strict=True)) for each in series}
    bounds = sorted(by_bound)
    times = sorted({time for points in by_bound.values() for time in points})
    counts, below = [], [0.0] * len(times)
    for bound in bounds:
        upto = [by_bound[bound].get(time, 0.0) for time in times]
        counts.append([max(0.0, high - low) for high, low in zip(upto, below, strict=True)])
        below = upto
    return bounds, times, counts
