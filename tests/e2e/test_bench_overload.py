"""A quick run of the overload benchmark finds all accepted messages and writes its results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bench.log_audit import AuditResult, compare
from bench.open_loop_load import Producer, retry_after_s
from bench.overload_bursts import BurstResult

from tests.deadlines import deadline_s

ROOT = Path(__file__).parents[2]


def test_a_quick_run_loses_nothing_and_keeps_order(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.overload", "--quick", "--results", str(tmp_path)]
    completed = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=deadline_s(240)
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr

    written = json.loads((tmp_path / "overload.json").read_text())
    ratios = written["ratios"]
    assert (ratios["order_violations"], ratios["lost"], ratios["doubled"]) == (0, 0, 0)
    assert ratios["goodput_at_10x_vs_peak"] > 0
    assert ratios["burst_refused_or_deferred"] == 0
    assert {burst["kind"] for burst in written["bursts"]} == {
        *("push", "pop", "ack"),
        "push to 100 new partitions",
    }
    assert written["capacity"] > 0
    for turn in written["rounds"]:
        assert turn["contestant"] in ("on", "off")
        assert {"offered_x", "refused", "timed_out", "p50_ms", "p99_ms"} <= turn["counts"].keys()
        assert turn["counts"]["offered_x"] > 0
    assert any(turn["rate"] > 0 for turn in written["rounds"])
    assert (tmp_path / "overload.png").read_bytes().startswith(b"\x89PNG")


def test_the_audit_counts_lost_duplicate_misordered_and_unconfirmed_messages() -> None:
    producers = [Producer(0, 0, sent=3, accepted=[1, 2]), Producer(1, 0, sent=1, accepted=[1])]
    correct = {0: [(1, 0), (1, 1), (2, 0), (2, 1)], 1: [(1, 0), (1, 1)]}
    assert compare(correct, producers, 2) == AuditResult(0, 0, 0, 0)
    assert compare({0: correct[0]}, producers, 2).lost == 2
    misordered = {**correct, 0: [(2, 0), (2, 1), (1, 0), (1, 1)]}
    assert compare(misordered, producers, 2).order_violations == 1
    duplicated = {**correct, 1: [(1, 0), (1, 1), (1, 1)]}
    assert compare(duplicated, producers, 2).duplicates == 1
    given_up = {**correct, 0: [*correct[0], (3, 0), (3, 1)]}
    assert compare(given_up, producers, 2) == AuditResult(0, 0, 0, unconfirmed=2)


def test_only_a_large_burst_with_a_long_wait_may_be_turned_away() -> None:
    def burst(size: int, slowest_ms: float) -> BurstResult:
        return BurstResult("pop", size, "local", "no traffic", 3, 4, slowest_ms)

    assert burst(200, 5_000).wrongly_turned_away == 7
    assert burst(1_000, 500).wrongly_turned_away == 7
    assert burst(1_000, 1_500).wrongly_turned_away == 0


def test_a_refused_producer_waits_for_the_exact_seconds_of_the_body() -> None:
    head = b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 1\r\n\r\n"
    assert retry_after_s(head + b'{"code":"overloaded","retryAfter":0.27}') == 0.27
    assert retry_after_s(head + b'{"code":"queue_full"}') == 1.0
