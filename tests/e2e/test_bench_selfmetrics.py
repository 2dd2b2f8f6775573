"""A quick run of the benchmark of the broker's own metrics writes its results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.deadlines import deadline_s

ROOT = Path(__file__).parents[2]


def test_a_quick_run_writes_the_ratio_the_cost_per_record_and_a_plot(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.selfmetrics", "--quick", "--results", str(tmp_path)]
    completed = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=deadline_s(120)
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr

    written = json.loads((tmp_path / "selfmetrics.json").read_text())
    assert written["ratios"]["throughput_on_vs_off"] > 0
    assert {"request", "message popped, 10 per request"} <= written["ns_per_record"].keys()
    assert written["medians"]["consume_single"].keys() == {"on", "off"}
    assert "ns" in completed.stdout
    assert (tmp_path / "selfmetrics.png").read_bytes().startswith(b"\x89PNG")
