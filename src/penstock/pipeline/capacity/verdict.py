"""Decide for each subject when it reaches its limit, and how urgent that is.

| saturation | meaning |
|---|---|
| `reached` | the high days are at the limit already |
| `date` | the high days reach the limit on `saturates_on`, between `earliest` and `latest` |
| `far` | later than two years from now: the line does not predict that far |
| `never` | the trend is flat or falling |
| `no_limit` | the subject has no limit |
| `not_enough_data` | fewer than two weeks of complete days |

A subject without a limit keeps up only if a ratio says so. Without a ratio its verdict is `unknown`.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.pipeline.capacity.hours import SUBJECT
from penstock.pipeline.capacity.period import DAY_S

MAX_FORECAST_DAYS = 730
SOON_DAYS = 30
TIGHT_UTILISATION = 0.8
MIN_BUSY_RATIO, MIN_OVERALL_RATIO = 0.9, 0.95
"""A queue that finishes a smaller share of its arrivals falls behind."""

VERDICTS = ("at_limit", "soon", "behind", "later", "tight", "bursts", "unknown", "fine")
"""In order of urgency, most urgent first."""

REPORT_COLUMNS = (
    *("kind", *SUBJECT, "verdict", "attention", "first_seen", "enqueued", "dequeued", "finished"),
    *("peak_enqueued_per_s", "peak_enqueued_at", "peak_dequeued_per_s", "peak_dequeued_at"),
    *("peak_depth", "peak_depth_at", "peak_running", "peak_running_at", "limit", "utilisation", "headroom"),
    *("hours_at_limit", "busiest_hour_running", "waits", "wait_p50_ms", "wait_p95_ms", "wait_p99_ms"),
    *("busy_hours", "busy_enqueued_per_s", "busy_finished_per_s", "busy_ratio", "overall_ratio"),
    *("measure", "trend_days", "last_day", "slope", "slope_low", "slope_high", "level", "direction"),
    *("saturation", "saturates_on", "earliest", "latest"),
)


def decide_verdicts(
    peaks: DataFrame, service: DataFrame, waits: DataFrame, trends: DataFrame, end_s: int
) -> DataFrame:
    """Return one row per subject with its verdict, most urgent first; `end_s` is the end of the period."""
    joined = (
        peaks.join(service, [*SUBJECT], "left")
        .join(waits, [*SUBJECT], "left")
        .withColumn("measure", F.when(F.col("limit").isNotNull(), "running").otherwise("enqueued_per_s"))
        .join(trends, [*SUBJECT, "measure"], "left")
    )
    decided = add_saturation(joined, end_s).withColumn("verdict", _verdict(end_s))
    order = F.array_position(F.array(*map(F.lit, VERDICTS)), F.col("verdict"))
    kind = F.when(F.col("queue") == "", "environment").otherwise("queue")
    return decided.select("*", kind.alias("kind"), order.alias("attention")).orderBy(
        "attention",
        F.asc_nulls_last("saturates_on_s"),
        F.desc("hours_at_limit"),
        F.desc_nulls_last("utilisation"),
        F.desc("peak_enqueued_per_s"),
        *SUBJECT,
    )


def add_saturation(frame: DataFrame, end_s: int) -> DataFrame:
    """Add `saturation` and, where it is `date`, the day on which the trend line reaches the limit.

    The earliest and the latest day come from the ends of the interval of the slope.
    """
    free = F.col("limit") - F.col("level")
    last_day_s = F.col("last_day_s")
    reached_s = F.when(F.col("slope") > 0, last_day_s + free / F.col("slope") * DAY_S)
    kind = (
        F.when(F.col("limit").isNull(), "no_limit")
        .when(F.col("level").isNull(), "not_enough_data")
        .when(free <= 0, "reached")
        .when(F.col("direction") != "rising", "never")
        .when(reached_s > end_s + MAX_FORECAST_DAYS * DAY_S, "far")
        .otherwise("date")
    )
    has_date = F.col("saturation") == "date"

    def day_reached(slope: str) -> Column:
        return F.when(has_date, (last_day_s + free / F.col(slope) * DAY_S).cast("long"))

    return (
        frame.withColumn("saturation", kind)
        .withColumn("saturates_on_s", day_reached("slope"))
        .withColumn("earliest_s", day_reached("slope_high"))
        .withColumn("latest_s", day_reached("slope_low"))
    )


def _verdict(end_s: int) -> Column:
    saturation, busy_ratio = F.col("saturation"), F.col("busy_ratio")
    is_slow = busy_ratio < MIN_BUSY_RATIO
    return (
        F.when(saturation == "reached", "at_limit")
        .when(F.col("saturates_on_s") <= end_s + SOON_DAYS * DAY_S, "soon")
        .when((is_slow | busy_ratio.isNull()) & (F.col("overall_ratio") < MIN_OVERALL_RATIO), "behind")
        .when(saturation == "date", "later")
        .when(F.col("utilisation") >= TIGHT_UTILISATION, "tight")
        .when(is_slow, "bursts")
        .when((saturation == "not_enough_data") | (saturation == "no_limit") & _has_no_ratio(), "unknown")
        .otherwise("fine")
    )


def _has_no_ratio() -> Column:
    """Return whether nothing shows how many of its arrivals the subject finishes."""
    return F.col("busy_ratio").isNull() & F.col("overall_ratio").isNull()


def to_report_rows(decided: DataFrame) -> DataFrame:
    """Return the rows as the report stores them: with timestamps and dates, and columns in reading order."""
    renamed = decided.withColumnsRenamed({"days": "trend_days", "first_s": "first_seen_s"})
    return renamed.select(*(_report_column(name) for name in REPORT_COLUMNS))


def to_report_days(days: DataFrame) -> DataFrame:
    """Return the daily peaks as the report stores them."""
    return days.select(*SUBJECT, _report_column("day"), "running", "enqueued_per_s").orderBy(*SUBJECT, "day")


def _report_column(name: str) -> Column:
    if name in ("saturates_on", "earliest", "latest", "last_day", "day"):
        return F.to_date(F.timestamp_seconds(f"{name}_s")).alias(name)
    if name.endswith("_at") or name == "first_seen":
        return F.timestamp_seconds(f"{name}_s").alias(name)
    return F.col(name)
