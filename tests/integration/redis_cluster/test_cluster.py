"""Run queues, emitter and the reader of the pipeline on six nodes, while a slot moves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from redis.crc import key_slot

from penstock.definitions import QUEUE, WORKER
from penstock.embedded.servers.redis_probe import RedisProbe
from penstock.errors import ServerUnusable
from penstock.model import Scope
from penstock.pipeline.source.raw_connection import RawConnection
from penstock.pipeline.source.redis_streams import StreamsReader, TaskRanges
from penstock.pipeline.source.stream_range import read_range
from penstock.redis_clients import connect_redis, connect_redis_async
from penstock.runqueue.keys import shard_of_environment, shard_of_task, stream_key
from penstock.runqueue.queue import RunQueues
from penstock.runqueue.task_model import Nack, NewTask
from penstock.streams.batch_lock import BatchLock, begin_batch
from penstock.streams.emitted_totals import EmittedTotals, total_field
from penstock.streams.emitter import Emitter
from penstock.streams.positions import Position, read_lags_async, read_position, write_positions
from penstock.streams.watermark import read_watermark
from tests.deadlines import deadline_s
from tests.task_load import TaskLoad
from tests.valkey_cluster import ValkeyCluster, running_cluster
from tests.waiting import wait_until_async


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture
async def queues(cluster: ValkeyCluster) -> AsyncIterator[RunQueues]:
    opened = RunQueues(cluster.url, shards=4)
    await opened.start()
    yield opened
    await opened.stop()


async def test_every_command_of_run_queues_finds_its_node(queues: RunQueues) -> None:
    for scope in [Scope(f"tenant {n}") for n in range(6)]:
        await queues.set_environment_limit(scope, 10, 2)
        await queues.enqueue(scope, "mail", [NewTask(), NewTask(delay_ms=1), NewTask(idempotency_key="k")])
        [task] = await queues.dequeue(scope, "mail")
        assert (await queues.get_task(scope, task.id)).id == task.id
        await queues.nack(scope, Nack(task.lease, retry=False))
        assert await queues.redrive_all(scope, "mail") == 1
        [task] = await queues.dequeue(scope, wait_ms=1_000)
        await queues.ack(scope, task.lease)
        assert [state.queue for state in await queues.list_queues(scope)] == ["mail"]
    await queues.sweep()
    assert await queues.repair() == 0
    for scope in [Scope(f"tenant {n}") for n in range(6)]:
        assert await queues.delete_some_tasks(scope) > 0
        assert await queues.delete_some_tasks(scope) == 0


async def test_a_waiting_dequeue_is_woken_from_another_node(
    queues: RunQueues, cluster: ValkeyCluster
) -> None:
    for scope in (Scope("waits 0"), Scope("waits 1"), Scope("waits 2"), Scope("waits 3")):
        waiting = asyncio.create_task(queues.dequeue(scope, "mail", wait_ms=60_000))
        await wait_until_async(lambda: _value(queues.waiting_dequeues == 1), 5, "the dequeue waits")
        await queues.enqueue(scope, "mail", [NewTask()])
        [task] = await asyncio.wait_for(waiting, deadline_s(30))
        await queues.ack(scope, task.lease)


async def test_counts_and_limits_are_exact_while_slots_move(
    queues: RunQueues, cluster: ValkeyCluster
) -> None:
    """Both streams move to other nodes, with all tasks of their shards, while tasks are moved."""
    load = TaskLoad("moving")
    for scope in [Scope(f"moving {n}") for n in range(4)]:
        load.start(scope, [queues])
    for shard in range(2):
        owner = cluster.owner_of(stream_key(shard))
        target = next(node for node in cluster.nodes[:3] if node is not owner)
        await asyncio.to_thread(cluster.move_slot, stream_key(shard), target)
    await load.stop()
    client = connect_redis_async(cluster.url)
    await load.check(queues, client)
    await client.aclose()


async def test_the_number_of_shards_is_raised_under_load(queues: RunQueues, cluster: ValkeyCluster) -> None:
    load = TaskLoad("raised")
    before, after = ([Scope(f"{name} raise {n}") for n in range(4)] for name in ("before", "after"))
    for scope in before:
        load.start(scope, [queues])
    await wait_until_async(lambda: _value(load.acked_count > 100), 20, "tasks are acked")
    raised = RunQueues(cluster.url, shards=16)
    await raised.start()
    await raised.sweep()
    for scope in after:
        load.start(scope, [queues, raised])
    acked_before = load.acked_count
    await wait_until_async(lambda: _value(load.acked_count > acked_before + 300), 20, "more are acked")
    await load.stop()
    client = connect_redis_async(cluster.url)
    await load.check(raised, client)
    await client.aclose()
    for number, scopes in ((4, before), (16, after)):
        for scope in scopes:
            [added] = await queues.enqueue(scope, "raised", [NewTask()])
            assert shard_of_task(added.id) == shard_of_environment(scope, number)
    await raised.stop()


async def test_the_emitter_writes_every_event_once_and_the_pipeline_reads_it(cluster: ValkeyCluster) -> None:
    client, plain = connect_redis_async(cluster.url), connect_redis(cluster.url)
    for key in (*QUEUE.stream_keys, *WORKER.stream_keys):
        plain.delete(key)
    emitter = Emitter(cluster.url, buffer=10_000)
    emitter.start()
    names = [f"queue {n}" for n in range(300)]
    for number, name in enumerate(names):
        fields: dict[str, str | int] = {"org": "o", "proj": "p", "env": "e", "queue": name, "eq": 1}
        emitter.emit(QUEUE, fields, name, (total_field(number, "", "eq"), 1))
    emitter.emit(WORKER, {"host": "h", "wrk": "0", "pr": 1}, "h")
    await wait_until_async(lambda: _value(emitter.emitted == 301), 20, "all events are written")
    totals = EmittedTotals(client)
    values = await totals.read([total_field(number, "", "eq") for number in range(300)])
    assert values == [b"1"] * 300
    assert await totals.correct(total_field(0, "", "eq"), b"1", 2, QUEUE, names[0])
    assert await totals.read([total_field(0, "", "eq")]) == [b"3"]

    reader = StreamsReader(cluster.url, QUEUE, min_distance_ms=100)
    start = await asyncio.to_thread(reader.initialOffset)
    end = await asyncio.to_thread(reader.latestOffset, start, reader.getDefaultReadLimit())
    rows = entries = 0
    for partition in reader.partitions(start, end):
        assert isinstance(partition, TaskRanges)
        for stream_range in partition.ranges:
            connection = RawConnection(cluster.url)
            content = read_range(connection, QUEUE, stream_range)
            connection.close()
            assert content.rows is not None
            rows += len(content.rows)
            entries += content.counts.entries
    assert rows == 300, "each queue has its own row"
    lags = await read_lags_async(client, QUEUE.stream_keys)
    assert sum(lag or 0 for lag in lags.values()) == entries
    write_positions(
        plain, {key: Position(end[str(n)].split()[0], None) for n, key in enumerate(QUEUE.stream_keys)}
    )
    assert all(read_position(plain, key) for key in QUEUE.stream_keys)
    assert await read_watermark(client, QUEUE) is not None
    await asyncio.to_thread(reader.commit, end)
    await emitter.stop()
    plain.close()
    await client.aclose()


def test_a_raw_reader_follows_its_stream_to_another_node(cluster: ValkeyCluster) -> None:
    key = "penstock:metrics:worker:0"
    plain = connect_redis(cluster.url)
    plain.delete(key)
    for number in range(20):
        plain.xadd(key, {"host": "h", "wrk": "0", "pr": number})
    connection = RawConnection(cluster.url)
    before = connection.xrange(key, "0-0", "+", 100)
    first_reply = bytes(before[0][before[1] : before[2]])
    target = next(node for node in cluster.nodes[:3] if node is not cluster.owner_of(key))
    cluster.move_slot(key, target)
    after = connection.xrange(key, "0-0", "+", 100)
    assert bytes(after[0][after[1] : after[2]]) == first_reply
    connection.close()
    plain.close()


def test_the_batch_lock_and_the_mark_share_a_slot(cluster: ValkeyCluster) -> None:
    plain = connect_redis(cluster.url)
    assert begin_batch(plain, "queue", "q", 1) == (True, None)
    lock = BatchLock(plain, "queue", "rebuild")
    assert lock.acquire(0)
    may_begin, previous = begin_batch(plain, "queue", "q", 2)
    assert not may_begin
    assert previous is not None
    assert previous.batch == ("q", 1)
    lock.renew()
    lock.release()
    assert begin_batch(plain, "queue", "q", 2)[0]
    plain.close()


def test_the_probe_tells_a_cluster_from_a_server(cluster: ValkeyCluster, redis_url: str) -> None:
    probe = RedisProbe(cluster.url)
    assert probe.check() is None
    probe.ping()
    probe.close()
    with pytest.raises(ServerUnusable, match=r"redis\+cluster://host:port"):
        RedisProbe(f"redis://127.0.0.1:{cluster.nodes[0].port}").check()
    with pytest.raises(ServerUnusable, match="is not a node of a Redis Cluster"):
        RedisProbe(redis_url.replace("redis://", "redis+cluster://").rpartition("/")[0]).check()


def test_the_streams_of_the_cluster_have_different_slots() -> None:
    """Else these tests would not see a command that uses two slots."""
    assert len({key_slot(key.encode()) for key in QUEUE.stream_keys}) == 2


async def _value(value: bool) -> bool:
    return value
