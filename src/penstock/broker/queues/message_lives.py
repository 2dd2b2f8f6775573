"""The life of a message: its push, deliveries, failures, deaths, requeues and traces, in order of time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter

from penstock.broker.durable_store import DurableStore, MessageTrace
from penstock.broker.queues.message_actions import MessageActions, StoredMessage
from penstock.durable.stored_messages import MessageEvent
from penstock.model import Scope

MAX_TRACES = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeEvent:
    """One event: pushed, requeued_from, delivered, failed, lease_lost, dead, requeued or trace."""

    event: str
    at: datetime
    group: str | None = None
    attempts: int | None = None
    error: str | None = None
    lease_expires_at: datetime | None = None
    """Of a delivery whose lease is the current one."""
    message_id: str | None = None
    """Of the message that a requeue pushed."""
    first_transaction_id: str | None = None
    """Of the message that was requeued first, of which this one descends."""
    trace: MessageTrace | None = None


@dataclass(frozen=True, slots=True)
class MessageLife:
    """A message and its events, the first one first."""

    message: StoredMessage
    events: list[LifeEvent]


class MessageLives:
    """Reads the lives of messages."""

    def __init__(self, store: DurableStore, actions: MessageActions) -> None:
        self._store = store
        self._actions = actions

    async def get(self, scope: Scope, partition_id: int, transaction_id: str) -> MessageLife:
        """Return a message and its life. Raises UnknownPartition and UnknownMessage."""
        message = await self._actions.get(scope, partition_id, transaction_id)
        recorded = await self._store.messages.list_events(partition_id, message.offset)
        traces = await self._store.traces.list_of_message(
            partition_id, transaction_id, limit=MAX_TRACES, offset=0
        )
        events = [LifeEvent(event="pushed", at=message.row.created_at)]
        for row in recorded:
            events += _recorded_events(row, message.row.created_at)
        for dead_letter in message.dead_letters:
            events.append(
                LifeEvent(
                    event="dead",
                    at=dead_letter.failed_at,
                    group=dead_letter.group_name,
                    attempts=dead_letter.attempts,
                    error=dead_letter.error,
                )
            )
        events += [
            LifeEvent(event="trace", at=trace.created_at, group=trace.group_name, trace=trace)
            for trace in traces
        ]
        return MessageLife(message, sorted(events, key=attrgetter("at")))


def _recorded_events(row: MessageEvent, pushed_at: datetime) -> Iterator[LifeEvent]:
    """Yield the events that a row stands for: it also tells when a delivery or a death began."""
    group = row.group_name or None
    match row.event:
        case "delivered":
            yield LifeEvent(event="delivered", at=row.began_at, group=group, lease_expires_at=row.happened_at)
        case "requeued_from":
            yield LifeEvent(
                event="requeued_from", at=pushed_at, attempts=row.attempts, first_transaction_id=row.error
            )
        case "requeued":
            yield LifeEvent(
                event="dead", at=row.began_at, group=group, attempts=row.attempts, error=row.error
            )
            yield LifeEvent(
                event="requeued", at=row.happened_at, group=group, message_id=str(row.new_message_id)
            )
        case _:
            yield LifeEvent(event="delivered", at=row.began_at, group=group)
            yield LifeEvent(
                event=row.event, at=row.happened_at, group=group, attempts=row.attempts, error=row.error
            )
