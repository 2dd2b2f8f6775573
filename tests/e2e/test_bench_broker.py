"""A quick run of the broker benchmark checks its own counts and writes its results."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

from tests.deadlines import deadline_s

ROOT = Path(__file__).parents[2]


def test_a_quick_run_writes_the_ratios_and_a_plot(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.broker", "--quick", "--results", str(tmp_path)]
    peers = ["pgmq"] if importlib.util.find_spec("pgmq") else []  # `make setup-bench` installs it
    command += ["--contestants", "penstock", *peers, "floor", "--rows", "0"]
    completed = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=deadline_s(240)
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr

    written = json.loads((tmp_path / "broker.json").read_text())
    expected = {"push_single_vs_copy", "push_batch100_vs_copy", "token_vs_none_push"}
    expected.add("exporting_vs_off_push")
    if peers:
        expected |= {"push_batch100_vs_pgmq", "push_single_vs_pgmq"}
        expected |= {"consume_batch100_vs_pgmq", "consume_single_vs_pgmq"}
    assert expected <= written["ratios"].keys()
    assert all(ratio > 0 for ratio in written["ratios"].values())
    assert written["wal_bytes_per_message"]["push_batch100"] > 0
    assert written["broker_memory_mb"] > 0
    at_half_load = written["push_to_waiting_consumer_ms_at_half_load"]
    assert 0 < at_half_load["p50"] <= at_half_load["p99"]
    assert at_half_load["pushes_per_s"] > 0
    assert {"cores", "python", "packages"} <= written["environment"].keys()
    assert all({"scenario", "contestant", "round", "rate"} <= turn.keys() for turn in written["rounds"])
    assert (tmp_path / "broker.png").read_bytes().startswith(b"\x89PNG")
