"""How loaded each subject is: pure functions of the frame of hours.

Aggregates of fixed size only, no lists: a year of a thousand queues is ten million rows.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from penstock.pipeline.capacity.hours import SUBJECT
from penstock.pipeline.capacity.period import DAY_S, HOUR_S, Period

WEEK_H = 168
MONDAY_H = 72
"""The epoch began on a Thursday: this many hours into a week that begins on Monday."""

ABOVE_P95 = 20
"""One value in so many lies above the p95."""

BUSY_SHARE, FEWEST_BUSY_HOURS, FEWEST_ARRIVALS = 0.05, 3, 100


def peaks(hours: DataFrame, width_s: int) -> DataFrame:
    """Per subject: totals, the highest of everything with its time, and the limit last seen (null: none).

    Rates are per second over buckets of `width_s`. `busiest_hour_running` is how many were worked on at once
    on average in the hour with the most work, by the run times: short bursts to the limit do not show in it.
    """
    at_the_limit = F.col("running_max") >= F.col("limit_last")
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
            F.count_if(at_the_limit & (F.col("limit_last") > 0)).alias("hours_at_limit"),
            (F.max("run_ms") / (HOUR_S * 1000)).alias("busiest_hour_running"),
        )
        # A limit of 0 is a queue that was switched off; no share of it can be in use.
        .withColumn("limit", F.when(F.col("limit") > 0, F.col("limit")))
        .withColumn("utilisation", F.col("peak_running") / F.col("limit"))
        .withColumn("headroom", F.when(F.col("utilisation") > 1, 0.0).otherwise(1 - F.col("utilisation")))
    )


def service(hours: DataFrame) -> DataFrame:
    """Per queue: what arrived and what was finished in its busiest hours, per second, and their ratio.

    The busiest hours are the twentieth part with the most arrivals, three at least. Finished counts once per
    message however many groups consume it. Below 100 arrivals there is no ratio: it would be chance.
    """
    by_arrivals = Window.partitionBy(*SUBJECT).orderBy(F.desc("enqueued"), "hour_s")
    busy_hours = F.greatest(
        F.lit(FEWEST_BUSY_HOURS), F.ceil(F.count("*").over(Window.partitionBy(*SUBJECT)) * BUSY_SHARE)
    )
    ranked = (
        hours.where((F.col("enqueued") > 0) & F.col("served").isNotNull())
        .withColumn("place", F.row_number().over(by_arrivals))
        .withColumn("busy", F.col("place") <= busy_hours)
    )
    came, served = (F.sum(F.when(F.col("busy"), F.col(name))) for name in ("enqueued", "served"))
    busy = ranked.groupBy(*SUBJECT).agg(
        F.count_if("busy").alias("busy_hours"),
        (came / (F.count_if("busy") * HOUR_S)).alias("busy_enqueued_per_s"),
        (served / (F.count_if("busy") * HOUR_S)).alias("busy_finished_per_s"),
        F.when(came >= FEWEST_ARRIVALS, served / came).alias("busy_ratio"),
    )
    # Work is often finished in a later hour in which nothing arrives, so the whole counts all hours.
    whole = hours.groupBy(*SUBJECT).agg(
        F.when(F.sum("enqueued") >= FEWEST_ARRIVALS, F.sum("served") / F.sum("enqueued")).alias(
            "overall_ratio"
        )
    )
    return whole.join(busy, [*SUBJECT], "left")


def weekly_profile(hours: DataFrame, period: Period) -> DataFrame:
    """Per subject 168 rows, `hour_of_week` 0 being Monday 00:00 UTC: mean and p95 of arrivals per second.

    Hours without events count as 0 from the subject's first hour on; a cell that no hour fell into is null.
    The hour that is still running counts by the seconds it has had. p95 is the nearest rank.
    """
    covered = F.greatest(F.lit(1), F.least(F.lit(HOUR_S), F.lit(period.end_s) - F.col("hour_s")))
    of_week = F.pmod(F.col("hour_s") / HOUR_S + MONDAY_H, F.lit(WEEK_H)).cast("int")
    cells = hours.select(
        *SUBJECT, of_week.alias("hour_of_week"), (F.col("enqueued") / covered).alias("load"), "running_max"
    )
    # At most a twentieth of a cell's hours lie above its p95, so a few of the highest are enough; hours
    # without events are the lowest and need not be there.
    end = -(-period.end_s // HOUR_S)
    most = (end - period.start_s // HOUR_S) // WEEK_H // ABOVE_P95 + 1
    place = F.row_number().over(Window.partitionBy(*SUBJECT, "hour_of_week").orderBy(F.desc("load")))
    measured = (
        cells.withColumn("place", place)
        .groupBy(*SUBJECT, "hour_of_week")
        .agg(
            F.sum("load").alias("total"),
            F.max("running_max").alias("running_max"),
            *(
                F.max(F.when(F.col("place") == n + 1, F.col("load"))).alias(f"top_{n}")
                for n in range(most + 1)
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
    highest = F.array(*(F.coalesce(f"top_{n}", F.lit(0.0)) for n in range(most + 1)))
    p95 = F.get(highest, F.floor(F.col("hours") / ABOVE_P95).cast("int"))
    return filled.select(
        *SUBJECT,
        "hour_of_week",
        "hours",
        F.when(F.col("hours") > 0, F.coalesce("total", F.lit(0.0)) / F.col("hours")).alias("mean_per_s"),
        F.when(F.col("hours") > 0, p95).alias("p95_per_s"),
        "running_max",
    )


def daily_peaks(hours: DataFrame, period: Period) -> DataFrame:
    """Per subject and whole day since it was first seen: most `running`, and arrivals in the fullest hour.

    A day without events has no arrivals; what runs is what ran when it was last seen (null: never seen).
    """
    days = hours.groupBy(*SUBJECT, (F.col("hour_s") - F.pmod("hour_s", F.lit(DAY_S))).alias("day_s")).agg(
        F.max("running_max").alias("running_max"),
        F.max_by("running_last", _observed("running_last", F.col("hour_s"))).alias("running_last"),
        (F.max("enqueued") / HOUR_S).alias("enqueued_per_s"),
    )
    whole = period.days
    known = hours.groupBy(*SUBJECT).agg(F.min("hour_s").alias("first_s"))
    first = F.greatest(F.col("first_s") - F.pmod("first_s", F.lit(DAY_S)), F.lit(whole.start))
    until = whole[-1] if whole else whole.start - DAY_S
    listed = known.where(first <= until).select(
        *SUBJECT, F.explode(F.sequence(first, F.lit(until), F.lit(DAY_S))).alias("day_s")
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
    return F.when(F.col(name).isNotNull(), order)
