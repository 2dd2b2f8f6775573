"""The columns of a series: one value per point, which become JSON or Python values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from penstock.warehouse.series import json_text
from penstock.warehouse.series.json_text import Text
from penstock.warehouse.series.native_format import Column
from penstock.warehouse.series.window import SeriesWindow


class SeriesColumn(Protocol):
    def to_text(self) -> Text:
        """Return the JSON of every value."""

    def to_list(self) -> list[Any]:
        """Return every value as the JSON would be decoded."""


ColumnTree = Mapping[str, SeriesColumn | Mapping[str, SeriesColumn]]
"""Columns by name. A field of several columns, such as `throughput`, has a mapping of its own."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers with a fixed number of decimals; ABSENT becomes null."""

    values: Column
    decimals: int = 0

    def to_text(self) -> Text:
        return json_text.number_text(self.values, self.decimals)

    def to_list(self) -> list[float | None]:
        numbers: list[float] = (
            np.round(self.values, self.decimals) if self.decimals else self.values.astype(np.int64)
        ).tolist()
        return [None if number < 0 else number for number in numbers]


@dataclass(frozen=True, slots=True)
class Flags:
    """Flags: 0, 1, or UNKNOWN_FLAG for null."""

    values: Column

    def to_text(self) -> Text:
        return json_text.flag_text(self.values)

    def to_list(self) -> list[bool | None]:
        return [None if flag == json_text.UNKNOWN_FLAG else bool(flag) for flag in self.values.tolist()]


@dataclass(frozen=True, slots=True)
class Timestamps:
    """Seconds since the epoch, in the format of `clock.iso`."""

    values: Column

    def to_text(self) -> Text:
        return json_text.timestamp_text(self.values)

    def to_list(self) -> list[str]:
        starts = self.values.astype("datetime64[s]").astype("datetime64[ms]")
        timestamps: list[str] = np.datetime_as_string(starts, timezone="UTC").tolist()
        return timestamps


def point_starts(window: SeriesWindow) -> Column:
    """Return the start of each point, in seconds since the epoch."""
    return np.arange(window.start_s, window.end_s, window.step_s, dtype=np.int64)


def encode_points(columns: ColumnTree, points: int) -> bytes:
    """Return the JSON of a list with one object per point."""
    parts: list[bytes | Text] = []
    for name, column in columns.items():
        parts.append(b'%s"%s":' % (b"," if parts else b"{", name.encode()))
        if not isinstance(column, Mapping):
            parts.append(column.to_text())
            continue
        for number, (key, member) in enumerate(column.items()):
            parts += [b'%s"%s":' % (b"," if number else b"{", key.encode()), member.to_text()]
        parts.append(b"}")
    return json_text.join_objects([*parts, b"}"], points)


def encode_columns(columns: ColumnTree) -> bytes:
    """Return the JSON of an object with one list per column."""
    members = []
    for name, column in columns.items():
        if isinstance(column, Mapping):
            body = encode_columns(column)
        else:
            body = json_text.join_values(column.to_text())
        members.append(b'"%s":%s' % (name.encode(), body))
    return b"{%s}" % b",".join(members)


def to_points(columns: ColumnTree) -> list[dict[str, Any]]:
    """Return one dictionary per point, as `encode_points` would be decoded."""
    lists = [
        to_points(column) if isinstance(column, Mapping) else column.to_list() for column in columns.values()
    ]
    return [dict(zip(columns, values, strict=True)) for values in zip(*lists, strict=True)]
