"""A series that was read, and its forms: JSON by points, JSON by columns, and Python values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict, cast

import msgspec

from penstock.clock import iso, to_utc
from penstock.warehouse.series.completeness import Completeness, CompletenessResponse
from penstock.warehouse.series.series_columns import ColumnTree, encode_columns, encode_points, to_points
from penstock.warehouse.series.series_fields import SeriesFormat
from penstock.warehouse.series.window import SeriesWindow

SeriesPoint = dict[str, Any]
"""One point of a series, as JSON."""


class SeriesPeriod(TypedDict):
    start: str
    end: str


class SeriesResponse(TypedDict):
    """A series, ready to be encoded as JSON. `queue`, `environment` or `metric` and `of` name its subject."""

    queue: NotRequired[str]
    group: NotRequired[str]
    environment: NotRequired[str]
    metric: NotRequired[str]
    of: NotRequired[dict[str, str]]
    period: SeriesPeriod
    resolution: str
    tier: str
    freshness: str | None
    completeness: CompletenessResponse
    timeseries: list[SeriesPoint]


@dataclass(frozen=True, slots=True)
class Series:
    """A series as columns. `subject` has the fields of a response that name the subject.

    All events up to `counted_until_s` were counted; None means unknown.
    """

    subject: Mapping[str, object]
    window: SeriesWindow
    completeness: Completeness
    counted_until_s: float | None
    columns: ColumnTree

    @property
    def points(self) -> list[SeriesPoint]:
        """The points as Python values. For thousands of points, `to_json` is much faster."""
        return to_points(self.columns)

    def to_response(self) -> SeriesResponse:
        """Return the series as Python values."""
        return cast("SeriesResponse", {**self._head(), "timeseries": self.points})

    def to_json(self, form: SeriesFormat) -> bytes:
        """Return the encoded response."""
        head = msgspec.json.encode(self._head()).removesuffix(b"}")
        if form is SeriesFormat.COLUMNS:
            return b'%s,"columns":%s}' % (head, encode_columns(self.columns))
        return b'%s,"timeseries":%s}' % (head, encode_points(self.columns, len(self.window.buckets)))

    def _head(self) -> dict[str, object]:
        """Return the fields that all forms have in common."""
        window = self.window
        return {
            **self.subject,
            "period": {
                "start": iso(to_utc(window.start_s)),
                "end": iso(to_utc(min(window.end_s, window.now_s))),
            },
            "resolution": window.resolution,
            "tier": window.tier.name,
            "freshness": self.completeness.freshness,
            "completeness": self.completeness.to_response(self.counted_until_s),
        }
