"""Read the matrices of an environment: a number of queries that grows neither with queues nor with steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from penstock.definitions import QUEUE
from penstock.model import Scope
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.matrix.queue_matrix import (
    GAUGES,
    SUMS,
    LastGauges,
    QueueMatrix,
    StepRows,
    Subject,
    build_matrix,
)
from penstock.warehouse.schema import tier_table
from penstock.warehouse.series.native_format import Column
from penstock.warehouse.series.packed_maximum import is_empty, unpack_observed_value
from penstock.warehouse.series.readings import ABSENT, bucket_between
from penstock.warehouse.tiers import FINE, HOUR, MINUTE, Tier

_TENANT = " AND ".join(f"{name} = {{{name}:String}}" for name in Scope._fields)

SUBJECT_KEY = "cityHash64(queue, subject_group)"

_GAUGE_EXPRESSIONS = {
    "{gauge}_last": "maxIf({gauge}_last, is_own)",
    "{gauge}_max": "maxIf({gauge}_max, is_own)",
    "{gauge}_min": "minIf(toInt64({gauge}_last), is_own AND {gauge}_last != 0)",
}
"""A queue as a whole has gauges of its own, in the rows without a group."""

SUBJECT_GROUP = "arrayJoin(if(`group` IN {groups:Array(String)}, ['', `group`], ['']))"
"""A row counts for its queue as a whole, and for its group if that is wanted."""


def queue_rows(tier: Tier, start_s: int, end_s: int) -> str:
    """SQL of the queues' rows of a time, from the table on. The environment's own rows have no queue."""
    return f"{tier_table(QUEUE, tier)} WHERE {_TENANT} AND queue != '' AND {bucket_between(start_s, end_s)}"


def read_first_hour_s(warehouse: Warehouse, scope: Scope, end_s: int) -> int | None:
    """Return the first hour in which the environment has metrics; None if it has none before `end_s`."""
    [row] = warehouse.query(
        f"SELECT toUnixTimestamp(min(bucket)) AS first, count() AS rows FROM {queue_rows(HOUR, 0, end_s)}",
        scope._asdict(),
    )
    return int(row["first"]) if row["rows"] else None


@dataclass(slots=True)
class MatrixReader:
    """Reads matrices of one environment, and keeps the last gauges of its queues between reads.

    An idle queue emits nothing for days, and its last gauges are far behind any window. They are read once,
    when the first matrix is read; afterwards every matrix brings the newer ones.
    """

    warehouse: Warehouse
    scope: Scope
    groups: Sequence[str] = ()
    """The consumer groups that have rows of their own."""
    queues: Sequence[str] | None = None
    """The queues to read; None: all."""
    _last_gauges: dict[Subject, LastGauges] = field(default_factory=dict)
    _known_until_s: int = 0
    _names: dict[int, Subject] = field(default_factory=dict)

    def read(self, tier: Tier, end_s: int, step_s: int, steps: int) -> QueueMatrix:
        """Return the matrix of `steps` steps up to `end_s`. `step_s` is a multiple of the tier's width."""
        start_s = end_s - steps * step_s
        known_before = self._read_last_gauges(start_s)
        columns = self._read_columns(tier, start_s, end_s, step_s, steps)
        keys, numbers = np.unique(columns.get("subject", np.zeros(0, np.uint64)), return_inverse=True)
        self._read_names(keys.tolist(), tier, start_s, end_s)
        active = [self._names[key] for key in keys.tolist()]
        subjects = [*active, *(known_before.keys() - set(active))]
        rows = StepRows(numbers, columns.get("step", numbers), columns)
        return build_matrix(subjects, rows, known_before, end_s=end_s, step_s=step_s, steps=steps)

    @property
    def parameters(self) -> dict[str, object]:
        return {**self.scope._asdict(), "groups": list(self.groups), "queues": list(self.queues or ())}

    def _queue_rows(self, tier: Tier, start_s: int, end_s: int) -> str:
        selected = "" if self.queues is None else " AND queue IN {queues:Array(String)}"
        return queue_rows(tier, start_s, end_s) + selected

    def _read_columns(
        self, tier: Tier, start_s: int, end_s: int, step_s: int, steps: int
    ) -> dict[str, Column]:
        gauges = [
            f"{expression.format(gauge=gauge)} AS r_{name.format(gauge=gauge)}"
            for gauge in GAUGES
            for name, expression in _GAUGE_EXPRESSIONS.items()
        ]
        columns = self.warehouse.query_columns(
            f"SELECT {SUBJECT_KEY} AS subject, "
            f"toInt64({steps} - 1 - intDiv({end_s} - 1 - toUnixTimestamp(bucket), {step_s})) AS step, "
            f"{', '.join(f'toInt64(sum({name})) AS r_{name}' for name in SUMS)}, "
            f"toInt64(max(wait_ms_max)) AS r_wait_ms_max, "
            f"toInt64(maxIf(assumeNotNull(seen_ms), is_own)) AS r_seen_ms, "
            f"toInt64(uniqExactIf(bucket, is_own AND isNotNull(seen_ms))) AS r_observed, {', '.join(gauges)} "
            f"FROM (SELECT *, {SUBJECT_GROUP} AS subject_group, `group` = subject_group AS is_own "
            f"FROM {self._queue_rows(tier, start_s, end_s)}) "
            f"GROUP BY subject, step",
            self.parameters,
        )
        return _unpack({name.removeprefix("r_"): column for name, column in columns.items()})

    def _read_names(self, keys: Iterable[int], tier: Tier, start_s: int, end_s: int) -> None:
        """Read the names of subjects that are new."""
        if all(key in self._names for key in keys):
            return
        for row in self.warehouse.query(
            f"SELECT DISTINCT {SUBJECT_KEY} AS subject, queue, {SUBJECT_GROUP} AS subject_group "
            f"FROM {self._queue_rows(tier, start_s, end_s)}",
            self.parameters,
        ):
            self._names[int(row["subject"])] = Subject(str(row["queue"]), str(row["subject_group"]))

    def _read_last_gauges(self, until_s: int) -> dict[Subject, LastGauges]:
        """Return the last gauges before `until_s`: those of earlier reads, and what was observed since."""
        if until_s > self._known_until_s:
            for subject, last in self._query_last_gauges(self._known_until_s, until_s).items():
                self._last_gauges[subject] = last
            self._known_until_s = until_s
            return self._last_gauges
        # A window that starts earlier than one before it, such as that of a backtest.
        return self._query_last_gauges(0, until_s)

    def _query_last_gauges(self, since_s: int, until_s: int) -> dict[Subject, LastGauges]:
        hour, minute = until_s // HOUR.width_s * HOUR.width_s, until_s // MINUTE.width_s * MINUTE.width_s
        since_hour = min(since_s // HOUR.width_s * HOUR.width_s, hour)
        spans = ((HOUR, since_hour, hour), (MINUTE, hour, minute), (FINE, minute, until_s))
        columns = ", ".join(f"{gauge}_last" for gauge in GAUGES)
        rows = " UNION ALL ".join(
            f"SELECT queue, `group`, seen_ms, {columns} FROM {self._queue_rows(tier, start, end)} "
            f"AND isNotNull(seen_ms) AND (`group` = '' OR `group` IN {{groups:Array(String)}})"
            for tier, start, end in spans
            if end > start
        )
        if not rows:
            return {}
        values = ", ".join(
            f"{unpack_observed_value(f'max({gauge}_last)', str(ABSENT))} AS last_{gauge}" for gauge in GAUGES
        )
        return {
            Subject(str(row["queue"]), str(row["name"])): LastGauges(
                tuple(int(row[f"last_{gauge}"]) for gauge in GAUGES), int(row["last_seen_ms"])
            )
            for row in self.warehouse.query(
                f"SELECT queue, `group` AS name, max(seen_ms) AS last_seen_ms, {values} FROM ({rows}) "
                f"GROUP BY queue, name",
                self.parameters,
            )
        }


def _unpack(columns: Mapping[str, Column]) -> dict[str, Column]:
    """Return the columns of StepRows: gauges without an observation in their step are ABSENT."""
    if not columns:
        return {}
    unpacked = dict(columns)
    for gauge in GAUGES:
        packed = columns[f"{gauge}_last"]
        is_absent = is_empty(packed)
        unpacked[f"{gauge}_last"] = np.where(is_absent, ABSENT, packed[:, 0].astype(np.int64))
        for name in (f"{gauge}_min", f"{gauge}_max"):
            unpacked[name] = np.where(is_absent, ABSENT, columns[name].astype(np.int64))
    unpacked["seen_ms"] = np.where(columns["seen_ms"] == 0, ABSENT, columns["seen_ms"])
    return unpacked
