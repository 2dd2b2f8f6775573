"""Measure acks in SQL that move messages to the dead letters, in several databases that take turns.

A turn takes only some tens of milliseconds, so that other load on the disk and the machine slows all
databases alike and the ratio within one round is reliable.
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

ProgressCallback = Callable[[int], None]

SESSIONS = 4
PUSH_BATCH = 100
PAYLOAD = (
    b'{"order":"c4ca4238a0b923820dcc509a6f75849b","customer":1,"note":"c81e728d9d4c2f636f067f89cc14862c"}'
)


@dataclass(frozen=True, slots=True)
class Scenario:
    """`acks` calls per session and turn, each of which moves `batch` messages to the dead letters."""

    name: str
    batch: int
    acks: int
    turns: int

    @property
    def messages(self) -> int:
        """Messages per session and round."""
        return self.batch * self.acks * self.turns


class DeadLetterAcks:
    """Acks in one database, from several concurrent sessions with a partition each."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self._database = Database(url, SESSIONS)
        self._partition_ids: list[int] = []
        self._group_id = 0
        self.ack_s = 0.0
        """Seconds in acks during this round, per session."""
        self.dead_letters = 0
        """Dead letters of this round."""

    async def prepare(self, scenario: Scenario) -> None:
        """Push the messages of one round and reset the counts."""
        queue = f"dying-{new_id()}"
        names = [PartitionName(queue, str(number)) for number in range(SESSIONS)]
        partitions = await log.ensure_partitions(self._database, DEFAULT_SCOPE, names)
        group = await log.ensure_group(self._database, DEFAULT_SCOPE, queue, "worker")
        assert group is not None
        self._group_id = group.group_id
        self._partition_ids = [partition.partition_id for partition in partitions.values()]
        self.ack_s, self.dead_letters = 0.0, 0
        for partition_id in self._partition_ids:
            for first in range(0, scenario.messages, PUSH_BATCH):
                count = min(PUSH_BATCH, scenario.messages - first)
                transaction_ids = [str(new_id()) for _ in range(count)]
                segment = Segment(
                    partition_id, transaction_ids, [None] * count, [None] * count, [PAYLOAD] * count
                )
                await log.push(self._database, [segment])

    async def run_turn(self, scenario: Scenario) -> None:
        """Move the messages of one turn to the dead letters. Only the acks are timed, not the pops."""
        ack_seconds = await asyncio.gather(
            *(self._run_session(partition_id, scenario) for partition_id in self._partition_ids)
        )
        self.ack_s += sum(ack_seconds) / SESSIONS

    async def _run_session(self, partition_id: int, scenario: Scenario) -> float:
        """Return the seconds that the acks of one session took."""
        ack_s = 0.0
        for number in range(scenario.acks):
            lease_id = new_id()
            [row] = await log.pop(
                self._database,
                self._group_id,
                [PopRequest(lease_id, scenario.batch)],
                partition_id=partition_id,
                lease_ms=60_000,
            )
            acks = self._build_acks(partition_id, lease_id, row["message_ids"], number)
            started = time.perf_counter()
            outcomes = await log.ack(self._database, acks)
            ack_s += time.perf_counter() - started
            self.dead_letters += sum(outcome.outcome == "dead" for outcome in outcomes)
        return ack_s

    def _build_acks(
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
    databases: dict[str, str],
    scenarios: list[Scenario],
    rounds: int,
    results: harness.Results,
    on_progress: ProgressCallback,
) -> None:
    """Measure dead letters per second in each database. Within a round the databases take turns."""
    contestants = [DeadLetterAcks(name, url) for name, url in databases.items()]
    for number in range(rounds):
        for scenario in scenarios:
            for contestant in contestants:
                await contestant.prepare(scenario)
            for turn in range(scenario.turns):
                first = (number + turn // 2) % len(contestants)
                # The order alternates, so that no contestant always follows the same neighbour.
                order = (contestants[first:] + contestants[:first])[:: -1 if turn % 2 else 1]
                for contestant in order:
                    await contestant.run_turn(scenario)
            for contestant in contestants:
                expected = scenario.messages * SESSIONS
                assert contestant.dead_letters == expected, "Some acks did not create a dead letter."
                rate = contestant.dead_letters / contestant.ack_s
                results.measurements.append(harness.Measurement(scenario.name, contestant.name, number, rate))
        on_progress(number + 1)
    for contestant in contestants:
        await contestant.close()
