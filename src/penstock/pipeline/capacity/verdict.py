"""What it all means for each subject: when its room runs out, and what needs attention first.

| saturation | |
|---|---|
| `reached` | the high days are at the limit already |
| `date` | they will be on `saturates_on`, between `earliest` and `latest` |
| `far` | later than two years: no line carries that far |
| `never` | the trend is flat or falling |
| `no_limit` | there is no limit to reach |
| `not_enough_data` | fewer than two weeks of whole days |
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.pipeline.capacity.hours import SUBJECT
from penstock.pipeline.capacity.period import DAY_S

FARTHEST_DAYS = 730
SOON_DAYS = 30
TIGHT = 0.8
BEHIND, BEHIND_OVERALL = 0.9, 0.95

VERDICTS = ("at_limit", "soon", "behind", "later", "tight", "bursts", "unknown", "fine")
"""From what needs attention first to what needs none."""

PRESENTED = (
    *("kind", *SUBJECT, "verdict", "attention", "first_seen", "enqueued", "dequeued", "finished"),
    *("peak_enqueued_per_s", "peak_enqueued_at", "peak_dequeued_per_s", "peak_dequeued_at"),
    *("peak_depth", "peak_depth_at", "peak_running", "peak_running_at", "limit", "utilisation", "headroom"),
    *("hours_at_limit", "busiest_hour_running", "waits", "wait_p50_ms", "wait_p95_ms", "wait_p99_ms"),
    *("busy_hours", "busy_enqueued_per_s", "busy_finished_per_s", "busy_ratio", "overall_ratio"),
    *("measure", "trend_days", "last_day", "slope", "slope_low", "slope_high", "level", "direction"),
    *("saturation", "saturates_on", "earliest", "latest"),
)


def judge(peaks: DataFrame, service: DataFrame, waits: DataFrame, trends: DataFrame, end_s: int) -> DataFrame:
    """One row per subject, most urgent first; `end_s` is the end of the period."""
    joined = (
        peaks.join(service, [*SUBJECT], "left")
        .join(waits, [*SUBJECT], "left")
        .withColumn("measure", F.when(F.col("limit").isNotNull(), "running").otherwise("enqueued_per_s"))
        .join(trends, [*SUBJECT, "measure"], "left")
    )
    rated = saturation(joined, end_s).withColumn("verdict", _verdict(end_s))
    order = F.array_position(F.array(*map(F.lit, VERDICTS)), F.col("verdict"))
    kind = F.when(F.col("queue") == "", "environment").otherwise("queue")
    return rated.select("*", kind.alias("kind"), order.alias("attention")).orderBy(
        "attention",
        F.asc_nulls_last("saturates_on_s"),
        F.desc("hours_at_limit"),
        F.desc_nulls_last("utilisation"),
        F.desc("peak_enqueued_per_s"),
        *SUBJECT,
    )


def saturation(frame: DataFrame, end_s: int) -> DataFrame:
    """The frame with `saturation` and, where that is `date`, when the line of its trend meets its limit.

    The date is the day whose peak meets the limit. The earliest and the latest one come from the ends of the
    slope's interval.
    """
    room = F.col("limit") - F.col("level")
    since = F.col("last_day_s")
    meets = F.when(F.col("slope") > 0, since + room / F.col("slope") * DAY_S)
    kind = (
        F.when(F.col("limit").isNull(), "no_limit")
        .when(F.col("level").isNull(), "not_enough_data")
        .when(room <= 0, "reached")
        .when(F.col("direction") != "rising", "never")
        .when(meets > end_s + FARTHEST_DAYS * DAY_S, "far")
        .otherwise("date")
    )
    dated = F.col("saturation") == "date"

    def moment(slope: str) -> Column:
        return F.when(dated, (since + room / F.col(slope) * DAY_S).cast("long"))

    return (
        frame.withColumn("saturation", kind)
        .withColumn("saturates_on_s", moment("slope"))
        .withColumn("earliest_s", moment("slope_high"))
        .withColumn("latest_s", moment("slope_low"))
    )


def _verdict(end_s: int) -> Column:
    saturates, slow = F.col("saturation"), F.col("busy_ratio") < BEHIND
    return (
        F.when(saturates == "reached", "at_limit")
        .when(F.col("saturates_on_s") <= end_s + SOON_DAYS * DAY_S, "soon")
        .when(slow & (F.col("overall_ratio") < BEHIND_OVERALL), "behind")
        .when(saturates == "date", "later")
        .when(F.col("utilisation") >= TIGHT, "tight")
        .when(slow, "bursts")
        .when(saturates == "not_enough_data", "unknown")
        .otherwise("fine")
    )


def presented(judged: DataFrame) -> DataFrame:
    """The judged rows as they are written: moments as times, days as dates, in an order for reading."""
    renamed = judged.withColumnsRenamed({"days": "trend_days", "first_s": "first_seen_s"})
    return renamed.select(*(_readable(name) for name in PRESENTED))


def presented_days(days: DataFrame) -> DataFrame:
    return days.select(*SUBJECT, _readable("day"), "running", "enqueued_per_s").orderBy(*SUBJECT, "day")


def _readable(name: str) -> Column:
    if name in ("saturates_on", "earliest", "latest", "last_day", "day"):
        return F.to_date(F.timestamp_seconds(f"{name}_s")).alias(name)
    if name.endswith("_at") or name == "first_seen":
        return F.timestamp_seconds(f"{name}_s").alias(name)
    return F.col(name)
