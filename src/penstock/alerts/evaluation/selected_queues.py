"""Find the queues that rules select. Rules with the same scope share the result."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from penstock.alerts.rules.alert_rule import AlertRule
from penstock.alerts.rules.queue_scope import in_scope
from penstock.warehouse.matrix.queue_matrix import Subject
from penstock.warehouse.series.native_format import Column

WILDCARDS = frozenset("*?")


@dataclass(frozen=True, slots=True)
class SelectedQueues:
    """The queues that a rule selects, and their rows in the values of all subjects."""

    queues: Sequence[str]
    rows: Column


@dataclass(frozen=True, slots=True)
class QueueScopes:
    """The scopes of the rules of one evaluation. Queues that do not exist any more are in none."""

    live_queues: Collection[str]
    _live: dict[str | None, list[str]] = field(default_factory=dict)
    _rows: dict[tuple[Hashable, str], Mapping[str, int]] = field(default_factory=dict)
    _selected: dict[tuple[Hashable, str | None, str], SelectedQueues] = field(default_factory=dict)

    def select(self, rule: AlertRule, source: Hashable, subjects: Sequence[Subject]) -> SelectedQueues:
        """Return the queues of a rule among the subjects. All calls with a source have the same subjects."""
        group = rule.group or ""
        key = (source, rule.queue, group)
        if key not in self._selected:
            rows = self._rows_of_group(source, group, subjects)
            names = _select_names(rule.queue, rows)
            numbers = np.array([rows[name] for name in names], dtype=np.int64)
            self._selected[key] = SelectedQueues(names, numbers)
        return self._selected[key]

    def select_live(self, pattern: str | None) -> list[str]:
        """Return the existing queues that a pattern selects, in order."""
        if pattern not in self._live:
            self._live[pattern] = sorted(_select_names(pattern, self.live_queues))
        return self._live[pattern]

    def _rows_of_group(self, source: Hashable, group: str, subjects: Sequence[Subject]) -> Mapping[str, int]:
        key = (source, group)
        if key not in self._rows:
            self._rows[key] = {
                subject.queue: row
                for row, subject in enumerate(subjects)
                if subject.group == group and subject.queue in self.live_queues
            }
        return self._rows[key]


def _select_names(pattern: str | None, names: Collection[str]) -> list[str]:
    if pattern is None:
        return list(names)
    if WILDCARDS.isdisjoint(pattern):
        return [pattern] if pattern in names else []
    return [name for name in names if in_scope(pattern, name)]
