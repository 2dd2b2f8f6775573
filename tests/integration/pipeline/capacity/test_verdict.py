"""Tests of the computations of the capacity report, on data frames that can be checked by hand."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.pipeline.capacity import sentences
from penstock.pipeline.capacity.hours import HOUR_SCHEMA, SUBJECT, WAIT_SCHEMA
from penstock.pipeline.capacity.period import DAY_S, HOUR_S, Period
from penstock.pipeline.capacity.trend import TREND_SCHEMA, compute_trends
from penstock.pipeline.capacity.utilisation import (
    compute_daily_peaks,
    compute_peaks,
    compute_service,
    compute_weekly_profile,
)
from penstock.pipeline.capacity.verdict import decide_verdicts, to_report_rows

MONDAY = int(datetime(2026, 9, 21, tzinfo=UTC).timestamp())


def hour(at_s: int, queue: str = "q", **values: Any) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(HOUR_SCHEMA.fieldNames())
    row |= dict.fromkeys(SUBJECT, "default") | {"queue": queue, "hour_s": at_s}
    row |= dict.fromkeys(("enqueued", "dequeued", "finished", "peak_enqueued", "peak_dequeued", "run_ms"), 0)
    row |= {"served": 0.0, "peak_enqueued_at_s": at_s, "peak_dequeued_at_s": at_s}
    return row | values


def frame(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    return spark.createDataFrame(list(rows), schema=HOUR_SCHEMA)


def by_queue(computed: DataFrame) -> dict[str, dict[str, Any]]:
    return {row["queue"]: row for row in computed.toArrow().to_pylist()}


def test_peaks_are_the_highest_values_with_their_times(spark: SparkSession) -> None:
    first, second = MONDAY, MONDAY + HOUR_S
    hours = frame(
        spark,
        hour(first, enqueued=900, dequeued=10, peak_enqueued=120, peak_enqueued_at_s=first + 60, depth_max=7),
        hour(second, enqueued=500, peak_enqueued=120, peak_dequeued=30, peak_dequeued_at_s=second + 120),
        hour(first, "run", running_max=9, limit_last=10, run_ms=7_200_000),
        hour(second, "run", running_max=20, limit_last=20, run_ms=3_600_000),
        hour(second + HOUR_S, "run", running_max=4),
        hour(first, "off", running_max=0, limit_last=0),
    )
    by_name = by_queue(compute_peaks(hours, 60))
    q = by_name["q"]
    assert (q["enqueued"], q["dequeued"], q["first_s"]) == (1_400, 10, first)
    assert (q["peak_enqueued_per_s"], q["peak_enqueued_at_s"]) == (2.0, first + 60), "the first of two equal"
    assert (q["peak_dequeued_per_s"], q["peak_dequeued_at_s"]) == (0.5, second + 120)
    assert (q["peak_depth"], q["peak_depth_at_s"], q["peak_running"]) == (7, first, None)
    assert (q["limit"], q["utilisation"], q["headroom"], q["hours_at_limit"]) == (None, None, None, 0)
    run = by_name["run"]
    assert (run["peak_running"], run["peak_running_at_s"]) == (20, second)
    assert (run["limit"], run["utilisation"], run["headroom"]) == (20, 1.0, 0.0), "the last observed limit"
    assert (run["hours_at_limit"], run["busiest_hour_running"]) == (1, 2.0)
    assert by_name["off"]["limit"] is None


def test_the_service_ratio_is_computed_in_the_busiest_hours(spark: SparkSession) -> None:
    calm = [hour(MONDAY + n * HOUR_S, enqueued=100, served=100.0) for n in range(57)]
    busy = [hour(MONDAY + n * HOUR_S, enqueued=7_200, served=3_600.0) for n in range(57, 60)]
    after = [hour(MONDAY + 60 * HOUR_S, served=10_800.0)]
    rare = [hour(MONDAY, "rare", enqueued=9, served=0.0)]
    environment = [hour(MONDAY, "", enqueued=5_000, served=None)]
    by_name = by_queue(compute_service(frame(spark, *calm, *busy, *after, *rare, *environment)))
    q = by_name["q"]
    assert q["busy_hours"] == 3
    assert (q["busy_enqueued_per_s"], q["busy_finished_per_s"], q["busy_ratio"]) == (2.0, 1.0, 0.5)
    assert q["overall_ratio"] == 1.0, "it caught up in an hour without arrivals"
    assert (by_name["rare"]["busy_ratio"], by_name["rare"]["overall_ratio"]) == (None, None)
    assert (by_name[""]["busy_hours"], by_name[""]["overall_ratio"]) == (None, None), (
        "environments have no groups"
    )


def test_the_weekly_profile_counts_idle_hours_as_zero(spark: SparkSession) -> None:
    week = 7 * DAY_S
    nine = MONDAY + 9 * HOUR_S
    loads = [3_600, None, 7_200]
    hours = frame(
        spark,
        *(
            hour(nine + n * week, enqueued=load, running_max=n)
            for n, load in enumerate(loads)
            if load is not None
        ),
        hour(MONDAY + 3 * week, enqueued=900),
    )
    period = Period(MONDAY, MONDAY + 3 * week + 900, MONDAY + 4 * week)
    cells = {row["hour_of_week"]: row for row in compute_weekly_profile(hours, period).toArrow().to_pylist()}
    assert sorted(cells) == list(range(168))
    assert (cells[9]["hours"], cells[9]["mean_per_s"], cells[9]["p95_per_s"]) == (3, 1.0, 2.0)
    assert cells[9]["running_max"] == 2
    assert (cells[10]["hours"], cells[10]["mean_per_s"], cells[10]["p95_per_s"]) == (3, 0.0, 0.0)
    # The period contains Monday 00:00 three times, the last time for a quarter of an hour.
    assert (cells[0]["hours"], cells[0]["mean_per_s"], cells[0]["p95_per_s"]) == (
        3,
        pytest.approx(1 / 3),
        1.0,
    )
    assert cells[8]["hours"] == 2, "hours before the first event do not count"


def test_p95_is_the_nearest_rank(spark: SparkSession) -> None:
    week = 7 * DAY_S
    rows = [hour(MONDAY + n * week, enqueued=3_600 * (n + 1)) for n in range(20)]
    period = Period(MONDAY, MONDAY + 20 * week, MONDAY + 20 * week)
    [cell] = (
        compute_weekly_profile(frame(spark, *rows), period).where("hour_of_week = 0").toArrow().to_pylist()
    )
    assert (cell["mean_per_s"], cell["p95_per_s"]) == (10.5, 19.0)


def test_an_hour_of_the_week_outside_the_period_has_no_value(spark: SparkSession) -> None:
    period = Period(MONDAY, MONDAY + 2 * HOUR_S, MONDAY + DAY_S)
    computed = compute_weekly_profile(frame(spark, hour(MONDAY, enqueued=1)), period).toArrow().to_pylist()
    assert {row["hour_of_week"] for row in computed if row["mean_per_s"] is not None} == {0, 1}


def test_daily_peaks_cover_every_complete_day_since_the_first_event(spark: SparkSession) -> None:
    hours = frame(
        spark,
        hour(MONDAY + DAY_S + 5 * HOUR_S, enqueued=3_600, running_max=9, running_last=4),
        hour(MONDAY + DAY_S + 6 * HOUR_S, enqueued=7_200),
        hour(MONDAY + 3 * DAY_S, enqueued=36, running_max=2, running_last=0),
        hour(MONDAY + 4 * DAY_S + HOUR_S, enqueued=99_999, running_max=50),
    )
    period = Period(MONDAY, MONDAY + 4 * DAY_S + 2 * HOUR_S, MONDAY + 5 * DAY_S)
    rows = sorted(compute_daily_peaks(hours, period).toArrow().to_pylist(), key=lambda row: row["day_s"])
    assert [((row["day_s"] - MONDAY) // DAY_S, row["running"], row["enqueued_per_s"]) for row in rows] == [
        (1, 9.0, 2.0),
        (2, 4.0, 0.0),  # the last value of running is carried forward; no arrivals
        (3, 2.0, 0.01),
    ], "the fifth day is not complete"


def verdicts(spark: SparkSession, days: int, **queues: Any) -> dict[str, dict[str, Any]]:
    """Return the verdicts on queues, each given as a function from the day to the values of one hour."""
    rows = [
        hour(MONDAY + day * DAY_S + 12 * HOUR_S, queue, **values)
        for queue, values_of_day in queues.items()
        for day in range(days)
        if (values := values_of_day(day)) is not None
    ]
    end = MONDAY + days * DAY_S
    hours = frame(spark, *rows).cache()
    waits = spark.createDataFrame(
        [("default", "default", "default", "grows", 5, 1.0, 2.0, 3.0)], schema=WAIT_SCHEMA
    )
    lines = compute_trends(compute_daily_peaks(hours, Period(MONDAY, end, end)))
    return by_queue(
        to_report_rows(decide_verdicts(compute_peaks(hours, 60), compute_service(hours), waits, lines, end))
    )


def running(count: float, limit: int | None) -> dict[str, Any]:
    return {
        "running_max": int(count),
        "running_last": 0,
        "limit_last": limit,
        "enqueued": 500,
        "served": 500.0,
    }


def test_verdicts_say_when_the_limit_is_reached_and_are_sorted_by_urgency(spark: SparkSession) -> None:
    by_name = verdicts(
        spark,
        21,
        grows=lambda day: running(20 + day, 50),
        slowly=lambda day: running(20 + day, 200),
        hardly=lambda day: running(20 + day, 5_000),
        flat=lambda day: running(10, 50),
        tight=lambda day: running(45, 50),
        falls=lambda day: running(40 - day, 50),
        full=lambda day: running(50, 50),
        young=lambda day: running(10, 50) if day >= 15 else None,
        free=lambda day: running(20 + day, None),
        behind=lambda day: {"enqueued": 1_000, "served": 700.0},
    )
    assert {name: (row["saturation"], row["verdict"]) for name, row in by_name.items()} == {
        "full": ("reached", "at_limit"),
        "grows": ("date", "soon"),
        "behind": ("no_limit", "behind"),
        "slowly": ("date", "later"),
        "tight": ("never", "tight"),
        "young": ("not_enough_data", "unknown"),
        "hardly": ("far", "fine"),
        "flat": ("never", "fine"),
        "falls": ("never", "tight"),
        "free": ("no_limit", "fine"),
    }
    # 40 on the last day, 2026-10-11, one more each day: 50 ten days later.
    assert by_name["grows"]["saturates_on"] == date(2026, 10, 21)
    assert by_name["grows"]["earliest"] <= date(2026, 10, 21) <= by_name["grows"]["latest"]
    assert [by_name[name]["direction"] for name in ("grows", "flat", "falls", "young")] == [
        "rising",
        "flat",
        "falling",
        None,
    ]
    assert (by_name["young"]["trend_days"], by_name["free"]["measure"]) == (6, "enqueued_per_s")
    assert (by_name["grows"]["wait_p95_ms"], by_name["flat"]["wait_p95_ms"]) == (2.0, None)
    order = list(by_name)
    assert order.index("full") == 0
    assert order.index("grows") == 1
    assert order.index("behind") == 2
    assert order.index("tight") < order.index("young") < order.index("flat")


def test_there_is_no_verdict_without_evidence(spark: SparkSession) -> None:
    by_name = verdicts(
        spark,
        21,
        **{"": lambda day: {"enqueued": 5_000, "finished": 850, "served": None}},
        rare=lambda day: {"enqueued": 2, "served": 2.0},
        trickle=lambda day: {"enqueued": 10, "served": 1.7},
        steady=lambda day: {"enqueued": 10, "served": 10.0},
    )
    assert {name: (row["busy_ratio"], row["verdict"]) for name, row in by_name.items()} == {
        "trickle": (None, "behind"),
        "": (None, "unknown"),
        "rare": (None, "unknown"),
        "steady": (None, "fine"),
    }
    assert sentences.label(by_name[""]) == "not enough data"
    assert "17%" in sentences.sentence(by_name["trickle"])


def test_no_days_give_no_trend_lines(spark: SparkSession) -> None:
    empty = compute_daily_peaks(frame(spark, hour(MONDAY)), Period(MONDAY, MONDAY + HOUR_S, MONDAY + HOUR_S))
    computed = compute_trends(empty)
    assert computed.columns == TREND_SCHEMA.fieldNames()
    assert computed.count() == 0
