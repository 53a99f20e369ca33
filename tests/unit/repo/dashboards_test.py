"""The dashboards in grafana/dashboards are what their rows make, and keep the rules that Grafana's own linter has."""

import json
import re
import subprocess
import sys
import unittest

import tree

GRAFANA = tree.ROOT / "grafana"
VARIABLES = {"__rate_interval", "__range"}

# Counters, and the series of histograms; where nothing takes their rate, they are sums since the program started.
COUNTER = re.compile(r"\b(?:distilld|process)_\w+_(?:total|bucket|count|sum)\b")
RATES = re.compile(r"\b(?:rate|irate|increase)\([^\[]*\[[^\]]*\]\)")


def panels_of(dashboard):
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def head_rule(dashboard):
    """What Grafana needs to take it from a file and to show it at one address for ever."""
    if not re.fullmatch(r"distilld-[a-z]+", dashboard.get("uid", "")):
        yield "has no uid of its own"
    if dashboard.get("editable") is not False:
        yield "can be edited, and a provisioned one must not"
    if not 36 <= dashboard.get("schemaVersion", 0) < 42:
        yield "has another schema than the classic one"


def variables_rule(dashboard):
    variables = dashboard["templating"]["list"]
    chosen = [variable for variable in variables if variable["type"] == "datasource"]
    if [variable["name"] for variable in chosen] != ["datasource"] or not chosen[0]["current"].get("value"):
        yield "has no variable for the data source with a default"
    if not any(variable["name"] == "instance" for variable in variables):
        yield "has no variable for the services"
    for variable in variables:
        if variable["type"] == "query":
            if variable["refresh"] != 2:
                yield f"${variable['name']}: is not asked for again when another time is shown"
            if variable["datasource"] != {"type": "prometheus", "uid": "${datasource}"}:
                yield f"${variable['name']}: asks another data source than the chosen one"


def ids_rule(dashboard):
    ids = [panel["id"] for panel in dashboard["panels"]]
    if len(ids) != len(set(ids)):
        yield "has two panels with one id"


def words_rule(dashboard):
    for panel in panels_of(dashboard):
        title = panel["title"]
        if not title or not panel.get("description", "").endswith("."):
            yield f"{title}: has no description"
        if not panel["fieldConfig"]["defaults"].get("unit"):
            yield f"{title}: has no unit"
        if not panel["targets"]:
            yield f"{title}: asks for nothing"
        for target in panel["targets"]:
            if not target["legendFormat"]:
                yield f"{title}: {target['expr']}: has no legend"


def sources_rule(dashboard):
    for panel in panels_of(dashboard):
        for asked in (panel, *panel["targets"]):
            if asked["datasource"] != {"type": "prometheus", "uid": "${datasource}"}:
                yield f"{panel['title']}: asks another data source than the chosen one"


def queries_rule(dashboard):
    known = VARIABLES | {variable["name"] for variable in dashboard["templating"]["list"]}
    for panel in panels_of(dashboard):
        for target in panel["targets"]:
            query, title = target["expr"], panel["title"]
            for name in re.findall(r"\$(\w+)", query):
                if name not in known:
                    yield f"{title}: ${name} is no variable"
            if re.search(r"\b(?:rate|increase|deriv)\([^\[]*\[(?!\$__)", query):
                yield f"{title}: a rate over another range than $__rate_interval"
            for name in COUNTER.findall(RATES.sub("", query)):
                yield f"{title}: {name} only ever grows: a rate or an increase of it is wanted"
            if re.search(r"\b(?:distilld|process)_\w+(?!\w|\{)", query):
                yield f"{title}: {query}: a metric of all services, whichever are chosen"


def places_rule(dashboard):
    taken = {}
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        if place["x"] + place["w"] > 24:
            yield f"{panel['title']}: beyond the 24 columns"
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                if taken.setdefault((x, y), panel["title"]) != panel["title"]:
                    yield f"{panel['title']}: lies on {taken[x, y]}"
                    return


RULES = [head_rule, variables_rule, ids_rule, words_rule, sources_rule, queries_rule, places_rule]


def read(name):
    return json.loads((GRAFANA / "dashboards" / name).read_text(encoding="utf-8"))


class RulesCanFail(unittest.TestCase):
    def refuse(self, rule, change):
        dashboard = read("job.json")
        self.assertEqual(list(rule(dashboard)), [])
        change(dashboard)
        self.assertEqual(len(list(rule(dashboard))), 1)

    def test_heads(self):
        for change in ({"uid": ""}, {"editable": True}, {"schemaVersion": 2}):
            self.refuse(head_rule, lambda dashboard, change=change: dashboard.update(change))

    def test_variables(self):
        def variable(dashboard, name):
            return next(each for each in dashboard["templating"]["list"] if each["name"] == name)

        self.refuse(variables_rule, lambda dashboard: variable(dashboard, "datasource").update(current={}))
        self.refuse(variables_rule, lambda dashboard: variable(dashboard, "instance").update(name="server"))
        self.refuse(variables_rule, lambda dashboard: variable(dashboard, "job_id").update(refresh=1))
        self.refuse(variables_rule, lambda dashboard: variable(dashboard, "job_id").update(datasource="prometheus"))

    def test_ids(self):
        self.refuse(ids_rule, lambda dashboard: dashboard["panels"][1].update(id=1))

    def test_words(self):
        self.refuse(words_rule, lambda dashboard: panels_of(dashboard)[0].update(description=""))
        self.refuse(words_rule, lambda dashboard: panels_of(dashboard)[0]["fieldConfig"]["defaults"].pop("unit"))
        self.refuse(words_rule, lambda dashboard: panels_of(dashboard)[0]["targets"][0].update(legendFormat=""))
        self.refuse(words_rule, lambda dashboard: panels_of(dashboard)[0].update(targets=[]))

    def test_sources(self):
        self.refuse(sources_rule, lambda dashboard: panels_of(dashboard)[0].update(datasource="${DS_PROMETHEUS}"))

    def test_queries(self):
        for query in ('distilld_x{a=~"$nobody"}', "rate(distilld_x{}[5m])", "sum(distilld_x)", "distilld_x_total{}"):
            self.refuse(
                queries_rule, lambda dashboard, query=query: panels_of(dashboard)[0]["targets"][0].update(expr=query)
            )

    def test_places(self):
        self.refuse(places_rule, lambda dashboard: dashboard["panels"][2].update(gridPos=dict(x=0, y=1, w=4, h=4)))
        self.refuse(places_rule, lambda dashboard: dashboard["panels"][-1]["gridPos"].update(x=20))


class Repository(unittest.TestCase):
    def test_dashboards_keep_the_rules(self):
        for name in ("fleet.json", "job.json"):
            found = [message for rule in RULES for message in rule(read(name))]
            self.assertEqual(found, [], name)

    def test_dashboards_are_what_their_rows_make(self):
        made = subprocess.run(
            [sys.executable, "-B", GRAFANA / "make_dashboards.py", "--check"], capture_output=True, text=True
        )
        self.assertEqual(made.returncode, 0, made.stderr)


if __name__ == "__main__":
    unittest.main()
