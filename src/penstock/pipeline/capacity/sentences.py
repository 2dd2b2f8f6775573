"""A judged row in words: a label of two or three, and a sentence with the figures behind it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any

from penstock.pipeline.capacity.trend import FEWEST_DAYS

Row = Mapping[str, Any]


def label(row: Row) -> str:
    """What a table shows as the verdict."""
    match row["verdict"]:
        case "at_limit":
            return "at its limit"
        case "soon":
            return "fills up soon"
        case "later":
            return "fills up"
        case "behind":
            return "falls behind"
        case "tight":
            return "tight"
        case "bursts":
            return "catches up later"
        case "unknown":
            return "too few days"
        case _:
            return "has room" if row["limit"] else "keeps up"


def sentence(row: Row) -> str:
    """Why the verdict is what it is."""
    match row["verdict"]:
        case "at_limit":
            return (
                f"Its high days reach the limit of {row['limit']}: what comes on top waits. {_pressure(row)}"
            )
        case "soon" | "later":
            return (
                f"Its peaks grow by {number(row['slope'])} a day and meet the limit of {row['limit']} on "
                f"{day(row['saturates_on'])}{_range(row)}."
            )
        case "behind":
            return (
                f"In its busiest hours it finished {percent(row['busy_ratio'])} of what arrived, and over "
                f"the whole period {percent(row['overall_ratio'])}: work piles up."
            )
        case "tight":
            return f"{row['peak_running']} of {row['limit']} ran at its peak. {_pressure(row)}"
        case "bursts":
            return (
                f"In its busiest hours it finished {percent(row['busy_ratio'])} of what arrived; it caught "
                f"up later ({percent(row['overall_ratio'])} over the whole period)."
            )
        case "unknown":
            return (
                f"It was seen on {row['trend_days'] or 0} whole days, and a trend needs {FEWEST_DAYS}. "
                f"{row['peak_running']} of {row['limit']} ran at its peak."
                if row["peak_running"] is not None
                else f"It was seen on {row['trend_days'] or 0} whole days, and a trend needs {FEWEST_DAYS}."
            )
        case _:
            return _room(row)


def saturation(row: Row) -> str:
    """When the room runs out, for a table."""
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
    """The change per week in per cent of the high days' level; empty without a trend."""
    if row["direction"] is None:
        return ""
    if row["direction"] == "flat":
        return "flat"
    weekly = 7 * row["slope"]
    share = weekly / row["level"] if row["level"] else 0
    return f"{share:+.0%}/week" if abs(share) >= 0.005 else f"{number(weekly, sign=True)}/week"


def number(value: float | None, *, sign: bool = False) -> str:
    """Three figures that matter, thousands apart: `1,230`, `4.5`, `0.031`."""
    if value is None:
        return "–"
    plus = "+" if sign else ""
    if abs(value) >= 100 or value == int(value):
        return f"{round(value):{plus},}"
    return f"{value:{plus}.3g}"


def percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.0%}"


def wait(milliseconds: float | None) -> str:
    """`85 ms`, `2.4 s`, `12 min`, `3.1 h`."""
    if milliseconds is None:
        return "–"
    for size, unit in ((3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        if milliseconds >= size:
            return f"{milliseconds / size:.3g} {unit}"
    return f"{milliseconds:.0f} ms"


def day(moment: date | None) -> str:
    return "–" if moment is None else moment.isoformat()


def _range(row: Row) -> str:
    first, last = row["earliest"], row["latest"]
    return "" if first == last else f" (between {day(first)} and {day(last)})"


def _pressure(row: Row) -> str:
    mean = number(round(row["busiest_hour_running"] or 0, 1))
    return (
        f"It touched the limit in {row['hours_at_limit']} hours; in its fullest hour {mean} ran on average."
    )


def _room(row: Row) -> str:
    if row["limit"]:
        trend = {"never": f" The trend is {row['direction']}.", "far": " It grows too slowly to give a date."}
        ran = f"{row['peak_running']} of {row['limit']} ran at its peak."
        return (ran if row["peak_running"] is not None else f"Its limit is {row['limit']}.") + trend.get(
            row["saturation"], ""
        )
    if row["kind"] == "environment":
        return "No limit set for the environment as a whole."
    if row["busy_ratio"] is None:
        return "No limit set, and too little work to tell how it keeps up."
    return (
        f"No limit set. In its busiest hours it finished {percent(row['busy_ratio'])} of what arrived, "
        f"{number(row['busy_enqueued_per_s'])} a second; how much more it could take was not seen."
    )
