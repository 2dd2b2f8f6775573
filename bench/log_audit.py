"""Compare the accepted messages with the stored ones: each must be stored once and in order."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

import asyncpg
import msgspec

from bench.open_loop_load import Producer

MessageKey = tuple[int, int]
"""The number of a request of one producer, and the index of a message in that request."""


class _Payload(msgspec.Struct):
    id: str
    """Number of the producer and number of the request, separated by a dot."""
    i: int
    """Index of the message in the request."""


_decode = msgspec.json.Decoder(_Payload).decode


@dataclass(frozen=True, slots=True)
class AuditResult:
    """Counts of messages."""

    lost: int
    """Accepted but not stored."""
    order_violations: int
    """Accepted but stored after a message that its producer sent later."""
    duplicates: int
    """Stored more than once."""
    unconfirmed: int
    """Stored although the producer got no confirmation and gave up: wasted work."""


async def read_stored(database: asyncpg.Connection, queue: str) -> dict[int, list[MessageKey]]:
    """Return the messages of a queue by producer, in the order of the log."""
    stored: dict[int, list[MessageKey]] = defaultdict(list)
    rows = await database.fetch(
        """SELECT l.payloads FROM log l
           JOIN partitions t ON t.id = l.partition_id JOIN queues q ON q.id = t.queue_id
           WHERE q.name = $1 ORDER BY l.partition_id, l.first_offset""",
        queue,
    )
    for row in rows:
        for data in row["payloads"]:
            payload = _decode(data)
            producer, _, number = payload.id.partition(".")
            stored[int(producer)].append((int(number), payload.i))
    return stored


async def audit(
    database: asyncpg.Connection, queue: str, producers: list[Producer], batch: int
) -> AuditResult:
    """Compare the stored messages of a queue with the confirmations its producers got."""
    stored = await read_stored(database, queue)
    return await asyncio.to_thread(compare, stored, producers, batch)


def compare(stored: dict[int, list[MessageKey]], producers: list[Producer], batch: int) -> AuditResult:
    """Count the differences between stored and accepted requests of `batch` messages each."""
    lost = order_violations = duplicates = unconfirmed = 0
    for producer in producers:
        keys = stored.get(producer.number, [])
        accepted = set(producer.accepted)
        expected = {(number, index) for number in accepted for index in range(batch)}
        confirmed = [key for key in keys if key[0] in accepted]
        lost += len(expected.difference(confirmed))
        duplicates += len(keys) - len(set(keys))
        unconfirmed += len(keys) - len(confirmed)
        order_violations += sum(following < previous for previous, following in pairwise(confirmed))
    return AuditResult(lost, order_violations, duplicates, unconfirmed)
