"""Timelines: the gauges and counters of one queue per minute, and the expected state of a rule after each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
import numpy as np

from penstock.alerts.evaluation.conditions import VERDICTS, Windows, compute_values, judge
from penstock.alerts.evaluation.state_machine import AlertState, Transition, next_state
from penstock.alerts.rules.alert_rule import AlertRule
from penstock.alerts.rules.rule_types import complete_rule
from penstock.warehouse.matrix.queue_matrix import (
    GAUGES,
    LastGauges,
    QueueMatrix,
    StepRows,
    Subject,
    build_matrix,
)
from penstock.warehouse.series.readings import ABSENT

START_S = 1_800_000_000
LETTERS = {"ok": "o", "pending": "p", "firing": "F", "clearing": "c", "unknown": "?"}


@dataclass(frozen=True, slots=True)
class Timeline:
    """What a queue does minute by minute. `_` in a gauge means that nothing was observed.

    `before` are the gauges before the first minute; without any, the queue is new. `states` has a letter per
    minute: o ok, p pending, F firing, c clearing, ? unknown.
    """

    name: str
    rule: Mapping[str, object]
    series: Mapping[str, str]
    states: str
    before: Mapping[str, int] = field(default_factory=dict)

    @property
    def minutes(self) -> int:
        return len(next(iter(self.series.values())).split())


def timeline_matrix(timeline: Timeline, padding: int) -> QueueMatrix:
    """Return the matrix of the timeline, with idle minutes before it so that the first window is complete."""
    queue = Subject("orders")
    cells = {name: values.split() for name, values in timeline.series.items()}
    steps = timeline.minutes
    observed = [any(cells[name][step] != "_" for name in cells if name in GAUGES) for step in range(steps)]
    ends_ms = [(START_S + (step + 1) * 60) * 1000 for step in range(steps)]
    columns: dict[str, list[int]] = {
        "observed": [12 if is_observed else 0 for is_observed in observed],
        "seen_ms": [
            end if is_observed else ABSENT for end, is_observed in zip(ends_ms, observed, strict=True)
        ],
    }
    for name, values in cells.items():
        numbers = [ABSENT if value == "_" else int(value) for value in values]
        names = [f"{name}_{column}" for column in ("min", "max", "last")] if name in GAUGES else [name]
        columns |= dict.fromkeys(names, numbers)
    rows = StepRows(
        np.zeros(steps, np.int64),
        np.arange(steps) + padding,
        {name: np.array(values) for name, values in columns.items()},
    )
    known_before = {}
    if timeline.before:
        gauges = tuple(timeline.before.get(name, ABSENT) for name in GAUGES)
        known_before[queue] = LastGauges(gauges, START_S * 1000)
    return build_matrix(
        [queue], rows, known_before, end_s=START_S + steps * 60, step_s=60, steps=steps + padding
    )


def run_timeline(timeline: Timeline) -> tuple[str, dict[int, Transition]]:
    """Return the state after each minute as letters, and the transitions by minute."""
    rule = complete_rule(msgspec.convert({"name": "test", **timeline.rule}, AlertRule))
    length = rule.window_s // 60
    windows = Windows(timeline_matrix(timeline, length - 1), length, timeline.minutes)
    codes = judge(rule, compute_values(rule, windows))[0]
    state, letters, transitions = AlertState(), "", {}
    for minute, code in enumerate(codes.tolist()):
        now_s = START_S + (minute + 1) * 60
        state, transition = next_state(state, VERDICTS[code], now_s, rule.timing)
        letters += LETTERS[state.label]
        if transition is not None:
            transitions[minute] = transition
    return letters, transitions
