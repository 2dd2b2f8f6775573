"""The report as one HTML file that needs nothing else: no server, no network, no other file.

The figures travel as JSON in a block that is never executed, with every `<` written as an escape, so no
name can end it. The script puts names on the page as text, never as markup. A policy in the page forbids
every request and every script but this one.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import time
from collections import defaultdict
from datetime import date
from importlib import resources
from pathlib import Path
from typing import Any

from penstock import __version__
from penstock.clock import iso, to_utc
from penstock.pipeline.capacity import sentences
from penstock.pipeline.capacity.hours import SUBJECT
from penstock.pipeline.capacity.result import Report
from penstock.pipeline.capacity.utilisation import WEEK_H

FIGURES = 4

Subject = tuple[str, ...]


def write_page(report: Report, path: Path) -> None:
    """Write the page to `path`, replacing what is there."""
    path.write_text(render(report), encoding="utf-8")


def render(report: Report) -> str:
    """The whole page."""
    style, script = _file("style.css"), _file("page.js")
    parts = {
        "POLICY": f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}",
        "STYLE": style,
        "SCRIPT": script,
        "DATA": json.dumps(content(report), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        .replace("<", "\\u003c")
        .replace("\u2028", "\\u2028")
        .replace("\u2029", "\\u2029"),
    }
    # Cut at the marks, not replaced one after the other: a name may look like a mark.
    first, *rest = _file("page.html").split("%%")
    return first + "".join(parts[piece] if i % 2 == 0 else piece for i, piece in enumerate(rest))


def content(report: Report) -> dict[str, Any]:
    """What the page shows, ready to be JSON."""
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
            _subject(row, profiles.get(_key(row), {}), days.get(_key(row), {}))
            for row in report.subjects.to_pylist()
        ],
    }


def _subject(row: dict[str, Any], profile: dict[str, Any], days: dict[str, Any]) -> dict[str, Any]:
    shown = {name: _plain(value) for name, value in row.items()}
    return shown | {
        "label": sentences.label(row),
        "sentence": sentences.sentence(row),
        "saturationText": sentences.saturation(row),
        "growth": sentences.growth(row),
        "days": days,
        "profile": profile,
    }


def _profiles(report: Report) -> dict[Subject, dict[str, list[Any]]]:
    found: dict[Subject, dict[str, list[Any]]] = defaultdict(
        lambda: {name: [None] * WEEK_H for name in ("mean", "p95", "hours")}
    )
    for row in report.profile.to_pylist():
        cells = found[_key(row)]
        cell = row["hour_of_week"]
        cells["mean"][cell] = _plain(row["mean_per_s"])
        cells["p95"][cell] = _plain(row["p95_per_s"])
        cells["hours"][cell] = row["hours"]
    return found


def _days(report: Report) -> dict[Subject, dict[str, Any]]:
    """Days without a gap, so the first one says it for all."""
    found: dict[Subject, dict[str, Any]] = {}
    for row in report.days.to_pylist():
        listed = found.setdefault(
            _key(row), {"first": _plain(row["day"]), "running": [], "enqueued_per_s": []}
        )
        listed["running"].append(_plain(row["running"]))
        listed["enqueued_per_s"].append(_plain(row["enqueued_per_s"]))
    return found


def _key(row: dict[str, Any]) -> Subject:
    return tuple(row[name] for name in SUBJECT)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return None if not math.isfinite(value) else float(f"{value:.{FIGURES}g}")
    return value.isoformat() if isinstance(value, date) else value  # a datetime is a date, too


def _file(name: str) -> str:
    return resources.files("penstock.pipeline.capacity").joinpath("assets", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
