"""Redis away, restarted, divided otherwise, or a cluster."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis as PlainRedis
from redis.asyncio import Redis

from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.servers.valkey import Valkey, find_valkey_server
from penstock.embedded.supervision.component import running
from penstock.errors import RedisUnavailable, WrongState
from penstock.model import Scope
from penstock.runqueue.connection import warn_of_forgetting
from penstock.runqueue.queue import RunQueues
from penstock.runqueue.task_model import Nack, NewTask
from tests.waiting import wait_until, wait_until_async


async def test_redis_away_is_said_by_every_verb(scope: Scope) -> None:
    queues = RunQueues(f"redis://127.0.0.1:{any_free_port()}/0")
    for call in (
        queues.enqueue(scope, "mail", [NewTask()]),
        queues.dequeue(scope, "mail", wait_ms=5_000),
        queues.queues(scope),
        queues.set_queue_limit(scope, "mail", 1),
        queues.has_queue(scope, "mail"),
        queues.task(scope, "0-0"),
        queues.sweep(),
    ):
        with pytest.raises(RedisUnavailable, match="retry shortly"):
            await call
    await queues.stop()


async def test_scripts_that_redis_forgot_are_sent_again(
    queues: RunQueues, scope: Scope, redis: Redis
) -> None:
    await queues.enqueue(scope, "mail", [NewTask()])
    await redis.script_flush()
    await queues.enqueue(scope, "mail", [NewTask()])
    assert len(await queues.dequeue(scope, "mail", limit=5)) == 2


async def test_a_full_redis_is_said_and_changes_nothing(open_tmp_path: Path, scope: Scope) -> None:
    server = Valkey(open_tmp_path, any_free_port())
    with running(server):
        queues = RunQueues(server.url)
        await queues.enqueue(scope, "mail", [NewTask(b"before")])
        async with Redis.from_url(server.url) as client:
            await client.config_set("maxmemory", 1)
            with pytest.raises(RedisUnavailable, match="maxmemory"):
                await queues.enqueue(scope, "mail", [NewTask(b"during")])
            await client.config_set("maxmemory", 0)
        assert (await queues.queue(scope, "mail")).eligible == 1
        await queues.stop()


async def test_the_number_of_shards_stays_what_it_was(
    redis_url: str, scope: Scope, caplog: pytest.LogCaptureFixture
) -> None:
    """On a database of its own. With another number the tasks of most environments would be out of sight."""
    url = redis_url.removesuffix("/0") + "/14"
    first, second = RunQueues(url, shards=3), RunQueues(url, shards=16)
    scopes = [Scope(f"{scope.organization} {n}") for n in range(20)]
    for one in scopes:
        await first.enqueue(one, "mail", [NewTask()])
    for one in scopes:
        [task] = await second.dequeue(one)
        await first.ack(one, task.lease)
    assert "run_queue_shards is 16, but the run queues in this Redis have 3 shards" in caplog.text
    await first.stop()
    await second.stop()


async def test_a_redis_that_forgets_is_warned_of(
    open_tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = Valkey(open_tmp_path, any_free_port())
    with running(server):
        async with Redis.from_url(server.url) as client:
            await warn_of_forgetting(client)
            assert caplog.text == ""
            await client.config_set("appendonly", "no")
            await client.config_set("maxmemory", "100mb")
            await client.config_set("maxmemory-policy", "allkeys-lru")
        queues = RunQueues(server.url)
        await queues.start()
        await wait_until_async(lambda: _said(caplog, "allkeys-lru"), 5, "it is said")
        await queues.stop()
    assert "set appendonly yes and appendfsync always" in caplog.text


async def _said(caplog: pytest.LogCaptureFixture, text: str) -> bool:
    return text in caplog.text


@pytest.fixture
def cluster_url(tmp_path: Path) -> Iterator[str]:
    """A cluster of one node that has all slots: it refuses every access across slots."""
    port, bus = any_free_port(), any_free_port()
    options = {"port": port, "cluster-port": bus, "cluster-enabled": "yes", "bind": "127.0.0.1", "save": ""}
    argv = [str(find_valkey_server())] + [
        part for key, value in options.items() for part in (f"--{key}", str(value))
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


async def test_every_command_stays_in_one_slot(cluster_url: str) -> None:
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
        assert len((await queues.dead_letters(scope, "mail")).tasks) == 1
        assert await queues.redrive_all(scope, "mail") == 1
        [task] = await queues.dequeue(scope, wait_ms=1_000)
        await queues.give_back(scope, [task.lease])
        [task] = await queues.dequeue(scope)
        await queues.ack(scope, task.lease)
        await queues.pause(scope, "mail")
        await queues.resume(scope, "mail")
        await queues.share_environment(scope, 1, 2, None)
        assert [state.queue for state in await queues.queues(scope)] == ["mail"]
        await queues.purge_dead(scope, "mail")
        with pytest.raises(WrongState):
            await queues.delete_queue(scope, "mail")
    assert await queues.dequeue(None) != []
    await queues.sweep()
    assert await queues.repair() == 0
    async with Redis.from_url(cluster_url) as client:
        keys = [key async for key in client.scan_iter()]
        slots = {await client.execute_command("CLUSTER", "KEYSLOT", key) for key in keys if b"{" in key}
        streams = {await client.execute_command("CLUSTER", "KEYSLOT", key) for key in keys if b"{" not in key}
    assert len(slots) == 2, "four shards, two streams"
    assert slots <= streams
    await queues.stop()
