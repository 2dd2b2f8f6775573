"""A quick run of the horizon benchmark writes its ratios and a plot."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

from tests.deadlines import deadline_s

ROOT = Path(__file__).parents[2]


def test_a_quick_run_writes_the_ratios_and_a_plot(tmp_path: Path) -> None:
    peers = ["pgmq"] if importlib.util.find_spec("pgmq") else []  # `make setup-bench` installs it
    command = [
        sys.executable,
        "-m",
        "bench.horizon",
        "--quick",
        "--results",
        str(tmp_path),
        "--peers",
        *peers,
    ]
    completed = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=deadline_s(240)
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr

    written = json.loads((tmp_path / "horizon.json").read_text())
    expected = {"held_vs_free_throughput", "held_p99_vs_free_p99", "single_10000_held_vs_free_throughput"}
    if peers:
        expected |= {"vs_pgmq_held", "batch100_64_vs_pgmq_held"}
    assert expected <= written["ratios"].keys()
    assert all(ratio > 0 for ratio in written["ratios"].values())
    for turn in written["rounds"]:
        assert turn["rate"] > 0
        assert {"elapsed_s", "p50_ms", "p99_ms", "busy_bytes"} <= turn["counts"].keys()
    assert (tmp_path / "horizon.png").read_bytes().startswith(b"\x89PNG")
