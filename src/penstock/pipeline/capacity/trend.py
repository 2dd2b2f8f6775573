"""Fit a robust line through the days of a measure, with the uncertainty of its slope.

The slope is the median of the slopes between all pairs of days that are whole weeks apart (Theil–Sen per
weekday, after Hirsch and Slack). So neither quiet weekends nor a single outlier change it. Its confidence
interval comes from Kendall's statistic in the same way. The level of the line is that of the high days,
because those reach the limit first: nine days in ten are on or below the line.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

from penstock.pipeline.capacity.hours import SUBJECT
from penstock.pipeline.capacity.period import DAY_S

MIN_DAYS = 14
"""Two of every weekday. With fewer days there is no line."""

WEEK_DAYS = 7
TWO_SIDED_95 = 1.96
HIGH_DAYS_QUANTILE = 0.9

Numbers = npt.NDArray[np.float64]

TREND_SCHEMA = StructType(
    [
        *(StructField(name, StringType()) for name in (*SUBJECT, "measure")),
        StructField("days", LongType()),
        StructField("last_day_s", LongType()),
        *(StructField(name, DoubleType()) for name in ("slope", "slope_low", "slope_high", "level")),
        StructField("direction", StringType()),
    ]
)


@dataclass(frozen=True, slots=True)
class TrendLine:
    """The change per day with its 95 % interval, and the level on the last day."""

    slope: float
    low: float
    high: float
    level: float

    @property
    def direction(self) -> str:
        """`flat` means that the interval includes zero: no significant change."""
        if self.low > 0:
            return "rising"
        return "falling" if self.high < 0 else "flat"


def fit_line(days: Sequence[int], values: Sequence[float]) -> TrendLine | None:
    """Return the line through values on numbered days, or None if there are fewer than `MIN_DAYS`."""
    if len(days) < MIN_DAYS:
        return None
    x, y = np.asarray(days, dtype=np.float64), np.asarray(values, dtype=np.float64)
    later, earlier = np.tril_indices(len(x), -1)
    distance = x[later] - x[earlier]
    same_weekday = np.mod(distance, WEEK_DAYS) == 0
    slopes = np.sort((y[later] - y[earlier])[same_weekday] / distance[same_weekday])
    if not len(slopes):
        return None
    slope = float(np.median(slopes))
    _, per_weekday = np.unique(np.mod(x, WEEK_DAYS), return_counts=True)
    variance = float(np.sum(per_weekday * (per_weekday - 1) * (2 * per_weekday + 5))) / 18
    half_width = TWO_SIDED_95 * math.sqrt(variance)
    ranks = np.arange(1, len(slopes) + 1)
    low, high = np.interp([(len(slopes) - half_width) / 2, (len(slopes) + half_width) / 2 + 1], ranks, slopes)
    level = np.quantile(y - slope * (x - x.max()), HIGH_DAYS_QUANTILE)
    return TrendLine(slope, float(low), float(high), float(level))


def compute_trends(days: DataFrame) -> DataFrame:
    """Return one line per subject and measure (`running`, `enqueued_per_s`); null with too few days."""
    measures = F.map_from_arrays(
        F.array(F.lit("running"), F.lit("enqueued_per_s")), F.array("running", "enqueued_per_s")
    )
    long = days.select(*SUBJECT, "day_s", F.explode(measures).alias("measure", "value"))
    return (
        long.where(F.col("value").isNotNull())
        .groupBy(*SUBJECT, "measure")
        .applyInArrow(_fit_group, TREND_SCHEMA)
    )


def _fit_group(table: pa.Table) -> pa.Table:
    days = table["day_s"].to_numpy() // DAY_S
    line = fit_line(days, table["value"].to_numpy())
    row = {name: table[name][0].as_py() for name in (*SUBJECT, "measure")}
    row |= {"days": len(days), "last_day_s": int(days.max()) * DAY_S}
    if line is not None:
        row |= {"slope": line.slope, "slope_low": line.low, "slope_high": line.high}
        row |= {"level": line.level, "direction": line.direction}
    return pa.Table.from_pylist([row], schema=to_arrow_schema(TREND_SCHEMA))
