"""Convert between rows of the alert tables and the objects of an evaluation."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import msgspec

from penstock.alerts.delivery.notice import MAX_QUEUES, NoticeMessage, NoticeQueue
from penstock.alerts.delivery.outgoing_notice import with_environment
from penstock.alerts.evaluation.descriptions import format_milliseconds
from penstock.alerts.evaluation.rule_evaluation import RuleOutcome, RuleQueueState, is_forgotten
from penstock.alerts.evaluation.state_machine import AlertState, Phase
from penstock.alerts.incidents.cause import CauseKind
from penstock.alerts.incidents.incident_model import AffectedQueue, Incident
from penstock.alerts.incidents.incident_tracker import RESOLVED, IncidentUpdate
from penstock.alerts.rules.alert_rule import AlertRule
from penstock.clock import to_utc
from penstock.durable.alerts.evaluation_store import IncidentRow, RuleRow, StateRow

JsonObject = Mapping[str, object]

STATE_NAMES = ("ok", "pending", "firing", "clearing", "unknown")


@dataclass(frozen=True, slots=True)
class EvaluationDocuments:
    """What an evaluation stores, as JSON objects."""

    states: list[JsonObject] = field(default_factory=list)
    status: list[JsonObject] = field(default_factory=list)
    incidents: list[JsonObject] = field(default_factory=list)
    notices: list[JsonObject] = field(default_factory=list)

    def add_outcomes(self, environment: RuleRow, outcomes: Iterable[RuleOutcome], now_s: float) -> None:
        """Add what was decided for the rules of an environment."""
        for outcome in outcomes:
            self._add_states(outcome, now_s)
            if outcome.incident is not None:
                rule = outcome.rule.rule.rule
                self._add_incident(environment.environment_id, rule, outcome.incident, environment)

    def resolve_orphan(self, row: IncidentRow, now_s: float) -> None:
        """Resolve an incident whose rule was deleted or disabled."""
        incident = incident_from_row(row)
        queues = {
            name: queue if queue.resolved_s is not None else replace(queue, resolved_s=now_s)
            for name, queue in incident.queues.items()
        }
        resolution = "rule deleted" if row.rule_id is None else "rule disabled"
        incident = replace(
            incident, queues=queues, resolved_s=now_s, resolution=resolution, is_silenced=False
        )
        transition = None if incident.notified_s is None else RESOLVED
        rule = msgspec.json.decode(row.rule, type=AlertRule)
        self._add_incident(row.environment_id, rule, IncidentUpdate(incident, transition), None)

    def _add_states(self, outcome: RuleOutcome, now_s: float) -> None:
        rule_id = str(outcome.rule.id)
        cooldown_s = outcome.rule.rule.rule.cooldown_minutes * 60
        for queue, state in outcome.states.items():
            self.states.append(
                {"rule_id": rule_id, "queue": queue, "forget": True}
                if is_forgotten(state, cooldown_s, now_s)
                else {"rule_id": rule_id, "queue": queue, **_state_fields(state)}
            )
        counts = {name: outcome.counts.get(name, 0) for name in STATE_NAMES}
        self.status.append(
            {"rule_id": rule_id, "evaluated_s": now_s, "unknown_reason": outcome.unknown_reason, **counts}
        )

    def _add_incident(
        self, environment_id: int, rule: AlertRule, update: IncidentUpdate, environment: RuleRow | None
    ) -> None:
        incident = update.incident
        self.incidents.append(
            {
                "id": str(incident.id),
                "environment_id": environment_id,
                "rule_id": None if incident.rule_id is None else str(incident.rule_id),
                "rule": msgspec.to_builtins(rule),
                "severity": rule.severity.value,
                "opened_s": incident.opened_s,
                "resolved_s": incident.resolved_s,
                "resolution": incident.resolution,
                "cause": incident.cause,
                "chart": None if incident.chart is None else base64.b64encode(incident.chart).decode(),
                "inhibited_by": None if incident.inhibited_by is None else str(incident.inhibited_by),
                "silenced": incident.is_silenced,
                "notified_s": incident.notified_s,
                "notice_count": incident.notice_count,
                "queues": [_queue_fields(queue) for queue in incident.queues.values()],
            }
        )
        if update.transition is not None:
            scope = "" if environment is None else "/".join(environment.scope)
            message = build_message(rule, update, scope)
            self.notices.append(
                {
                    "environment_id": environment_id,
                    "incident_id": str(incident.id),
                    "transition": update.transition,
                    "channels": list(rule.channels),
                    "message": msgspec.to_builtins(message),
                }
            )


def build_message(rule: AlertRule, update: IncidentUpdate, environment: str) -> NoticeMessage:
    """Return the notice of an incident's transition: the queues that it is about, first."""
    incident = update.incident
    queues = [incident.queues[name] for name in update.notified_queues if name in incident.queues]
    return NoticeMessage(
        incident_id=incident.id,
        transition=update.transition or "",
        environment=environment,
        rule_name=rule.name,
        rule_type=rule.type.value,
        severity=rule.severity.value,
        summary=summarize(incident, queues),
        opened_at=to_utc(incident.opened_s),
        resolved_at=None if incident.resolved_s is None else to_utc(incident.resolved_s),
        queues=tuple(_notice_queue(queue) for queue in queues[:MAX_QUEUES]),
        queue_count=len(queues),
        cause=_cause_sentence(incident),
        labels=rule.labels,
        runbook=rule.runbook,
        incident_path=with_environment(f"/console/alerts?tab=incidents&incident={incident.id}", environment),
    )


def summarize(incident: Incident, queues: Sequence[AffectedQueue]) -> str:
    """Return one sentence about the queues of a notice."""
    if not queues:
        return ""
    first = queues[0]
    text = f"{first.queue}: {first.summary}" if first.queue else first.summary
    others = len(queues) - 1
    if others:
        text += f", and {others:,} more {'queue' if others == 1 else 'queues'}"
    if incident.resolved_s is None:
        return text
    lasted = format_milliseconds((incident.resolved_s - incident.opened_s) * 1000)
    return f"Resolved after {lasted}. It was: {text}"


def state_from_row(row: StateRow) -> RuleQueueState:
    state = AlertState(
        Phase(row.phase),
        row.since.timestamp(),
        row.in_phase_s,
        row.evaluated_at.timestamp(),
        row.unknown_reason,
    )
    return RuleQueueState(state, row.value, _seconds(row.notified_at))


def incident_from_row(row: IncidentRow) -> Incident:
    queues = msgspec.json.decode(row.queues, type=list[AffectedQueue])
    return Incident(
        row.id,
        row.rule_id,
        row.opened_at.timestamp(),
        {queue.queue: queue for queue in queues},
        notified_s=_seconds(row.notified_at),
        notice_count=row.notice_count,
        is_acknowledged=row.acknowledged,
        is_silenced=row.silenced,
        inhibited_by=row.inhibited_by,
        cause=None if row.cause is None else msgspec.json.decode(row.cause),
    )


def _state_fields(state: RuleQueueState) -> JsonObject:
    return {
        "phase": state.state.phase.value,
        "since_s": state.state.since_s,
        "in_phase_s": state.state.in_phase_s,
        "evaluated_s": state.state.evaluated_s,
        "unknown_reason": state.state.unknown_reason,
        "value": _finite(state.value),
        "notified_s": state.notified_s,
    }


def _queue_fields(queue: AffectedQueue) -> JsonObject:
    return {**msgspec.to_builtins(queue), "value": _finite(queue.value)}


def _notice_queue(queue: AffectedQueue) -> NoticeQueue:
    return NoticeQueue(
        name=queue.queue,
        summary=queue.summary,
        value=_finite(queue.value),
        threshold=queue.threshold,
        resolved=queue.resolved_s is not None,
    )


def _finite(value: float | None) -> float | None:
    """JSON has no infinity: a backlog that never drains has no value, but a sentence that says so."""
    return None if value is None or value == float("inf") else value


def _seconds(timestamp: datetime | None) -> float | None:
    return None if timestamp is None else timestamp.timestamp()


def _cause_sentence(incident: Incident) -> str | None:
    if incident.cause is None or incident.cause["kind"] == CauseKind.UNKNOWN:
        return None
    return str(incident.cause["summary"])
