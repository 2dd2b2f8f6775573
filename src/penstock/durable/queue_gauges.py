"""Depth, running messages and the oldest waiting message of queues and environments."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from penstock.durable.pool import Session, fetch_all, fetch_value
from penstock.model import Scope


class QueueGauge(NamedTuple):
    """The state of one group of a queue; an empty group name stands for the queue as a whole."""

    queue_id: int
    group_name: str
    depth: int
    running: int
    oldest_at: datetime | None


class NamedQueueGauge(NamedTuple):
    """A QueueGauge with the queue's name instead of its id, and whether the queue is paused."""

    queue: str
    group_name: str
    depth: int
    running: int
    oldest_at: datetime | None
    paused: bool


class ListedQueue(NamedTuple):
    """A row of `queue_list_v1`. `blocked_…` name the partition whose next message failed most often."""

    queue: str
    paused: bool
    groups: int
    depth: int
    running: int
    oldest_at: datetime | None
    dead: int
    blocked_partition: str | None
    blocked_group: str | None
    blocked_attempts: int | None


class EnvironmentGauge(NamedTuple):
    """The state of all queues of an environment together."""

    organization: str
    project: str
    environment: str
    depth: int
    running: int
    oldest_at: datetime | None


class GaugeReader:
    """Reads gauges; the cost follows groups and live leases, never messages."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def of_queues(self, queue_ids: Sequence[int]) -> list[QueueGauge]:
        """Return the gauges of queues and of their groups."""
        return await fetch_all(
            self._session, QueueGauge, "SELECT * FROM queue_gauges_v1($1)", list(queue_ids)
        )

    async def of_environment_queues(self, scope: Scope, limit: int) -> list[NamedQueueGauge]:
        """Return the gauges of the queues of an environment and of their groups, the oldest queues first."""
        return await fetch_all(
            self._session,
            NamedQueueGauge,
            "SELECT * FROM environment_queue_gauges_v1($1, $2, $3, $4)",
            *scope,
            limit,
        )

    async def count_environment_queues(self, scope: Scope) -> int:
        """Return the number of queues of an environment."""
        return await fetch_value(self._session, int, "SELECT environment_queue_count_v1($1, $2, $3)", *scope)

    async def list_queues(self, scope: Scope) -> list[ListedQueue]:
        """Return every queue of an environment with what a list of queues shows, in any order."""
        return await fetch_all(self._session, ListedQueue, "SELECT * FROM queue_list_v1($1, $2, $3)", *scope)

    async def of_environments(self, scopes: Sequence[Scope]) -> list[EnvironmentGauge]:
        """Return one gauge per environment."""
        return await fetch_all(
            self._session,
            EnvironmentGauge,
            "SELECT * FROM environment_gauges_v1($1, $2, $3)",
            [scope.organization for scope in scopes],
            [scope.project for scope in scopes],
            [scope.environment for scope in scopes],
        )
