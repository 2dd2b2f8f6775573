"""The sweep handles due tasks, and the repair restores sets and counts."""

from __future__ import annotations

import asyncio

from redis.asyncio import Redis

from penstock.model import Scope
from penstock.runqueue.keys import (
    KEY_PREFIXES,
    environment_name,
    queue_name,
    shard_of_environment,
    shard_prefix,
)
from penstock.runqueue.queue import RunQueues
from penstock.runqueue.sweeper import SweepIntervals
from penstock.runqueue.task_model import Nack, NewTask, TaskState
from tests.deadlines import deadline_s
from tests.waiting import wait_until_async


def key_of(scope: Scope, prefix_name: str, queue: str | None = None) -> str:
    name = environment_name(scope) if queue is None else queue_name(scope, queue)
    return shard_prefix(shard_of_environment(scope, 2)) + KEY_PREFIXES[prefix_name] + name


async def sweep_and_get_state(queues: RunQueues, scope: Scope, task_id: str) -> TaskState:
    await queues.sweep()
    return (await queues.get_task(scope, task_id)).state


async def test_a_task_whose_lease_expires_is_retried_and_then_dead(queues: RunQueues, scope: Scope) -> None:
    await queues.enqueue(scope, "mail", [NewTask(max_attempts=2)])
    await queues.set_queue_limit(scope, "mail", 1)
    [first] = await queues.dequeue(scope, "mail", visibility_ms=100, worker="worker 7")
    for expected in (TaskState.ELIGIBLE, TaskState.DEAD):

        async def is_in_state(expected: TaskState = expected) -> bool:
            return await sweep_and_get_state(queues, scope, first.id) is expected

        await wait_until_async(is_in_state, 5, f"the task is {expected}")
        assert (await queues.get_queue(scope, "mail")).running == 0, "its concurrency slot is free"
        if expected is TaskState.ELIGIBLE:
            [again] = await queues.dequeue(scope, "mail", visibility_ms=100, worker="worker 7")
            assert again.token > first.token
    task = await queues.get_task(scope, first.id)
    assert (task.error, task.attempts) == ("worker 7 did not answer in time", 2)


async def test_the_background_sweep_releases_an_expired_lease(live: RunQueues, scope: Scope) -> None:
    await live.enqueue(scope, "mail", [NewTask(b"letter")])
    [first] = await live.dequeue(scope, "mail", visibility_ms=100)
    [second] = await live.dequeue(scope, "mail", wait_ms=10_000)
    assert (second.id, second.attempt) == (first.id, 2)


async def test_concurrent_sweeps_handle_each_task_once(queues: RunQueues, scope: Scope) -> None:
    tasks = await queues.enqueue(scope, "mail", [NewTask(delay_ms=1)] * 300 + [NewTask(ttl_ms=1)] * 300)

    async def all_swept() -> bool:
        results = await asyncio.gather(*(queues.sweep() for _ in range(4)))
        totals["promoted"] += sum(result.promoted for result in results)
        totals["expired"] += sum(result.expired for result in results)
        return totals["promoted"] >= 300 and totals["expired"] >= 300

    totals = {"promoted": 0, "expired": 0}
    await wait_until_async(all_swept, 5, "all tasks are swept")
    state = await queues.get_queue(scope, "mail")
    assert (state.eligible, state.delayed) == (300, 0)
    assert len(await queues.dequeue(scope, "mail", limit=1_000)) == 300
    assert len(tasks) == 600


async def test_a_delayed_task_may_expire_before_it_is_eligible(queues: RunQueues, scope: Scope) -> None:
    await queues.enqueue(scope, "mail", [NewTask(delay_ms=60_000, ttl_ms=1)])

    async def is_expired() -> bool:
        await queues.sweep()
        return (await queues.get_queue(scope, "mail")).delayed == 0

    await wait_until_async(is_expired, 5, "the task expires")
    assert (await queues.get_environment(scope)).delayed == 0


async def test_a_timer_without_a_task_is_removed(queues: RunQueues, scope: Scope, redis: Redis) -> None:
    timers = shard_prefix(shard_of_environment(scope, 2)) + "timers"
    await redis.zadd(timers, {"gone-0": 1})
    await asyncio.wait_for(queues.sweep(), deadline_s(10))
    assert await redis.zscore(timers, "gone-0") is None


async def test_a_repair_changes_nothing_when_nothing_is_wrong(queues: RunQueues, scope: Scope) -> None:
    await create_tasks_in_every_state(queues, scope)
    assert await queues.repair() == 0


async def create_tasks_in_every_state(queues: RunQueues, scope: Scope) -> dict[TaskState, str]:
    await queues.enqueue(scope, "mail", [NewTask(b"dead")])
    [dead] = await queues.dequeue(scope, "mail")
    await queues.nack(scope, Nack(dead.lease, retry=False))
    await queues.enqueue(scope, "mail", [NewTask(b"running"), NewTask(b"eligible", priority=5)])
    [eligible, running] = await queues.dequeue(scope, "mail", limit=2)
    await queues.release(scope, [eligible.lease])
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
    ids = await create_tasks_in_every_state(queues, scope)
    before = await queues.get_queue(scope, "mail")
    for prefix_name in ("eligible_of", "delayed_of", "running_of", "dead_of"):
        assert await redis.delete(key_of(scope, prefix_name, "mail")) == 1
    await redis.delete(key_of(scope, "ring_of"))
    await redis.hset(key_of(scope, "environment_of"), mapping={"running": 7, "eligible": 9})
    await redis.zrem(shard_prefix(shard_of_environment(scope, 2)) + "timers", ids[TaskState.RUNNING])
    assert await queues.repair() == 5, "four tasks and the environment"
    after = await queues.get_queue(scope, "mail")
    assert (after.eligible, after.delayed, after.running, after.dead) == (1, 1, 1, 1)
    assert (before.eligible, before.delayed, before.running, before.dead) == (1, 1, 1, 1)
    environment = await queues.get_environment(scope)
    assert (environment.eligible, environment.delayed, environment.running) == (1, 1, 1)
    [task] = await queues.dequeue(scope)
    assert task.id == ids[TaskState.ELIGIBLE], "the queue is back in its ring"
    assert await queues.repair() == 0


async def test_a_limit_used_up_by_missing_tasks_is_freed(
    queues: RunQueues, scope: Scope, redis: Redis
) -> None:
    await queues.set_queue_limit(scope, "mail", 2)
    await queues.enqueue(scope, "mail", [NewTask()] * 2)
    await redis.sadd(key_of(scope, "running_of", "mail"), "gone-0", "also gone-0")
    assert await queues.dequeue(scope, "mail", limit=2) == []
    assert await queues.repair() == 2
    assert len(await queues.dequeue(scope, limit=2)) == 2


async def test_an_id_without_a_task_is_skipped(queues: RunQueues, scope: Scope, redis: Redis) -> None:
    await queues.enqueue(scope, "mail", [NewTask(b"real")])
    await redis.zadd(key_of(scope, "eligible_of", "mail"), {"gone-0": 1})
    [task] = await queues.dequeue(scope, "mail", limit=5)
    assert task.payload == b"real"
    assert await queues.repair() <= 1
    assert (await queues.get_queue(scope, "mail")).eligible == 0


async def test_one_process_at_a_time_repairs(redis_url: str) -> None:
    """The lock lasts until the next repair is due."""
    intervals = SweepIntervals(sweep_s=0.05)
    first, second = (RunQueues(redis_url, shards=1, sweep_intervals=intervals) for _ in range(2))
    scope = Scope("repaired")
    await first.enqueue(scope, "mail", [NewTask()])
    async with Redis.from_url(redis_url) as client:
        await client.hset(f"{shard_prefix(0)}environment:repaired/default/default", "running", 5)
        await first.start()
        await second.start()

        async def is_repaired() -> bool:
            return (await first.get_environment(scope)).running == 0

        await wait_until_async(is_repaired, 5, "the count is repaired")
        assert 0 < await client.pttl(shard_prefix(0) + "repairing") <= intervals.repair_s * 1000
    await first.stop()
    await second.stop()
