"""The catalog of queues: list, find, configure and delete queues; list partitions and totals."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple

from penstock.durable.faults import retry_if_queue_deleted
from penstock.durable.pool import Session, fetch_all, fetch_one, fetch_value
from penstock.model import Scope

ROWS_PER_DELETE = 5_000
PARTITIONS_PER_PURGE = 500

ColumnValue = int | bool | str | list[str] | None
Label = Literal["namespace", "task"]


@dataclass(frozen=True, slots=True)
class QueueRecord:
    """A queue's id and the columns of its row in `queues`."""

    id: int
    columns: Mapping[str, ColumnValue]


@dataclass(frozen=True, slots=True)
class ConfiguredQueue:
    """A queue after a change of its options. `partition_id` is its Default partition's, if it has one."""

    queue_id: int
    partition_id: int | None
    columns: Mapping[str, ColumnValue]


class QueueSummary(NamedTuple):
    """A row of `queues_v1`. `total` counts the queues of all pages."""

    id: int
    name: str
    namespace: str
    task: str
    created_at: datetime
    partitions: int
    groups: int
    depth: int | None
    running: int | None
    paused: bool
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageTotals:
    """The partitions, the groups, and the number of messages in each state, of one queue or of several."""

    partitions: int
    groups: int
    pushed: int
    kept: int
    depth: int
    running: int
    dead: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueHoldings(MessageTotals):
    """A row of `queue_totals_page_v1`: a queue with its totals. `total` counts the queues of all pages."""

    id: int
    name: str
    namespace: str
    task: str
    created_at: datetime
    paused: bool
    total: int


class LabelTotals(NamedTuple):
    """A row of `label_totals_v1`: sums over the queues of one namespace or task."""

    label: str
    queues: int
    partitions: int
    kept: int
    depth: int
    running: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentTotals(MessageTotals):
    """The row of `environment_totals_v1`: sums over the queues of an environment."""

    queues: int
    namespaces: int
    tasks: int


class PartitionSummary(NamedTuple):
    """A row of `partitions_v1`. `total` counts the partitions of all pages."""

    id: int
    name: str
    queue_id: int
    queue: str
    created_at: datetime
    pushed_at: datetime | None
    low_offset: int
    next_offset: int
    pending: int
    running: int
    total: int


@dataclass(slots=True)
class PurgeResult:
    """The dropped messages that some group had not finished, and the unfinished ones of each group by its id.

    The group 0 stands for a queue without groups.
    """

    messages: int = 0
    group_messages: Counter[int] = field(default_factory=Counter)


class QueueId(NamedTuple):
    """A queue's id and name."""

    id: int
    name: str


class QueueCatalog:
    """Reads and changes queues as a whole; never single messages."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def list_queues(
        self, scope: Scope, *, search: str | None = None, limit: int = 100, offset: int = 0
    ) -> list[QueueSummary]:
        """Return a page of queues by name."""
        return await fetch_all(
            self._session,
            QueueSummary,
            "SELECT * FROM queues_v1($1, $2, $3, $4, $5, $6)",
            *scope,
            search,
            limit,
            offset,
        )

    async def has_queue(self, scope: Scope, queue: str) -> bool:
        return await self.find_queue(scope, queue) is not None

    async def find_queue(self, scope: Scope, queue: str) -> QueueRecord | None:
        """Return the queue of that name, or None."""
        row = await self._session.fetchrow("SELECT * FROM find_queue_v1($1, $2, $3, $4)", *scope, queue)
        return QueueRecord(row["id"], json.loads(row["columns"])) if row else None

    async def find_matching_queues(
        self, scope: Scope, namespace: str | None, task: str | None
    ) -> list[QueueId]:
        """Return the queues of a namespace and task, highest priority first; None matches any."""
        return await fetch_all(
            self._session,
            QueueId,
            "SELECT * FROM matching_queues_v1($1, $2, $3, $4, $5)",
            *scope,
            namespace,
            task,
        )

    async def nearest_queue_names(self, scope: Scope, queue: str, limit: int) -> list[str]:
        """Return up to `limit` names of queues on each side of a name, in the order of names."""
        rows = await self._session.fetch(
            "SELECT * FROM nearest_queue_names_v1($1, $2, $3, $4, $5)", *scope, queue, limit
        )
        return [row["name"] for row in rows]

    async def set_paused(self, scope: Scope, queue: str, paused: bool) -> int | None:
        """Pause or resume a queue; return its id, or None if it does not exist."""
        row = await self._session.fetchrow(
            "SELECT * FROM set_queue_paused_v1($1, $2, $3, $4, $5)", *scope, queue, paused
        )
        return row["queue_id"] if row else None

    async def list_holdings(
        self,
        scope: Scope,
        *,
        queue: str | None = None,
        namespace: str | None = None,
        task: str | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[QueueHoldings]:
        """Return a page of queues by name with their totals."""
        return await fetch_all(
            self._session,
            QueueHoldings,
            "SELECT * FROM queue_totals_page_v1($1, $2, $3, $4, $5, $6, $7, $8)",
            *scope,
            queue,
            namespace,
            task,
            limit,
            offset,
        )

    async def sum_by_label(self, scope: Scope, label: Label) -> list[LabelTotals]:
        """Return the totals of the queues of each namespace or task, without queues that have none."""
        return await fetch_all(
            self._session, LabelTotals, "SELECT * FROM label_totals_v1($1, $2, $3, $4)", *scope, label
        )

    async def sum_environment(
        self, scope: Scope, *, namespace: str | None = None, task: str | None = None
    ) -> EnvironmentTotals:
        """Return totals over the queues of an environment, or of a namespace and task in it."""
        totals = await fetch_one(
            self._session,
            EnvironmentTotals,
            "SELECT * FROM environment_totals_v1($1, $2, $3, $4, $5)",
            *scope,
            namespace,
            task,
        )
        assert totals is not None
        return totals

    async def list_partitions(
        self,
        scope: Scope,
        *,
        queue: str | None = None,
        search: str | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[PartitionSummary]:
        """Return a page of partitions by queue and name."""
        return await fetch_all(
            self._session,
            PartitionSummary,
            "SELECT * FROM partitions_v1($1, $2, $3, $4, $5, $6, $7)",
            *scope,
            queue,
            search,
            limit,
            offset,
        )

    async def configure(
        self, scope: Scope, queue: str, changes: Mapping[str, ColumnValue]
    ) -> ConfiguredQueue:
        """Set columns of a queue's row, all or none. A missing queue is created, with a Default partition."""
        row = await retry_if_queue_deleted(
            lambda: self._session.fetchrow(
                "SELECT * FROM configure_queue_v1($1, $2, $3, $4, $5)", *scope, queue, json.dumps(changes)
            )
        )
        assert row is not None
        return ConfiguredQueue(row["queue_id"], row["partition_id"], json.loads(row["queue"]))

    async def delete_queue(self, queue_id: int) -> bool:
        """Delete a queue and everything that belongs to it; whether it existed.

        Dead letters and traces are deleted first, in bounded steps. After an interruption the rest of the
        queue is intact, and another call continues.
        """
        while await fetch_value(
            self._session,
            int,
            "SELECT delete_dead_letters_and_traces_v1($1, $2)",
            queue_id,
            ROWS_PER_DELETE,
        ):
            pass
        return await fetch_value(self._session, bool, "SELECT delete_queue_v1($1)", queue_id)

    async def purge(self, queue_id: int) -> PurgeResult:
        """Drop all messages of a queue; its dead letters stay.

        Partitions are emptied in bounded steps. After an interruption some of them are empty, and another
        call empties the rest.
        """
        result = PurgeResult()
        last_id = 0
        while True:
            rows = await self._session.fetch(
                "SELECT * FROM purge_queue_v1($1, $2, $3)", queue_id, last_id, PARTITIONS_PER_PURGE
            )
            if not rows:
                return result
            last_id = rows[0]["last_partition_id"]
            for row in rows:
                if row["group_id"] is None:
                    result.messages += row["messages"]
                else:
                    result.group_messages[row["group_id"]] += row["messages"]
