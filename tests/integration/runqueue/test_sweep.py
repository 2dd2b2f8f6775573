"""The sweep and the repair: what the clock does to tasks, and counts that never leak."""

from __future__ import annotations

import asyncio

import pytest
from redis.asyncio import Redis

from penstock.model import Scope
from penstock.runqueue import sweeper
from penstock.runqueue.keys import PER_NAME, environment_name, queue_name, shard_of_environment, shard_prefix
from penstock.runqueue.queue import RunQueues
from penstock.runqueue.task_model import Nack, NewTask, TaskState
from tests.waiting import wait_until_async


def key(scope: Scope, kind: str, queue: str | None = None) -> str:
    name = environment_name(scope) if queue is None else queue_name(scope, queue)
    return shard_prefix(shard_of_environment(scope, 2)) + PER_NAME[kind] + name


async def state_of(queues: RunQueues, scope: Scope, task_id: str) -> TaskState:
    await queues.sweep()
    return (await queues.task(scope, task_id)).state


async def test_a_task_of_a_vanished_worker_is_tried_again_and_then_dies(
    queues: RunQueues, scope: Scope
) -> None:
    await queues.enqueue(scope, "mail", [NewTask(max_attempts=2)])
    await queues.set_queue_limit(scope, "mail", 1)
    [first] = await queues.dequeue(scope, "mail", visibility_ms=100, worker="worker 7")
    for wanted in (TaskState.ELIGIBLE, TaskState.DEAD):

        async def reached(wanted: TaskState = wanted) -> bool:
            return await state_of(queues, scope, first.id) is wanted

        await wait_until_async(reached, 5, f"the task is {wanted}")
        assert (await queues.queue(scope, "mail")).running == 0, "its place is free"
        if wanted is TaskState.ELIGIBLE:
            [again] = await queues.dequeue(scope, "mail", visibility_ms=100, worker="worker 7")
            assert again.token > first.token
    task = await queues.task(scope, first.id)
    assert (task.error, task.attempts) == ("worker 7 did not answer in time", 2)


async def test_the_background_does_the_same(live: RunQueues, scope: Scope) -> None:
    await live.enqueue(scope, "mail", [NewTask(b"letter")])
    [first] = await live.dequeue(scope, "mail", visibility_ms=100)
    [second] = await live.dequeue(scope, "mail", wait_ms=10_000)
    assert (second.id, second.attempt) == (first.id, 2)


async def test_sweeping_twice_or_at_the_same_moment_is_harmless(queues: RunQueues, scope: Scope) -> None:
    tasks = await queues.enqueue(scope, "mail", [NewTask(delay_ms=1)] * 300 + [NewTask(ttl_ms=1)] * 300)

    async def due() -> bool:
        swept = await asyncio.gather(*(queues.sweep() for _ in range(4)))
        seen["promoted"] += sum(one.promoted for one in swept)
        seen["expired"] += sum(one.expired for one in swept)
        return seen["promoted"] >= 300 and seen["expired"] >= 300

    seen = {"promoted": 0, "expired": 0}
    await wait_until_async(due, 5, "all are swept")
    state = await queues.queue(scope, "mail")
    assert (state.eligible, state.delayed) == (300, 0)
    assert len(await queues.dequeue(scope, "mail", limit=1_000)) == 300
    assert len(tasks) == 600


async def test_a_delayed_task_may_expire_first(queues: RunQueues, scope: Scope) -> None:
    await queues.enqueue(scope, "mail", [NewTask(delay_ms=60_000, ttl_ms=1)])

    async def gone() -> bool:
        await queues.sweep()
        return (await queues.queue(scope, "mail")).delayed == 0

    await wait_until_async(gone, 5, "it expires")
    assert (await queues.environment(scope)).delayed == 0


async def test_a_timer_without_a_task_is_removed(queues: RunQueues, scope: Scope, redis: Redis) -> None:
    timers = shard_prefix(shard_of_environment(scope, 2)) + "timers"
    await redis.zadd(timers, {"gone-0": 1})
    await asyncio.wait_for(queues.sweep(), 10)
    assert await redis.zscore(timers, "gone-0") is None


async def test_nothing_is_put_right_where_nothing_is_wrong(queues: RunQueues, scope: Scope) -> None:
    await every_state(queues, scope)
    assert await queues.repair() == 0


async def every_state(queues: RunQueues, scope: Scope) -> dict[TaskState, str]:
    await queues.enqueue(scope, "mail", [NewTask(b"dead")])
    [dead] = await queues.dequeue(scope, "mail")
    await queues.nack(scope, Nack(dead.lease, retry=False))
    await queues.enqueue(scope, "mail", [NewTask(b"running"), NewTask(b"eligible", priority=5)])
    [eligible, running] = await queues.dequeue(scope, "mail", limit=2)
    await queues.give_back(scope, [eligible.lease])
    [delayed] = await queues.enqueue(scope, "mail", [NewTask(delay_ms=60_000)])
    return {
        TaskState.DEAD: dead.id,
        TaskState.RUNNING: running.id,
        TaskState.ELIGIBLE: eligible.id,
        TaskState.DELAYED: delayed.id,
    }


async def test_lost_sets_and_counts_are_restored_from_the_tasks(
    queues: RunQueues, scope: Scope, redis: Redis
) -> None:
    ids = await every_state(queues, scope)
    before = await queues.queue(scope, "mail")
    for kind in ("eligible_of", "delayed_of", "running_of", "dead_of"):
        assert await redis.delete(key(scope, kind, "mail")) == 1
    await redis.delete(key(scope, "ring_of"))
    await redis.hset(key(scope, "environment_of"), mapping={"running": 7, "eligible": 9})
    await redis.zrem(shard_prefix(shard_of_environment(scope, 2)) + "timers", ids[TaskState.RUNNING])
    assert await queues.repair() == 5, "four tasks and the environment"
    after = await queues.queue(scope, "mail")
    assert (after.eligible, after.delayed, after.running, after.dead) == (1, 1, 1, 1)
    assert (before.eligible, before.delayed, before.running, before.dead) == (1, 1, 1, 1)
    environment = await queues.environment(scope)
    assert (environment.eligible, environment.delayed, environment.running) == (1, 1, 1)
    [task] = await queues.dequeue(scope)
    assert task.id == ids[TaskState.ELIGIBLE], "the queue is in its ring again"
    assert await queues.repair() == 0


async def test_a_limit_taken_up_by_nothing_is_freed(queues: RunQueues, scope: Scope, redis: Redis) -> None:
    await queues.set_queue_limit(scope, "mail", 2)
    await queues.enqueue(scope, "mail", [NewTask()] * 2)
    await redis.sadd(key(scope, "running_of", "mail"), "gone-0", "also gone-0")
    assert await queues.dequeue(scope, "mail", limit=2) == []
    assert await queues.repair() == 2
    assert len(await queues.dequeue(scope, limit=2)) == 2


async def test_a_place_without_a_task_is_passed_over(queues: RunQueues, scope: Scope, redis: Redis) -> None:
    await queues.enqueue(scope, "mail", [NewTask(b"real")])
    await redis.zadd(key(scope, "eligible_of", "mail"), {"gone-0": 1})
    [task] = await queues.dequeue(scope, "mail", limit=5)
    assert task.payload == b"real"
    assert await queues.repair() <= 1
    assert (await queues.queue(scope, "mail")).eligible == 0


async def test_one_process_at_a_time_repairs(
    redis_url: str, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a database of its own: the lock lasts until the next repair is due."""
    monkeypatch.setattr(sweeper, "LONGEST_PAUSE_S", 0.05)
    url = redis_url.removesuffix("/0") + "/7"
    first, second = RunQueues(url, shards=1), RunQueues(url, shards=1)
    scope = Scope("repaired")
    await first.enqueue(scope, "mail", [NewTask()])
    async with Redis.from_url(url) as client:
        await client.hset(f"{shard_prefix(0)}environment:repaired/default/default", "running", 5)
        await first.start()
        await second.start()

        async def repaired() -> bool:
            return (await first.environment(scope)).running == 0

        await wait_until_async(repaired, 5, "the count is right")
        assert 0 < await client.pttl(shard_prefix(0) + "repairing") <= sweeper.REPAIR_EVERY_S * 1000
    await first.stop()
    await second.stop()
