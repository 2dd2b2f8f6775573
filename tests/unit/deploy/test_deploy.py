"""The shipped Prometheus rules and Grafana dashboard use only exported metrics."""

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
    shutil.which("promtool") is None, reason="promtool is not installed; it is in Debian's package prometheus"
)


def test_the_dashboard_is_up_to_date() -> None:
    assert DASHBOARD.read_text() == GRAFANA["dashboard_page"](), "run `make reference`"


def test_every_panel_uses_and_describes_exported_metrics() -> None:
    all_panels = json.loads(DASHBOARD.read_text())["panels"]
    panels = [panel for panel in all_panels if panel["type"] != "row"]
    exported = GRAFANA["metrics_by_sample"]()
    assert len({panel["title"] for panel in panels}) == len(panels)
    for panel in panels:
        used = set().union(*(GRAFANA["metrics_in"](target["expr"]) for target in panel["targets"]))
        assert used
        assert used <= exported.keys()
        assert all(exported[name].help in panel["description"] for name in used)


def test_every_rule_uses_exported_metrics() -> None:
    text = RULES.read_text()
    used = set(re.findall(r"\bpenstock_[a-z0-9_]+", text))
    assert len(used) > 15
    assert used <= GRAFANA["metrics_by_sample"]().keys()
    recorded = set(re.findall(r"record: (penstock:\S+)", text))
    assert set(re.findall(r"penstock:[a-z0-9_:]+", text)) == recorded


def test_every_alert_has_a_summary_an_action_and_a_severity() -> None:
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
    result = subprocess.run(["promtool", *command], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
