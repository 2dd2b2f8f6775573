"""The alert rules of `make bench-alerts`: every type with windows from a minute to a day."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle, islice
from typing import Any

Rule = dict[str, Any]

KINDS: tuple[Mapping[str, Any], ...] = (
    {"type": "BACKLOG", "statistic": "last", "threshold": 990},
    {"type": "LATENCY", "statistic": "p95", "threshold": 60_000},
    {"type": "SLO", "objective": 0.95, "withinSeconds": 30},
    {"type": "LATENCY", "statistic": "avg", "threshold": 60_000},
    {"type": "ERROR_RATE", "threshold": 0.9},
    {"type": "OLDEST_AGE", "threshold": 60_990},
    {"type": "DEAD_LETTERS", "measure": "growth", "threshold": 100_000},
    {"type": "SATURATION", "threshold": 200},
    {"type": "TIME_TO_DRAIN", "threshold": 30_000_000_000},
    {"type": "STALLED"},
    {"type": "CAPACITY_LOSS"},
    {"type": "BACKLOG", "statistic": "min", "threshold": 500},
    {"type": "DEAD_LETTERS", "measure": "count", "threshold": 10},
)
"""Types with a threshold that few of the generated queues breach. The first ten need every kind of query."""

WINDOWS_MINUTES = (5, 15, 60, 1, 30, 10, 120, 360, 1440)
"""The first ten rules have short and long windows, like the thousand."""


def mixed_rules(count: int) -> list[Rule]:
    """Return rules that watch all queues, alternating the types and windows."""
    return [
        {**kind, "name": f"rule {number}", "windowMinutes": minutes, "channels": ["ops"]}
        for number, (kind, minutes) in enumerate(
            islice(zip(cycle(KINDS), cycle(WINDOWS_MINUTES), strict=False), count)
        )
    ]


def scoped_rules(count: int, queues: int) -> list[Rule]:
    """Return the same rules with a scope each: half of them one queue, the others a pattern."""
    return [
        {**rule, "queue": f"queue-{number % queues}" if number % 2 else f"*-{number % queues}*"}
        for number, rule in enumerate(mixed_rules(count))
    ]


def breached_rules(count: int) -> list[Rule]:
    """Return rules that every queue breaches: the worst case."""
    kind = {"type": "BACKLOG", "statistic": "last", "threshold": -1, "windowMinutes": 5, "channels": ["ops"]}
    return [{**kind, "name": f"rule {number}"} for number in range(count)]
