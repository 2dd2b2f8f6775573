"""Messages that die by acks in SQL, in several databases that take turns within one round.

A turn is short, some tens of milliseconds: whatever else the disk and the machine do then hits all databases
alike, and the ratio of one round is worth something.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from bench import harness
from penstock.durable import log
from penstock.durable.log import Ack, PartitionName, PopRequest, Segment
from penstock.durable.pool import Database
from penstock.ids import new_id
from penstock.model import DEFAULT_SCOPE

Tell = Callable[[int], None]

SESSIONS = 4
PUSHED = 100
PAYLOAD = (
    b'{"order":"c4ca4238a0b923820dcc509a6f75849b","customer":1,"note":"c81e728d9d4c2f636f067f89cc14862c"}'
)


@dataclass(frozen=True, slots=True)
class Scenario:
    """`acks` per session and turn, each of which gives up on `batch` messages."""

    name: str
    batch: int
    acks: int
    turns: int

    @property
    def letters(self) -> int:
        """Per session and round."""
        return self.batch * self.acks * self.turns


class Dying:
    """A database whose messages die, on several sessions at once, a partition each."""

    def __init__(self, who: str, url: str) -> None:
        self.who = who
        self._database = Database(url, SESSIONS)
        self._partition_ids: list[int] = []
        self._group_id = 0
        self.took_s = 0.0
        self.died = 0

    async def prepare(self, scenario: Scenario) -> None:
        """Messages enough for one round."""
        queue = f"dying-{new_id()}"
        names = [PartitionName(queue, str(number)) for number in range(SESSIONS)]
        partitions = await log.ensure_partitions(self._database, DEFAULT_SCOPE, names)
        self._group_id = (await log.ensure_group(self._database, DEFAULT_SCOPE, queue, "worker")).group_id
        self._partition_ids = [found.partition_id for found in partitions.values()]
        self.took_s, self.died = 0.0, 0
        for partition_id in self._partition_ids:
            for first in range(0, scenario.letters, PUSHED):
                count = min(PUSHED, scenario.letters - first)
                keys = [str(new_id()) for _ in range(count)]
                none: list[None] = [None] * count
                await log.push(self._database, [Segment(partition_id, keys, none, none, [PAYLOAD] * count)])

    async def turn(self, scenario: Scenario) -> None:
        """Let some die. What counts is how long their acks took, not the pops before them."""
        done = await asyncio.gather(
            *(self._let_die(partition_id, scenario) for partition_id in self._partition_ids)
        )
        self.took_s += sum(done) / SESSIONS

    async def _let_die(self, partition_id: int, scenario: Scenario) -> float:
        took_s = 0.0
        for number in range(scenario.acks):
            lease_id = new_id()
            [row] = await log.pop(
                self._database,
                self._group_id,
                [PopRequest(lease_id, scenario.batch)],
                partition_id=partition_id,
                lease_ms=60_000,
            )
            acks = self._acks(partition_id, lease_id, row["message_ids"], number)
            started = time.perf_counter()
            outcomes = await log.ack(self._database, acks)
            took_s += time.perf_counter() - started
            self.died += sum(outcome.outcome == "dead" for outcome in outcomes)
        return took_s

    def _acks(
        self, partition_id: int, lease_id: uuid.UUID, message_ids: list[uuid.UUID], number: int
    ) -> list[Ack]:
        error = f"service {'abcdefgh'[number % 8]} timed out after {number} ms"
        return [
            Ack(partition_id, self._group_id, lease_id, str(message_id), "dlq", error)
            for message_id in message_ids
        ]

    async def close(self) -> None:
        await self._database.close()


async def compare(
    databases: dict[str, str], scenarios: list[Scenario], rounds: int, results: harness.Results, tell: Tell
) -> None:
    """Letters a second in each database, round by round; of one round, all took turns."""
    dying = [Dying(who, url) for who, url in databases.items()]
    for number in range(rounds):
        for scenario in scenarios:
            for one in dying:
                await one.prepare(scenario)
            for turn in range(scenario.turns):
                first = (number + turn // 2) % len(dying)
                # Forth and back: nobody always comes after the same neighbour.
                for one in (dying[first:] + dying[:first])[:: -1 if turn % 2 else 1]:
                    await one.turn(scenario)
            for one in dying:
                assert one.died == scenario.letters * SESSIONS, "every message died"
                results.measurements.append(
                    harness.Measurement(scenario.name, one.who, number, one.died / one.took_s)
                )
        tell(number + 1)
    for one in dying:
        await one.close()
