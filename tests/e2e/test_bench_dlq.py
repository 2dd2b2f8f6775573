"""A quick run of the dead-letter benchmark checks its own counts and writes its results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.deadlines import deadline_s

ROOT = Path(__file__).parents[2]


def test_a_quick_run_writes_the_ratios_and_a_plot(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.dlq", "--quick", "--results", str(tmp_path)]
    completed = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=deadline_s(240)
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr

    written = json.loads((tmp_path / "dlq.json").read_text())
    expected = {"status_vs_grouped_count", "status_5m_vs_5k", "ack_to_dead_with_counting"}
    assert expected <= written["ratios"].keys()
    assert all(ratio > 0 for ratio in written["ratios"].values())
    assert written["purge"]["letters"] > 0
    for call in ("push", "pop", "disk"):
        assert written["purge"]["beside_the_purge"][call]["calls"] > 0
    assert (tmp_path / "dlq.png").read_bytes().startswith(b"\x89PNG")
