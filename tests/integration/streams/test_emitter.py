"""The emitter against a real Valkey: what is emitted arrives once, in order, or is counted as dropped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from penstock.definitions import QUEUE, MetricDefinition
from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.servers.valkey import Valkey
from penstock.embedded.supervision.component import running
from penstock.shards import shard_of
from penstock.streams import emitter as emitter_module
from penstock.streams.emitter import ENABLED_KEY, Emitter
from penstock.streams.packing import packed_payload, unpack
from tests.waiting import wait_until_async


@pytest.fixture
def metric() -> MetricDefinition:
    """A metric with streams of its own."""
    return replace(QUEUE, name=f"test-{uuid4().hex[:8]}")


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url) as client:
        yield client


async def entries(redis: Redis, metric: MetricDefinition) -> list[dict[bytes, bytes]]:
    """The fields of all events, whichever form their entries have."""
    found = []
    for key in metric.stream_keys:
        for _, fields in await redis.xrange(key):
            payload = packed_payload(list(fields.items()))
            found += [fields] if payload is None else [dict(pairs) for pairs in unpack(payload)]
    return found


async def test_an_event_arrives_on_the_stream_of_its_key(
    redis_url: str, redis: Redis, metric: MetricDefinition
) -> None:
    emitter = Emitter(redis_url, buffer=100)
    emitter.start()
    emitter.emit(metric, {"queue": "orders", "eq": 2, "wt": "1,2"}, shard_key="orders")
    await emitter.stop(5)
    key = metric.stream_keys[shard_of("orders", metric.shards)]
    [(entry_id, fields)] = await redis.xrange(key)
    time_ms = int(fields.pop(b"t"))
    assert fields == {b"queue": b"orders", b"eq": b"2", b"wt": b"1,2"}
    assert abs(time_ms - int(entry_id.split(b"-")[0])) < 5_000
    assert (emitter.emitted, emitter.dropped, emitter.failures, emitter.pending) == (1, 0, 0, 0)


async def test_events_of_one_key_keep_their_order_and_others_go_round(
    redis_url: str, redis: Redis, metric: MetricDefinition
) -> None:
    emitter = Emitter(redis_url, buffer=10_000)
    emitter.start()
    for number in range(2_500):
        emitter.emit(metric, {"eq": number}, shard_key="one")
    await emitter.stop(10)
    assert [int(fields[b"eq"]) for fields in await entries(redis, metric)] == list(range(2_500))
    again = Emitter(redis_url, buffer=10_000)
    again.start()
    for number in range(10):
        again.emit(metric, {"dq": number})
    await again.stop(10)
    dequeued = [
        int(fields[b"dq"])
        for key in metric.stream_keys
        for _, fields in await redis.xrange(key)
        if b"dq" in fields
    ]
    assert dequeued == [0, 2, 4, 6, 8, 1, 3, 5, 7, 9]


async def test_many_events_share_an_entry_and_few_do_not(
    redis_url: str, redis: Redis, metric: MetricDefinition
) -> None:
    emitter = Emitter(redis_url, buffer=10_000)
    key = metric.stream_keys[shard_of("one", metric.shards)]
    for number in range(700):
        emitter.emit(metric, {"queue": f"q{number % 3}", "eq": number, "wt": f"{number},0"}, shard_key="one")
    emitter.start()
    await wait_until_async(lambda: _value(emitter.emitted == 700), 10, "the many are written")
    assert await redis.xlen(key) == 3
    for number in range(700, 705):
        emitter.emit(metric, {"queue": "q", "eq": number, "wt": number}, shard_key="one")
    await emitter.stop(5)
    assert await redis.xlen(key) == 3 + 5
    found = await entries(redis, metric)
    assert [int(fields[b"eq"]) for fields in found] == list(range(705))
    assert (found[699][b"wt"], found[700][b"wt"]) == (b"699,0", b"700")
    assert all(b"t" in fields for fields in found)


async def test_events_with_many_samples_share_smaller_entries(
    redis_url: str, redis: Redis, metric: MetricDefinition
) -> None:
    emitter = Emitter(redis_url, buffer=1_000)
    many = ",".join(["1234"] * 500)
    for number in range(100):
        emitter.emit(metric, {"eq": number, "wt": many}, shard_key="one")
    emitter.start()
    await emitter.stop(5)
    key = metric.stream_keys[shard_of("one", metric.shards)]
    sizes = [len(fields[b"p"]) for _, fields in await redis.xrange(key)]
    assert len(sizes) == 8
    assert max(sizes) < 2 * 20_000
    assert [int(fields[b"eq"]) for fields in await entries(redis, metric)] == list(range(100))


async def test_an_event_that_cannot_be_packed_keeps_its_place(
    redis_url: str, redis: Redis, metric: MetricDefinition
) -> None:
    emitter = Emitter(redis_url, buffer=100)
    odd: dict[int, dict[str, str | int]] = {
        10: {"eq": "ten"},
        11: {"eq": 11, "undeclared": 1},
        12: {"eq": 12, "queue": "\ud800"},
        13: {"eq": 1 << 70},
    }
    for number in range(40):
        emitter.emit(metric, odd.get(number, {"eq": number}), shard_key="one")
    emitter.start()
    await emitter.stop(5)
    key = metric.stream_keys[shard_of("one", metric.shards)]
    sizes = [
        1 if (payload := packed_payload(list(fields.items()))) is None else len(unpack(payload))
        for _, fields in await redis.xrange(key)
    ]
    assert sizes == [10, 1, 1, 1, 1, 26]
    texts = [fields[b"eq"].decode() for fields in await entries(redis, metric)]
    assert texts[:13] == [*map(str, range(10)), "ten", "11", "12"]
    assert texts[14:] == [str(number) for number in range(14, 40)]
    assert emitter.emitted == 40


async def test_a_stream_is_bounded_in_bytes_too(
    redis_url: str, redis: Redis, metric: MetricDefinition
) -> None:
    metric = replace(metric, shards=1, max_stream_bytes=200_000)
    emitter = Emitter(redis_url, buffer=100_000)
    emitter.start()
    long = ",".join(["123456"] * 20)
    for number in range(20_000):
        emitter.emit(metric, {"queue": f"q{number}", "eq": number, "wt": long}, shard_key="one")
    await emitter.stop(30)
    [key] = metric.stream_keys
    assert emitter.emitted == 20_000
    assert 100_000 < await redis.memory_usage(key, samples=0) < 400_000
    assert int((await entries(redis, metric))[-1][b"eq"]) == 19_999
    assert (await redis.xinfo_stream(key))["entries-added"] > await redis.xlen(key)


async def test_where_nobody_may_ask_for_memory_the_number_of_entries_is_the_bound(
    redis_url: str, redis: Redis, metric: MetricDefinition
) -> None:
    metric = replace(metric, shards=1, max_stream_bytes=1)
    await redis.acl_setuser(
        metric.name, enabled=True, passwords=["+secret"], keys=["*"], commands=["+@all", "-memory"]
    )
    parts = urlsplit(redis_url)
    url = urlunsplit(parts._replace(netloc=f"{metric.name}:secret@{parts.hostname}:{parts.port}"))
    emitter = Emitter(url, buffer=1_000)
    emitter.start()
    for number in range(100):
        emitter.emit(metric, {"eq": number}, shard_key="one")
    await emitter.stop(5)
    assert (emitter.emitted, emitter.failures) == (100, 0)
    assert len(await entries(redis, metric)) == 100
    await redis.acl_deluser(metric.name)


async def test_a_given_time_is_kept(redis_url: str, redis: Redis, metric: MetricDefinition) -> None:
    emitter = Emitter(redis_url, buffer=10)
    emitter.start()
    emitter.emit(metric, {"eq": 1, "t": 1_790_000_000_000})
    await emitter.stop(5)
    assert [fields[b"t"] for fields in await entries(redis, metric)] == [b"1790000000000"]


async def test_a_full_buffer_drops_the_oldest_and_counts_it(
    redis_url: str, redis: Redis, metric: MetricDefinition
) -> None:
    emitter = Emitter(redis_url, buffer=10)
    for number in range(25):
        emitter.emit(metric, {"eq": number}, shard_key="one")
    assert (emitter.pending, emitter.dropped) == (10, 15)
    emitter.start()
    await emitter.stop(5)
    assert [int(fields[b"eq"]) for fields in await entries(redis, metric)] == list(range(15, 25))
    assert (emitter.emitted, emitter.dropped) == (10, 15)


async def test_events_wait_for_a_redis_that_is_away(open_tmp_path: Path, metric: MetricDefinition) -> None:
    server = Valkey(open_tmp_path, any_free_port())
    emitter = Emitter(server.url, buffer=4)
    emitter.start()
    for number in range(6):
        emitter.emit(metric, {"eq": number}, shard_key="one")
    await wait_until_async(lambda: _value(emitter.failures > 1), 10, "the emitter tries again")
    assert emitter.pending == 4
    with running(server):
        await wait_until_async(lambda: _value(emitter.emitted == 4), 15, "what was kept is written")
        async with Redis.from_url(server.url) as client:
            assert [int(f[b"eq"]) for f in await entries(client, metric)] == [2, 3, 4, 5]
        await emitter.stop(5)
    assert emitter.dropped == 2


async def test_stopping_without_redis_takes_no_longer_than_allowed(metric: MetricDefinition) -> None:
    emitter = Emitter(f"redis://127.0.0.1:{any_free_port()}/0", buffer=10)
    emitter.start()
    emitter.emit(metric, {"eq": 1})
    began = asyncio.get_running_loop().time()
    await emitter.stop(0.3)
    await emitter.stop(0.3)
    assert asyncio.get_running_loop().time() - began < 2
    assert (emitter.pending, emitter.dropped) == (0, 1)
    emitter.emit(metric, {"eq": 1})
    assert emitter.dropped == 2


async def test_a_refused_event_does_not_take_its_neighbours_along(
    redis_url: str, redis: Redis, metric: MetricDefinition
) -> None:
    wrong, right = metric.stream_keys
    await redis.set(wrong, "not a stream")
    emitter = Emitter(redis_url, buffer=100)
    for number in range(6):
        emitter.emit(metric, {"eq": number, "queue": "\ud800 is no text"})
    emitter.start()
    await emitter.stop(5)
    assert await redis.xlen(right) == 3
    assert (emitter.emitted, emitter.dropped) == (3, 3)


async def test_a_mistake_in_an_event_does_not_end_emission(
    redis_url: str, redis: Redis, metric: MetricDefinition
) -> None:
    emitter = Emitter(redis_url, buffer=100)
    emitter.start()
    emitter.emit(metric, {"eq": 1}, shard_key=7)  # type: ignore[arg-type]
    await wait_until_async(lambda: _value(emitter.dropped == 1), 10, "the mistake is counted")
    emitter.emit(metric, {"eq": 2}, shard_key="one")
    await emitter.stop(5)
    assert [int(fields[b"eq"]) for fields in await entries(redis, metric)] == [2]
    assert (emitter.emitted, emitter.dropped) == (1, 1)


async def test_refused_packs_count_all_their_events(
    redis_url: str, redis: Redis, metric: MetricDefinition
) -> None:
    wrong, right = metric.stream_keys
    await redis.set(wrong, "not a stream")
    emitter = Emitter(redis_url, buffer=100)
    for number in range(60):
        emitter.emit(metric, {"eq": number})
    emitter.start()
    await emitter.stop(5)
    assert await redis.xlen(right) == 1
    assert (emitter.emitted, emitter.dropped) == (30, 30)


async def test_emission_is_switched_off_and_on_for_all_by_a_key(
    open_tmp_path: Path, metric: MetricDefinition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emitter_module, "LOOK_EVERY_S", 0.02)
    server = Valkey(open_tmp_path, any_free_port())
    emitter = Emitter(server.url, buffer=100)
    with running(server):
        async with Redis.from_url(server.url) as client:
            emitter.start()
            emitter.emit(metric, {"eq": 1})
            await wait_until_async(lambda: _value(emitter.emitted == 1), 10, "emission is on by itself")
            await client.set(ENABLED_KEY, "0")
            await wait_until_async(lambda: _value(not emitter.active), 10, "emission is switched off")
            emitter.emit(metric, {"eq": 1})
            assert (emitter.pending, emitter.dropped) == (0, 0)
            await client.set(ENABLED_KEY, "1")
            await wait_until_async(lambda: _value(emitter.active), 10, "emission is switched on")
            await client.set(ENABLED_KEY, "0")
            await wait_until_async(lambda: _value(not emitter.active), 10, "emission is off again")
            await client.delete(ENABLED_KEY)
            await wait_until_async(lambda: _value(emitter.active), 10, "absent means on")
            await client.set(ENABLED_KEY, "0")
            await wait_until_async(lambda: _value(not emitter.active), 10, "off before Redis goes")
    looks = 0
    connect = emitter._connect

    def counted() -> Redis:
        nonlocal looks
        looks += 1
        return connect()

    monkeypatch.setattr(emitter, "_connect", counted)
    await wait_until_async(lambda: _value(looks > 1), 10, "the switch is looked at while Redis is away")
    assert not emitter.active, "while Redis is away the switch stays as it was"
    await emitter.stop(1)


async def test_a_switched_off_emitter_does_nothing(redis_url: str, metric: MetricDefinition) -> None:
    emitter = Emitter(redis_url, buffer=10, enabled=False)
    emitter.start()
    emitter.emit(metric, {"eq": 1})
    assert (emitter.pending, emitter.dropped) == (0, 0)
    await emitter.stop(1)


@pytest.mark.parametrize("executed", [True, False], ids=["before the answer", "before the request"])
async def test_a_batch_enters_once_when_the_connection_breaks(
    redis_url: str, redis: Redis, metric: MetricDefinition, executed: bool
) -> None:
    await redis.script_load(emitter_module._SCRIPT)
    broken = 0

    def breaks(data: bytes) -> bool:
        nonlocal broken
        broken += b"EVALSHA" in data
        return b"EVALSHA" in data and broken == 1

    async with proxy(redis_url, breaks, forward_first=executed) as url:
        emitter = Emitter(url, buffer=100)
        emitter.start()
        for number in range(20):
            emitter.emit(metric, {"eq": number}, shard_key="one")
        await wait_until_async(lambda: _value(emitter.emitted == 20), 10, "the batch is written")
        await emitter.stop(5)
    assert emitter.failures >= 1
    assert [int(fields[b"eq"]) for fields in await entries(redis, metric)] == list(range(20))


async def _value(value: bool) -> bool:
    return value


@asynccontextmanager
async def proxy(
    redis_url: str, breaks: Callable[[bytes], bool], *, forward_first: bool
) -> AsyncIterator[str]:
    """A way to Redis that cuts a connection at a chosen request, before or after Redis got it."""
    parts = urlsplit(redis_url)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection(parts.hostname, parts.port)
        answers = asyncio.create_task(_pump(up_reader, writer))
        while data := await reader.read(1 << 20):
            if breaks(data):
                answers.cancel()
                await asyncio.gather(answers, return_exceptions=True)
                if forward_first:
                    up_writer.write(data)
                    await up_writer.drain()
                    await up_reader.read(1)
                break
            up_writer.write(data)
        answers.cancel()
        for side in (up_writer, writer):
            side.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 20)
    port = server.sockets[0].getsockname()[1]
    host = parts.netloc.rpartition(":")[0]
    async with server:
        yield urlunsplit(parts._replace(netloc=f"{host}:{port}"))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Any:
    while data := await reader.read(1 << 20):
        writer.write(data)
