"""Dashboards and rules of grafana/: what they name is exported, and a real Prometheus has data for each panel."""

import json
import re
import subprocess
import sys

import pytest
import yaml
from chaos_proxy import ChaosProxy, Script
from support import jobs
from support.processes import wait_until
from support.prometheus import (
    GRAFANA,
    ROOT,
    SCRAPE_SECONDS,
    Prometheus,
    exported,
    filled_in,
    metrics_of,
    panel_queries,
    program,
)
from support.rest import closed_port, metric_samples

SERVICE_FLAGS = ["--allow-eval-command"]
DASHBOARDS = ("fleet.json", "job.json")
RULES = GRAFANA / "rules" / "distilld.yaml"


def dashboard_text(file):
    return (GRAFANA / "dashboards" / file).read_text()


def rules():
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def alerts():
    return [rule for rule in rules() if "alert" in rule]


def on_policy_spec(base, teacher, writer, folder):
    prompts = jobs.write_jsonl(folder / "prompts.jsonl", [{"prompt": "the "}, {"prompt": "a "}])
    return {
        "student": {"model": str(base), "lora": {}, "dtype": "fp32"},
        "teacher": {"endpoints": [teacher], "protocol": "kserve", "top_k": 8},
        "rollout": {"endpoints": [writer], "prompts": str(prompts), "max_prompt_tokens": 8, "max_tokens": 8},
        "training": {"max_steps": 1_000_000, "threads": 1, "beta": 1.0},
        "output": str(folder / "writing"),
    }


@pytest.fixture(scope="module")
def live(module_service, teacher, teacher_folder, text_data, tmp_path_factory):
    """A service, and what matches the ids of two jobs that train with a teacher that fails at times and is slow, so
    that they leave the cores to others; the student of the second one writes its answers. Another job waits for its
    own."""
    rest = module_service.rest
    folder = tmp_path_factory.mktemp("live")
    with ChaosProxy(teacher.url, Script(delay=0.2, unavailable=0.1)) as proxy:
        spec = jobs.distil_spec(text_data, folder / "student", proxy.url, steps=1_000_000)
        spec["checkpoint"] = {"every_secs": 2}
        spec["metrics"] = {"jsonl_file": str(folder / "metrics.jsonl")}
        spec["eval"] = {"command": ["echo", '{"accuracy": 0.5}'], "every_steps": 5}
        spec["training"] |= {"eval_steps": 10, "ranks": 2, "gradient_groups": 2}
        # The teacher is asked all the same.
        spec["teacher"] |= {"store": str(folder / "answers"), "cache": "write"}
        spec["teachers"] = {"default": spec.pop("teacher")}  # several have panels of their own
        spec["dataset"]["eval"] = str(jobs.write_text_data(folder / "eval.jsonl", 8, seed=2))
        job_id = rest.submit(spec)
        writing = rest.submit(on_policy_spec(teacher_folder, proxy.url, teacher.url, folder))
        waiting = rest.submit(
            jobs.distil_spec(text_data, folder / "waiting", f"http://127.0.0.1:{closed_port()}", steps=1)
        )

        def all_is_there():
            samples = metric_samples(rest.get("/metrics").text)
            return (
                samples.get(f'distilld_job_step{{job_id="{job_id}"}}', 0) >= 1
                and any(name.startswith("distilld_teacher_failures_total") for name in samples)
                and samples.get('distilld_jobs_waiting{reason="teacher_unavailable"}') == 1
                and f'distilld_job_eval_loss{{job_id="{job_id}"}}' in samples
                and f'distilld_job_figure{{figure="accuracy",job_id="{job_id}"}}' in samples
                and f'distilld_job_checkpoint_step{{job_id="{job_id}"}}' in samples
                and f'distilld_job_rollout_tokens_total{{job_id="{writing}"}}' in samples
            )

        wait_until(all_is_there, "a job that trains with failures and one that waits")
        yield module_service, f"{job_id}|{writing}"
        for each in (job_id, writing, waiting):
            rest.post(f"/v1/jobs/{each}/cancel")
            rest.wait_job(each, ["cancelled"])


def test_each_metric_that_is_used_is_exported(live, teacher):
    service, _ = live
    there = exported(service.rest.get("/metrics").text) | exported(type(service.rest)(teacher.url).get("/metrics").text)
    used = {name: file for file in DASHBOARDS for _, query in panel_queries(file) for name in metrics_of(query)} | {
        name: RULES.name for rule in rules() for name in metrics_of(rule["expr"])
    }
    for file in DASHBOARDS:
        for variable in json.loads(dashboard_text(file))["templating"]["list"]:
            used |= dict.fromkeys(metrics_of(variable.get("definition", "")), file)
    assert len(used) > 40
    assert {name: file for name, file in used.items() if name not in there} == {}


def rendered_with_data(prometheus, job_id, folder):
    """Draws both dashboards as grafana/render_panels.py does for the documentation: no panel is empty."""
    for file in DASHBOARDS:
        image = folder / f"{file}.png"
        command = [sys.executable, "-B", GRAFANA / "render_panels.py", GRAFANA / "dashboards" / file]
        command += ["--prometheus", prometheus.url, "--minutes", "1", "--scrape-seconds", SCRAPE_SECONDS]
        command += ["--out", image, "--set", f"job_id={job_id}"]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        panels = sum(panel["type"] != "row" for panel in json.loads(dashboard_text(file))["panels"])
        assert done.stdout == f"{image}: {panels} panels; without data: none\n"
        assert image.read_bytes().startswith(b"\x89PNG") and image.stat().st_size > 20_000


def test_each_panel_shows_data_of_a_live_job(live, teacher, tmp_path):
    service, job_id = live
    prometheus = Prometheus(tmp_path, [service.url], [teacher.url])
    try:
        asked = [(file, title, filled_in(query, job_id)) for file in DASHBOARDS for title, query in panel_queries(file)]
        assert len(asked) > 50
        without = list(asked)

        def all_have_data():
            without[:] = [panel for panel in without if not prometheus.has_data(panel[2])]
            return not without

        try:
            wait_until(all_have_data, "data for each panel", pause=1)
        except AssertionError:
            raise AssertionError(f"no data for {without}") from None
        for label, metric in [("instance", "distilld_build_info"), ("job_id", "distilld_job_step")]:
            values = prometheus.ask(f"label/{label}/values", **{"match[]": metric})
            assert (job_id.split("|")[0] if label == "job_id" else service.url.removeprefix("http://")) in values
        groups = prometheus.ask("rules")["groups"]
        assert {rule["name"] for group in groups for rule in group["rules"]} == {
            rule.get("alert", rule.get("record")) for rule in rules()
        }
        assert all(rule["health"] != "err" for group in groups for rule in group["rules"])
        rendered_with_data(prometheus, job_id, tmp_path)
    finally:
        prometheus.stop()


def promtool(*arguments):
    done = subprocess.run([program("promtool"), *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_takes_each_query_of_a_panel_as_a_rule(tmp_path):
    queries = [filled_in(query) for file in DASHBOARDS for _, query in panel_queries(file)]
    made = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(queries)]
    (tmp_path / "panels.yaml").write_text(json.dumps({"groups": [{"name": "panels", "rules": made}]}))
    promtool("check", "rules", tmp_path / "panels.yaml")


def test_promtool_finds_the_rules_right_and_the_alerts_fire_when_they_should():
    promtool("check", "rules", RULES)
    promtool("test", "rules", RULES.with_name("distilld.test.yaml"))


def test_each_rule_is_tested_and_each_alert_both_ways():
    cases = yaml.safe_load(RULES.with_name("distilld.test.yaml").read_text())["tests"]
    recorded, quiet, fires = set(), set(), set()
    for case in cases:
        for asked in case.get("promql_expr_test", []):
            name = re.search(r'alertname="(\w+)", alertstate="firing"', asked["expr"])
            if name:
                (fires if asked["exp_samples"] else quiet).add(name.group(1))
            else:
                recorded.update(re.findall(r"\w+:\w+:\w+", asked["expr"]))
        for asked in case.get("alert_rule_test", []):
            (fires if asked["exp_alerts"] else quiet).add(asked["alertname"])
    assert fires == quiet == {rule["alert"] for rule in alerts()}
    assert recorded == {rule["record"] for rule in rules() if "record" in rule}


def test_each_alert_says_what_to_do():
    text = (ROOT / "docs" / "troubleshooting.md").read_text()
    anchors = {
        re.sub(r"[^\w\- ]", "", line).strip().lower().replace(" ", "-") for line in re.findall(r"^#+ (.*)$", text, re.M)
    }
    for rule in alerts():
        notes = rule["annotations"]
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert notes["summary"] and notes["description"], rule["alert"]
        file, _, anchor = notes["runbook_url"].partition("#")
        assert file == "docs/troubleshooting.md" and anchor in anchors, rule["alert"]


def test_provisioning_names_what_the_dashboards_use():
    sources = yaml.safe_load((GRAFANA / "provisioning" / "datasources" / "prometheus.yaml").read_text())["datasources"]
    providers = yaml.safe_load((GRAFANA / "provisioning" / "dashboards" / "distilld.yaml").read_text())["providers"]
    assert [provider["type"] for provider in providers] == ["file"]
    for file in DASHBOARDS:
        variables = json.loads(dashboard_text(file))["templating"]["list"]
        chosen = next(variable for variable in variables if variable["type"] == "datasource")
        assert chosen["query"] == sources[0]["type"] and chosen["current"]["value"] == sources[0]["uid"]
