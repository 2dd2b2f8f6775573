"""What scripts tell the metrics: real numbers from inside the command, and never a failure of the command."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from penstock.definitions import ENABLED_KEY
from penstock.model import Scope
from penstock.runqueue import scripts, sweeper
from penstock.runqueue.keys import PER_NAME, queue_name, shard_of_environment, shard_prefix, stream_key
from penstock.runqueue.queue import RunQueues
from penstock.runqueue.task_model import Nack, NewTask
from tests.integration.runqueue.task_events import events, total
from tests.waiting import wait_until_async

OF_A_QUEUE = ("depth", "delayed", "running", "oldest_age_ms")
ALWAYS = (*OF_A_QUEUE, *(f"env_{name}" for name in OF_A_QUEUE))


async def last(redis: Redis, scope: Scope) -> Any:
    return (await events(redis, scope))[-1]


async def test_enqueue_tells_how_many_were_added(queues: RunQueues, scope: Scope, redis: Redis) -> None:
    keyed = NewTask(idempotency_key="k")
    await queues.enqueue(scope, "a:b/c%", [NewTask(), NewTask(delay_ms=60_000), keyed, keyed])
    [event] = await events(redis, scope)
    assert event.dimensions == (scope.organization, "shop", "production", "a:b/c%", "")
    assert event.counters == {"enqueued": 3}
    assert {name: event.gauges[name] for name in ALWAYS} == {
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


async def test_only_duplicates_tell_nothing(queues: RunQueues, scope: Scope, redis: Redis) -> None:
    for _ in range(2):
        await queues.enqueue(scope, "mail", [NewTask(idempotency_key="k")])
    assert len(await events(redis, scope)) == 1


async def test_dequeue_tells_how_many_started_and_how_long_each_waited(
    queues: RunQueues, scope: Scope, redis: Redis
) -> None:
    await queues.enqueue(scope, "mail", [NewTask(priority=n) for n in range(5)])
    tasks = await queues.dequeue(scope, "mail", limit=3)
    event = await last(redis, scope)
    assert event.counters == {"dequeued": 3}
    assert event.samples == {"wait_ms": tuple(task.started_ms - task.enqueued_ms for task in tasks)}
    assert (event.gauges["depth"], event.gauges["running"], event.gauges["env_running"]) == (2, 3, 3)


async def test_a_dequeue_that_finds_nothing_tells_the_gauges(
    queues: RunQueues, scope: Scope, redis: Redis
) -> None:
    await queues.enqueue(scope, "mail", [NewTask()])
    await queues.pause(scope, "mail")
    assert await queues.dequeue(scope, "mail") == []
    event = await last(redis, scope)
    assert (event.counters, event.samples, event.gauges["depth"]) == ({}, {}, 1)


async def test_ack_and_nack_tell_the_run_times(queues: RunQueues, scope: Scope, redis: Redis) -> None:
    await queues.enqueue(scope, "mail", [NewTask(), NewTask(), NewTask()])
    one, two, three = await queues.dequeue(scope, "mail", limit=3)
    await queues.ack_many(scope, [one.lease, one.lease])
    event = await last(redis, scope)
    assert (event.counters, len(event.samples["run_ms"])) == ({"acked": 1}, 1)
    assert event.gauges["running"] == 2
    await queues.nack_many(scope, [Nack(two.lease, delay_ms=0), Nack(three.lease, retry=False)])
    event = await last(redis, scope)
    assert (event.counters, len(event.samples["run_ms"])) == ({"nacked": 1, "dead": 1}, 2)
    assert (event.gauges["depth"], event.gauges["running"]) == (1, 0)


async def test_totals_are_the_sums_of_what_was_told_and_go_with_the_queue(
    queues: RunQueues, scope: Scope, redis: Redis
) -> None:
    names = ("enqueued", "dequeued", "acked", "nacked", "dead", "expired")
    await queues.enqueue(scope, "mail", [NewTask(b"1"), NewTask(b"2"), NewTask(b"3"), NewTask(ttl_ms=1)])

    async def expired() -> bool:
        await queues.sweep()
        return (await queues.queue(scope, "mail")).counted["expired"] == 1

    await wait_until_async(expired, 5, "the expiry is counted")
    one, two, three = await queues.dequeue(scope, "mail", limit=3)
    await queues.ack_many(scope, [one.lease, one.lease])
    await queues.nack_many(scope, [Nack(two.lease, delay_ms=60_000), Nack(three.lease, retry=False)])
    counted = (await queues.queue(scope, "mail")).counted
    assert counted == dict(zip(names, (4, 3, 1, 1, 1, 1), strict=True))
    assert counted == {name: total(await events(redis, scope), name) for name in names}
    await queues.enqueue(scope, "calls", [NewTask()])
    [task] = await queues.dequeue(scope, "calls")
    await queues.ack(scope, task.lease)
    await queues.delete_queue(scope, "calls")
    await queues.enqueue(scope, "calls", [NewTask()])
    assert (await queues.queue(scope, "calls")).counted == dict.fromkeys(names, 0) | {"enqueued": 1}


async def test_a_stale_ack_tells_nothing(queues: RunQueues, scope: Scope, redis: Redis) -> None:
    await queues.enqueue(scope, "mail", [NewTask()])
    [task] = await queues.dequeue(scope, "mail")
    await queues.nack(scope, Nack(task.lease, delay_ms=60_000))
    before = len(await events(redis, scope))
    await queues.ack_many(scope, [task.lease])
    assert len(await events(redis, scope)) == before


async def test_every_command_that_changes_a_gauge_tells_it(
    queues: RunQueues, scope: Scope, redis: Redis
) -> None:
    async def told(name: str, value: int) -> None:
        assert (await last(redis, scope)).gauges[name] == value

    await queues.enqueue(scope, "mail", [NewTask(ttl_ms=1)])

    async def expired() -> bool:
        await queues.sweep()
        return total(await events(redis, scope), "expired") == 1

    await wait_until_async(expired, 5, "the expiry is told")
    await told("depth", 0)
    await queues.set_queue_limit(scope, "mail", 3)
    await told("limit", 3)
    await queues.set_environment_limit(scope, 2, burst=2)
    await told("limit", 2)
    await told("env_limit", 4)
    await queues.set_environment_limit(scope, None)
    await told("env_limit", 0)
    await told("limit", 3)
    await queues.set_queue_limit(scope, "mail", None)
    await told("limit", 0)
    await queues.enqueue(scope, "mail", [NewTask()])
    [task] = await queues.dequeue(scope, "mail")
    await queues.give_back(scope, [task.lease])
    await told("depth", 1)
    await told("running", 0)
    [task] = await queues.dequeue(scope, "mail")
    await queues.nack(scope, Nack(task.lease, retry=False))
    await queues.redrive_all(scope, "mail")
    await told("depth", 1)
    await queues.pause(scope, "mail")
    await told("depth", 1)
    await queues.resume(scope, "mail")
    [task] = await queues.dequeue(scope, "mail", visibility_ms=100)
    await told("depth", 0)

    async def released() -> bool:
        await queues.sweep()
        return total(await events(redis, scope), "nacked") == 1

    await wait_until_async(released, 5, "the release is told")
    await told("depth", 1)
    await told("running", 0)


async def test_delayed_tasks_are_told_as_they_come_and_go(
    queues: RunQueues, scope: Scope, redis: Redis
) -> None:
    async def told(depth: int, delayed: int, env_delayed: int) -> bool:
        found = (await last(redis, scope)).gauges
        names = ("depth", "delayed", "env_delayed")
        return [found[name] for name in names] == [depth, delayed, env_delayed]

    later = NewTask(delay_ms=60_000)
    await queues.enqueue(scope, "calls", [later, later])
    await queues.enqueue(scope, "mail", [NewTask(), NewTask(delay_ms=60_000, ttl_ms=1), NewTask(delay_ms=1)])
    assert await told(1, 2, 4)

    async def swept() -> bool:
        await queues.sweep()
        return await told(2, 0, 2)

    await wait_until_async(swept, 5, "one task has become eligible and one has expired")
    [task, _] = await queues.dequeue(scope, "mail", limit=2)
    assert await told(0, 0, 2)
    await queues.nack(scope, Nack(task.lease, delay_ms=60_000))
    assert await told(0, 1, 3)
    state, environment = await queues.queue(scope, "mail"), await queues.environment(scope)
    assert (state.delayed, environment.delayed) == (1, 3)
    prefix = shard_prefix(shard_of_environment(scope, 2))
    await redis.delete(f"{prefix}{PER_NAME['delayed_of']}{queue_name(scope, 'calls')}")
    await queues.set_queue_limit(scope, "calls", 1)
    assert await told(0, 0, 3), "what a set does not hold is not told"
    await queues.repair()
    found = {event.dimensions[3]: event.gauges for event in await events(redis, scope)}
    assert {name: (of["delayed"], of["env_delayed"]) for name, of in found.items()} == {
        "calls": (2, 3),
        "mail": (1, 3),
    }


async def test_the_age_is_that_of_the_oldest_whatever_its_priority(
    queues: RunQueues, scope: Scope, redis: Redis
) -> None:
    await queues.enqueue(scope, "mail", [NewTask(b"old"), NewTask(delay_ms=60_000)])

    async def aged() -> bool:
        await queues.enqueue(scope, "mail", [NewTask(priority=9)])
        return bool((await last(redis, scope)).gauges["oldest_age_ms"] >= 100)

    await wait_until_async(aged, 5, "the age grows")
    assert (await queues.queue(scope, "mail")).oldest_age_ms >= 100
    await queues.dequeue(scope, "mail", limit=1_000)
    assert (await last(redis, scope)).gauges["oldest_age_ms"] == 0
    assert (await queues.queue(scope, "mail")).oldest_age_ms == 0


async def test_many_samples_are_split(queues: RunQueues, scope: Scope, redis: Redis) -> None:
    await queues.enqueue(scope, "mail", [NewTask()] * 1_000)
    tasks = await queues.dequeue(scope, "mail", limit=1_000)
    await queues.ack_many(scope, [task.lease for task in tasks])
    found = await events(redis, scope)
    assert [len(event.samples.get("wait_ms", ())) for event in found] == [0, 500, 500, 0, 0]
    assert [len(event.samples.get("run_ms", ())) for event in found] == [0, 0, 0, 500, 500]
    assert [total(found, name) for name in ("enqueued", "dequeued", "acked")] == [1_000] * 3


async def test_the_environments_gauges_are_sums_with_the_durable_queues(
    queues: RunQueues, scope: Scope, redis: Redis
) -> None:
    await queues.enqueue(scope, "mail", [NewTask()] * 3)
    await queues.dequeue(scope, "mail")
    [waiting] = [event for event in await events(redis, scope) if "enqueued" in event.counters]
    assert await queues.share_environment(scope, 40, 5, waiting.at_ms - 60_000) == (2, 1, waiting.at_ms)
    await queues.enqueue(scope, "calls", [NewTask()])
    event = await last(redis, scope)
    assert (event.gauges["env_depth"], event.gauges["env_running"]) == (43, 6)
    assert event.gauges["env_oldest_age_ms"] == event.at_ms - waiting.at_ms + 60_000
    assert (event.gauges["depth"], event.gauges["running"], event.gauges["oldest_age_ms"]) == (1, 0, 0)
    environment = await queues.environment(scope)
    assert (environment.eligible, environment.running) == (3, 1)
    await queues.share_environment(scope, 0, 0, None)
    await queues.dequeue(scope, "mail", limit=5)
    emptied = await last(redis, scope)
    assert (emptied.gauges["env_depth"], emptied.gauges["env_running"]) == (1, 3)
    assert emptied.gauges["env_oldest_age_ms"] == emptied.at_ms - event.at_ms, "that of the other queue"


async def test_a_stream_that_cannot_be_written_fails_no_command(redis_url: str, scope: Scope) -> None:
    """On a database of its own, where the stream's key holds something else."""
    url = redis_url.removesuffix("/0") + "/8"
    queues = RunQueues(url)
    async with Redis.from_url(url) as client:
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


async def test_a_stream_stays_about_as_long_as_it_may(redis_url: str, scope: Scope) -> None:
    """On a database of its own."""
    url = redis_url.removesuffix("/0") + "/12"
    queues = RunQueues(url)
    queues._scripts.emit_length = 200
    async with Redis.from_url(url) as client:
        for _ in range(150):
            await asyncio.gather(*(queues.enqueue(scope, f"mail {n}", [NewTask()]) for n in range(20)))
        stream = await client.xinfo_stream(stream_key(shard_of_environment(scope, 2)))
        assert stream["entries-added"] >= 3_000, "an event per queue and call"
        assert 100 <= stream["length"] < 2_000, stream
    await queues.stop()


async def test_the_helper_serves_other_scripts(redis: Redis) -> None:
    key = f"stream-{uuid4().hex}"
    helper = scripts.source("include", "emit")
    fields = '"text", "x", "number", 3, "flag", true, "part", 0.5'
    call = f"return emit(KEYS[1], ARGV[1], {{{fields}}}, true) and 1 or 0"
    assert await redis.eval(f"{helper}\n{call}", 1, key, "0") == 1
    assert await redis.exists(key) == 0, "0 means that nothing is emitted"
    assert await redis.eval(f"{helper}\n{call}", 1, key, "100") == 1
    [(_, event)] = await redis.xrange(key)
    assert event == {b"text": b"x", b"number": b"3", b"flag": b"true", b"part": b"0.5"}
    await redis.set(key, "not a stream")
    assert await redis.eval(f"{helper}\n{call}", 1, key, "100") == 0, "it says so and does not fail"
    await redis.delete(key)


async def test_nothing_is_emitted_when_metrics_are_off(redis_url: str, redis: Redis, scope: Scope) -> None:
    queues = RunQueues(redis_url, metrics_enabled=False)
    await queues.enqueue(scope, "mail", [NewTask()])
    [task] = await queues.dequeue(scope, "mail")
    await queues.ack(scope, task.lease)
    assert await events(redis, scope) == []
    await queues.stop()


async def test_emission_is_switched_off_for_all_processes_at_once(
    redis_url: str, scope: Scope, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeper, "LOOK_EVERY_S", 0.05)
    monkeypatch.setattr(sweeper, "LONGEST_PAUSE_S", 0.05)
    url = redis_url.removesuffix("/0") + "/13"
    queues = RunQueues(url)
    await queues.start()
    async with Redis.from_url(url) as client:
        for switch, emits in (("0", False), ("1", True)):
            await client.set(ENABLED_KEY, switch)

            async def as_switched(emits: bool = emits) -> bool:
                before = len(await events(client, scope))
                await queues.enqueue(scope, "mail", [NewTask()])
                return (len(await events(client, scope)) > before) == emits

            await wait_until_async(as_switched, 5, f"emission is {emits}")
    await queues.stop()
