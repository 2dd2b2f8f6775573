"""Metric events of the scripts: exact numbers, and a failure to emit never fails the command."""

from __future__ import annotations

import asyncio
from uuid import uuid4

from redis.asyncio import Redis

from penstock.definitions import ENABLED_KEY
from penstock.model import Scope
from penstock.runqueue import scripts
from penstock.runqueue.keys import KEY_PREFIXES, queue_name, shard_of_environment, shard_prefix, stream_key
from penstock.runqueue.queue import RunQueues
from penstock.runqueue.sweeper import SweepIntervals
from penstock.runqueue.task_model import Nack, NewTask
from penstock.streams.wire import Event
from tests.integration.runqueue.emitted_events import read_emitted_events, read_entries, sum_counter
from tests.waiting import wait_until_async

QUEUE_GAUGES = ("depth", "delayed", "running", "oldest_age_ms")
ALL_GAUGES = (*QUEUE_GAUGES, *(f"env_{name}" for name in QUEUE_GAUGES))


async def read_last_event(redis: Redis, scope: Scope) -> Event:
    return (await read_emitted_events(redis, scope))[-1]


async def test_enqueue_emits_the_number_of_tasks_added(queues: RunQueues, scope: Scope, redis: Redis) -> None:
    keyed = NewTask(idempotency_key="k")
    await queues.enqueue(scope, "a:b/c%", [NewTask(), NewTask(delay_ms=60_000), keyed, keyed])
    [event] = await read_emitted_events(redis, scope)
    assert event.dimensions == (scope.organization, "shop", "production", "a:b/c%", "")
    assert event.counters == {"enqueued": 3}
    assert {name: event.gauges[name] for name in ALL_GAUGES} == {
        "depth": 2,
        "delayed": 1,
        "running": 0,
        "oldest_age_ms": 0,
        "env_depth": 2,
        "env_delayed": 1,
        "env_running": 0,
        "env_oldest_age_ms": 0,
    }
    assert event.samples == {}


async def test_an_enqueue_of_only_duplicates_emits_nothing(
    queues: RunQueues, scope: Scope, redis: Redis
) -> None:
    for _ in range(2):
        await queues.enqueue(scope, "mail", [NewTask(idempotency_key="k")])
    assert len(await read_emitted_events(redis, scope)) == 1


async def test_dequeue_emits_the_number_started_and_the_wait_times(
    queues: RunQueues, scope: Scope, redis: Redis
) -> None:
    await queues.enqueue(scope, "mail", [NewTask(priority=n) for n in range(5)])
    tasks = await queues.dequeue(scope, "mail", limit=3)
    event = await read_last_event(redis, scope)
    assert event.counters == {"dequeued": 3}
    assert event.samples == {"wait_ms": tuple(task.started_ms - task.enqueued_ms for task in tasks)}
    assert (event.gauges["depth"], event.gauges["running"], event.gauges["env_running"]) == (2, 3, 3)


async def test_an_empty_dequeue_emits_the_gauges(queues: RunQueues, scope: Scope, redis: Redis) -> None:
    await queues.enqueue(scope, "mail", [NewTask()])
    await queues.pause(scope, "mail")
    assert await queues.dequeue(scope, "mail") == []
    event = await read_last_event(redis, scope)
    assert (event.counters, event.samples, event.gauges["depth"]) == ({}, {}, 1)


async def test_ack_and_nack_emit_the_run_times(queues: RunQueues, scope: Scope, redis: Redis) -> None:
    await queues.enqueue(scope, "mail", [NewTask(), NewTask(), NewTask()])
    first, second, third = await queues.dequeue(scope, "mail", limit=3)
    await queues.ack_many(scope, [first.lease, first.lease])
    event = await read_last_event(redis, scope)
    assert (event.counters, len(event.samples["run_ms"])) == ({"acked": 1}, 1)
    assert event.gauges["running"] == 2
    await queues.nack_many(scope, [Nack(second.lease, delay_ms=0), Nack(third.lease, retry=False)])
    event = await read_last_event(redis, scope)
    assert (event.counters, len(event.samples["run_ms"])) == ({"nacked": 1, "dead": 1}, 2)
    assert (event.gauges["depth"], event.gauges["running"]) == (1, 0)


async def test_totals_are_the_sums_of_the_events_and_are_deleted_with_the_queue(
    queues: RunQueues, scope: Scope, redis: Redis
) -> None:
    names = ("enqueued", "dequeued", "acked", "nacked", "dead", "expired", "released")
    await queues.enqueue(scope, "mail", [NewTask(b"1"), NewTask(b"2"), NewTask(b"3"), NewTask(ttl_ms=1)])

    async def expired() -> bool:
        await queues.sweep()
        return (await queues.get_queue(scope, "mail")).totals["expired"] == 1

    await wait_until_async(expired, 5, "the expiry is counted")
    first, second, third = await queues.dequeue(scope, "mail", limit=3)
    await queues.ack_many(scope, [first.lease, first.lease])
    await queues.nack_many(scope, [Nack(second.lease, delay_ms=60_000), Nack(third.lease, retry=False)])
    totals = (await queues.get_queue(scope, "mail")).totals
    assert totals == dict(zip(names, (4, 3, 1, 1, 1, 1, 0), strict=True))
    events = await read_emitted_events(redis, scope)
    assert totals == {name: sum_counter(events, name) for name in names}
    await queues.enqueue(scope, "calls", [NewTask()])
    [task] = await queues.dequeue(scope, "calls")
    await queues.ack(scope, task.lease)
    await queues.delete_queue(scope, "calls")
    await queues.enqueue(scope, "calls", [NewTask()])
    assert (await queues.get_queue(scope, "calls")).totals == dict.fromkeys(names, 0) | {"enqueued": 1}


async def test_a_stale_ack_emits_nothing(queues: RunQueues, scope: Scope, redis: Redis) -> None:
    await queues.enqueue(scope, "mail", [NewTask()])
    [task] = await queues.dequeue(scope, "mail")
    await queues.nack(scope, Nack(task.lease, delay_ms=60_000))
    before = len(await read_emitted_events(redis, scope))
    await queues.ack_many(scope, [task.lease])
    assert len(await read_emitted_events(redis, scope)) == before


async def test_every_command_that_changes_a_gauge_emits_it(
    queues: RunQueues, scope: Scope, redis: Redis
) -> None:
    async def assert_gauge(name: str, value: int) -> None:
        assert (await read_last_event(redis, scope)).gauges[name] == value

    await queues.enqueue(scope, "mail", [NewTask(ttl_ms=1)])

    async def expired() -> bool:
        await queues.sweep()
        return sum_counter(await read_emitted_events(redis, scope), "expired") == 1

    await wait_until_async(expired, 5, "the expiry is emitted")
    await assert_gauge("depth", 0)
    await queues.set_queue_limit(scope, "mail", 3)
    await assert_gauge("limit", 3)
    await queues.set_environment_limit(scope, 2, burst=2)
    await assert_gauge("limit", 2)
    await assert_gauge("env_limit", 4)
    await queues.set_environment_limit(scope, None)
    await assert_gauge("env_limit", 0)
    await assert_gauge("limit", 3)
    await queues.set_queue_limit(scope, "mail", None)
    await assert_gauge("limit", 0)
    await queues.enqueue(scope, "mail", [NewTask()])
    [task] = await queues.dequeue(scope, "mail")
    await queues.release(scope, [task.lease])
    await assert_gauge("depth", 1)
    await assert_gauge("running", 0)
    [task] = await queues.dequeue(scope, "mail")
    await queues.nack(scope, Nack(task.lease, retry=False))
    await queues.redrive_all(scope, "mail")
    await assert_gauge("depth", 1)
    await queues.pause(scope, "mail")
    await assert_gauge("depth", 1)
    await queues.resume(scope, "mail")
    [task] = await queues.dequeue(scope, "mail", visibility_ms=100)
    await assert_gauge("depth", 0)

    async def released() -> bool:
        await queues.sweep()
        return sum_counter(await read_emitted_events(redis, scope), "nacked") == 1

    await wait_until_async(released, 5, "the release is emitted")
    await assert_gauge("depth", 1)
    await assert_gauge("running", 0)


async def test_the_number_of_delayed_tasks_is_emitted_with_every_change(
    queues: RunQueues, scope: Scope, redis: Redis
) -> None:
    async def gauges_are(depth: int, delayed: int, env_delayed: int) -> bool:
        gauges = (await read_last_event(redis, scope)).gauges
        names = ("depth", "delayed", "env_delayed")
        return [gauges[name] for name in names] == [depth, delayed, env_delayed]

    delayed_task = NewTask(delay_ms=60_000)
    await queues.enqueue(scope, "calls", [delayed_task, delayed_task])
    await queues.enqueue(scope, "mail", [NewTask(), NewTask(delay_ms=60_000, ttl_ms=1), NewTask(delay_ms=1)])
    assert await gauges_are(1, 2, 4)

    async def swept() -> bool:
        await queues.sweep()
        return await gauges_are(2, 0, 2)

    await wait_until_async(swept, 5, "one task has become eligible and one has expired")
    [task, _] = await queues.dequeue(scope, "mail", limit=2)
    assert await gauges_are(0, 0, 2)
    await queues.nack(scope, Nack(task.lease, delay_ms=60_000))
    assert await gauges_are(0, 1, 3)
    state, environment = await queues.get_queue(scope, "mail"), await queues.get_environment(scope)
    assert (state.delayed, environment.delayed) == (1, 3)
    prefix = shard_prefix(shard_of_environment(scope, 2))
    await redis.delete(f"{prefix}{KEY_PREFIXES['delayed_of']}{queue_name(scope, 'calls')}")
    await queues.set_queue_limit(scope, "calls", 1)
    assert await gauges_are(0, 0, 3), "a task missing in the set is not counted"
    await queues.repair()
    last_gauges = {event.dimensions[3]: event.gauges for event in await read_emitted_events(redis, scope)}
    assert {name: (gauges["delayed"], gauges["env_delayed"]) for name, gauges in last_gauges.items()} == {
        "calls": (2, 3),
        "mail": (1, 3),
    }


async def test_the_age_is_that_of_the_oldest_task_of_any_priority(
    queues: RunQueues, scope: Scope, redis: Redis
) -> None:
    await queues.enqueue(scope, "mail", [NewTask(b"old"), NewTask(delay_ms=60_000)])

    async def is_old() -> bool:
        await queues.enqueue(scope, "mail", [NewTask(priority=9)])
        return bool((await read_last_event(redis, scope)).gauges["oldest_age_ms"] >= 100)

    await wait_until_async(is_old, 5, "the age grows")
    assert (await queues.get_queue(scope, "mail")).oldest_age_ms >= 100
    await queues.dequeue(scope, "mail", limit=1_000)
    assert (await read_last_event(redis, scope)).gauges["oldest_age_ms"] == 0
    assert (await queues.get_queue(scope, "mail")).oldest_age_ms == 0


async def test_many_samples_are_split(queues: RunQueues, scope: Scope, redis: Redis) -> None:
    await queues.enqueue(scope, "mail", [NewTask()] * 1_000)
    tasks = await queues.dequeue(scope, "mail", limit=1_000)
    await queues.ack_many(scope, [task.lease for task in tasks])
    events = await read_emitted_events(redis, scope)
    assert [len(event.samples.get("wait_ms", ())) for event in events] == [0, 500, 500, 0, 0]
    assert [len(event.samples.get("run_ms", ())) for event in events] == [0, 0, 0, 500, 500]
    assert [sum_counter(events, name) for name in ("enqueued", "dequeued", "acked")] == [1_000] * 3


async def test_the_gauges_of_the_environment_include_the_durable_queues(
    queues: RunQueues, scope: Scope, redis: Redis
) -> None:
    await queues.enqueue(scope, "mail", [NewTask()] * 3)
    await queues.dequeue(scope, "mail")
    [waiting] = [event for event in await read_emitted_events(redis, scope) if "enqueued" in event.counters]
    assert await queues.exchange_environment_gauges(scope, 40, 5, waiting.at_ms - 60_000) == (
        2,
        1,
        waiting.at_ms,
    )
    await queues.enqueue(scope, "calls", [NewTask()])
    event = await read_last_event(redis, scope)
    assert (event.gauges["env_depth"], event.gauges["env_running"]) == (43, 6)
    assert event.gauges["env_oldest_age_ms"] == event.at_ms - waiting.at_ms + 60_000
    assert (event.gauges["depth"], event.gauges["running"], event.gauges["oldest_age_ms"]) == (1, 0, 0)
    environment = await queues.get_environment(scope)
    assert (environment.eligible, environment.running) == (3, 1)
    await queues.exchange_environment_gauges(scope, 0, 0, None)
    await queues.dequeue(scope, "mail", limit=5)
    emptied = await read_last_event(redis, scope)
    assert (emptied.gauges["env_depth"], emptied.gauges["env_running"]) == (1, 3)
    assert emptied.gauges["env_oldest_age_ms"] == emptied.at_ms - event.at_ms, "the age of the other queue"


async def test_a_stream_that_cannot_be_written_does_not_fail_a_command(redis_url: str, scope: Scope) -> None:
    """The key of the stream holds a string."""
    queues = RunQueues(redis_url)
    async with Redis.from_url(redis_url) as client:
        await client.set(stream_key(shard_of_environment(scope, 2)), "not a stream")
        await queues.enqueue(scope, "mail", [NewTask()])
        [task] = await queues.dequeue(scope, "mail")
        await queues.nack(scope, Nack(task.lease, delay_ms=0))
        [task] = await queues.dequeue(scope, "mail")
        await queues.ack(scope, task.lease)
        await queues.set_queue_limit(scope, "mail", 1)
        await queues.sweep()
        assert await queues.repair() == 0
        assert await client.get(stream_key(shard_of_environment(scope, 2))) == b"not a stream"
    await queues.stop()


async def test_a_stream_is_trimmed_to_about_its_maximum_length(redis_url: str, scope: Scope) -> None:
    queues = RunQueues(redis_url)
    queues._scripts.emit_length = 200
    async with Redis.from_url(redis_url) as client:
        for _ in range(150):
            await asyncio.gather(*(queues.enqueue(scope, f"mail {n}", [NewTask()]) for n in range(20)))
        stream = await client.xinfo_stream(stream_key(shard_of_environment(scope, 2)))
        assert stream["entries-added"] >= 3_000, "an event per queue and call"
        assert 100 <= stream["length"] < 2_000, stream
    await queues.stop()


async def test_the_emit_include_works_in_other_scripts(redis: Redis) -> None:
    key = f"stream-{uuid4().hex}"
    include = scripts.read_source("include", "emit")
    fields = '"text", "x", "number", 3, "flag", true, "part", 0.5'
    call = f"return emit(KEYS[1], ARGV[1], {{{fields}}}, true) and 1 or 0"
    assert await redis.eval(f"{include}\n{call}", 1, key, "0") == 1
    assert await redis.exists(key) == 0, "0 emits nothing"
    assert await redis.eval(f"{include}\n{call}", 1, key, "100") == 1
    [(_, event)] = await read_entries(redis, key)
    assert event == {b"text": b"x", b"number": b"3", b"flag": b"true", b"part": b"0.5"}
    await redis.set(key, "not a stream")
    assert await redis.eval(f"{include}\n{call}", 1, key, "100") == 0, (
        "a failure is returned and does not fail the script"
    )
    await redis.delete(key)


async def test_nothing_is_emitted_when_metrics_are_off(redis_url: str, redis: Redis, scope: Scope) -> None:
    queues = RunQueues(redis_url, metrics_enabled=False)
    await queues.enqueue(scope, "mail", [NewTask()])
    [task] = await queues.dequeue(scope, "mail")
    await queues.ack(scope, task.lease)
    assert await read_emitted_events(redis, scope) == []
    await queues.stop()


async def test_emission_can_be_switched_off_for_all_processes(redis_url: str, scope: Scope) -> None:
    queues = RunQueues(redis_url, sweep_intervals=SweepIntervals(sweep_s=0.05, shared_s=0.05))
    await queues.start()
    async with Redis.from_url(redis_url) as client:
        for switch, emits in (("0", False), ("1", True)):
            await client.set(ENABLED_KEY, switch)

            async def emits_as_switched(emits: bool = emits) -> bool:
                before = len(await read_emitted_events(client, scope))
                await queues.enqueue(scope, "mail", [NewTask()])
                return (len(await read_emitted_events(client, scope)) > before) == emits

            await wait_until_async(emits_as_switched, 5, f"emission is {emits}")
    await queues.stop()
