"""Brokers and PostgreSQL killed under load: what was answered stays true.

Three broker processes share one database and one journal. Producers and consumers of two groups talk to
whichever answers, and try again when nothing does. One broker spills nearly every push, another nearly every
ack; all of them put pushes in the journal while PostgreSQL is away. Meanwhile brokers are killed and
PostgreSQL is shut down the hard way, again and again. What must hold:

* Every message whose push was answered is stored once, in the order of the answers, whichever way it took,
  and every group gets it.
* A group is given a message only together with all before it in its partition that are not finished, in
  their order: when message n arrives, each earlier one either is before it in the same delivery, or its
  completion was asked for before. So first deliveries come in push order, and so does what comes again.
* What was answered as completed never comes again.
* What a transaction pushes while it settles is there exactly once per message settled.
* Afterwards nothing is left over: cursors at the end, no depth, no leases, no operations, totals equal to
  what was pushed.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from penstock.config import Settings
from penstock.durable import deferred_operations, log, migrations
from penstock.durable.log import PartitionName
from penstock.durable.pool import Database
from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.servers.postgres import Postgres
from penstock.embedded.supervision.component import Program, start, wait_until_healthy
from penstock.embedded.supervision.platform import build_environment
from penstock.embedded.supervision.process import Child, stop
from penstock.embedded.supervision.service_components import BrokerService
from penstock.model import DEFAULT_SCOPE
from tests.waiting import wait_until_async

QUEUE, OUT = "chaos", "chaos.out"
PARTITIONS = [f"p{n}" for n in range(6)]
GROUPS = ("movers", "ackers")
CONSUMERS_PER_GROUP = 3
LEASE_MS = 3_000
ALWAYS_BUSY = 0.0001
"""A load that the smallest thing to do exceeds."""
BACKLOG = 300
"""How far producers run ahead of the slowest group."""

MESSAGES_BETWEEN = 100
"""What must get through between two disasters."""


class Process:
    """A program that can be killed and started again."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.child: Child | None = None

    def start(self) -> None:
        self.program.prepare()
        self.child = start(self.program)

    def end(self, number: signal.Signals) -> None:
        assert self.child is not None
        os.kill(self.child.process.pid, number)
        self.child.process.wait(30)

    async def up(self) -> None:
        assert self.child is not None
        await asyncio.to_thread(wait_until_healthy, self.program, self.child)

    def stop(self) -> None:
        if self.child is not None:
            stop(self.child, self.program.stop_timeout_s)


@dataclass
class World:
    """The processes, and everything that producers and consumers were told."""

    postgres: Process
    brokers: list[Process]
    random: random.Random = field(default_factory=lambda: random.Random(20301))
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    pushed: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    asked: dict[tuple[str, str], set[int]] = field(default_factory=lambda: defaultdict(set))
    completed: dict[tuple[str, str], set[int]] = field(default_factory=lambda: defaultdict(set))
    reasons: set[str] = field(default_factory=set)
    """Why something was accepted for later."""
    is_away: bool = False
    """PostgreSQL is down, and stays so until pushes have gone to the journal."""
    deliveries: int = 0
    again: int = 0
    failures: int = 0

    @property
    def url(self) -> str:
        """One of the brokers, up or not."""
        return self.random.choice([broker.program.address for broker in self.brokers])

    @property
    def progress(self) -> int:
        """How far the slowest has come."""
        settled = [
            sum(len(numbers) for (name, _), numbers in self.completed.items() if name == group)
            for group in GROUPS
        ]
        return min(sum(self.pushed.values()), *settled)

    async def pause(self) -> None:
        """A client's pause before it tries again."""
        with suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await self.finished.wait()

    async def call(
        self, client: httpx.AsyncClient, method: str, path: str, **options: Any
    ) -> httpx.Response | None:
        """The answer, or None if there was none or it was not the broker's to give now."""
        try:
            answer = await client.request(method, self.url + path, **options)
        except httpx.HTTPError:
            answer = None
        if answer is None or answer.status_code >= 500 or answer.status_code == 429:
            self.failures += 1
            await self.pause()
            return None
        return answer

    def items(self, answer: httpx.Response) -> list[dict[str, Any]]:
        """What became of each item, done or accepted for later."""
        body = answer.json()
        if answer.status_code != 202:
            return list(body)
        self.reasons.add(body["reason"])
        return list(body["items"])


async def produce(world: World, client: httpx.AsyncClient, partition: str) -> None:
    """Push numbered messages to one partition, each batch until it is answered."""
    while not world.finished.is_set():
        if not world.is_away and sum(world.pushed.values()) > world.progress + BACKLOG:
            await world.pause()
            continue
        first = world.pushed[partition]
        numbers = range(first, first + world.random.randint(1, 5))
        items = [
            {"queue": QUEUE, "partition": partition, "transactionId": f"{partition}-{n}", "payload": n}
            for n in numbers
        ]
        answer = None
        while answer is None:
            answer = await world.call(client, "POST", "/api/v1/push", json={"items": items})
        assert answer.status_code in (201, 202), answer.text
        assert {item["status"] for item in world.items(answer)} <= {"queued", "duplicate"}, answer.text
        world.pushed[partition] = numbers.stop


async def consume(world: World, client: httpx.AsyncClient, group: str, drained: asyncio.Event) -> None:
    params = {"consumerGroup": group, "batch": 5, "partitions": 2, "wait": "true", "timeout": 500}
    while not drained.is_set():
        answer = await world.call(client, "GET", f"/api/v1/pop/queue/{QUEUE}", params=params)
        if answer is None or answer.status_code == 204:
            continue
        assert answer.status_code == 200, answer.text
        messages = answer.json()["messages"]
        check_delivery(world, group, messages)
        if world.random.random() < 0.03:
            continue  # this consumer dies, and its lease runs out
        settle = move if group == "movers" else ack
        await settle(world, client, group, messages)


def check_delivery(world: World, group: str, messages: list[dict[str, Any]]) -> None:
    by_partition: dict[str, list[int]] = defaultdict(list)
    for message in messages:
        assert message["transactionId"] == f"{message['partition']}-{message['data']}"
        by_partition[message["partition"]].append(message["data"])
    for partition, numbers in by_partition.items():
        place = (group, partition)
        assert numbers == sorted(set(numbers)), f"{place}: {numbers} out of order"
        again = world.completed[place] & set(numbers)
        assert not again, f"{place}: {again} were answered as completed and come again"
        before = set(range(numbers[-1])) - set(numbers)
        skipped = before - world.asked[place]
        assert not skipped, f"{place}: {numbers} came before {sorted(skipped)}"
        world.deliveries += len(numbers)
        world.again += len(world.asked[place] & set(numbers))


def named(message: dict[str, Any], status: str = "completed") -> dict[str, Any]:
    return {name: message[name] for name in ("transactionId", "partitionId", "leaseId")} | {"status": status}


async def ack(world: World, client: httpx.AsyncClient, group: str, messages: list[dict[str, Any]]) -> None:
    """Complete a delivery in one call; now and then one of its messages fails."""
    failed = world.random.choice(messages) if world.random.random() < 0.05 else None
    done = [message for message in messages if message is not failed]
    for message in done:
        world.asked[group, message["partition"]].add(message["data"])
    acks = [named(message, "failed" if message is failed else "completed") for message in messages]
    for _ in range(2):
        answer = await world.call(client, "POST", "/api/v1/ack/batch", json={"acknowledgments": acks})
        if answer is not None:
            for message, result in zip(messages, world.items(answer), strict=True):
                if result["success"] and message is not failed:
                    world.completed[group, message["partition"]].add(message["data"])
            return


async def move(world: World, client: httpx.AsyncClient, group: str, messages: list[dict[str, Any]]) -> None:
    """Complete a delivery and push what comes of it, in one step."""
    items = [
        {
            "queue": OUT,
            "partition": message["partition"],
            "transactionId": message["transactionId"],
            "payload": message["data"],
        }
        for message in messages
    ]
    operations = [{"type": "push", "items": items}, *({"type": "ack", **named(m)} for m in messages)]
    for message in messages:
        world.asked[group, message["partition"]].add(message["data"])
    for _ in range(2):
        answer = await world.call(client, "POST", "/api/v1/transaction", json={"operations": operations})
        if answer is not None:
            assert answer.json()["success"] is (answer.status_code == 200), answer.text
            if answer.json()["success"]:
                for message in messages:
                    world.completed[group, message["partition"]].add(message["data"])
            return


async def disasters(world: World) -> None:
    """Kill things, each time after the work has gone on for a while."""
    one, two, three = world.brokers

    async def in_journal() -> bool:
        return "database_down" in world.reasons

    for victims in ([one], [world.postgres], [two, three], [world.postgres, one]):
        goal = world.progress + MESSAGES_BETWEEN

        async def enough(goal: int = goal) -> bool:
            return world.progress >= goal

        await wait_until_async(enough, 60, f"{MESSAGES_BETWEEN} more messages get through")
        for victim in victims:
            # SIGQUIT is PostgreSQL's immediate shutdown: no checkpoint, recovery at the next start.
            victim.end(signal.SIGQUIT if victim is world.postgres else signal.SIGKILL)
            if victims == [world.postgres]:
                world.is_away = True
                await wait_until_async(in_journal, 30, "pushes go to the journal")
                world.is_away = False
            victim.start()
        for victim in victims:
            await victim.up()


@asynccontextmanager
async def at_work(world: World) -> AsyncIterator[None]:
    """Producers and consumers, until the end of the block; then everything is consumed."""
    drained = asyncio.Event()
    limits = httpx.Limits(max_connections=100, max_keepalive_connections=100)
    async with httpx.AsyncClient(timeout=10, limits=limits) as client, asyncio.TaskGroup() as tasks:
        for partition in PARTITIONS:
            tasks.create_task(produce(world, client, partition))
        for group in GROUPS:
            for _ in range(CONSUMERS_PER_GROUP):
                tasks.create_task(consume(world, client, group, drained))
        yield
        world.finished.set()

        async def all_asked() -> bool:
            return all(
                world.asked[group, partition] >= set(range(world.pushed[partition]))
                for group in GROUPS
                for partition in PARTITIONS
            )

        await wait_until_async(all_asked, 60, "every message reaches every group")
        await wait_until_async(lambda: nothing_left(world), 60, "every position is at its end")
        drained.set()


async def nothing_left(world: World) -> bool:
    """Whether both groups have finished everything, as the database sees it."""
    connection = await asyncpg.connect(world.postgres.program.url)
    try:
        left = await connection.fetchval(
            """SELECT count(*) FROM penstock.positions p JOIN penstock.partitions t ON t.id = p.partition_id
               JOIN penstock.groups g ON g.id = p.group_id
               WHERE g.name = ANY ($1) AND p.cursor < t.next_offset""",
            list(GROUPS),
        )
    finally:
        await connection.close()
    return bool(left == 0)


@contextmanager
def processes(home: Path) -> Iterator[World]:
    home.mkdir()
    home.chmod(0o755)
    postgres = Process(Postgres(home, any_free_port()))
    url = postgres.program.url
    brokers = []
    for number in range(3):
        settings = Settings(
            home=home / f"broker-{number}",
            port=any_free_port(),
            postgres_url=url,
            redis_url="redis://127.0.0.1:1/0",
            clickhouse_url="http://127.0.0.1:1",
            metrics_enabled=False,
            lease_ms=LEASE_MS,
            journal_dir=str(home / "journal"),
            load_push=ALWAYS_BUSY if number == 1 else 0.7,
            load_ack=ALWAYS_BUSY if number == 2 else 0.8,
        )
        settings.home.mkdir()
        brokers.append(Process(BrokerService(settings, build_environment(settings))))
    world = World(postgres, brokers)
    try:
        postgres.start()
        yield world
    finally:
        for process in (*brokers, postgres):
            process.stop()


async def prepare(world: World) -> None:
    """The schema, and a queue that gives up on nothing."""
    await world.postgres.up()
    url = world.postgres.program.url
    async with migrations.migration_lock(url) as connection:
        await migrations.apply(connection)
    database = Database(url, 1)
    for group in GROUPS:
        await log.ensure_group(database, DEFAULT_SCOPE, QUEUE, group)
    await log.ensure_partitions(database, DEFAULT_SCOPE, [PartitionName(QUEUE, name) for name in PARTITIONS])
    await database.fetch("UPDATE queues SET retry_limit = 1000000 WHERE name = $1", QUEUE)
    await database.close()
    for broker in world.brokers:
        broker.start()
    await asyncio.gather(*(broker.up() for broker in world.brokers))


@pytest.mark.timeout(240)
async def test_what_was_answered_stays_true_whatever_is_killed(server_home: Path) -> None:
    with processes(server_home / "chaos-brokers") as world:
        await prepare(world)
        async with at_work(world):
            await disasters(world)

        assert world.failures > 0, "the disasters were felt"
        assert world.reasons >= {"system_busy", "database_down"}, "every way was taken"
        database = Database(world.postgres.program.url, 1)
        assert {depth.waiting for depth in (await deferred_operations.depths(database)).values()} == {0}
        assert not await database.fetch("SELECT 1 FROM lanes")
        assert not await database.fetch(
            "SELECT 1 FROM partitions WHERE deferred_pushes <> 0 OR deferred_acks <> 0"
        )
        for queue in (QUEUE, OUT):
            rows = await database.fetch(
                """SELECT t.name, t.next_offset, l.transaction_ids FROM partitions t
                   JOIN queues q ON q.id = t.queue_id JOIN log l ON l.partition_id = t.id
                   WHERE q.name = $1 ORDER BY t.id, l.first_offset""",
                queue,
            )
            stored: dict[str, list[str]] = defaultdict(list)
            for row in rows:
                stored[row["name"]] += row["transaction_ids"]
            for partition, count in world.pushed.items():
                wanted = [f"{partition}-{n}" for n in range(count)]
                assert stored[partition] == wanted, f"{queue}: each once and in order"
        rows = await database.fetch(
            """SELECT g.* FROM queues q CROSS JOIN queue_gauges_v1(ARRAY[q.id]) g WHERE q.name = $1""", QUEUE
        )
        assert {(row["group_name"], row["depth"], row["running"]) for row in rows} == {
            ("", 0, 0),
            *((group, 0, 0) for group in GROUPS),
        }
        totals = await database.fetch(
            """SELECT y.group_id, sum(y.messages)::bigint AS messages FROM tallies y
               JOIN queues q ON q.id = y.queue_id WHERE q.name = $1 GROUP BY y.group_id""",
            QUEUE,
        )
        assert {row["messages"] for row in totals} == {sum(world.pushed.values())}
        assert not await database.fetch("SELECT 1 FROM dead_letters")
        await database.close()
