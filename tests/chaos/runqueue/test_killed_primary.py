"""Kill a primary of a cluster, or one that sentinels watch, while tasks are moved."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.servers.redis_probe import RedisProbe
from penstock.errors import RedisUnavailable
from penstock.model import Scope
from penstock.redis_clients import connect_redis, connect_redis_async
from penstock.runqueue.keys import stream_key
from penstock.runqueue.queue import RunQueues
from penstock.runqueue.task_model import NewTask, RunningTask
from tests.deadlines import deadline_s
from tests.emitted_counts import sum_emitted_counts
from tests.valkey_cluster import ValkeyNode, running_cluster, start_node, start_sentinel
from tests.waiting import wait_until, wait_until_async

SCOPE, QUEUE_NAME, LIMIT = Scope("failover"), "failover", 4


class Load:
    """Enqueues and acks tasks, each with its own idempotency key, and repeats calls without an answer."""

    def __init__(self, url: str) -> None:
        self.queues = RunQueues(url, shards=1, visibility_ms=2_000)
        self.enqueued: set[bytes] = set()
        self.delivered: Counter[bytes] = Counter()
        self.acked: set[bytes] = set()
        self.most_running = 0
        self.failures = 0
        self.is_stopping = False
        self.is_drained = False

    async def enqueue(self) -> None:
        number = 0
        while not self.is_stopping:
            key = b"%d" % number
            task = NewTask(key, idempotency_key=key.decode(), max_attempts=10)
            if await self._retry(lambda task=task: self.queues.enqueue(SCOPE, QUEUE_NAME, [task])):
                self.enqueued.add(key)
                number += 1

    async def work(self) -> None:
        while not self.is_drained:
            tasks = await self._retry(lambda: self.queues.dequeue(SCOPE, QUEUE_NAME, wait_ms=200)) or []
            for task in tasks:
                await self._ack(task)

    async def watch_limit(self) -> None:
        """The server itself says how many tasks run at once."""
        while not self.is_stopping:
            if state := await self._retry(lambda: self.queues.get_queue(SCOPE, QUEUE_NAME)):
                self.most_running = max(self.most_running, state.running)

    async def is_empty(self) -> bool:
        state = await self.queues.get_queue(SCOPE, QUEUE_NAME)
        return state.eligible + state.running + state.delayed == 0

    async def _ack(self, task: RunningTask) -> None:
        self.delivered[task.payload] += 1
        if await self._retry(lambda: self.queues.ack_many(SCOPE, [task.lease])):
            self.acked.add(task.payload)

    async def _retry(self, call: Any) -> Any:
        try:
            return await call()
        except RedisUnavailable:
            self.failures += 1
            await asyncio.sleep(0.05)  # a client backs off; nothing is waited for
            return None


async def test_a_killed_primary_loses_no_replicated_task(tmp_path: Path) -> None:
    """An enqueue that was answered and replicated before the kill is delivered, and limits hold."""
    with running_cluster(tmp_path) as cluster:
        primary = cluster.owner_of(stream_key(0))
        load = Load(cluster.url)
        await load.queues.start()
        await load.queues.set_queue_limit(SCOPE, QUEUE_NAME, LIMIT)
        workers = [asyncio.create_task(call()) for call in (load.enqueue, *[load.work] * 6, load.watch_limit)]
        await wait_until_async(lambda: _value(len(load.acked) > 100), 30, "tasks are acked")
        answered = set(load.enqueued)
        await asyncio.to_thread(_wait_for_replica, primary)
        primary.kill()
        await asyncio.to_thread(
            wait_until,
            lambda: cluster.owner_of(stream_key(0)) is not primary,
            30,
            "a replica became the primary",
        )
        acked_before = len(load.acked)
        await wait_until_async(
            lambda: _value(len(load.acked) > acked_before + 100), 30, "tasks are acked again"
        )
        load.is_stopping = True
        await wait_until_async(load.is_empty, 60, "all tasks are done")
        load.is_drained = True
        await asyncio.wait_for(asyncio.gather(*workers), deadline_s(60))
        assert load.failures > 0, "the kill was noticed"
        assert answered <= load.delivered.keys()
        assert load.most_running <= LIMIT
        state = await load.queues.get_queue(SCOPE, QUEUE_NAME)
        client = connect_redis_async(cluster.url)
        counts = await sum_emitted_counts(client, QUEUE_NAME)
        await client.aclose()
        assert {name: counts[name] for name in state.totals} == state.totals, "events agree with the totals"
        assert await load.queues.repair() == 0
        await load.queues.stop()


async def test_sentinels_name_the_new_primary(tmp_path: Path) -> None:
    with _running_sentinels(tmp_path) as (url, primary):
        RedisProbe(url).check()
        queues = RunQueues(url, shards=1)
        await queues.enqueue(SCOPE, "mail", [NewTask(b"before")])
        await asyncio.to_thread(_wait_for_replica, primary)
        primary.kill()

        async def enqueue() -> bool:
            return bool(await queues.enqueue(SCOPE, "mail", [NewTask(b"after", idempotency_key="once")]))

        await wait_until_async(enqueue, 30, "the new primary takes tasks")
        tasks = await queues.dequeue(SCOPE, "mail", limit=10)
        assert [task.payload for task in tasks] == [b"before", b"after"]
        with connect_redis(url) as client:
            assert client.role()[0] == b"master"
        await queues.stop()


@contextmanager
def _running_sentinels(directory: Path) -> Iterator[tuple[str, ValkeyNode]]:
    """A primary, its replica and three sentinels."""
    nodes = [start_node(directory / "primary", {})]
    try:
        primary = nodes[0]
        nodes.append(start_node(directory / "replica", {"replicaof": f"127.0.0.1 {primary.port}"}))
        wait_until(lambda: primary.call("WAIT", 1, 100) == 1, 10, "the replica follows")
        for number in range(3):
            sentinel_directory = directory / f"sentinel {number}"
            sentinel_directory.mkdir()
            port = any_free_port()
            path = sentinel_directory / "sentinel.conf"
            path.write_text(
                f"port {port}\nbind 127.0.0.1\nsentinel monitor tasks 127.0.0.1 {primary.port} 2\n"
                "sentinel down-after-milliseconds tasks 1000\nsentinel failover-timeout tasks 5000\n"
            )
            nodes.append(start_sentinel(path, port))
        sentinels = nodes[2:]
        for sentinel in sentinels:
            wait_until(partial(_knows_others, sentinel), 20, "the sentinels know each other")
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in sentinels)
        yield f"redis+sentinel://{hosts}/tasks/0", primary
    finally:
        for node in nodes:
            node.client.close()
            node.kill()


def _knows_others(sentinel: ValkeyNode) -> bool:
    properties: Any = sentinel.client.sentinel_master("tasks")
    return bool(properties["num-other-sentinels"] == 2 and properties["num-slaves"] == 1)


def _wait_for_replica(primary: ValkeyNode) -> None:
    """Return when the replica has everything that the primary executed before this call."""
    # WAIT covers the writes of its own connection, and the replica receives all writes in their order.
    key = f"{{{stream_key(0)}}}:written"
    with primary.client.client() as connection:  # type: ignore[no-untyped-call]
        connection.set(key, 1)
        replicas = connection.execute_command("WAIT", 1, 10_000)
    assert replicas == 1


async def _value(value: bool) -> bool:
    return value
