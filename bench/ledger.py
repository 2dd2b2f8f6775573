"""What was accepted, compared with what is there: everything once, and in order."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

import asyncpg
import msgspec

from bench.open_load import Lane


class _Data(msgspec.Struct):
    id: str
    """Lane and number of the request."""
    i: int


_decode = msgspec.json.Decoder(_Data).decode


@dataclass(frozen=True, slots=True)
class Verdict:
    """In messages."""

    lost: int
    """Accepted, and not there."""
    order_violations: int
    """Accepted, and behind one that its producer sent later."""
    doubled: int
    untold: int
    """There, though their producer was never told so and gave up: work for nothing."""


async def read_all(database: asyncpg.Connection, queue: str) -> dict[int, list[tuple[int, int]]]:
    """Everything a queue was given: by lane, number and place of each message, in the order of the log."""
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    rows = await database.fetch(
        """SELECT l.payloads FROM log l
           JOIN partitions t ON t.id = l.partition_id JOIN queues q ON q.id = t.queue_id
           WHERE q.name = $1 ORDER BY l.partition_id, l.first_offset""",
        queue,
    )
    for row in rows:
        for payload in row["payloads"]:
            data = _decode(payload)
            lane, _, number = data.id.partition(".")
            found[int(lane)].append((int(number), data.i))
    return found


async def check(database: asyncpg.Connection, queue: str, lanes: list[Lane], batch: int) -> Verdict:
    """Compare what is stored with what was answered."""
    found = await read_all(database, queue)
    return await asyncio.to_thread(compare, found, lanes, batch)


def compare(found: dict[int, list[tuple[int, int]]], lanes: list[Lane], batch: int) -> Verdict:
    lost = violations = doubled = untold = 0
    for lane in lanes:
        there = found.get(lane.number, [])
        accepted = set(lane.accepted)
        expected = {(number, i) for number in accepted for i in range(batch)}
        told = [message for message in there if message[0] in accepted]
        lost += len(expected.difference(told))
        doubled += len(there) - len(set(there))
        untold += len(there) - len(told)
        violations += sum(later < before for before, later in pairwise(told))
    return Verdict(lost, violations, doubled, untold)
