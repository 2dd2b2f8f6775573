"""Run the states and incidents of one rule over its history: what would have fired and been notified.

States, cooldown, grouping and silences are those of the evaluator (`evaluate_rule`). Minutes in which nothing
can change are skipped.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from penstock.alerts.backtest.backtest_request import SilenceCheck, never_silenced
from penstock.alerts.backtest.rule_history import EVALUATION_STEP_S, RuleHistory
from penstock.alerts.evaluation.conditions import BREACHED, CLEAR, UNKNOWN, is_breached, judge
from penstock.alerts.evaluation.lost_events import LOST_EVENTS
from penstock.alerts.evaluation.rule_evaluation import (
    RuleMeasurement,
    RuleQueueState,
    StoredRule,
    evaluate_rule,
    is_forgotten,
)
from penstock.alerts.evaluation.state_machine import Phase
from penstock.alerts.incidents.incident_model import Incident
from penstock.alerts.incidents.incident_tracker import IncidentUpdate, NoticePolicy
from penstock.alerts.rules.alert_rule import Operator
from penstock.alerts.rules.rule_types import CompleteRule
from penstock.ids import new_id
from penstock.warehouse.series.native_format import Column

WORK_S, PAUSE_S = 0.005, 0.001
"""A broker runs simulations in a thread: after each piece of work the thread lets the event loop run."""


@dataclass(slots=True)
class SimulatedIncident:
    """An incident that would have been opened."""

    opened_s: float
    resolved_s: float | None = None
    """None: the rule still fires at the end of the period."""
    peaks: dict[str, float] = field(default_factory=dict)
    """The worst value of each queue while the rule fired for it."""
    firings: int = 0
    """How often the rule fired for a queue: grouping makes one incident of them."""
    notified_s: float | None = None
    """The first notice."""
    notices: int = 0
    """Notices per channel: opened, updates, resolved."""
    was_silenced: bool = False

    @property
    def held_back_by(self) -> str | None:
        """Why there was no notice; None: there was one."""
        if self.notified_s is not None:
            return None
        return "silence" if self.was_silenced else "cooldown"


@dataclass(slots=True)
class Simulation:
    """The states of a rule for the queues that ever breach, while they move through the period."""

    rule: CompleteRule
    history: RuleHistory
    is_silenced: SilenceCheck
    incidents: list[SimulatedIncident] = field(default_factory=list)
    _states: dict[str, RuleQueueState] = field(default_factory=dict)
    _open: Incident | None = None
    _stored_rule: StoredRule = field(init=False)
    _codes: Column = field(init=False)
    _breaches: Column = field(init=False)
    _changes: Column = field(init=False)
    _rows: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        worst = self.history.worst_values(self.rule.operator)
        self.history = self.history.select(np.flatnonzero(is_breached(self.rule, worst)))
        self._codes = judge(self.rule, self.history.values)
        if self.history.lost_columns is not None:
            self._codes[:, self.history.lost_columns] = UNKNOWN
        self._breaches = np.flatnonzero((self._codes == BREACHED).any(axis=0))
        self._changes = np.flatnonzero((self._codes[:, 1:] != self._codes[:, :-1]).any(axis=0)) + 1
        self._rows = {queue: row for row, queue in enumerate(self.history.queues)}
        self._stored_rule = StoredRule(new_id(), self.rule)

    def run(self, max_notified: int | None = None) -> list[SimulatedIncident]:
        """Return the incidents. Stops as soon as more than `max_notified` incidents were notified."""
        column, paused = self._next_breach(0), time.monotonic()
        while column < self.history.columns:
            self._evaluate(column)
            following = self._next_column(column)
            self._record_peaks(column, following)
            column = following
            if max_notified is not None and count_notified(self.incidents) > max_notified:
                break
            if time.monotonic() - paused > WORK_S:
                time.sleep(PAUSE_S)
                paused = time.monotonic()
        return self.incidents

    def _evaluate(self, column: int) -> None:
        now_s = float(self.history.time_s(column))
        self._forget_states(now_s - EVALUATION_STEP_S)  # a cooldown may have ended in a skipped minute
        measurement = None
        if not self.history.has_losses(column):
            values = self.history.values.window_end(column)
            measurement = RuleMeasurement(self.history.queues, values, lambda row: "")
        policy = self._policy(now_s)
        outcome = evaluate_rule(
            self._stored_rule, measurement, self._states, self._open, now_s, policy, LOST_EVENTS
        )
        self._states = dict(outcome.states)
        self._forget_states(now_s)
        if outcome.incident is not None:
            self._record(outcome.incident, now_s)

    def _forget_states(self, now_s: float) -> None:
        """Drop the states that the evaluator would not store."""
        cooldown_s = self.rule.rule.cooldown_minutes * 60
        self._states = {
            queue: state
            for queue, state in self._states.items()
            if not is_forgotten(state, cooldown_s, now_s)
        }

    def _policy(self, now_s: float) -> NoticePolicy:
        settings = self.rule.rule
        return NoticePolicy(
            settings.cooldown_minutes * 60,
            {
                queue: state.notified_s
                for queue, state in self._states.items()
                if state.notified_s is not None
            },
            is_silenced=lambda queue: self.is_silenced(queue, now_s),
            repeat_s=None if settings.repeat_minutes is None else settings.repeat_minutes * 60,
        )

    def _record(self, update: IncidentUpdate, now_s: float) -> None:
        incident = update.incident
        if self._open is None:
            self.incidents.append(SimulatedIncident(incident.opened_s))
        simulated = self.incidents[-1]
        simulated.firings += sum(queue.fired_s == now_s for queue in incident.queues.values())
        simulated.notices = incident.notice_count
        if simulated.notified_s is None:
            simulated.notified_s = incident.notified_s
            simulated.was_silenced |= incident.is_silenced
        simulated.resolved_s = incident.resolved_s
        self._open = None if incident.resolved_s is not None else incident

    def _record_peaks(self, column: int, following: int) -> None:
        """Keep the worst value of each firing queue up to the next evaluation."""
        if self._open is None:
            return
        peaks = self.incidents[-1].peaks
        queues = [queue.queue for queue in self._open.firing_queues]
        rows = [self._rows[queue] for queue in queues]
        worst, of_two = (np.fmin, min) if self.rule.operator is Operator.LESS_THAN else (np.fmax, max)
        values = worst.reduce(self.history.values.values[rows, column:following], axis=1)
        for queue, value in zip(queues, values.tolist(), strict=True):
            known = peaks.get(queue, value)
            peaks[queue] = value if np.isnan(known) else known if np.isnan(value) else of_two(known, value)

    def _next_column(self, column: int) -> int:
        """Return the next minute in which something may change."""
        if not self._states:
            return self._next_breach(column + 1)
        if not self._is_steady(column):
            return column + 1
        return _first_from(self._changes, column + 1, self.history.columns)

    def _next_breach(self, column: int) -> int:
        return _first_from(self._breaches, column, self.history.columns)

    def _is_steady(self, column: int) -> bool:
        """Return whether states and notices stay the same until a verdict changes."""
        if self.rule.rule.repeat_minutes is not None:
            return False
        if self._open is not None and any(queue.notified_s is None for queue in self._open.firing_queues):
            return False
        return all(
            _is_settled(state, int(self._codes[self._rows[queue], column]))
            for queue, state in self._states.items()
        )


def simulate(
    rule: CompleteRule,
    history: RuleHistory,
    is_silenced: SilenceCheck = never_silenced,
    max_notified: int | None = None,
) -> list[SimulatedIncident]:
    """Return the incidents of a rule over its history; see `Simulation.run`."""
    return Simulation(rule, history, is_silenced).run(max_notified)


def count_notified(incidents: list[SimulatedIncident]) -> int:
    return sum(incident.notified_s is not None for incident in incidents)


def held_back_counts(incidents: list[SimulatedIncident]) -> Mapping[str, int]:
    """Return how many incidents had no notice, by what held it back."""
    return {
        reason: sum(incident.held_back_by == reason for incident in incidents)
        for reason in ("cooldown", "silence")
    }


def _is_settled(state: RuleQueueState, code: int) -> bool:
    if state.state.phase is Phase.FIRING:
        return code != CLEAR
    return state.state.phase is Phase.OK and code != BREACHED


def _first_from(columns: Column, column: int, end: int) -> int:
    """Return the first of the sorted columns from `column` on, or `end`."""
    position = int(np.searchsorted(columns, column))
    return int(columns[position]) if position < len(columns) else end
