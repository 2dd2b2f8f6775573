"""Responses stay true while brokers and PostgreSQL are killed under load.

Three broker processes share one database and one journal. Producers and consumers of two groups send each
request to a random broker and retry it if it fails. One broker defers nearly every push, another nearly every
ack; all of them write pushes to the journal while PostgreSQL is down. Meanwhile the test kills brokers and
shuts PostgreSQL down in immediate mode, again and again. These guarantees must hold:

* Every message whose push was answered is stored once, in the order of the responses, stored directly or
  deferred, and every group gets it.
* A group gets a message only after or together with all earlier messages of its partition that are not
  finished, in their order: when message n arrives, each earlier message either is before it in the same
  delivery, or its ack was sent before. So first deliveries are in push order, and so are redeliveries.
* A message whose ack was answered as completed is never delivered again.
* A message that a transaction pushes together with an ack is stored exactly once per acked message.
* Afterwards nothing remains: cursors are at the end, there is no depth, no lease and no operation, and the
  totals equal the number of pushed messages.
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
from penstock.durable import log, migrations
from penstock.durable.deferred_operations import DeferredOperations
from penstock.durable.log import PartitionName
from penstock.durable.pool import Database
from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.servers.postgres import Postgres
from penstock.embedded.supervision.component import Program, start, wait_until_healthy
from penstock.embedded.supervision.platform import build_environment
from penstock.embedded.supervision.process import Child, stop
from penstock.embedded.supervision.service_components import BrokerService
from penstock.model import DEFAULT_SCOPE
from tests.deadlines import deadline_s
from tests.waiting import wait_until_async

QUEUE, OUT = "chaos", "chaos.out"
PARTITIONS = [f"p{n}" for n in range(6)]
GROUPS = ("movers", "ackers")
CONSUMERS_PER_GROUP = 3
LEASE_MS = 3_000
ALWAYS_BUSY = 0.0001
"""A load limit that any work exceeds."""
BACKLOG = 300
"""The number of messages that producers may be ahead of the slowest group."""

MESSAGES_BETWEEN_KILLS = 100
"""Messages that must be processed between two kills."""


class Process:
    """A program that can be killed and started again."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.child: Child | None = None

    def start(self) -> None:
        self.program.prepare()
        self.child = start(self.program)

    def kill(self, number: signal.Signals) -> None:
        assert self.child is not None
        os.kill(self.child.process.pid, number)
        self.child.process.wait(deadline_s(30))

    async def wait_until_up(self) -> None:
        assert self.child is not None
        await asyncio.to_thread(wait_until_healthy, self.program, self.child)

    def stop(self) -> None:
        if self.child is not None:
            stop(self.child, self.program.stop_timeout_s)


@dataclass
class ChaosRun:
    """The processes, and the requests and responses of producers and consumers."""

    postgres: Process
    postgres_url: str
    brokers: list[Process]
    random: random.Random = field(default_factory=lambda: random.Random(20301))
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    pushed: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    ack_sent: dict[tuple[str, str], set[int]] = field(default_factory=lambda: defaultdict(set))
    completed: dict[tuple[str, str], set[int]] = field(default_factory=lambda: defaultdict(set))
    reasons: set[str] = field(default_factory=set)
    """Why operations were deferred."""
    is_postgres_down: bool = False
    """PostgreSQL is down until a push has been written to the journal."""
    deliveries: int = 0
    redeliveries: int = 0
    failures: int = 0

    @property
    def url(self) -> str:
        """The URL of a random broker, which may be down."""
        return self.random.choice([broker.program.address for broker in self.brokers])

    @property
    def progress(self) -> int:
        """The number of messages that producers and every group have completed."""
        completed = [
            sum(len(numbers) for (name, _), numbers in self.completed.items() if name == group)
            for group in GROUPS
        ]
        return min(sum(self.pushed.values()), *completed)

    async def pause(self) -> None:
        """Wait before a retry."""
        with suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await self.finished.wait()

    async def call(
        self, client: httpx.AsyncClient, method: str, path: str, **options: Any
    ) -> httpx.Response | None:
        """Return the response, or None if there was none or the broker could not serve the request now."""
        try:
            response = await client.request(method, self.url + path, **options)
        except httpx.HTTPError:
            response = None
        if response is None or response.status_code >= 500 or response.status_code == 429:
            self.failures += 1
            await self.pause()
            return None
        return response

    def items(self, response: httpx.Response) -> list[dict[str, Any]]:
        """Return the result of each item, executed or deferred."""
        results: list[dict[str, Any]] = response.json()
        self.reasons |= {result["reason"] for result in results if "reason" in result}
        return results


async def produce(run: ChaosRun, client: httpx.AsyncClient, partition: str) -> None:
    """Push numbered messages to one partition; retry each batch until it is answered."""
    while not run.finished.is_set():
        if not run.is_postgres_down and sum(run.pushed.values()) > run.progress + BACKLOG:
            await run.pause()
            continue
        first = run.pushed[partition]
        numbers = range(first, first + run.random.randint(1, 5))
        items = [
            {"queue": QUEUE, "partition": partition, "transactionId": f"{partition}-{n}", "payload": n}
            for n in numbers
        ]
        response = None
        while response is None:
            response = await run.call(client, "POST", "/api/v1/push", json={"items": items})
        assert response.status_code in (201, 202), response.text
        assert {item["status"] for item in run.items(response)} <= {"queued", "duplicate"}, response.text
        run.pushed[partition] = numbers.stop


async def consume(run: ChaosRun, client: httpx.AsyncClient, group: str, drained: asyncio.Event) -> None:
    params = {"consumerGroup": group, "batch": 5, "partitions": 2, "wait": "true", "timeout": 500}
    while not drained.is_set():
        response = await run.call(client, "GET", f"/api/v1/pop/queue/{QUEUE}", params=params)
        if response is None or response.status_code == 204:
            continue
        assert response.status_code == 200, response.text
        messages = response.json()["messages"]
        check_delivery(run, group, messages)
        if run.random.random() < 0.03:
            continue  # this consumer dies, and its lease expires
        send_acks = move if group == "movers" else ack
        await send_acks(run, client, group, messages)


def check_delivery(run: ChaosRun, group: str, messages: list[dict[str, Any]]) -> None:
    by_partition: dict[str, list[int]] = defaultdict(list)
    for message in messages:
        assert message["transactionId"] == f"{message['partition']}-{message['data']}"
        by_partition[message["partition"]].append(message["data"])
    for partition, numbers in by_partition.items():
        key = (group, partition)
        assert numbers == sorted(set(numbers)), f"{key}: {numbers} out of order"
        completed = run.completed[key] & set(numbers)
        assert not completed, f"{key}: {completed} were answered as completed and are delivered again"
        earlier = set(range(numbers[-1])) - set(numbers)
        skipped = earlier - run.ack_sent[key]
        assert not skipped, f"{key}: {numbers} came before {sorted(skipped)}"
        run.deliveries += len(numbers)
        run.redeliveries += len(run.ack_sent[key] & set(numbers))


def ack_body(message: dict[str, Any], status: str = "completed") -> dict[str, Any]:
    return {name: message[name] for name in ("transactionId", "partitionId", "leaseId")} | {"status": status}


async def ack(run: ChaosRun, client: httpx.AsyncClient, group: str, messages: list[dict[str, Any]]) -> None:
    """Ack a delivery in one call; sometimes one of its messages fails."""
    failed = run.random.choice(messages) if run.random.random() < 0.05 else None
    for message in (message for message in messages if message is not failed):
        run.ack_sent[group, message["partition"]].add(message["data"])
    acks = [ack_body(message, "failed" if message is failed else "completed") for message in messages]
    for _ in range(2):
        response = await run.call(client, "POST", "/api/v1/ack/batch", json={"acknowledgments": acks})
        if response is not None:
            for message, result in zip(messages, run.items(response), strict=True):
                if result["success"] and message is not failed:
                    run.completed[group, message["partition"]].add(message["data"])
            return


async def move(run: ChaosRun, client: httpx.AsyncClient, group: str, messages: list[dict[str, Any]]) -> None:
    """Ack a delivery and push its messages to the output queue, in one transaction."""
    items = [
        {
            "queue": OUT,
            "partition": message["partition"],
            "transactionId": message["transactionId"],
            "payload": message["data"],
        }
        for message in messages
    ]
    operations = [{"type": "push", "items": items}, *({"type": "ack", **ack_body(m)} for m in messages)]
    for message in messages:
        run.ack_sent[group, message["partition"]].add(message["data"])
    for _ in range(2):
        response = await run.call(client, "POST", "/api/v1/transaction", json={"operations": operations})
        if response is not None:
            assert response.json()["success"] is (response.status_code == 200), response.text
            if response.json()["success"]:
                for message in messages:
                    run.completed[group, message["partition"]].add(message["data"])
            return


async def kill_processes(run: ChaosRun) -> None:
    """Kill brokers and PostgreSQL, each time after more messages were processed."""
    first, second, third = run.brokers

    async def is_journal_used() -> bool:
        return "database_down" in run.reasons

    for victims in ([first], [run.postgres], [second, third], [run.postgres, first]):
        goal = run.progress + MESSAGES_BETWEEN_KILLS

        async def is_reached(goal: int = goal) -> bool:
            return run.progress >= goal

        await wait_until_async(is_reached, 60, f"{MESSAGES_BETWEEN_KILLS} more messages are processed")
        for victim in victims:
            # SIGQUIT is PostgreSQL's immediate shutdown: no checkpoint, and recovery at the next start.
            victim.kill(signal.SIGQUIT if victim is run.postgres else signal.SIGKILL)
            if victims == [run.postgres]:
                run.is_postgres_down = True
                await wait_until_async(is_journal_used, 30, "pushes go to the journal")
                run.is_postgres_down = False
            victim.start()
        for victim in victims:
            await victim.wait_until_up()


@asynccontextmanager
async def clients(run: ChaosRun) -> AsyncIterator[None]:
    """Run producers and consumers until the end of the block; then consume all messages."""
    drained = asyncio.Event()
    limits = httpx.Limits(max_connections=100, max_keepalive_connections=100)
    async with (
        httpx.AsyncClient(timeout=deadline_s(10), limits=limits) as client,
        asyncio.TaskGroup() as tasks,
    ):
        for partition in PARTITIONS:
            tasks.create_task(produce(run, client, partition))
        for group in GROUPS:
            for _ in range(CONSUMERS_PER_GROUP):
                tasks.create_task(consume(run, client, group, drained))
        yield
        run.finished.set()

        async def all_acked() -> bool:
            return all(
                run.ack_sent[group, partition] >= set(range(run.pushed[partition]))
                for group in GROUPS
                for partition in PARTITIONS
            )

        await wait_until_async(all_acked, 60, "every message reaches every group")
        await wait_until_async(lambda: is_drained(run), 60, "every position is at its end")
        drained.set()


async def is_drained(run: ChaosRun) -> bool:
    """Return whether both groups have finished all messages, according to the database."""
    connection = await asyncpg.connect(run.postgres_url)
    try:
        unfinished = await connection.fetchval(
            """SELECT count(*) FROM penstock.positions p JOIN penstock.partitions t ON t.id = p.partition_id
               JOIN penstock.groups g ON g.id = p.group_id
               WHERE g.name = ANY ($1) AND p.cursor < t.next_offset""",
            list(GROUPS),
        )
    finally:
        await connection.close()
    return bool(unfinished == 0)


@contextmanager
def processes(home: Path) -> Iterator[ChaosRun]:
    home.mkdir()
    home.chmod(0o755)
    server = Postgres(home, any_free_port())
    postgres = Process(server)
    url = server.url
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
    run = ChaosRun(postgres, url, brokers)
    try:
        postgres.start()
        yield run
    finally:
        for process in (*brokers, postgres):
            process.stop()


async def prepare(run: ChaosRun) -> None:
    """Create the schema and a queue without dead letters; start the brokers."""
    await run.postgres.wait_until_up()
    url = run.postgres_url
    async with migrations.migration_lock(url) as connection:
        await migrations.apply(connection)
    database = Database(url, 1)
    await log.ensure_partitions(database, DEFAULT_SCOPE, [PartitionName(QUEUE, name) for name in PARTITIONS])
    for group in GROUPS:
        await log.ensure_group(database, DEFAULT_SCOPE, QUEUE, group)
    await database.fetch("UPDATE queues SET retry_limit = 1000000 WHERE name = $1", QUEUE)
    await database.close()
    for broker in run.brokers:
        broker.start()
    await asyncio.gather(*(broker.wait_until_up() for broker in run.brokers))


@pytest.mark.timeout(240)
async def test_responses_stay_true_while_brokers_and_postgres_are_killed(server_home: Path) -> None:
    with processes(server_home / "chaos-brokers") as run:
        await prepare(run)
        async with clients(run):
            await kill_processes(run)

        assert run.failures > 0, "no request failed"
        assert run.reasons >= {"system_busy", "database_down"}, "not every kind of deferral was used"
        database = Database(run.postgres_url, 1)
        assert {depth.waiting for depth in (await DeferredOperations(database).depths()).values()} == {0}
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
            for partition, count in run.pushed.items():
                expected = [f"{partition}-{n}" for n in range(count)]
                assert stored[partition] == expected, f"{queue}: each once and in order"
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
        assert {row["messages"] for row in totals} == {sum(run.pushed.values())}
        assert not await database.fetch("SELECT 1 FROM dead_letters")
        await database.close()
