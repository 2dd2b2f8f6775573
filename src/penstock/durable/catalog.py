"""Reading what queues there are."""

from __future__ import annotations

from typing import Any

from penstock.durable.pool import Database
from penstock.model import Scope


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
    row = await database.fetchrow(
        """SELECT 1 FROM queues q JOIN environments e ON e.id = q.environment_id
           WHERE (e.organization, e.project, e.name, q.name) = ($1, $2, $3, $4)""",
        scope.organization,
        scope.project,
        scope.environment,
        queue,
    )
    return row is not None


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
