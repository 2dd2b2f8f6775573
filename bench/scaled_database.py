"""Fill a database with many queues, partitions and messages, as pushes and acks would leave them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import asyncpg

QUEUES_PER_BATCH = 500
LOADERS = 2
MESSAGES_PER_SEGMENT = 25
PAYLOAD_ARRAYS = 1_000
"""The payloads of the segments repeat after so many, because making them takes most of the time."""
WAITING_PER_PARTITION = 5
SCOPE = ("default", "default", "default")

_IS_WAITING = "right(q.name, 1) = '0'"
"""One queue of ten has waiting messages; all messages of the others are finished."""

_INSERT_QUEUES = """
INSERT INTO queues (environment_id, name)
SELECT require_environment_v1($1, $2, $3), n FROM unnest($4::text[]) n RETURNING id
"""
_INSERT_GROUPS = """
INSERT INTO groups (queue_id, name, subscription)
SELECT i, '__QUEUE_MODE__', 'all' FROM unnest($1::bigint[]) i
"""
_INSERT_PARTITIONS = """
INSERT INTO partitions (queue_id, name, next_offset, pushed_at)
SELECT i, 'p' || n, $3, now() - interval '1 hour' FROM unnest($1::bigint[]) i, generate_series(1, $2::int) n
"""
_INSERT_POSITIONS = f"""
INSERT INTO positions (partition_id, group_id, cursor, ready_at)
SELECT p.id, g.id, p.next_offset - CASE WHEN {_IS_WAITING} THEN $2::int ELSE 0 END,
       CASE WHEN {_IS_WAITING} THEN p.pushed_at END
FROM queues q JOIN groups g ON g.queue_id = q.id JOIN partitions p ON p.queue_id = q.id
WHERE q.id = ANY ($1::bigint[])
"""
_CREATE_PAYLOADS = f"""
CREATE TEMPORARY TABLE segment_payloads AS
SELECT n, array(SELECT convert_to(
               '{{"order":"' || md5((n * 10 + m)::text) || '","customer":' || n * 7 || ',"lines":[{{"sku":"A'
               || n || '","qty":' || m || ',"price":9.5}}],"note":"leave at the second door, ring twice"}}',
               'UTF8')
           FROM generate_series(1, {MESSAGES_PER_SEGMENT}) m) AS payloads
FROM generate_series(0, {PAYLOAD_ARRAYS - 1}) n
"""
_INSERT_SEGMENTS = """
INSERT INTO log (chunk, partition_id, first_offset, last_offset, created_at, message_ids, payloads)
SELECT (SELECT max(id) FROM chunks), p.id, s * $3::int, s * $3::int + $3::int - 1, now() - interval '1 hour',
       array(SELECT gen_random_uuid() FROM generate_series(1, $3::int + 0 * s)), a.payloads
FROM partitions p CROSS JOIN generate_series(0, $2::int - 1) s
JOIN segment_payloads a ON a.n = (p.id * 31 + s) % (SELECT count(*) FROM segment_payloads)
WHERE p.queue_id = ANY ($1::bigint[])
"""
_INSERT_TALLIES = """
INSERT INTO tallies (queue_id, group_id, slot, messages)
SELECT q.id, t.group_id, 0, t.messages
FROM queues q JOIN groups g ON g.queue_id = q.id
CROSS JOIN LATERAL (
    SELECT sum(p.next_offset) AS pushed, sum(o.cursor) AS finished
    FROM partitions p JOIN positions o ON o.partition_id = p.id WHERE p.queue_id = q.id
) s
CROSS JOIN LATERAL (VALUES (0::bigint, s.pushed), (g.id, s.finished)) t (group_id, messages)
WHERE q.id = ANY ($1::bigint[])
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


async def fill(url: str, scale: Scale, on_queues: Callable[[int], None], *, first_queue: int = 0) -> None:
    """Store queues, partitions, groups and messages. `on_queues` gets the queues of each finished batch."""
    numbers = range(first_queue, first_queue + scale.queues)
    batches = iter(
        [queue_name(number) for number in numbers[start : start + QUEUES_PER_BATCH]]
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
        await connection.execute(_CREATE_PAYLOADS)
        for names in batches:
            async with connection.transaction():
                await _load(connection, scale, names)
            on_queues(len(names))
    finally:
        await connection.close()


async def _load(connection: asyncpg.Connection, scale: Scale, names: list[str]) -> None:
    messages = scale.segments * MESSAGES_PER_SEGMENT
    ids = [row["id"] for row in await connection.fetch(_INSERT_QUEUES, *SCOPE, names)]
    await connection.execute(_INSERT_GROUPS, ids)
    await connection.execute(_INSERT_PARTITIONS, ids, scale.partitions_per_queue, messages)
    await connection.execute(_INSERT_POSITIONS, ids, WAITING_PER_PARTITION)
    await connection.execute(_INSERT_SEGMENTS, ids, scale.segments, MESSAGES_PER_SEGMENT)
    await connection.execute(_INSERT_TALLIES, ids)


async def _connect(url: str) -> asyncpg.Connection:
    options = {"search_path": "penstock", "synchronous_commit": "off"}
    return await asyncpg.connect(url, server_settings=options, command_timeout=3600)
