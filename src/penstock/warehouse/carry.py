"""Gauges between observations.

A queue that nothing happens to emits nothing, but it is not empty for that. Its gauges keep their last value
until the next observation, never their maximum: a spike that drained inside its own bucket left no backlog.
Points made this way are marked. Before the first observation ever made there is no value, not even 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.warehouse.columns import ABSENT
from penstock.warehouse.points import Points
from penstock.warehouse.windows import Window


@dataclass(frozen=True, slots=True)
class Carried:
    """Gauges at every point of a window, in order: maximum and last value of each, and when last seen.

    `carried`: nothing was observed in this point's time, the values are from before.
    """

    highest: Mapping[str, Sequence[int | None]]
    last: Mapping[str, Sequence[int | None]]
    seen_ms: Sequence[int | None]
    carried: Sequence[bool]


def carry_forward(window: Window, gauges: Sequence[str], points: Points) -> Carried:
    """The gauges of all points of the window, observed or not."""
    places = [points.places.get(at) for at in window.buckets]
    highest, last = {}, {}
    for name in gauges:
        highest[name], last[name] = _filled(
            places,
            points.columns.get(f"{name}_max", ()),
            points.columns[f"{name}_last"],
            points.before.gauges[name],
        )
    seen, carried = [], []
    known, newest = points.before.seen_ms is not None, points.before.seen_ms
    times = points.columns["seen_ms"] if gauges else ()
    for place in places:
        if times and place is not None and times[place] != ABSENT:
            known, newest = True, times[place]
            carried.append(False)
        else:
            carried.append(known)
        seen.append(newest)
    return Carried(highest, last, seen, carried)


def _filled(
    places: Sequence[int | None], highest: Sequence[int], last: Sequence[int], before: int | None
) -> tuple[list[int | None], list[int | None]]:
    """Maximum and last value of one gauge at every place; between observations both are the last value."""
    tops: list[int | None] = []
    values: list[int | None] = []
    value = before
    for place in places:
        if place is None or (seen := last[place]) == ABSENT:
            tops.append(value)
        else:
            value = seen
            tops.append(highest[place] if highest else seen)
        values.append(value)
    return tops, values


def grown_age(age_ms: int | None, depth: int | None, seen_ms: int | None, until_s: float) -> int | None:
    """The oldest message's age at `until_s`, when it was last seen as `age_ms`.

    While nothing happens to a queue that holds something, its oldest message gets older by the clock.
    """
    if age_ms is None or seen_ms is None or not depth:
        return age_ms
    return age_ms + max(0, int(until_s * 1000) - seen_ms)
