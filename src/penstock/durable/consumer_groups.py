"""Consumer groups: list them with their lag and positions, move them, delete them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from penstock.durable.pool import Session, fetch_all, fetch_value
from penstock.model import Scope

PARTITIONS_PER_SEEK = 500
"""Partitions whose rows are locked together while a group is moved."""


@dataclass(slots=True)
class SeekResult:
    """How many partitions a seek visited and moved, and by how many messages forward and back."""

    partitions: int = 0
    moved: int = 0
    forward: int = 0
    back: int = 0


class GroupSummary(NamedTuple):
    """A row of `groups_v1`: one group in one queue. `total` counts the rows of all pages."""

    id: int
    name: str
    queue_id: int
    queue: str
    subscription: str
    created_at: datetime
    depth: int
    running: int
    leases: int
    behind: int
    oldest_at: datetime | None
    dead: int
    total: int


class GroupSubscription(NamedTuple):
    """A row of `find_groups_v1`: where a group starts in one queue."""

    group_id: int
    queue_id: int
    queue: str
    subscription: str
    created_at: datetime


class GroupPosition(NamedTuple):
    """A row of `group_partitions_v1`: a group's position in one partition."""

    partition_id: int
    partition: str
    cursor: int
    next_offset: int
    unfinished: int
    oldest_at: datetime | None
    leased_at: datetime | None
    lease_expires_at: datetime | None
    total: int


class LaggingPosition(NamedTuple):
    """A row of `lagging_positions_v1`."""

    group_name: str
    queue: str
    partition: str
    partition_id: int
    unfinished: int
    oldest_at: datetime
    leased_at: datetime | None
    total: int


class QueueWithGroup(NamedTuple):
    """A row of `queues_with_group_v1`."""

    queue_id: int
    queue: str
    group_id: int | None


class ConsumerGroups:
    """Reads and changes consumer groups."""

    def __init__(self, session: Session, *, partitions_per_seek: int = PARTITIONS_PER_SEEK) -> None:
        self._session = session
        self._partitions_per_seek = partitions_per_seek

    async def list_groups(
        self,
        scope: Scope,
        *,
        group: str | None = None,
        queue: str | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[GroupSummary]:
        """Return a page of groups by name and queue."""
        return await fetch_all(
            self._session,
            GroupSummary,
            "SELECT * FROM groups_v1($1, $2, $3, $4, $5, $6, $7)",
            *scope,
            group,
            queue,
            limit,
            offset,
        )

    async def find_subscriptions(
        self, scope: Scope, group: str, queue: str | None = None
    ) -> list[GroupSubscription]:
        """Return every queue that a group consumes, or one of them, by name."""
        return await fetch_all(
            self._session,
            GroupSubscription,
            "SELECT * FROM find_groups_v1($1, $2, $3, $4, $5)",
            *scope,
            group,
            queue,
        )

    async def ids_by_name(self, queue_id: int) -> dict[str, int]:
        """Return the groups of a queue: ids by name, in the order of the names."""
        rows = await self._session.fetch("SELECT * FROM queue_groups_v1($1)", queue_id)
        return {row["name"]: row["group_id"] for row in rows}

    async def list_queues(self, scope: Scope, group: str) -> list[QueueWithGroup]:
        """Return the queues of an environment, each with the group of that name if it has one."""
        return await fetch_all(
            self._session,
            QueueWithGroup,
            "SELECT * FROM queues_with_group_v1($1, $2, $3, $4)",
            *scope,
            group,
        )

    async def list_positions(self, group_id: int, *, limit: int, offset: int) -> list[GroupPosition]:
        """Return a page of a group's positions by partition name."""
        return await fetch_all(
            self._session,
            GroupPosition,
            "SELECT * FROM group_partitions_v1($1, $2, $3)",
            group_id,
            limit,
            offset,
        )

    async def list_lagging(
        self,
        scope: Scope,
        before: datetime,
        *,
        queue: str | None = None,
        by_lag: bool = False,
        limit: int,
        offset: int,
    ) -> list[LaggingPosition]:
        """Return the positions with an unfinished message that was pushed before a time.

        The oldest come first, or with `by_lag` those with the most unfinished messages.
        """
        return await fetch_all(
            self._session,
            LaggingPosition,
            "SELECT * FROM lagging_positions_v1($1, $2, $3, $4, $5, $6, $7, $8)",
            *scope,
            queue,
            by_lag,
            before,
            limit,
            offset,
        )

    async def seek(self, group_id: int, target: str, partition_id: int | None = None) -> SeekResult:
        """Move a group to `all`, `new` or a timestamp in ISO 8601, in every partition of its queue or in one.

        Partitions move in bounded steps, each of them consistent. After an interruption some partitions have
        moved and others have not; another call moves them all.
        """
        result = SeekResult()
        last_id = -1
        while True:
            row = await self._session.fetchrow(
                "SELECT * FROM seek_group_v1($1, $2, $3, $4, $5)",
                group_id,
                target,
                partition_id,
                last_id,
                self._partitions_per_seek,
            )
            assert row is not None
            if row["last_id"] is None:
                return result
            last_id = row["last_id"]
            result.partitions += row["partitions"]
            result.moved += row["moved"]
            result.forward += row["forward"]
            result.back += row["back"]

    async def set_subscription(self, group_id: int, subscription: str) -> None:
        """Record where a group starts."""
        await self._session.fetch("SELECT set_subscription_v1($1, $2)", group_id, subscription)

    async def delete(self, group_id: int) -> int:
        """Delete a group of one queue; in how many partitions it had a position. Its dead letters stay."""
        return await fetch_value(self._session, int, "SELECT delete_group_v1($1)", group_id)
