"""Gauges between observations.

A queue that nothing happens to emits nothing, but it is not empty for that. Its gauges keep their last value
until the next observation, never their maximum: a spike that drained inside its own bucket left no backlog.
Points made this way are marked. Before the first observation ever made there is no value, not even 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.warehouse.points import Before
from penstock.warehouse.windows import Window


@dataclass(frozen=True, slots=True)
class Carried:
    """The gauges of one point: maximum and last value of each, and when they were last seen.

    `carried`: nothing was observed in this point's time, the values are from before.
    """

    at_s: int
    highest: Mapping[str, int | None]
    last: Mapping[str, int | None]
    seen_ms: int | None
    carried: bool


def carry_forward(
    window: Window, names: Sequence[str], points: Mapping[int, Mapping[str, Any]], before: Before
) -> Iterator[Carried]:
    """One result per point of the window, in order."""
    last: dict[str, int | None] = {name: before.gauges.get(name) for name in names}
    seen_ms = before.seen_ms
    for at_s in window.buckets:
        point = points.get(at_s, {})
        highest: dict[str, int | None] = {}
        observed = False
        for name in names:
            value = point.get(f"{name}_last")
            if value is None:
                highest[name] = last[name]
            else:
                observed = True
                last[name] = value
                highest[name] = point[f"{name}_max"]
        if observed:
            seen_ms = point["seen_ms"]
        known = any(value is not None for value in last.values())
        yield Carried(at_s, highest, dict(last), seen_ms, carried=known and not observed)


def grown_age(age_ms: int | None, depth: int | None, seen_ms: int | None, until_s: float) -> int | None:
    """The oldest message's age at `until_s`, when it was last seen as `age_ms`.

    While nothing happens to a queue that holds something, its oldest message gets older by the clock.
    """
    if age_ms is None or seen_ms is None or not depth:
        return age_ms
    return age_ms + max(0, int(until_s * 1000) - seen_ms)
