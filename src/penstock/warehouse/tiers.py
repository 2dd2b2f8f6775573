"""The tiers of a metric: bucket width and retention of each, and the tier that answers a request."""

from __future__ import annotations

from dataclasses import dataclass

DAY_S = 24 * 3600


@dataclass(frozen=True, slots=True)
class Tier:
    """One table per metric: a row per bucket of `width_s` seconds and dimension values, kept for `days` days.

    `granule_rows` is the least number of rows that ClickHouse reads. It is about one queue's rows of one day,
    because digests make a row large and the neighbouring rows belong to other queues.

    With `stores_percentiles` the pipeline stores the percentiles of a bucket once the bucket has closed,
    because a series of this tier has too many buckets to compute them from digests.

    With `merges_days` ClickHouse merges a closed day into one part with one file for all columns, because a
    series reads many days, and opening files is most of the cost of a day.
    """

    name: str
    width_s: int
    days: int
    granule_rows: int
    stores_percentiles: bool = True
    merges_days: bool = True

    @property
    def retention_s(self) -> int:
        return self.days * DAY_S


FINE = Tier("5s", 5, 2, granule_rows=1024, stores_percentiles=False, merges_days=False)
MINUTE = Tier("1m", 60, 31, granule_rows=256)
HOUR = Tier("1h", 3600, 400, granule_rows=128)

TIERS = (FINE, MINUTE, HOUR)
"""From fine to coarse. Each width divides the next one, and every tier counts all events."""


def choose_tier(period_s: float, age_s: float) -> Tier:
    """Return the tier for a window of `period_s` seconds that starts `age_s` seconds ago.

    Windows up to 2 hours have 5-second points, up to 7 days minutes, and longer ones hours: few enough points
    for a chart. A window older than the retention of its tier goes to a coarser one.
    """
    if period_s <= 2 * 3600 and age_s <= FINE.retention_s:
        return FINE
    if period_s <= 7 * DAY_S and age_s <= MINUTE.retention_s:
        return MINUTE
    return HOUR
