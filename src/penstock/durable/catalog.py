"""Reading what there is: queues, partitions, namespaces, tasks; and deleting a queue."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from penstock.durable.pool import Database
from penstock.model import Scope

CLEAR_AT_ONCE = 5_000


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue's id and the whole of its row."""

    id: int
    row: dict[str, Any]


async def queues(
    database: Database, scope: Scope, *, search: str | None = None, limit: int = 100, offset: int = 0
) -> list[Any]:
    """A page of queues by name; rows as `queues_v1` describes them."""
    return await database.fetch(
        "SELECT * FROM queues_v1($1, $2, $3, $4, $5, $6)",
        scope.organization,
        scope.project,
        scope.environment,
        search,
        limit,
        offset,
    )


async def queue_exists(database: Database, scope: Scope, queue: str) -> bool:
    return await find_queue(database, scope, queue) is not None


async def has_queues(database: Database, scope: Scope) -> bool:
    """Whether the environment has a queue."""
    row = await database.fetchrow(
        "SELECT 1 FROM queues WHERE environment_id = environment_id_v1($1, $2, $3) LIMIT 1",
        scope.organization,
        scope.project,
        scope.environment,
    )
    return row is not None


async def find_queue(database: Database, scope: Scope, queue: str) -> QueueRow | None:
    """The queue of that name, if there is one."""
    row = await database.fetchrow(
        """SELECT q.id, to_jsonb(q) AS row FROM queues q
           WHERE q.environment_id = environment_id_v1($1, $2, $3) AND q.name = $4""",
        scope.organization,
        scope.project,
        scope.environment,
        queue,
    )
    return QueueRow(row["id"], json.loads(row["row"])) if row else None


async def matching_queues(
    database: Database, scope: Scope, namespace: str | None, task: str | None
) -> list[Any]:
    """The queues of a namespace and task (None matches any): rows of id and name, priority first."""
    return await database.fetch(
        """SELECT q.id, q.name FROM queues q JOIN environments e ON e.id = q.environment_id
           WHERE (e.organization, e.project, e.name) = ($1, $2, $3)
             AND ($4::text IS NULL OR q.namespace = $4) AND ($5::text IS NULL OR q.task = $5)
           ORDER BY q.priority DESC, q.name""",
        scope.organization,
        scope.project,
        scope.environment,
        namespace,
        task,
    )


async def queue_totals(
    database: Database,
    scope: Scope,
    *,
    queue: str | None = None,
    namespace: str | None = None,
    task: str | None = None,
    limit: int = 100,
    offset: int = 0,
) -> list[Any]:
    """A page of queues by name with what they hold, as `queue_totals_v1` describes it."""
    return await database.fetch(
        """WITH page AS MATERIALIZED (
               SELECT q.id, q.name, q.namespace, q.task, q.created_at, count(*) OVER () AS total
               FROM queues q WHERE q.environment_id = environment_id_v1($1, $2, $3)
                 AND ($4::text IS NULL OR q.name = $4) AND ($5::text IS NULL OR q.namespace = $5)
                 AND ($6::text IS NULL OR q.task = $6)
               ORDER BY q.name LIMIT $7 OFFSET $8
           )
           SELECT p.*, t.* FROM page p
           JOIN queue_totals_v1(array(SELECT id FROM page)) t ON t.queue_id = p.id ORDER BY p.name""",
        scope.organization,
        scope.project,
        scope.environment,
        queue,
        namespace,
        task,
        limit,
        offset,
    )


async def labels(database: Database, scope: Scope, label: str) -> list[Any]:
    """What the queues of each `namespace` or `task` hold together; those without one are left out."""
    assert label in ("namespace", "task")
    return await database.fetch(
        f"""WITH mine AS MATERIALIZED (
               SELECT q.id, q.{label} AS label FROM queues q
               WHERE q.environment_id = environment_id_v1($1, $2, $3) AND q.{label} <> ''
           )
           SELECT m.label, count(*) AS queues, sum(t.partitions)::bigint AS partitions,
                  sum(t.kept)::bigint AS kept, sum(t.depth)::bigint AS depth,
                  sum(t.running)::bigint AS running
           FROM mine m JOIN queue_totals_v1(array(SELECT id FROM mine)) t ON t.queue_id = m.id
           GROUP BY m.label ORDER BY m.label""",
        scope.organization,
        scope.project,
        scope.environment,
    )


async def overview(
    database: Database, scope: Scope, *, namespace: str | None = None, task: str | None = None
) -> Any:
    """One row of totals over the queues of an environment, or of a namespace and task in it."""
    row = await database.fetchrow(
        """WITH mine AS MATERIALIZED (
               SELECT q.id, q.namespace, q.task FROM queues q
               WHERE q.environment_id = environment_id_v1($1, $2, $3)
                 AND ($4::text IS NULL OR q.namespace = $4) AND ($5::text IS NULL OR q.task = $5)
           )
           SELECT count(*) AS queues, count(DISTINCT nullif(m.namespace, '')) AS namespaces,
                  count(DISTINCT nullif(m.task, '')) AS tasks,
                  coalesce(sum(t.partitions), 0)::bigint AS partitions,
                  coalesce(sum(t.groups), 0)::bigint AS groups, coalesce(sum(t.pushed), 0)::bigint AS pushed,
                  coalesce(sum(t.kept), 0)::bigint AS kept, coalesce(sum(t.depth), 0)::bigint AS depth,
                  coalesce(sum(t.running), 0)::bigint AS running, coalesce(sum(t.dead), 0)::bigint AS dead
           FROM mine m JOIN queue_totals_v1(array(SELECT id FROM mine)) t ON t.queue_id = m.id""",
        scope.organization,
        scope.project,
        scope.environment,
        namespace,
        task,
    )
    assert row is not None
    return row


async def partitions(
    database: Database,
    scope: Scope,
    *,
    queue: str | None = None,
    search: str | None = None,
    limit: int = 100,
    offset: int = 0,
) -> list[Any]:
    """A page of partitions; rows as `partitions_v1` describes them."""
    return await database.fetch(
        "SELECT * FROM partitions_v1($1, $2, $3, $4, $5, $6, $7)",
        scope.organization,
        scope.project,
        scope.environment,
        queue,
        search,
        limit,
        offset,
    )


async def delete_queue(database: Database, queue_id: int) -> bool:
    """Delete a queue and all that belongs to it; whether there was one.

    Its dead letters and traces go first, in bounded steps; interrupted there, the queue is still whole but
    for them, and deleting it again goes on.
    """
    while True:
        row = await database.fetchrow("SELECT clear_queue_v1($1, $2) AS cleared", queue_id, CLEAR_AT_ONCE)
        assert row is not None
        if not row["cleared"]:
            break
    row = await database.fetchrow("SELECT delete_queue_v1($1) AS existed", queue_id)
    assert row is not None
    existed: bool = row["existed"]
    return existed
