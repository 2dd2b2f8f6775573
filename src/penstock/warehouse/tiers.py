"""The tiers: how finely and for how long a metric is kept, and which one answers a question."""

from __future__ import annotations

from dataclasses import dataclass

DAY_S = 24 * 3600


@dataclass(frozen=True, slots=True)
class Tier:
    """One table per metric, with a row per dimensions and `width_s` seconds, kept for `days` days.

    `granule` is how many rows ClickHouse reads at least: about what one thing has in one day, because digests
    make a row large and its neighbours belong to others. `percentiles`: those of its buckets are written
    down when they have passed, because a series has too many to work them out of digests. `one_file`: a day
    that has passed is put together in one part, with one file for all its columns, because a series reads
    many days, and opening files is most of what a day costs.
    """

    name: str
    width_s: int
    days: int
    granule: int
    percentiles: bool = True
    one_file: bool = True

    @property
    def retention_s(self) -> int:
        return self.days * DAY_S


FINE = Tier("5s", 5, 2, granule=1024, percentiles=False, one_file=False)
MINUTE = Tier("1m", 60, 31, granule=256)
HOUR = Tier("1h", 3600, 400, granule=128)

TIERS = (FINE, MINUTE, HOUR)
"""From fine to coarse. Each width divides the next, and each tier holds all the events of the one before."""


def route(period_s: float, age_s: float) -> Tier:
    """The tier for a window of `period_s` seconds that began `age_s` seconds ago.

    Up to 2 hours in 5-second points, up to 7 days in minutes, hours beyond: few enough points for a chart.
    An old window goes to a coarser tier when the fine one has forgotten it.
    """
    if period_s <= 2 * 3600 and age_s <= FINE.retention_s:
        return FINE
    if period_s <= 7 * DAY_S and age_s <= MINUTE.retention_s:
        return MINUTE
    return HOUR
