"""The emitter with a real Valkey: an event arrives once and in order, or is counted as dropped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from penstock.definitions import ENABLED_KEY, QUEUE, MetricDefinition
from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.servers.valkey import Valkey
from penstock.embedded.supervision.component import running
from penstock.shards import shard_of
from penstock.streams.emitter import EMIT_SCRIPT, Emitter
from penstock.streams.packing import packed_payload, unpack
from tests.waiting import wait_until_async


@pytest.fixture
def metric() -> MetricDefinition:
    """A metric with separate streams."""
    return replace(QUEUE, name=f"test-{uuid4().hex[:8]}")


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url) as client:
        yield client


async def read_all_events(redis: Redis, metric: MetricDefinition) -> list[dict[bytes, bytes]]:
    """Return the fields of all events, of packed and single entries, without reports of lost events."""
    events: list[dict[bytes, bytes]] = []
    for key in metric.stream_keys:
        for _, fields in await read_entries(redis, key):
            payload = packed_payload(list(fields.items()))
            events += [fields] if payload is None else [dict(pairs) for pairs in unpack(payload)]
    return [fields for fields in events if b"lost" not in fields]


async def read_entries(redis: Redis, key: str) -> list[tuple[bytes, dict[bytes, bytes]]]:
    return cast("list[tuple[bytes, dict[bytes, bytes]]]", await redis.xrange(key))


async def read_loss_reports(redis: Redis, metric: MetricDefinition) -> list[dict[str, int]]:
    return [
        {name.decode(): int(value) for name, value in fields.items()}
        for key in metric.stream_keys
        for _, fields in await read_entries(redis, key)
        if b"lost" in fields
    ]


async def test_an_event_is_added_to_the_stream_of_its_shard_key(
    redis_url: str, redis: Redis, metric: MetricDefinition
) -> None:
    emitter = Emitter(redis_url, buffer=100)
    emitter.start()
    emitter.emit(metric, {"queue": "orders", "eq": 2, "wt": "1,2"}, shard_key="orders")
    await emitter.stop(5)
    key = metric.stream_keys[shard_of("orders", metric.shards)]
    [(entry_id, fields)] = await read_entries(redis, key)
    time_ms = int(fields.pop(b"t"))
    assert fields == {b"queue": b"orders", b"eq": b"2", b"wt": b"1,2"}
    assert abs(time_ms - int(entry_id.split(b"-")[0])) < 5_000
    assert (emitter.emitted, emitter.dropped, emitter.failures, emitter.pending) == (1, 0, 0, 0)


async def test_events_of_one_key_keep_their_order_and_others_are_spread(
    redis_url: str, redis: Redis, metric: MetricDefinition
) -> None:
    emitter = Emitter(redis_url, buffer=10_000)
    emitter.start()
    for number in range(2_500):
        emitter.emit(metric, {"eq": number}, shard_key="one")
    await emitter.stop(10)
    assert [int(fields[b"eq"]) for fields in await read_all_events(redis, metric)] == list(range(2_500))
    without_key = Emitter(redis_url, buffer=10_000)
    without_key.start()
    for number in range(10):
        without_key.emit(metric, {"dq": number})
    await without_key.stop(10)
    dequeued = [
        int(fields[b"dq"])
        for key in metric.stream_keys
        for _, fields in await read_entries(redis, key)
        if b"dq" in fields
    ]
    assert dequeued == [0, 2, 4, 6, 8, 1, 3, 5, 7, 9]


async def test_many_events_are_packed_and_few_are_not(
    redis_url: str, redis: Redis, metric: MetricDefinition
) -> None:
    emitter = Emitter(redis_url, buffer=10_000)
    key = metric.stream_keys[shard_of("one", metric.shards)]
    for number in range(700):
        emitter.emit(metric, {"queue": f"q{number % 3}", "eq": number, "wt": f"{number},0"}, shard_key="one")
    emitter.start()
    await wait_until_async(lambda: _value(emitter.emitted == 700), 10, "all events are written")
    assert await redis.xlen(key) == 3
    for number in range(700, 705):
        emitter.emit(metric, {"queue": "q", "eq": number, "wt": number}, shard_key="one")
    await emitter.stop(5)
    assert await redis.xlen(key) == 3 + 5
    events = await read_all_events(redis, metric)
    assert [int(fields[b"eq"]) for fields in events] == list(range(705))
    assert (events[699][b"wt"], events[700][b"wt"]) == (b"699,0", b"700")
    assert all(b"t" in fields for fields in events)


async def test_events_with_many_samples_are_packed_into_smaller_entries(
    redis_url: str, redis: Redis, metric: MetricDefinition
) -> None:
    emitter = Emitter(redis_url, buffer=1_000)
    samples = ",".join(["1234"] * 500)
    for number in range(100):
        emitter.emit(metric, {"eq": number, "wt": samples}, shard_key="one")
    emitter.start()
    await emitter.stop(5)
    key = metric.stream_keys[shard_of("one", metric.shards)]
    sizes = [len(fields[b"p"]) for _, fields in await read_entries(redis, key)]
    assert len(sizes) == 8
    assert max(sizes) < 2 * 20_000
    assert [int(fields[b"eq"]) for fields in await read_all_events(redis, metric)] == list(range(100))


async def test_an_event_that_cannot_be_packed_keeps_its_position(
    redis_url: str, redis: Redis, metric: MetricDefinition
) -> None:
    emitter = Emitter(redis_url, buffer=100)
    unpackable: dict[int, dict[str, str | int]] = {
        10: {"eq": "ten"},
        11: {"eq": 11, "undeclared": 1},
        12: {"eq": 12, "queue": "\ud800"},
        13: {"eq": 1 << 70},
    }
    for number in range(40):
        emitter.emit(metric, unpackable.get(number, {"eq": number}), shard_key="one")
    emitter.start()
    await emitter.stop(5)
    key = metric.stream_keys[shard_of("one", metric.shards)]
    sizes = [
        1 if (payload := packed_payload(list(fields.items()))) is None else len(unpack(payload))
        for _, fields in await read_entries(redis, key)
    ]
    assert sizes == [10, 1, 1, 1, 1, 26]
    texts = [fields[b"eq"].decode() for fields in await read_all_events(redis, metric)]
    assert texts[:13] == [*map(str, range(10)), "ten", "11", "12"]
    assert texts[14:] == [str(number) for number in range(14, 40)]
    assert emitter.emitted == 40


async def test_a_stream_is_bounded_in_bytes(redis_url: str, redis: Redis, metric: MetricDefinition) -> None:
    metric = replace(metric, shards=1, max_stream_bytes=200_000)
    emitter = Emitter(redis_url, buffer=100_000)
    emitter.start()
    samples = ",".join(["123456"] * 20)
    for number in range(20_000):
        emitter.emit(metric, {"queue": f"q{number}", "eq": number, "wt": samples}, shard_key="one")
    await emitter.stop(30)
    [key] = metric.stream_keys
    assert emitter.emitted == 20_000
    used_bytes = await redis.memory_usage(key, samples=0)
    assert used_bytes is not None
    assert 100_000 < used_bytes < 400_000
    assert int((await read_all_events(redis, metric))[-1][b"eq"]) == 19_999
    assert (await redis.xinfo_stream(key))["entries-added"] > await redis.xlen(key)


async def test_without_access_to_memory_a_stream_is_bounded_in_entries(
    redis_url: str, redis: Redis, metric: MetricDefinition
) -> None:
    metric = replace(metric, shards=1, max_stream_bytes=1)
    await redis.acl_setuser(
        metric.name, enabled=True, passwords=["+secret"], keys=["*"], commands=["+@all", "-memory"]
    )
    url_parts = urlsplit(redis_url)
    url = urlunsplit(url_parts._replace(netloc=f"{metric.name}:secret@{url_parts.hostname}:{url_parts.port}"))
    emitter = Emitter(url, buffer=1_000)
    emitter.start()
    for number in range(100):
        emitter.emit(metric, {"eq": number}, shard_key="one")
    await emitter.stop(5)
    assert (emitter.emitted, emitter.failures) == (100, 0)
    assert len(await read_all_events(redis, metric)) == 100
    await redis.acl_deluser(metric.name)


async def test_the_time_in_the_fields_is_kept(redis_url: str, redis: Redis, metric: MetricDefinition) -> None:
    emitter = Emitter(redis_url, buffer=10)
    emitter.start()
    emitter.emit(metric, {"eq": 1, "t": 1_790_000_000_000})
    await emitter.stop(5)
    assert [fields[b"t"] for fields in await read_all_events(redis, metric)] == [b"1790000000000"]


async def test_a_full_buffer_drops_the_oldest_and_counts_it(
    redis_url: str, redis: Redis, metric: MetricDefinition
) -> None:
    emitter = Emitter(redis_url, buffer=10)
    for number in range(25):
        emitter.emit(metric, {"eq": number, "t": 1_790_000_000_000 + number}, shard_key="one")
    assert (emitter.pending, emitter.dropped) == (10, 15)
    emitter.start()
    await emitter.stop(5)
    assert await read_loss_reports(redis, metric) == [
        {"lost": 15, "since": 1_790_000_000_000, "t": 1_790_000_000_014}
    ]
    assert [int(fields[b"eq"]) for fields in await read_all_events(redis, metric)] == list(range(15, 25))
    assert (emitter.emitted, emitter.dropped) == (10, 15)


async def test_events_wait_for_an_unreachable_redis(open_tmp_path: Path, metric: MetricDefinition) -> None:
    server = Valkey(open_tmp_path, any_free_port())
    emitter = Emitter(server.url, buffer=4)
    emitter.start()
    for number in range(6):
        emitter.emit(metric, {"eq": number}, shard_key="one")
    await wait_until_async(lambda: _value(emitter.failures > 1), 10, "the emitter retries")
    assert emitter.pending == 4
    with running(server):
        await wait_until_async(lambda: _value(emitter.emitted == 4), 15, "the buffered events are written")
        async with Redis.from_url(server.url) as client:
            assert [int(f[b"eq"]) for f in await read_all_events(client, metric)] == [2, 3, 4, 5]
        await emitter.stop(5)
    assert emitter.dropped == 2


async def test_stop_without_redis_respects_its_timeout(metric: MetricDefinition) -> None:
    emitter = Emitter(f"redis://127.0.0.1:{any_free_port()}/0", buffer=10)
    emitter.start()
    emitter.emit(metric, {"eq": 1})
    started_s = asyncio.get_running_loop().time()
    await emitter.stop(0.3)
    await emitter.stop(0.3)
    assert asyncio.get_running_loop().time() - started_s < 2
    assert (emitter.pending, emitter.dropped) == (0, 1)
    emitter.emit(metric, {"eq": 1})
    assert emitter.dropped == 2


async def test_a_refused_event_does_not_affect_other_events(
    redis_url: str, redis: Redis, metric: MetricDefinition
) -> None:
    invalid_stream, valid_stream = metric.stream_keys
    await redis.set(invalid_stream, "not a stream")
    emitter = Emitter(redis_url, buffer=100)
    for number in range(6):
        emitter.emit(metric, {"eq": number, "queue": "\ud800 is no text"})
    emitter.start()
    await emitter.stop(5)
    assert await redis.xlen(valid_stream) == 3
    assert (emitter.emitted, emitter.dropped) == (3, 3)


async def test_refused_events_are_reported_once_redis_accepts_events_again(
    redis_url: str, redis: Redis, metric: MetricDefinition
) -> None:
    for key in metric.stream_keys:
        await redis.set(key, "not a stream")
    emitter = Emitter(redis_url, buffer=3)
    for number in range(5):
        emitter.emit(metric, {"eq": number, "t": 1_790_000_000_000 + number})
    emitter.start()
    await wait_until_async(lambda: _value(emitter.dropped == 5), 10, "all events are refused or dropped")
    await redis.delete(*metric.stream_keys)
    emitter.emit(metric, {"eq": 5, "t": 1_790_000_000_005})
    await emitter.stop(5)
    assert await read_loss_reports(redis, metric) == [
        {"lost": 5, "since": 1_790_000_000_000, "t": 1_790_000_000_004}
    ]
    assert (emitter.emitted, emitter.dropped) == (1, 5)


async def test_an_invalid_event_does_not_stop_emission(
    redis_url: str, redis: Redis, metric: MetricDefinition
) -> None:
    emitter = Emitter(redis_url, buffer=100)
    emitter.start()
    emitter.emit(metric, {"eq": 1}, shard_key=7)  # type: ignore[arg-type]
    await wait_until_async(
        lambda: _value(emitter.dropped == 1), 10, "the invalid event is counted as dropped"
    )
    emitter.emit(metric, {"eq": 2}, shard_key="one")
    await emitter.stop(5)
    assert [int(fields[b"eq"]) for fields in await read_all_events(redis, metric)] == [2]
    assert (emitter.emitted, emitter.dropped) == (1, 1)


async def test_a_refused_pack_counts_all_its_events(
    redis_url: str, redis: Redis, metric: MetricDefinition
) -> None:
    invalid_stream, valid_stream = metric.stream_keys
    await redis.set(invalid_stream, "not a stream")
    emitter = Emitter(redis_url, buffer=100)
    for number in range(60):
        emitter.emit(metric, {"eq": number})
    emitter.start()
    await emitter.stop(5)
    assert await redis.xlen(valid_stream) == 1
    assert (emitter.emitted, emitter.dropped) == (30, 30)


async def test_a_redis_key_switches_emission_for_all_processes(
    open_tmp_path: Path, metric: MetricDefinition, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Valkey(open_tmp_path, any_free_port())
    emitter = Emitter(server.url, buffer=100, switch_interval_s=0.02)
    with running(server):
        async with Redis.from_url(server.url) as client:
            emitter.start()
            emitter.emit(metric, {"eq": 1})
            await wait_until_async(lambda: _value(emitter.emitted == 1), 10, "emission is on by default")
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
            await wait_until_async(
                lambda: _value(not emitter.active), 10, "emission is off before Redis stops"
            )
    reads = 0
    connect = emitter.connect

    def count_reads() -> Redis:
        nonlocal reads
        reads += 1
        return connect()

    monkeypatch.setattr(emitter, "connect", count_reads)
    await wait_until_async(lambda: _value(reads > 1), 10, "the switch is read while Redis is unreachable")
    assert not emitter.active, "the switch keeps its value while Redis is unreachable"
    await emitter.stop(1)


async def test_a_disabled_emitter_does_nothing(redis_url: str, metric: MetricDefinition) -> None:
    emitter = Emitter(redis_url, buffer=10, enabled=False)
    emitter.start()
    emitter.emit(metric, {"eq": 1})
    assert (emitter.pending, emitter.dropped) == (0, 0)
    await emitter.stop(1)


@pytest.mark.parametrize("executed", [True, False], ids=["before the response", "before the request"])
async def test_a_batch_enters_once_when_the_connection_breaks(
    redis_url: str, redis: Redis, metric: MetricDefinition, executed: bool
) -> None:
    await redis.script_load(EMIT_SCRIPT)
    calls = 0

    def should_break(data: bytes) -> bool:
        nonlocal calls
        calls += b"EVALSHA" in data
        return b"EVALSHA" in data and calls == 1

    async with proxy(redis_url, should_break, forward_first=executed) as url:
        emitter = Emitter(url, buffer=100)
        emitter.start()
        for number in range(20):
            emitter.emit(metric, {"eq": number}, shard_key="one")
        await wait_until_async(lambda: _value(emitter.emitted == 20), 10, "the batch is written")
        await emitter.stop(5)
    assert emitter.failures >= 1
    assert [int(fields[b"eq"]) for fields in await read_all_events(redis, metric)] == list(range(20))


async def _value(value: bool) -> bool:
    return value


@asynccontextmanager
async def proxy(
    redis_url: str, should_break: Callable[[bytes], bool], *, forward_first: bool
) -> AsyncIterator[str]:
    """A proxy to Redis that breaks a connection at a chosen request, before or after Redis executes it."""
    url_parts = urlsplit(redis_url)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        redis_reader, redis_writer = await asyncio.open_connection(url_parts.hostname, url_parts.port)
        responses = asyncio.create_task(_forward(redis_reader, writer))
        while data := await reader.read(1 << 20):
            if should_break(data):
                responses.cancel()
                await asyncio.gather(responses, return_exceptions=True)
                if forward_first:
                    redis_writer.write(data)
                    await redis_writer.drain()
                    await redis_reader.read(1)
                break
            redis_writer.write(data)
        responses.cancel()
        for stream in (redis_writer, writer):
            stream.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 20)
    port = server.sockets[0].getsockname()[1]
    host = url_parts.netloc.rpartition(":")[0]
    async with server:
        yield urlunsplit(url_parts._replace(netloc=f"{host}:{port}"))


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 20):
        writer.write(data)
