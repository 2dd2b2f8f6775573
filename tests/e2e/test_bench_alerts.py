"""A small run of the alerts benchmark writes its results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.deadlines import deadline_s

ROOT = Path(__file__).parents[2]


def test_a_small_run_writes_every_scenario_and_a_plot(tmp_path: Path) -> None:
    completed = subprocess.run(
        [sys.executable, "-m", "bench.alerts", "--quick", "--results", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=deadline_s(240),
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr

    written = json.loads((tmp_path / "alerts.json").read_text())
    assert list(written["medians"]) == ["10 rules", "100 rules", "own scopes", "all fire"]
    assert written["ratios"]["evaluation_vs_cadence"] > 0
    # Unlike times, the number of queries is the same on a busy machine.
    assert 0 < written["ratios"]["queries_1000_rules_vs_10"] <= 1.5
    # An evaluation that opens incidents also reads evidence of their causes.
    calls = {
        min(row["counts"]["postgres_calls"] for row in written["rounds"] if row["scenario"] == scenario)
        for scenario in {row["scenario"] for row in written["rounds"]}
    }
    assert len(calls) == 1, "the number of PostgreSQL calls grows with rules or states"
    assert (tmp_path / "alerts.png").read_bytes().startswith(b"\x89PNG")
