"""Fill a database with many queues, partitions and messages, as pushes and acks would leave them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import asyncpg

QUEUES_PER_BATCH = 500
LOADERS = 2
MESSAGES_PER_SEGMENT = 10
WAITING_QUEUES_SHARE = 10
"""One queue of this many has waiting messages; all messages of the others are finished."""
WAITING_PER_PARTITION = 5
SCOPE = ("default", "default", "default")
GROUP = "__QUEUE_MODE__"

_ENSURE_QUEUES = "SELECT ensure_queues_v1($1, $2, $3, $4)"
_ENSURE_GROUPS = f"SELECT count(*) FROM unnest($4::text[]) n, ensure_group_v1($1, $2, $3, n, '{GROUP}')"
_ENSURE_PARTITIONS = """
SELECT count(*) FROM ensure_partitions_v1($1, $2, $3,
    array(SELECT n FROM unnest($4::text[]) n, generate_series(1, $5::int)),
    array(SELECT 'p' || p FROM unnest($4::text[]) n, generate_series(1, $5::int) p))
"""
_INSERT_SEGMENTS = """
INSERT INTO log (chunk, partition_id, first_offset, last_offset, created_at, message_ids, payloads)
SELECT (SELECT max(id) FROM chunks), p.id, s * $3::int, s * $3::int + $3::int - 1, now() - interval '1 hour',
       array(SELECT gen_random_uuid() FROM generate_series(1, $3::int + 0 * s)),
       array(SELECT convert_to(
                 '{"order":"' || md5((p.id * s + m)::text) || '","customer":' || p.id * 7
                 || ',"lines":[{"sku":"A' || p.id || '","qty":' || m || ',"price":9.5}],'
                 || '"note":"leave at the second door","n":' || s || '}',
                 'UTF8')
             FROM generate_series(1, $3::int) m)
FROM partitions p CROSS JOIN generate_series(0, $2::int - 1) s
WHERE p.queue_id = ANY (SELECT q.id FROM queues q WHERE q.name = ANY ($1::text[]))
"""
_UPDATE_PARTITIONS = """
UPDATE partitions SET next_offset = $2, pushed_at = now() - interval '1 hour'
WHERE queue_id = ANY (SELECT q.id FROM queues q WHERE q.name = ANY ($1::text[]))
"""
_UPDATE_POSITIONS = """
UPDATE positions p SET cursor = $2 - CASE WHEN q.name = ANY ($3::text[]) THEN $4 ELSE 0 END,
       ready_at = CASE WHEN q.name = ANY ($3::text[]) THEN now() - interval '1 hour' END
FROM groups g JOIN queues q ON q.id = g.queue_id WHERE g.id = p.group_id AND q.name = ANY ($1::text[])
"""
_INSERT_TALLIES = """
INSERT INTO tallies (queue_id, group_id, slot, messages)
SELECT q.id, coalesce(g.id, 0), 0,
       $3 * ($2 - CASE WHEN g.id IS NOT NULL AND q.name = ANY ($4::text[]) THEN $5 ELSE 0 END)
FROM queues q
CROSS JOIN LATERAL (SELECT g.id FROM groups g WHERE g.queue_id = q.id UNION ALL SELECT NULL) g
WHERE q.name = ANY ($1::text[])
ON CONFLICT (queue_id, group_id, slot) DO UPDATE SET messages = excluded.messages
"""


@dataclass(frozen=True, slots=True)
class Scale:
    """How much a database holds."""

    queues: int
    partitions: int
    messages: int

    @property
    def partitions_per_queue(self) -> int:
        return max(1, self.partitions // self.queues)

    @property
    def segments(self) -> int:
        """Segments per partition."""
        stored_partitions = self.partitions_per_queue * self.queues
        return max(1, round(self.messages / stored_partitions / MESSAGES_PER_SEGMENT))

    @property
    def stored(self) -> Scale:
        """What is stored: every queue has as many partitions, and every partition as many full segments."""
        partitions = self.partitions_per_queue * self.queues
        return Scale(self.queues, partitions, partitions * self.segments * MESSAGES_PER_SEGMENT)


def queue_name(number: int) -> str:
    return f"q-{number:06}"


async def fill(url: str, scale: Scale, on_queues: Callable[[int], None]) -> None:
    """Store queues, partitions, groups and messages. `on_queues` gets the queues of each finished batch."""
    batches = iter(
        [queue_name(number) for number in range(start, min(start + QUEUES_PER_BATCH, scale.queues))]
        for start in range(0, scale.queues, QUEUES_PER_BATCH)
    )
    await asyncio.gather(*(_load_batches(url, scale, batches, on_queues) for _ in range(LOADERS)))
    connection = await _connect(url)
    try:
        await connection.execute("CHECKPOINT")
    finally:
        await connection.close()


async def _load_batches(
    url: str, scale: Scale, batches: Iterator[list[str]], on_queues: Callable[[int], None]
) -> None:
    connection = await _connect(url)
    try:
        for names in batches:
            async with connection.transaction():
                await _load(connection, scale, names)
            on_queues(len(names))
    finally:
        await connection.close()


async def _load(connection: asyncpg.Connection, scale: Scale, names: list[str]) -> None:
    messages = scale.segments * MESSAGES_PER_SEGMENT
    waiting = [name for name in names if int(name.removeprefix("q-")) % WAITING_QUEUES_SHARE == 0]
    await connection.execute(_ENSURE_QUEUES, *SCOPE, names)
    await connection.execute(_ENSURE_GROUPS, *SCOPE, names)
    await connection.execute(_ENSURE_PARTITIONS, *SCOPE, names, scale.partitions_per_queue)
    await connection.execute(_INSERT_SEGMENTS, names, scale.segments, MESSAGES_PER_SEGMENT)
    await connection.execute(_UPDATE_PARTITIONS, names, messages)
    await connection.execute(_UPDATE_POSITIONS, names, messages, waiting, WAITING_PER_PARTITION)
    await connection.execute(
        _INSERT_TALLIES, names, messages, scale.partitions_per_queue, waiting, WAITING_PER_PARTITION
    )


async def _connect(url: str) -> asyncpg.Connection:
    options = {"search_path": "penstock", "synchronous_commit": "off"}
    return await asyncpg.connect(url, server_settings=options, command_timeout=3600)
