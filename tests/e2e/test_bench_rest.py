"""A quick run of the benchmark of the idle platform writes its results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deadlines import deadline_s

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(sys.platform != "linux", reason="the benchmark reads /proc")
def test_a_quick_run_writes_memory_and_cpu_of_every_part_starts_disk_and_a_plot(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.rest", "--quick", "--results", str(tmp_path)]
    completed = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=deadline_s(120)
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr

    written = json.loads((tmp_path / "rest.json").read_text())
    ratios, medians = written["ratios"], written["medians"]
    assert {"memory_vs_goal", "cpu_vs_goal", "first_push_vs_goal", "healthy_vs_goal", "disk_vs_goal"} <= set(
        ratios
    )
    assert all(value > 0 for value in ratios.values())
    memory = {part: counts["rate"] for part, counts in medians["memory"].items()}
    whole = memory.pop("all")
    assert all(value > 0 for value in memory.values()), memory
    assert whole == pytest.approx(sum(memory.values()), rel=0.01)
    assert medians["start"]["empty home"]["healthy_s"] >= medians["start"]["empty home"]["rate"]
    assert "pipeline Java" in completed.stdout
    assert (tmp_path / "rest.png").read_bytes().startswith(b"\x89PNG")
