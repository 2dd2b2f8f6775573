"""The overload benchmark runs, finds everything that was accepted, and writes what it promises."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bench.ledger import Verdict, compare
from bench.open_load import Lane

ROOT = Path(__file__).parents[2]


def test_a_quick_run_loses_nothing_and_keeps_order(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.overload", "--quick", "--results", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr

    written = json.loads((tmp_path / "overload.json").read_text())
    ratios = written["ratios"]
    assert (ratios["order_violations"], ratios["lost"], ratios["doubled"]) == (0, 0, 0)
    assert ratios["goodput_at_10x_vs_peak"] > 0
    assert written["capacity"] > 0
    for turn in written["rounds"]:
        assert turn["contestant"] in ("on", "off")
        assert {"offered_x", "refused", "timed_out", "p50_ms", "p99_ms"} <= turn["counts"].keys()
        assert turn["counts"]["offered_x"] > 0
    assert any(turn["rate"] > 0 for turn in written["rounds"])
    assert (tmp_path / "overload.png").read_bytes().startswith(b"\x89PNG")


def test_what_is_missing_doubled_or_out_of_order_is_found() -> None:
    first, second = Lane(0, 0, sent=3, accepted=[1, 2]), Lane(1, 0, sent=1, accepted=[1])
    good = {0: [(1, 0), (1, 1), (2, 0), (2, 1)], 1: [(1, 0), (1, 1)]}
    assert compare(good, [first, second], 2) == Verdict(0, 0, 0, 0)
    assert compare({0: good[0]}, [first, second], 2).lost == 2
    turned = {**good, 0: [(2, 0), (2, 1), (1, 0), (1, 1)]}
    assert compare(turned, [first, second], 2).order_violations == 1
    twice = {**good, 1: [(1, 0), (1, 1), (1, 1)]}
    assert compare(twice, [first, second], 2).doubled == 1
    given_up = {**good, 0: [*good[0], (3, 0), (3, 1)]}
    assert compare(given_up, [first, second], 2) == Verdict(0, 0, 0, untold=2)
