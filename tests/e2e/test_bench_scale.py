"""A quick run of the benchmark of many queues writes its ratios, bounds and a plot."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deadlines import deadline_s

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(sys.platform != "linux", reason="the benchmark reads /proc")
def test_a_quick_run_measures_starts_requests_and_memory_of_both_databases(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.scale", "--quick", "--results", str(tmp_path)]
    completed = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=deadline_s(120)
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr

    written = json.loads((tmp_path / "scale.json").read_text())
    assert written["scale"] == {"queues": 200, "partitions": 1_000, "messages": 25_000}
    medians = written["medians"]
    for scenario in ("start", "GET /metrics", "GET console/queues", "push", "pop", "ack"):
        assert medians[scenario]["empty"]["rate"] > 0
        assert medians[scenario]["scaled"]["rate"] > 0
        assert written["ratios"][f"{scenario}_scaled_vs_empty"] > 0
    assert medians["start"]["scaled"]["memory_mb"] > 10
    assert medians["GET resources/queues"]["scaled"]["kb"] > medians["GET resources/queues"]["empty"]["kb"]
    assert all(bound["measured"] > 0 for bound in written["bounds"].values())
    assert "bounds of the scaled database" in completed.stdout
    assert (tmp_path / "scale.png").read_bytes().startswith(b"\x89PNG")
