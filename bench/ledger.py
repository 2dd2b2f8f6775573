"""What was accepted, compared with what is there: everything once, and in order."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from bench import http_load
from bench.open_load import Lane

BATCH = 1000


class _Data(msgspec.Struct):
    id: str
    """Lane and number of the request."""
    i: int


class _Message(msgspec.Struct):
    data: _Data


class _Popped(msgspec.Struct):
    messages: list[_Message]


_decode = msgspec.json.Decoder(_Popped).decode


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


async def read_all(port: int, queue: str) -> dict[int, list[tuple[int, int]]]:
    """Everything in a queue, emptying it: by lane, number and place of each message, in their order."""
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    [connection] = await http_load.connect(port, 1)
    pop = http_load.get(f"/api/v1/pop/queue/{queue}?batch={BATCH}&autoAck=true")

    def next_request(status: int, body: bytes) -> bytes | None:
        if status == 204:
            return None
        if status in (429, 503):
            connection.later(pop)
            return b""
        if status != 200:
            raise RuntimeError(f"answered {status}: {body[:300].decode(errors='replace')}")
        for message in _decode(body).messages:
            lane, _, number = message.data.id.partition(".")
            found[int(lane)].append((int(number), message.data.i))
        return pop

    await connection.start(pop, next_request)
    assert connection.transport is not None
    connection.transport.close()
    return found


async def check(port: int, queue: str, lanes: list[Lane], batch: int) -> Verdict:
    """Empty the queue and compare."""
    found = await read_all(port, queue)
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
