"""A small run of the series benchmark writes its results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.deadlines import deadline_s

ROOT = Path(__file__).parents[2]


def test_a_small_run_writes_every_row_of_the_routing_table_and_a_plot(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.series", "--rows", "35000", "--repeats", "1"]
    command += ["--results", str(tmp_path)]
    completed = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=deadline_s(240)
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr

    written = json.loads((tmp_path / "series.json").read_text())
    assert (written["queues"], written["rows_5s"], written["goal_ms"]) == (1, 34_560, 50)
    assert written["stored"]["queue_5s"]["rows"] == 34_560
    assert written["windows"] == {
        "30m": "5s", "2h": "5s", "24h": "1m", "7d": "1m", "30d": "1h", "90d": "1h"
    }  # fmt: skip
    points = {period: row["points"] for period, row in written["above_round_trip_ms"]["queue"].items()}
    assert points == {"30m": 360, "2h": 1440, "24h": 1440, "7d": 10_080, "30d": 720, "90d": 2160}
    assert written["above_round_trip_ms"]["environment"].keys() == points.keys()
    ratios, answers = written["ratios"], written["answer_vs_query"]
    assert ratios["slowest_query_p95_of_goal"] > 0
    assert answers["points"].keys() == answers["columns"].keys()
    assert len(answers["points"]) == 12
    assert ratios["answer_vs_query"] == max(answers["points"].values()) > 1
    assert ratios["columns_answer_vs_query"] == max(answers["columns"].values()) > 1
    assert (tmp_path / "series.png").read_bytes().startswith(b"\x89PNG")
