"""Redis unreachable, restarted, full, or a cluster."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis as PlainRedis
from redis.asyncio import Redis
from redis.crc import key_slot

from penstock.batching import QueueTimeout
from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.servers.valkey import Valkey, find_valkey_server
from penstock.embedded.supervision.component import running
from penstock.errors import Overloaded, RedisUnavailable, WrongState
from penstock.model import Scope
from penstock.runqueue.connection import warn_about_durability
from penstock.runqueue.queue import RunQueues
from penstock.runqueue.task_model import Nack, NewTask
from tests.waiting import wait_until, wait_until_async


async def test_every_call_reports_an_unreachable_redis(scope: Scope) -> None:
    queues = RunQueues(f"redis://127.0.0.1:{any_free_port()}/0")
    for call in (
        queues.enqueue(scope, "mail", [NewTask()]),
        queues.dequeue(scope, "mail", wait_ms=5_000),
        queues.list_queues(scope),
        queues.set_queue_limit(scope, "mail", 1),
        queues.has_queue(scope, "mail"),
        queues.get_task(scope, "0-0"),
        queues.sweep(),
    ):
        with pytest.raises(RedisUnavailable, match="retry shortly"):
            await call
    await queues.stop()


async def test_scripts_missing_in_redis_are_sent_again(queues: RunQueues, scope: Scope, redis: Redis) -> None:
    await queues.enqueue(scope, "mail", [NewTask()])
    await redis.script_flush()
    await queues.enqueue(scope, "mail", [NewTask()])
    assert len(await queues.dequeue(scope, "mail", limit=5)) == 2


async def test_a_call_that_waited_too_long_is_refused(open_tmp_path: Path, scope: Scope) -> None:
    server = Valkey(open_tmp_path, any_free_port())
    with running(server):
        queues = RunQueues(server.url, shards=1, queue_timeout=QueueTimeout(0.1, lambda: Overloaded(1.0)))
        await queues.enqueue(scope, "mail", [NewTask(b"before")])
        async with Redis.from_url(server.url) as client:
            await client.client_pause(60_000, all=False)
            in_flight = asyncio.create_task(queues.enqueue(scope, "mail", [NewTask(b"in flight")]))
            batcher = queues.batchers["enqueue"]
            await wait_until_async(
                lambda: _value(batcher.in_flight == 1 and not batcher.pending), 5, "one call"
            )
            overdue = asyncio.create_task(queues.enqueue(scope, "mail", [NewTask(b"overdue")]))
            await wait_until_async(lambda: _value(batcher.pending == 1), 5, "the next waits")
            queued_at = batcher.oldest_batch_s()
            await wait_until_async(
                lambda: _value(batcher.oldest_batch_s() > queued_at + 0.1), 5, "the next is overdue"
            )
            await client.client_unpause()
        assert len(await in_flight) == 1
        with pytest.raises(Overloaded):
            await overdue
        assert (await queues.get_queue(scope, "mail")).eligible == 2
        await queues.stop()


async def test_a_full_redis_is_reported_and_changes_nothing(open_tmp_path: Path, scope: Scope) -> None:
    server = Valkey(open_tmp_path, any_free_port())
    with running(server):
        queues = RunQueues(server.url)
        await queues.enqueue(scope, "mail", [NewTask(b"before")])
        async with Redis.from_url(server.url) as client:
            await client.config_set("maxmemory", 1)
            with pytest.raises(RedisUnavailable, match="maxmemory"):
                await queues.enqueue(scope, "mail", [NewTask(b"during")])
            await client.config_set("maxmemory", 0)
        assert (await queues.get_queue(scope, "mail")).eligible == 1
        await queues.stop()


async def test_a_redis_that_may_lose_tasks_is_logged(
    open_tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = Valkey(open_tmp_path, any_free_port())
    with running(server):
        async with Redis.from_url(server.url) as client:
            await warn_about_durability(client)
            assert caplog.text == ""
            await client.config_set("appendonly", "no")
            await client.config_set("maxmemory", "100mb")
            await client.config_set("maxmemory-policy", "allkeys-lru")
        queues = RunQueues(server.url)
        await queues.start()
        await wait_until_async(lambda: _is_logged(caplog, "allkeys-lru"), 5, "the warning is logged")
        await queues.stop()
    assert "Set appendonly yes and appendfsync always" in caplog.text


async def _is_logged(caplog: pytest.LogCaptureFixture, text: str) -> bool:
    return text in caplog.text


@pytest.fixture
def cluster_url(tmp_path: Path) -> Iterator[str]:
    """A cluster of one node with all slots. It refuses a script that uses keys of two slots."""
    port, bus_port = any_free_port(), any_free_port()
    options = {
        "port": port,
        "cluster-port": bus_port,
        "cluster-enabled": "yes",
        "bind": "127.0.0.1",
        "save": "",
    }
    argv = [str(find_valkey_server())] + [
        argument for key, value in options.items() for argument in (f"--{key}", str(value))
    ]
    process = subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.DEVNULL)
    try:
        with PlainRedis(port=port) as client:
            wait_until(client.ping, 10, "the node answers")
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            wait_until(lambda: client.cluster("INFO")["cluster_state"] == "ok", 10, "the cluster is complete")
            yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.kill()
        process.wait()


async def test_every_command_uses_one_slot(cluster_url: str) -> None:
    queues = RunQueues(cluster_url, shards=4)
    await queues.start()
    for scope in [Scope(f"tenant {n}") for n in range(12)]:
        await queues.set_environment_limit(scope, 10, 2)
        await queues.set_queue_limit(scope, "mail", 5)
        await queues.enqueue(
            scope, "mail", [NewTask(ttl_ms=60_000), NewTask(delay_ms=1), NewTask(idempotency_key="k")]
        )
        [task] = await queues.dequeue(scope, "mail")
        await queues.heartbeat(scope, task.lease)
        await queues.nack(scope, Nack(task.lease, retry=False))
        assert len((await queues.list_dead_tasks(scope, "mail")).tasks) == 1
        assert await queues.redrive_all(scope, "mail") == 1
        [task] = await queues.dequeue(scope, wait_ms=1_000)
        await queues.release(scope, [task.lease])
        [task] = await queues.dequeue(scope)
        await queues.ack(scope, task.lease)
        await queues.pause(scope, "mail")
        await queues.resume(scope, "mail")
        await queues.exchange_environment_gauges(scope, 1, 2, None)
        assert [state.queue for state in await queues.list_queues(scope)] == ["mail"]
        await queues.purge_dead(scope, "mail")
        with pytest.raises(WrongState):
            await queues.delete_queue(scope, "mail")
    assert await queues.dequeue(None) != []
    await queues.sweep()
    assert await queues.repair() == 0
    async with Redis.from_url(cluster_url) as client:
        keys = [key async for key in client.scan_iter()]
        slots = {key_slot(key) for key in keys if b"{penstock:metrics:" in key}
        stream_slots = {key_slot(key) for key in keys if b"{" not in key}
    assert len(slots) == 2, "four shards, two streams"
    assert slots <= stream_slots
    await queues.stop()


async def _value(value: bool) -> bool:
    return value
