"""Write the report as one self-contained HTML file: it needs no server, no network and no other file.

The figures are JSON in a script block that is never executed. Every `<` in it is escaped, so no name can end
the block. The script puts names on the page as text, never as markup. The content security policy of the page
forbids every request and every other script.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import time
from collections import defaultdict
from collections.abc import Mapping
from datetime import date
from importlib import resources
from pathlib import Path
from typing import Any, TypedDict

from penstock import __version__
from penstock.clock import iso, to_utc
from penstock.pipeline.capacity import sentences
from penstock.pipeline.capacity.hours import SUBJECT
from penstock.pipeline.capacity.result import CapacityReport
from penstock.pipeline.capacity.utilisation import WEEK_H

SIGNIFICANT_FIGURES = 4

Subject = tuple[str, ...]
JsonValue = str | int | float | bool | None
Row = Mapping[str, Any]
"""A row of a report table, as Arrow returns it."""


class Profile(TypedDict):
    """The hours of the week of one subject: one value per hour, null without measurements."""

    mean: list[JsonValue]
    p95: list[JsonValue]
    hours: list[JsonValue]


class Days(TypedDict):
    """The daily peaks of one subject, without gaps from the day `first` on."""

    first: JsonValue
    running: list[JsonValue]
    enqueued_per_s: list[JsonValue]


def write_page(report: CapacityReport, path: Path) -> None:
    """Write the page to `path`, replacing an existing file."""
    path.write_text(render(report), encoding="utf-8")


def render(report: CapacityReport) -> str:
    """Return the HTML of the page."""
    style, script = _read_asset("style.css"), _read_asset("page.js")
    blocks = {
        "POLICY": f"default-src 'none'; style-src {_csp_hash(style)}; script-src {_csp_hash(script)}",
        "STYLE": style,
        "SCRIPT": script,
        "DATA": json.dumps(page_data(report), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        .replace("<", "\\u003c")
        .replace("\u2028", "\\u2028")
        .replace("\u2029", "\\u2029"),
    }
    # Split at the placeholders instead of replacing them one after the other: a name may look like one.
    first, *segments = _read_asset("page.html").split("%%")
    return first + "".join(blocks[segment] if i % 2 == 0 else segment for i, segment in enumerate(segments))


def page_data(report: CapacityReport) -> dict[str, object]:
    """Return the data of the page, which can be encoded as JSON."""
    request = report.request
    profiles, days = _profiles(report), _days(report)
    return {
        "from": iso(to_utc(request.period.start_s)),
        "to": iso(to_utc(request.period.end_s)),
        "made": iso(to_utc(int(time.time()))),
        "source": "tiers" if request.archive is None else "archive",
        "widthSeconds": request.width_s,
        "version": __version__,
        "subjects": [
            _subject(row, profiles.get(_key(row)), days.get(_key(row))) for row in report.subjects.to_pylist()
        ],
    }


def _subject(row: Row, profile: Profile | None, days: Days | None) -> dict[str, object]:
    columns: dict[str, object] = {name: _to_json(value) for name, value in row.items()}
    return columns | {
        "label": sentences.label(row),
        "sentence": sentences.sentence(row),
        "saturationText": sentences.saturation(row),
        "growth": sentences.growth(row),
        "days": days or {},
        "profile": profile or {},
    }


def _profiles(report: CapacityReport) -> dict[Subject, Profile]:
    profiles: dict[Subject, Profile] = defaultdict(
        lambda: Profile(mean=[None] * WEEK_H, p95=[None] * WEEK_H, hours=[None] * WEEK_H)
    )
    for row in report.profile.to_pylist():
        cells = profiles[_key(row)]
        cell = row["hour_of_week"]
        cells["mean"][cell] = _to_json(row["mean_per_s"])
        cells["p95"][cell] = _to_json(row["p95_per_s"])
        cells["hours"][cell] = row["hours"]
    return profiles


def _days(report: CapacityReport) -> dict[Subject, Days]:
    days: dict[Subject, Days] = {}
    for row in report.days.to_pylist():
        subject_days = days.setdefault(
            _key(row), Days(first=_to_json(row["day"]), running=[], enqueued_per_s=[])
        )
        subject_days["running"].append(_to_json(row["running"]))
        subject_days["enqueued_per_s"].append(_to_json(row["enqueued_per_s"]))
    return days


def _key(row: Row) -> Subject:
    return tuple(row[name] for name in SUBJECT)


def _to_json(value: JsonValue | date) -> JsonValue:
    if isinstance(value, float):
        return None if not math.isfinite(value) else float(f"{value:.{SIGNIFICANT_FIGURES}g}")
    return value.isoformat() if isinstance(value, date) else value  # a datetime is a date too


def _read_asset(name: str) -> str:
    return resources.files("penstock.pipeline.capacity").joinpath("assets", name).read_text(encoding="utf-8")


def _csp_hash(text: str) -> str:
    """Return the source expression that allows this text in a content security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
