"""Changing single dead letters: requeued, deleted, sealed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from penstock.durable.maintenance_lock import yielding
from penstock.durable.pool import Database
from penstock.ids import new_id
from penstock.model import Scope


async def requeue(database: Database, letter_ids: Sequence[int], now: datetime | None = None) -> list[Any]:
    """Push letters again and delete them; rows as `requeue_dead_letters_v1` describes them."""
    with yielding():
        return await database.fetch(
            "SELECT * FROM requeue_dead_letters_v1($1, $2, $3)",
            list(letter_ids),
            [new_id() for _ in letter_ids],
            now,
        )


async def delete(
    database: Database, scope: Scope, letter_id: int, *, queue: str | None = None, group: str | None = None
) -> bool:
    """Delete one letter, whatever its attempts; whether there was one, in that queue and group if named."""
    with yielding():
        row = await database.fetchrow(
            """DELETE FROM dead_letters d USING queues q
               WHERE d.id = $4 AND q.id = d.queue_id AND q.environment_id = environment_id_v1($1, $2, $3)
                 AND ($5::text IS NULL OR q.name = $5)
                 AND ($6::text IS NULL
                      OR d.group_id = (SELECT g.id FROM groups g WHERE g.queue_id = q.id AND g.name = $6))
               RETURNING d.id""",
            scope.organization,
            scope.project,
            scope.environment,
            letter_id,
            queue,
            group,
        )
    return row is not None


async def payloads(database: Database, letter_ids: Sequence[int]) -> dict[int, bytes]:
    rows = await database.fetch("SELECT id, payload FROM dead_letters WHERE id = ANY ($1)", list(letter_ids))
    return {row["id"]: row["payload"] for row in rows}


async def seal(database: Database, sealed: dict[int, bytes], plain: dict[int, bytes]) -> None:
    """Replace payloads that are still what they were."""
    ids = sorted(sealed)
    with yielding():
        await database.fetch(
            """UPDATE dead_letters d SET payload = s.payload
               FROM unnest($1::bigint[], $2::bytea[], $3::bytea[]) AS s (id, payload, plain)
               WHERE d.id = s.id AND d.payload = s.plain""",
            ids,
            [sealed[letter_id] for letter_id in ids],
            [plain[letter_id] for letter_id in ids],
        )
