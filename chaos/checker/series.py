"""Metric series: every tier agrees with what is stored, or reports a loss."""

from __future__ import annotations

from chaos.checker.findings import Findings, Guarantee
from chaos.history import History


def check_series(history: History, findings: Findings) -> None:
    stored = {
        call.args["queue"]: (
            sum(len(ids) for ids in call.result["partitions"].values()),
            call.result["completed"],
        )
        for call in history.select("final log")
    }
    for call in history.select("final series"):
        queue = call.args["queue"]
        for tier, sums in call.result["tiers"].items():
            if queue in stored:
                expected, completed = stored[queue]
                _check_sum(findings, queue, tier, "enqueued", sums, expected, expected)
                _check_sum(findings, queue, tier, "completed", sums, completed, completed)
            else:
                known, possible = _enqueued_tasks(history, queue)
                _check_sum(findings, queue, tier, "enqueued", sums, known, possible)


def _enqueued_tasks(history: History, queue: str) -> tuple[int, int]:
    """Return how many tasks were certainly enqueued, and how many at most."""
    known: set[str] = set()
    possible: set[str] = set()
    for call in history.select("enqueue"):
        if call.args["queue"] == queue and call.possible:
            possible.update(call.args["keys"])
            known.update(call.args["keys"] if call.ok else ())
    return len(known), len(possible)


def _check_sum(
    findings: Findings, queue: str, tier: str, name: str, sums: dict[str, int], least: int, most: int
) -> None:
    findings.check(
        Guarantee.SERIES,
        least <= sums[name] <= most or (sums[name] < least and sums["lost"] > 0),
        f"{queue}, {tier}: {name} is {sums[name]}, stored are {least} to {most}; lost {sums['lost']}",
    )
