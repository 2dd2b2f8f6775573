"""A quick run of the pipeline benchmark checks its own totals and writes its results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deadlines import deadline_s

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(600)
def test_a_quick_run_writes_the_ratios_and_a_plot(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.pipeline", "--quick", "--results", str(tmp_path)]
    completed = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=deadline_s(540)
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr

    written = json.loads((tmp_path / "pipeline.json").read_text())
    expected = {"packed_vs_plain_consumer", "single_vs_plain_consumer", "packed_vs_redis_read"}
    assert expected <= written["ratios"].keys()
    assert all(ratio > 0 for ratio in written["ratios"].values())
    assert all({"scenario", "contestant", "round", "rate"} <= turn.keys() for turn in written["rounds"])
    assert written["batch_costs"]["batch_of_1000_ms"] > 0
    assert written["memory_mb"] > 100
    assert {"cores", "python", "packages"} <= written["environment"].keys()
    assert (tmp_path / "pipeline.png").read_bytes().startswith(b"\x89PNG")
