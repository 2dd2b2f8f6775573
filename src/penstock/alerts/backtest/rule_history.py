"""The values of one rule in every minute of a past period, for all queues of its scope."""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from dataclasses import dataclass, field

import numpy as np

from penstock.alerts.evaluation.conditions import Values
from penstock.alerts.rules.alert_rule import Operator
from penstock.errors import InvalidRequest
from penstock.warehouse.series.native_format import Column

EVALUATION_STEP_S = 60
"""The time between two evaluations of a backtest."""

MAX_CELLS = 12_000_000
"""Queues times minutes: more than 7 days of 1,000 queues. A cell takes about 11 bytes."""


@dataclass(frozen=True, slots=True)
class RuleHistory:
    """The values of a rule: a row per queue, a column per minute, the first one at `start_s`."""

    queues: Sequence[str]
    start_s: int
    values: Values
    lost_columns: Column | None = None
    """The minutes whose window has lost events, in which no state is known; None: there are none."""
    _worst_values: dict[Operator, Column] = field(default_factory=dict)

    @property
    def columns(self) -> int:
        return int(self.values.values.shape[1])

    @property
    def end_s(self) -> int:
        """The time of the last evaluation."""
        return self.time_s(self.columns - 1)

    def time_s(self, column: int) -> int:
        return self.start_s + column * EVALUATION_STEP_S

    def worst_values(self, operator: Operator) -> Column:
        """Return the worst value of each queue in the period; NaN if it has none."""
        if operator not in self._worst_values:
            worst = np.fmin if operator is Operator.LESS_THAN else np.fmax
            self._worst_values[operator] = worst.reduce(self.values.values, axis=1)
        return self._worst_values[operator]

    def select(self, rows: Column) -> RuleHistory:
        """Return the history of some queues."""
        queues = [self.queues[row] for row in rows.tolist()]
        return RuleHistory(queues, self.start_s, self.values.select(rows), self.lost_columns)

    def has_losses(self, column: int) -> bool:
        return self.lost_columns is not None and bool(self.lost_columns[column])


@dataclass(slots=True)
class HistoryBuilder:
    """Collects the values of a period chunk by chunk. A queue may appear in any of them."""

    start_s: int
    columns: int
    _rows: dict[str, int] = field(default_factory=dict)
    _values: Column = field(init=False)
    _too_few_samples: Column = field(init=False)
    _unknown: dict[str, Column] = field(default_factory=dict)
    _last_seen_s: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._values = np.full((0, self.columns), np.nan)
        self._too_few_samples = np.zeros((0, self.columns), dtype=np.bool_)

    def add(self, first_column: int, queues: Sequence[str], values: Values, hold: int = 1) -> None:
        """Add the values from a column on. Each value holds for `hold` columns."""
        rows = self._rows_of(queues)
        width = min(values.values.shape[1] * hold, self.columns - first_column)
        span = slice(first_column, first_column + width)

        def spread(cells: Column) -> Column:
            return np.repeat(cells, hold, axis=1)[:, :width]

        self._values[rows, span] = spread(values.values)
        self._too_few_samples[rows, span] = spread(values.too_few_samples)
        for reason, cells in values.unknown.items():
            if reason not in self._unknown:
                self._unknown[reason] = np.zeros(self._values.shape, dtype=np.bool_)
            self._unknown[reason][rows, span] = spread(cells)

    def record_last_seen(self, queues: Sequence[str], seen_s: Sequence[float]) -> None:
        """Record when queues were last observed, up to the end of a chunk."""
        self._last_seen_s.update(zip(queues, seen_s, strict=True))

    def build(self, live_queues: Container[str]) -> RuleHistory:
        """Return the history. A queue that was deleted since has no value after its last observation."""
        for queue, seen_s in self._last_seen_s.items():
            if queue not in live_queues:
                # The evaluation that ends the minute of the observation is the last one.
                first = max(0, math.ceil((seen_s - self.start_s) / EVALUATION_STEP_S) + 1)
                self._values[self._rows[queue], first:] = np.nan
                for cells in (self._too_few_samples, *self._unknown.values()):
                    cells[self._rows[queue], first:] = False
        values = Values(self._values, self._too_few_samples, self._unknown)
        return RuleHistory(list(self._rows), self.start_s, values)

    def _rows_of(self, queues: Sequence[str]) -> Column:
        """Return the row numbers of queues; new queues get rows."""
        known = len(self._rows)
        for queue in queues:
            self._rows.setdefault(queue, len(self._rows))
        added = len(self._rows) - known
        if added:
            if len(self._rows) * self.columns > MAX_CELLS:
                raise InvalidRequest(
                    f"The period has {self.columns:,} minutes of {len(self._rows):,} queues; at most "
                    f"{MAX_CELLS:,} values can be tested. Choose a shorter period, or fewer queues with "
                    "the rule's field queue."
                )
            self._values = np.vstack((self._values, np.full((added, self.columns), np.nan)))
            self._too_few_samples = _add_rows(self._too_few_samples, added)
            self._unknown = {reason: _add_rows(cells, added) for reason, cells in self._unknown.items()}
        return np.array([self._rows[queue] for queue in queues], dtype=np.int64)


def _add_rows(cells: Column, count: int) -> Column:
    return np.vstack((cells, np.zeros((count, cells.shape[1]), dtype=np.bool_)))
