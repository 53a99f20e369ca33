#!/usr/bin/env python3
"""Writes prometheus-rule.yaml: grafana/rules/distilld.yaml in the wrapping that Prometheus' operator wants.

kustomize cannot put a file into the middle of another, so this does. `--check` only says whether the file is what the
rules make.
"""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
RULES = HERE.parent.parent / "grafana" / "rules" / "distilld.yaml"
OUTPUT = HERE / "prometheus-rule.yaml"
HEAD = """\
# Written by make_prometheus_rule.py from grafana/rules/distilld.yaml: change that.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: distilld
spec:
"""


def wrapped(rules):
    """The text of rules as the member `spec`: what Prometheus reads from a file is what the operator reads there."""
    return HEAD + "".join("  " + line if line.strip() else line for line in rules.splitlines(keepends=True))


def main():
    made = wrapped(RULES.read_text(encoding="utf-8"))
    if sys.argv[1:] == ["--check"]:
        if not OUTPUT.exists() or OUTPUT.read_text(encoding="utf-8") != made:
            sys.exit("prometheus-rule.yaml is not what grafana/rules/distilld.yaml makes: run make_prometheus_rule.py")
        return
    if sys.argv[1:]:
        sys.exit(__doc__)
    OUTPUT.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()
