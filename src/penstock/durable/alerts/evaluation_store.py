"""Read what the evaluator of alerts needs, and store what it decided."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from penstock.clock import to_utc
from penstock.durable.pool import Session, fetch_all, fetch_one
from penstock.model import Scope

JsonObject = Mapping[str, Any]


class RuleRow(NamedTuple):
    """An enabled rule; `rule` is its JSON text."""

    environment_id: int
    organization: str
    project: str
    environment: str
    rule_id: uuid.UUID
    rule: str

    @property
    def scope(self) -> Scope:
        return Scope(self.organization, self.project, self.environment)


class StateRow(NamedTuple):
    """The stored state of a rule for a queue."""

    rule_id: uuid.UUID
    queue: str
    phase: str
    since: datetime
    in_phase_s: float
    evaluated_at: datetime
    unknown_reason: str | None
    value: float | None
    notified_at: datetime | None


class IncidentRow(NamedTuple):
    """An open incident; `rule`, `cause` and `queues` are JSON texts."""

    id: uuid.UUID
    environment_id: int
    rule_id: uuid.UUID | None
    rule: str
    opened_at: datetime
    notified_at: datetime | None
    notice_count: int
    acknowledged: bool
    silenced: bool
    inhibited_by: uuid.UUID | None
    cause: str | None
    queues: str


class SilenceRow(NamedTuple):
    """A silence that has not ended; `silence` is its JSON text."""

    environment_id: int
    silence: str


class QueueFacts(NamedTuple):
    """What PostgreSQL knows about a durable queue."""

    queue: str
    dead_letters: int


class ExpiringRow(NamedTuple):
    """The unfinished messages of a group that expire within a time."""

    queue: str
    group_name: str
    within_s: float
    messages: int


class NewErrorGroupRow(NamedTuple):
    """An error group of a queue that is new, or back after it was resolved or ignored."""

    queue: str
    new_since: datetime
    returned_from: str | None
    pattern: str
    example: str


class DeadTaskError(NamedTuple):
    """The error of a dead task of a run queue."""

    queue: str
    error: str
    died_s: float


class CauseFacts(NamedTuple):
    """What PostgreSQL knows about the cause of an incident; `blocked` and `errors` are JSON texts."""

    queue: str
    paused: bool
    groups: int
    depth: int
    running: int
    blocked: str | None
    errors: str


class PlatformFacts(NamedTuple):
    """Deferred operations that wait in PostgreSQL, and what holds its vacuum horizon."""

    pending_operations: int
    oldest_operation_s: float
    horizon_holder: str | None
    horizon_held_s: float | None


class EvaluationStore:
    """The evaluator's view of the alert tables."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def enabled_rules(self) -> list[RuleRow]:
        return await fetch_all(self._session, RuleRow, "SELECT * FROM enabled_alert_rules_v1()")

    async def states(self) -> list[StateRow]:
        return await fetch_all(self._session, StateRow, "SELECT * FROM alert_states_v1()")

    async def open_incidents(self) -> list[IncidentRow]:
        return await fetch_all(self._session, IncidentRow, "SELECT * FROM open_alert_incidents_v1()")

    async def silences(self, now_s: float) -> list[SilenceRow]:
        """Return the silences of all environments that have not ended."""
        return await fetch_all(
            self._session, SilenceRow, "SELECT * FROM current_alert_silences_v1($1)", to_utc(now_s)
        )

    async def queue_facts(self, environment_id: int) -> list[QueueFacts]:
        return await fetch_all(
            self._session, QueueFacts, "SELECT * FROM alert_queue_facts_v1($1)", environment_id
        )

    async def expiring_messages(
        self, environment_id: int, within_s: Sequence[float], now_s: float
    ) -> list[ExpiringRow]:
        query = "SELECT * FROM expiring_messages_v1($1, $2, $3)"
        return await fetch_all(self._session, ExpiringRow, query, environment_id, within_s, to_utc(now_s))

    async def merge_error_groups(
        self, environment_id: int, tasks: Sequence[DeadTaskError], since_s: float, now_s: float
    ) -> list[NewErrorGroupRow]:
        """Record the error groups of dead messages and of these tasks; return those that are new."""
        return await fetch_all(
            self._session,
            NewErrorGroupRow,
            "SELECT * FROM merge_error_groups_v1($1, $2, $3, $4, $5, $6)",
            environment_id,
            [task.queue for task in tasks],
            [task.error for task in tasks],
            [to_utc(task.died_s) for task in tasks],
            to_utc(since_s),
            to_utc(now_s),
        )

    async def cause_facts(self, environment_id: int, queues: Sequence[str], now_s: float) -> list[CauseFacts]:
        """Return the facts of those queues that are durable."""
        return await fetch_all(
            self._session,
            CauseFacts,
            "SELECT * FROM alert_cause_facts_v1($1, $2, $3)",
            environment_id,
            list(queues),
            to_utc(now_s),
        )

    async def platform_facts(self, horizon_longer_than: timedelta) -> PlatformFacts:
        facts = await fetch_one(
            self._session, PlatformFacts, "SELECT * FROM alert_platform_facts_v1($1)", horizon_longer_than
        )
        assert facts is not None
        return facts

    async def record(
        self,
        *,
        states: Sequence[JsonObject],
        status: Sequence[JsonObject],
        incidents: Sequence[JsonObject],
        notices: Sequence[JsonObject],
        evaluated_to_s: float | None,
        duration_s: float,
    ) -> None:
        """Store the decisions of an evaluation in one transaction."""
        documents = (states, status, incidents, notices)
        await self._session.fetch(
            "SELECT record_alert_evaluation_v1($1, $2, $3, $4, $5, $6)",
            *(msgspec.json.encode(document).decode() for document in documents),
            None if evaluated_to_s is None else to_utc(evaluated_to_s),
            duration_s,
        )

    async def record_failure(self, error: str) -> None:
        await self._session.fetch("SELECT record_alert_failure_v1($1)", error)
