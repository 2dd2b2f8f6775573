"""A quick run of the run queue benchmark checks its own counts and writes its results."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

from tests.deadlines import deadline_s

ROOT = Path(__file__).parents[2]


def test_a_quick_run_writes_the_ratios_and_a_plot(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.runqueue", "--quick", "--results", str(tmp_path)]
    completed = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=deadline_s(120)
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr

    written = json.loads((tmp_path / "runqueue.json").read_text())
    peers = [name for name in ("dramatiq", "taskiq") if importlib.util.find_spec(name)]
    assert sorted(written["peers"]) == peers
    expected = {"script_time_with_emission"} | ({"vs_fastest_peer"} if peers else set())
    assert expected <= written["ratios"].keys()
    assert all(ratio > 0 for ratio in written["ratios"].values())
    assert written["emission_adds_us"].keys() == {"enqueue", "dequeue", "ack"}
    assert {"penstock", "penstock over HTTP"} <= written["medians"]["cycle"].keys()
    assert (tmp_path / "runqueue.png").read_bytes().startswith(b"\x89PNG")
