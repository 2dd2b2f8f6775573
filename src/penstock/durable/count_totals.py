"""Totals of pushed and completed messages, with which the counts of the metrics are compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.durable.pool import Session, fetch_all, fetch_value
from penstock.model import Scope


class CountTotal(NamedTuple):
    """Messages pushed to a queue (empty group name), or completed by one of its groups."""

    queue_id: int
    group_name: str
    messages: int


class QueueEntry(NamedTuple):
    """A queue and its environment."""

    queue_id: int
    organization: str
    project: str
    environment: str
    queue: str

    @property
    def scope(self) -> Scope:
        return Scope(self.organization, self.project, self.environment)


class CountTotals:
    """Reads totals; the cost follows groups, never messages."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def of_queues(self, queue_ids: Sequence[int]) -> list[CountTotal]:
        """Return the totals of queues and of their groups, without those that are 0."""
        return await fetch_all(
            self._session, CountTotal, "SELECT * FROM queue_count_totals_v1($1)", list(queue_ids)
        )

    async def queues_after(self, queue_id: int, limit: int) -> list[QueueEntry]:
        """Return the next queues of all environments by id."""
        return await fetch_all(
            self._session, QueueEntry, "SELECT * FROM queues_after_v1($1, $2)", queue_id, limit
        )

    async def newest_queue_id(self) -> int:
        """Return the largest id of a queue, or 0."""
        return await fetch_value(self._session, int, "SELECT * FROM newest_queue_id_v1()")
