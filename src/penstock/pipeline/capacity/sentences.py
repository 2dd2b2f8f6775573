"""Describe a row of the report in English: a short label, and a sentence with the figures."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any

from penstock.pipeline.capacity.trend import MIN_DAYS

Row = Mapping[str, Any]
"""A row of the report; its keys are `verdict.REPORT_COLUMNS`."""


def label(row: Row) -> str:
    """Return the verdict as a table shows it."""
    match row["verdict"]:
        case "at_limit":
            return "at its limit"
        case "soon":
            return "reaches limit soon"
        case "later":
            return "reaches limit later"
        case "behind":
            return "falls behind"
        case "tight":
            return "near its limit"
        case "bursts":
            return "catches up later"
        case "unknown":
            return "not enough data"
        case _:
            return "has capacity" if row["limit"] else "keeps up"


def sentence(row: Row) -> str:
    """Return a sentence that explains the verdict."""
    match row["verdict"]:
        case "at_limit":
            return (
                f"On its busiest days it reaches the limit of {row['limit']}; further messages wait. "
                f"{_pressure(row)}"
            )
        case "soon" | "later":
            return (
                f"Its daily peaks grow by {number(row['slope'])} a day and will reach the limit of "
                f"{row['limit']} on {day(row['saturates_on'])}{_date_range(row)}."
            )
        case "behind":
            if row["busy_ratio"] is None:
                return f"It finished {percent(row['overall_ratio'])} of its arrivals: its backlog grows."
            return (
                f"In its busiest hours it finished {percent(row['busy_ratio'])} of the arrivals, and over "
                f"the whole period {percent(row['overall_ratio'])}: its backlog grows."
            )
        case "tight":
            return f"{_peak(row)} {_pressure(row)}"
        case "bursts":
            return (
                f"In its busiest hours it finished {percent(row['busy_ratio'])} of the arrivals; it caught "
                f"up later ({percent(row['overall_ratio'])} over the whole period)."
            )
        case "unknown" if row["limit"] is None:
            return _missing_evidence(row)
        case "unknown":
            days = row["trend_days"] or 0
            text = f"It has {days} complete days of measurements, and a trend needs {MIN_DAYS}."
            return text if row["peak_running"] is None else f"{text} {_peak(row)}"
        case _:
            return _free_capacity(row)


def saturation(row: Row) -> str:
    """Return when the limit is reached, as a table shows it."""
    match row["saturation"]:
        case "reached":
            return "now"
        case "date":
            return day(row["saturates_on"])
        case "far":
            return "in over 2 years"
        case "never":
            return "never"
        case "no_limit":
            return "no limit set"
        case _:
            return "not enough data"


def growth(row: Row) -> str:
    """Return the change per week as a percentage of the level of the high days; empty without a trend."""
    if row["direction"] is None:
        return ""
    if row["direction"] == "flat":
        return "flat"
    weekly = 7 * row["slope"]
    share = weekly / row["level"] if row["level"] else 0
    return f"{share:+.0%}/week" if abs(share) >= 0.005 else f"{number(weekly, sign=True)}/week"


def number(value: float | None, *, sign: bool = False) -> str:
    """Format with three significant figures and thousands separators: `1,230`, `4.5`, `0.031`."""
    if value is None:
        return "–"
    plus = "+" if sign else ""
    if abs(value) >= 100 or value == int(value):
        return f"{round(value):{plus},}"
    return f"{value:{plus}.3g}"


def percent(share: float | None) -> str:
    """Format a share as a percentage without decimals."""
    return "–" if share is None else f"{share:.0%}"


def wait(milliseconds: float | None) -> str:
    """Format a duration: `85 ms`, `2.4 s`, `12 min`, `3.1 h`."""
    if milliseconds is None:
        return "–"
    for size, unit in ((3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        if milliseconds >= size:
            return f"{milliseconds / size:.3g} {unit}"
    return f"{milliseconds:.0f} ms"


def day(value: date | None) -> str:
    """Format a date in ISO 8601."""
    return "–" if value is None else value.isoformat()


def _date_range(row: Row) -> str:
    first, last = row["earliest"], row["latest"]
    return "" if first == last else f" (between {day(first)} and {day(last)})"


def _peak(row: Row) -> str:
    return f"At its peak, {row['peak_running']} of {row['limit']} were running."


def _pressure(row: Row) -> str:
    mean = number(round(row["busiest_hour_running"] or 0, 1))
    return (
        f"It reached the limit in {row['hours_at_limit']} hours; in its busiest hour {mean} were running on "
        "average."
    )


def _free_capacity(row: Row) -> str:
    if row["limit"]:
        trend = {
            "never": f" The trend is {row['direction']}.",
            "far": " It grows too slowly to predict a date.",
        }
        peak = _peak(row) if row["peak_running"] is not None else f"Its limit is {row['limit']}."
        return peak + trend.get(row["saturation"], "")
    if row["busy_ratio"] is None:
        return f"It has no limit. It finished {percent(row['overall_ratio'])} of its arrivals."
    return (
        f"It has no limit. In its busiest hours it finished {percent(row['busy_ratio'])} of the arrivals, "
        f"which were {number(row['busy_enqueued_per_s'])} a second; its maximum throughput is unknown."
    )


def _missing_evidence(row: Row) -> str:
    if row["kind"] == "environment":
        return "The environment has no limit. Whether its consumers keep up is only known per queue."
    return "It has no limit, and too few arrivals to tell whether it keeps up."
