"""Evaluate one rule against the measurements of its queues. Nothing here reads or writes a server."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from penstock.alerts.evaluation.conditions import (
    BREACHED,
    UNKNOWN,
    VERDICTS,
    Values,
    judge,
)
from penstock.alerts.evaluation.state_machine import AlertState, Phase, Verdict, next_state
from penstock.alerts.incidents.incident_model import Incident
from penstock.alerts.incidents.incident_tracker import (
    FiringQueue,
    IncidentUpdate,
    NoticePolicy,
    update_incident,
)
from penstock.alerts.rules.rule_types import CompleteRule
from penstock.warehouse.series.native_format import Column

ENVIRONMENT = ""
"""The subject of a rule that belongs to the whole environment."""


@dataclass(frozen=True, slots=True)
class StoredRule:
    id: uuid.UUID
    rule: CompleteRule


@dataclass(frozen=True, slots=True)
class RuleQueueState:
    """The state of a rule for a queue, its last value, and when the queue was last in a notice."""

    state: AlertState = field(default_factory=AlertState)
    value: float | None = None
    notified_s: float | None = None


@dataclass(frozen=True, slots=True)
class RuleMeasurement:
    """The values of a rule for the queues of its scope: one row per queue, one column."""

    queues: Sequence[str]
    values: Values
    describe: Callable[[int], str]
    """Returns one sentence with the figures of the queue in a row."""


@dataclass(frozen=True, slots=True)
class RuleOutcome:
    """What an evaluation decided for a rule: changed states, counts per state, and its incident."""

    rule: StoredRule
    states: Mapping[str, RuleQueueState]
    counts: Mapping[str, int]
    unknown_reason: str | None
    incident: IncidentUpdate | None


def evaluate_rule(
    rule: StoredRule,
    measurement: RuleMeasurement | None,
    states: Mapping[str, RuleQueueState],
    incident: Incident | None,
    now_s: float,
    policy: NoticePolicy,
    unknown_reason: str | None = None,
    max_new_queues: int | None = None,
) -> RuleOutcome:
    """Advance the states of a rule. Without a measurement every state is unknown, with `unknown_reason`.

    At most `max_new_queues` queues without a state get one; the others count as pending.
    """
    if measurement is None:
        changed = {
            queue: _advance(rule, state, Verdict.UNKNOWN, None, now_s, unknown_reason or "no metrics")
            for queue, state in states.items()
        }
        held = None
        if incident is not None:
            held = IncidentUpdate(replace(incident, inhibited_by=policy.inhibited_by))
        return RuleOutcome(rule, changed, Counter(unknown=len(changed)), unknown_reason, held)
    codes = judge(rule.rule, measurement.values)[:, 0]
    breached = [measurement.queues[row] for row in np.flatnonzero(codes == BREACHED).tolist()]
    new_queues = [queue for queue in breached if queue not in states]
    admitted = new_queues[:max_new_queues]
    followed = {*states, *admitted}
    rows = (
        {queue: row for row, queue in enumerate(measurement.queues) if queue in followed} if followed else {}
    )
    changed = _advance_queues(rule, measurement, codes, rows, states, admitted, now_s)
    firing = {
        queue: FiringQueue(
            queue,
            state.value,
            rule.rule.threshold,
            measurement.describe(rows[queue]) if queue in rows else "",
        )
        for queue, state in changed.items()
        if state.state.is_firing
    }
    update = update_incident(incident, rule.id, firing, now_s, policy)
    changed = _record_notices(changed, update, now_s)
    counts = _count_states(changed, codes, len(new_queues) - len(admitted))
    return RuleOutcome(rule, changed, counts, None, update)


def _advance_queues(
    rule: StoredRule,
    measurement: RuleMeasurement,
    codes: Column,
    rows: Mapping[str, int],
    states: Mapping[str, RuleQueueState],
    new_queues: Sequence[str],
    now_s: float,
) -> dict[str, RuleQueueState]:
    """Advance queues that have a state, and new ones that breach. All others are ok and stay so."""
    changed = {}
    for queue in (*states, *new_queues):
        row = rows.get(queue)
        state = states.get(queue, RuleQueueState())
        if row is None:  # the queue was deleted, or the scope of the rule changed
            changed[queue] = _advance(rule, state, Verdict.CLEAR, None, now_s)
            continue
        value = float(measurement.values.values[row, 0])
        reason = next((text for text, cells in measurement.values.unknown.items() if cells[row, 0]), "")
        known = None if np.isnan(value) else value
        changed[queue] = _advance(rule, state, VERDICTS[int(codes[row])], known, now_s, reason)
    return changed


def _advance(
    rule: StoredRule,
    previous: RuleQueueState,
    verdict: Verdict,
    value: float | None,
    now_s: float,
    unknown_reason: str = "",
) -> RuleQueueState:
    state, _ = next_state(previous.state, verdict, now_s, rule.rule.timing, unknown_reason)
    return RuleQueueState(state, previous.value if verdict is Verdict.UNKNOWN else value, previous.notified_s)


def _record_notices(
    states: dict[str, RuleQueueState], update: IncidentUpdate | None, now_s: float
) -> dict[str, RuleQueueState]:
    """Start the cooldown of the queues that a notice names."""
    if update is None or update.transition is None:
        return states
    notified = frozenset(update.notified_queues)
    return {
        queue: RuleQueueState(state.state, state.value, now_s) if queue in notified else state
        for queue, state in states.items()
    }


def _count_states(states: Mapping[str, RuleQueueState], codes: Column, not_admitted: int) -> Counter[str]:
    counts = Counter(state.state.label for state in states.values())
    counts["pending"] += not_admitted
    unknown = int(np.count_nonzero(codes == UNKNOWN))
    counts["unknown"] = max(counts["unknown"], unknown)
    counts["ok"] = max(
        0, len(codes) - sum(counts[name] for name in ("pending", "firing", "clearing", "unknown"))
    )
    return counts


def is_forgotten(state: RuleQueueState, cooldown_s: float, now_s: float) -> bool:
    """Return whether the state needs no row: it is ok, and its cooldown is over."""
    is_cooling = state.notified_s is not None and now_s - state.notified_s < cooldown_s
    return state.state.phase is Phase.OK and not is_cooling
