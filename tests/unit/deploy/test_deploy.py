"""What ships for Prometheus and Grafana reads metrics that there are."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
RULES = ROOT / "deploy" / "prometheus" / "penstock.rules.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "penstock.json"
GRAFANA = runpy.run_path(str(ROOT / "tools" / "grafana.py"))

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not here; Debian's package prometheus has it"
)


def test_the_dashboard_is_what_the_table_of_metrics_says() -> None:
    assert DASHBOARD.read_text() == GRAFANA["dashboard_page"](), "run `make reference`"


def test_every_panel_reads_metrics_that_are_exported_and_says_what_they_are() -> None:
    panels = [p for p in json.loads(DASHBOARD.read_text())["panels"] if p["type"] != "row"]
    known = GRAFANA["metrics_by_sample"]()
    assert len({panel["title"] for panel in panels}) == len(panels)
    for panel in panels:
        named = set().union(*(GRAFANA["metrics_in"](target["expr"]) for target in panel["targets"]))
        assert named
        assert named <= known.keys()
        assert all(known[name].help in panel["description"] for name in named)


def test_every_rule_reads_metrics_that_are_exported() -> None:
    text = RULES.read_text()
    named = set(re.findall(r"\bpenstock_[a-z0-9_]+", text))
    assert len(named) > 15
    assert named <= GRAFANA["metrics_by_sample"]().keys()
    recorded = set(re.findall(r"record: (penstock:\S+)", text))
    assert set(re.findall(r"penstock:[a-z0-9_:]+", text)) == recorded


def test_every_alert_says_what_to_do() -> None:
    alerts = RULES.read_text().split("- alert: ")[1:]
    assert len(alerts) > 10
    for alert in alerts:
        assert "summary:" in alert
        assert "action:" in alert
        assert re.search(r"severity: (page|ticket)", alert)


@needs_promtool
@pytest.mark.parametrize(
    "command",
    [
        ("check", "rules", str(RULES)),
        ("check", "config", str(RULES.with_name("prometheus.yml"))),
        ("test", "rules", str(Path(__file__).with_name("rules_test.yml"))),
    ],
    ids=("rules", "config", "firing"),
)
def test_prometheus_accepts_the_rules_and_they_fire_when_they_should(command: tuple[str, ...]) -> None:
    done = subprocess.run(["promtool", *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
