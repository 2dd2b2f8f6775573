"""The benchmark of self-measurement runs, and writes what it promises."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_quick_run_writes_the_ratio_the_cost_per_record_and_a_plot(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.selfmetrics", "--quick", "--results", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr

    written = json.loads((tmp_path / "selfmetrics.json").read_text())
    assert written["ratios"]["throughput_on_vs_off"] > 0
    assert {"request", "message popped, 10 per request"} <= written["ns_per_record"].keys()
    assert written["medians"]["consume_single"].keys() == {"on", "off"}
    assert "ns" in done.stdout
    assert (tmp_path / "selfmetrics.png").read_bytes().startswith(b"\x89PNG")
