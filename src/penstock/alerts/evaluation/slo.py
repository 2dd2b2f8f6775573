"""Burn rates of objectives such as "95 % of work starts within 30 s".

A burn rate of 1 uses up the error budget exactly in the time of the objective. A rule fires if the budget
burns fast in a long and in a short window: the long one shows that it matters, the short one that it goes on.
https://sre.google/workbook/alerting-on-slos/
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from penstock.warehouse.series.native_format import Column

MINUTE_S, HOUR_S = 60, 3600


@dataclass(frozen=True, slots=True)
class BurnWindows:
    """A burn rate that fires if both windows reach it."""

    burn_rate: float
    long_s: int
    short_s: int


BURN_WINDOWS = (
    BurnWindows(14.4, HOUR_S, 5 * MINUTE_S),
    BurnWindows(6.0, 6 * HOUR_S, 30 * MINUTE_S),
    BurnWindows(1.0, 72 * HOUR_S, 6 * HOUR_S),
)

WINDOW_LENGTHS_S = tuple(sorted({s for windows in BURN_WINDOWS for s in (windows.long_s, windows.short_s)}))


class WaitCounts(NamedTuple):
    """Waits of a window, and those among them that were short enough. One number per window end."""

    total: Column
    short: Column


def slo_value(counts: Mapping[int, WaitCounts], objective: float, min_samples: int) -> Column:
    """Return how fast the budget burns, relative to the rate that fires: 1 or more fires. NaN without waits.

    `counts` has the waits of each length in WINDOW_LENGTHS_S. A pair of windows counts if its long one has
    enough samples.
    """
    values = []
    for windows in BURN_WINDOWS:
        long, short = counts[windows.long_s], counts[windows.short_s]
        burn = np.fmin(_burn_rate(long, objective), _burn_rate(short, objective))
        values.append(np.where(long.total >= min_samples, burn / windows.burn_rate, np.nan))
    with np.errstate(invalid="ignore"):
        fastest: Column = np.fmax.reduce(values)
    return fastest


def _burn_rate(counts: WaitCounts, objective: float) -> Column:
    """The share of late work divided by the share that the objective allows; 0 if nothing started."""
    late = 1 - counts.short / np.maximum(counts.total, 1)
    return np.where(counts.total > 0, late / (1 - objective), 0.0)
