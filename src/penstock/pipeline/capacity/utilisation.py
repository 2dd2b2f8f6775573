"""Compute how loaded each subject is: pure functions of the data frame of hours.

Only aggregates of fixed size, no lists: a year of a thousand queues is ten million rows.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from penstock.pipeline.capacity.hours import SUBJECT
from penstock.pipeline.capacity.period import DAY_S, HOUR_S, Period

WEEK_H = 168
MONDAY_H = 72
"""The epoch began on a Thursday: this many hours after Monday 00:00."""

VALUES_PER_ONE_ABOVE_P95 = 20
"""One value in this many lies above the p95."""

BUSY_SHARE, MIN_BUSY_HOURS, MIN_ARRIVALS = 0.05, 3, 100


def compute_peaks(hours: DataFrame, width_s: int) -> DataFrame:
    """Return per subject the totals, all peaks with their times, and the last observed limit (null: none).

    Rates are per second over buckets of `width_s`. `busiest_hour_running` is the average number of messages
    in progress in the hour with the most work, computed from the run times: short bursts to the limit do not
    raise it.
    """
    is_at_limit = F.col("running_max") >= F.col("limit_last")
    return (
        hours.groupBy(*SUBJECT)
        .agg(
            F.min("hour_s").alias("first_s"),
            *(F.sum(name).alias(name) for name in ("enqueued", "dequeued", "finished")),
            *(_rate(F.max(f"peak_{name}"), width_s).alias(f"peak_{name}_per_s") for name in _RATES),
            *(
                F.max_by(f"peak_{name}_at_s", F.struct(f"peak_{name}", -F.col(f"peak_{name}_at_s"))).alias(
                    f"peak_{name}_at_s"
                )
                for name in _RATES
            ),
            *(F.max(f"{name}_max").alias(f"peak_{name}") for name in _GAUGES),
            *(
                F.max_by("hour_s", _observed(f"{name}_max", F.struct(f"{name}_max", -F.col("hour_s")))).alias(
                    f"peak_{name}_at_s"
                )
                for name in _GAUGES
            ),
            F.max_by("limit_last", _observed("limit_last", F.col("hour_s"))).alias("limit"),
            F.count_if(is_at_limit & (F.col("limit_last") > 0)).alias("hours_at_limit"),
            (F.max("run_ms") / (HOUR_S * 1000)).alias("busiest_hour_running"),
        )
        # A limit of 0 means that the queue is disabled; it has no utilisation.
        .withColumn("limit", F.when(F.col("limit") > 0, F.col("limit")))
        .withColumn("utilisation", F.col("peak_running") / F.col("limit"))
        .withColumn("headroom", F.when(F.col("utilisation") > 1, 0.0).otherwise(1 - F.col("utilisation")))
    )


def compute_service(hours: DataFrame) -> DataFrame:
    """Return per queue the arrivals and finished messages per second in its busiest hours, and their ratio.

    The busiest hours are the 5 % with the most arrivals, at least three. A finished message counts once,
    however many groups consume it. Below 100 arrivals there is no ratio, because it would be random.
    """
    by_arrivals = Window.partitionBy(*SUBJECT).orderBy(F.desc("enqueued"), "hour_s")
    busy_hours = F.greatest(
        F.lit(MIN_BUSY_HOURS), F.ceil(F.count("*").over(Window.partitionBy(*SUBJECT)) * BUSY_SHARE)
    )
    ranked = (
        hours.where((F.col("enqueued") > 0) & F.col("served").isNotNull())
        .withColumn("rank", F.row_number().over(by_arrivals))
        .withColumn("busy", F.col("rank") <= busy_hours)
    )
    arrived, served = (F.sum(F.when(F.col("busy"), F.col(name))) for name in ("enqueued", "served"))
    busy = ranked.groupBy(*SUBJECT).agg(
        F.count_if("busy").alias("busy_hours"),
        (arrived / (F.count_if("busy") * HOUR_S)).alias("busy_enqueued_per_s"),
        (served / (F.count_if("busy") * HOUR_S)).alias("busy_finished_per_s"),
        F.when(arrived >= MIN_ARRIVALS, served / arrived).alias("busy_ratio"),
    )
    # Messages are often finished in a later hour without arrivals, so the overall ratio uses all hours.
    overall = hours.groupBy(*SUBJECT).agg(
        F.when(F.sum("enqueued") >= MIN_ARRIVALS, F.sum("served") / F.sum("enqueued")).alias("overall_ratio")
    )
    return overall.join(busy, [*SUBJECT], "left")


def compute_weekly_profile(hours: DataFrame, period: Period) -> DataFrame:
    """Return 168 rows per subject: mean and p95 of arrivals per second. Hour 0 is Monday 00:00 UTC.

    Hours without events count as 0 from the first hour of the subject on. An hour of the week that the period
    does not contain is null. The current hour counts by its elapsed seconds. p95 is the nearest rank.
    """
    covered = F.greatest(F.lit(1), F.least(F.lit(HOUR_S), F.lit(period.end_s) - F.col("hour_s")))
    of_week = F.pmod(F.col("hour_s") / HOUR_S + MONDAY_H, F.lit(WEEK_H)).cast("int")
    cells = hours.select(
        *SUBJECT, of_week.alias("hour_of_week"), (F.col("enqueued") / covered).alias("load"), "running_max"
    )
    # At most a twentieth of the values of a cell lie above its p95, so the highest few values are enough.
    # Hours without events have the lowest value and need no row.
    end = -(-period.end_s // HOUR_S)
    top_count = (end - period.start_s // HOUR_S) // WEEK_H // VALUES_PER_ONE_ABOVE_P95 + 1
    rank = F.row_number().over(Window.partitionBy(*SUBJECT, "hour_of_week").orderBy(F.desc("load")))
    measured = (
        cells.withColumn("rank", rank)
        .groupBy(*SUBJECT, "hour_of_week")
        .agg(
            F.sum("load").alias("total"),
            F.max("running_max").alias("running_max"),
            *(
                F.max(F.when(F.col("rank") == n + 1, F.col("load"))).alias(f"top_{n}")
                for n in range(top_count + 1)
            ),
        )
    )
    known = hours.groupBy(*SUBJECT).agg((F.min("hour_s") / HOUR_S).cast("long").alias("first"))
    grid = known.withColumn("hour_of_week", F.explode(F.sequence(F.lit(0), F.lit(WEEK_H - 1))))

    def weeks_before(hour: Column) -> Column:
        return F.floor((hour + MONDAY_H - 1 - F.col("hour_of_week")) / WEEK_H)

    filled = grid.join(measured, [*SUBJECT, "hour_of_week"], "left").withColumn(
        "hours", weeks_before(F.lit(end)) - weeks_before(F.col("first"))
    )
    highest = F.array(*(F.coalesce(f"top_{n}", F.lit(0.0)) for n in range(top_count + 1)))
    p95 = F.get(highest, F.floor(F.col("hours") / VALUES_PER_ONE_ABOVE_P95).cast("int"))
    return filled.select(
        *SUBJECT,
        "hour_of_week",
        "hours",
        F.when(F.col("hours") > 0, F.coalesce("total", F.lit(0.0)) / F.col("hours")).alias("mean_per_s"),
        F.when(F.col("hours") > 0, p95).alias("p95_per_s"),
        "running_max",
    )


def compute_daily_peaks(hours: DataFrame, period: Period) -> DataFrame:
    """Return the peaks of every complete day since the first event of a subject.

    `running` is the maximum of the day, `enqueued_per_s` the arrivals in its busiest hour. A day without
    events has no arrivals, and the last observed value of `running` (null: never observed).
    """
    days = hours.groupBy(*SUBJECT, (F.col("hour_s") - F.pmod("hour_s", F.lit(DAY_S))).alias("day_s")).agg(
        F.max("running_max").alias("running_max"),
        F.max_by("running_last", _observed("running_last", F.col("hour_s"))).alias("running_last"),
        (F.max("enqueued") / HOUR_S).alias("enqueued_per_s"),
    )
    complete_days = period.days
    known = hours.groupBy(*SUBJECT).agg(F.min("hour_s").alias("first_s"))
    first = F.greatest(F.col("first_s") - F.pmod("first_s", F.lit(DAY_S)), F.lit(complete_days.start))
    last_day = complete_days[-1] if complete_days else complete_days.start - DAY_S
    listed = known.where(first <= last_day).select(
        *SUBJECT, F.explode(F.sequence(first, F.lit(last_day), F.lit(DAY_S))).alias("day_s")
    )
    before = Window.partitionBy(*SUBJECT).orderBy("day_s").rowsBetween(Window.unboundedPreceding, -1)
    carried = F.last("running_last", ignorenulls=True).over(before)
    return (
        listed.join(days, [*SUBJECT, "day_s"], "left")
        .withColumn("carried", carried)
        .select(
            *SUBJECT,
            "day_s",
            F.coalesce("running_max", "carried").cast("double").alias("running"),
            F.coalesce("enqueued_per_s", F.lit(0.0)).alias("enqueued_per_s"),
        )
    )


_RATES = ("enqueued", "dequeued")
_GAUGES = ("depth", "running")


def _rate(count: Column, width_s: int) -> Column:
    return count / F.lit(width_s)


def _observed(name: str, order: Column) -> Column:
    """Return the sort key for rows in which the gauge was observed, null for the others."""
    return F.when(F.col(name).isNotNull(), order)
