"""Dequeue: concurrency limits, fair turns, and waiting for a task."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import cast

import pytest
from redis.asyncio import Redis

from penstock.errors import InvalidRequest
from penstock.model import Scope
from penstock.runqueue.keys import KEY_PREFIXES, environment_name, shard_of_environment, shard_prefix
from penstock.runqueue.queue import RunQueues
from penstock.runqueue.task_model import NewTask, TaskChange, TaskState
from tests.deadlines import deadline_s
from tests.waiting import wait_until_async


async def fill(queues: RunQueues, scope: Scope, queue: str, tasks: int) -> None:
    await queues.enqueue(scope, queue, [NewTask(f"{queue} {n}".encode()) for n in range(tasks)])


async def test_an_empty_or_unknown_queue_returns_nothing_and_is_not_created(
    queues: RunQueues, scope: Scope
) -> None:
    assert await queues.dequeue(scope, "mail") == []
    assert await queues.dequeue(scope) == []
    assert await queues.list_queues(scope) == []


async def test_a_queue_runs_at_most_its_limit(queues: RunQueues, scope: Scope) -> None:
    await queues.set_queue_limit(scope, "mail", 3)
    await fill(queues, scope, "mail", 10)
    running = await queues.dequeue(scope, "mail", limit=10)
    assert len(running) == 3
    assert await queues.dequeue(scope, "mail", limit=10) == []
    await queues.ack(scope, running[0].lease)
    assert len(await queues.dequeue(scope, limit=10)) == 1
    await queues.set_queue_limit(scope, "mail", None)
    assert len(await queues.dequeue(scope, limit=10)) == 6


async def test_all_queues_together_run_at_most_the_limit_times_burst(queues: RunQueues, scope: Scope) -> None:
    await queues.set_environment_limit(scope, 4, burst=1.5)
    for queue in ("a", "b", "c"):
        await fill(queues, scope, queue, 10)
    assert len(await queues.dequeue(scope, "a", limit=10)) == 4, "a single queue does not use the burst"
    rest = await queues.dequeue(scope, limit=10)
    assert len(rest) == 2
    assert await queues.dequeue(scope, "b", limit=10) == []
    await queues.ack_many(scope, [task.lease for task in rest])
    assert len(await queues.dequeue(scope, limit=10)) == 2
    await queues.set_environment_limit(scope, None)
    assert len(await queues.dequeue(scope, limit=30)) == 22


async def test_a_paused_queue_starts_no_task_until_it_is_resumed(queues: RunQueues, scope: Scope) -> None:
    await fill(queues, scope, "mail", 2)
    assert (await queues.pause(scope, "mail")).paused
    assert await queues.dequeue(scope, "mail") == []
    assert await queues.dequeue(scope) == []
    assert not (await queues.resume(scope, "mail")).paused
    assert len(await queues.dequeue(scope, limit=2)) == 2


async def test_a_full_paused_or_empty_queue_is_in_no_ring(
    queues: RunQueues, scope: Scope, redis: Redis
) -> None:
    shard = shard_of_environment(scope, 2)
    ring = shard_prefix(shard) + KEY_PREFIXES["ring_of"] + environment_name(scope)
    ready = shard_prefix(shard) + "ready"
    for queue in ("full", "paused", "empty", "ready"):
        await fill(queues, scope, queue, 2)
    assert await redis.zcard(ring) == 4
    await queues.pause(scope, "paused")
    await queues.set_queue_limit(scope, "full", 1)
    [running] = await queues.dequeue(scope, "full", limit=2)
    assert len(await queues.dequeue(scope, "empty", limit=2)) == 2
    assert await queue_names(redis, ring) == ["ready"]
    assert await redis.zscore(ready, environment_name(scope)) is not None
    assert len(await queues.dequeue(scope, "ready", limit=2)) == 2
    assert await redis.exists(ring) == 0
    assert await redis.zscore(ready, environment_name(scope)) is None
    await queues.ack(scope, running.lease)
    assert await queue_names(redis, ring) == ["full"]


async def test_queues_of_an_environment_take_turns(queues: RunQueues, scope: Scope) -> None:
    await fill(queues, scope, "noisy", 1_000)
    for queue in ("a", "b", "c"):
        await fill(queues, scope, queue, 10)
    for _ in range(10):
        tasks = await queues.dequeue(scope, limit=4)
        assert sorted(task.queue for task in tasks) == ["a", "b", "c", "noisy"]
    assert [task.queue for task in await queues.dequeue(scope, limit=5)] == ["noisy"] * 5


async def test_a_large_request_is_shared_among_few_queues(queues: RunQueues, scope: Scope) -> None:
    await fill(queues, scope, "a", 100)
    await fill(queues, scope, "b", 3)
    tasks = await queues.dequeue(scope, limit=20)
    assert Counter(task.queue for task in tasks) == {"a": 17, "b": 3}


async def test_a_noisy_environment_does_not_starve_the_others(redis_url: str) -> None:
    queues = RunQueues(redis_url, shards=1)
    try:
        noisy = Scope("noisy")
        others = [Scope(f"quiet {n}") for n in range(5)]
        await fill(queues, noisy, "flood", 2_000)
        for queue in range(20):
            await fill(queues, noisy, f"flood {queue}", 50)
        for scope in others:
            await fill(queues, scope, "work", 10)
        served: Counter[str] = Counter()
        for _ in range(60):
            [task] = await queues.dequeue(None)
            served[task.scope.organization] += 1
        assert served == {"noisy": 10, **{scope.organization: 10 for scope in others}}
    finally:
        await queues.stop()


async def test_a_queue_without_its_environment_is_refused(queues: RunQueues) -> None:
    with pytest.raises(InvalidRequest, match="Pass both"):
        await queues.dequeue(None, "mail")


@pytest.mark.parametrize("wrong", [{"limit": 0}, {"limit": 1_001}, {"visibility_ms": 99}, {"wait_ms": -1}])
async def test_numbers_out_of_range_are_refused(
    queues: RunQueues, scope: Scope, wrong: dict[str, int]
) -> None:
    with pytest.raises(InvalidRequest, match="whole number from"):
        await queues.dequeue(scope, "mail", **wrong)  # type: ignore[arg-type]


async def test_a_waiting_dequeue_is_woken_by_a_new_task(
    live: RunQueues, scope: Scope, redis_url: str
) -> None:
    """Also by a task of another process: the second object has no access to the first."""
    other = RunQueues(redis_url)
    queue_dequeue = asyncio.create_task(live.dequeue(scope, "mail", wait_ms=20_000))
    any_dequeue = asyncio.create_task(live.dequeue(scope, wait_ms=20_000))
    await wait_until_async(lambda: _value(live.waiting_dequeues == 2), 5, "both dequeues wait")
    await fill(other, scope, "mail", 2)
    taken = await asyncio.wait_for(asyncio.gather(queue_dequeue, any_dequeue), deadline_s(10))
    assert sorted(task.payload for tasks in taken for task in tasks) == [b"mail 0", b"mail 1"]
    await other.stop()


async def test_one_batch_serves_all_waiting_dequeues(live: RunQueues, scope: Scope) -> None:
    waiting = [asyncio.create_task(live.dequeue(scope, "mail", wait_ms=20_000)) for _ in range(50)]
    await wait_until_async(lambda: _value(live.waiting_dequeues == 50), 5, "all dequeues wait")
    await fill(live, scope, "mail", 50)
    taken = await asyncio.wait_for(asyncio.gather(*waiting), deadline_s(10))
    assert len({task.id for tasks in taken for task in tasks}) == 50


@pytest.mark.parametrize("change", ["ack_in_queue", "ack_in_environment", "resume", "raise_limit"])
async def test_a_waiting_dequeue_is_woken_when_a_slot_is_free(
    live: RunQueues, scope: Scope, change: str
) -> None:
    await fill(live, scope, "mail", 2)
    if change == "ack_in_queue":
        await live.set_queue_limit(scope, "mail", 1)
    elif change == "resume":
        await live.pause(scope, "mail")
    else:
        await live.set_environment_limit(scope, 1)
    first = await live.dequeue(scope, "mail")
    waiting = asyncio.create_task(live.dequeue(scope, "mail", wait_ms=20_000))
    await wait_until_async(lambda: _value(live.waiting_dequeues == 1), 5, "the dequeue waits")
    if change == "resume":
        await live.resume(scope, "mail")
    elif change == "raise_limit":
        await live.set_environment_limit(scope, 2)
    else:
        await live.ack(scope, first[0].lease)
    [task] = await asyncio.wait_for(waiting, deadline_s(10))
    assert task.payload == (b"mail 0" if change == "resume" else b"mail 1")


async def test_large_payloads_are_split_over_several_waiting_dequeues(live: RunQueues, scope: Scope) -> None:
    waiting = [asyncio.create_task(live.dequeue(scope, "mail", limit=50, wait_ms=20_000)) for _ in range(4)]
    await wait_until_async(lambda: _value(live.waiting_dequeues == 4), 5, "all dequeues wait")
    megabyte = b"x" * 1024 * 1024
    for _ in range(7):
        await live.enqueue(scope, "mail", [NewTask(megabyte)] * 7)
    taken: list[str] = []
    while len(taken) < 49:
        done, pending = await asyncio.wait(
            waiting, timeout=deadline_s(20), return_when=asyncio.FIRST_COMPLETED
        )
        assert done, f"no waiter was woken after {len(taken)} tasks"
        for dequeue in done:
            tasks = dequeue.result()
            assert 1 <= len(tasks) <= 16, "the first few are taken before their sizes are known"
            taken += [task.id for task in tasks]
        waiting = [*pending, asyncio.create_task(live.dequeue(scope, "mail", limit=50, wait_ms=20_000))]
    assert len(set(taken)) == 49
    for dequeue in waiting:
        dequeue.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    with pytest.raises(InvalidRequest, match="Store it elsewhere"):
        await live.enqueue(scope, "mail", [NewTask(megabyte + b"x")])


async def test_a_dequeue_returns_nothing_after_its_wait_time(live: RunQueues, scope: Scope) -> None:
    assert await live.dequeue(scope, "mail", wait_ms=50) == []


async def test_stop_ends_waiting_dequeues(redis_url: str, scope: Scope) -> None:
    queues = RunQueues(redis_url)
    await queues.start()
    await queues.start()
    waiting = asyncio.create_task(queues.dequeue(scope, "mail", wait_ms=60_000))
    await wait_until_async(lambda: _value(queues.waiting_dequeues == 1), 5, "the dequeue waits")
    await queues.stop()
    await queues.stop()
    assert await asyncio.wait_for(waiting, deadline_s(5)) == []


async def test_shutdown_wakes_waiting_dequeues_and_new_ones_may_wait(live: RunQueues, scope: Scope) -> None:
    waiting = asyncio.create_task(live.dequeue(scope, "mail", wait_ms=60_000))
    await wait_until_async(lambda: _value(live.waiting_dequeues == 1), 5, "the dequeue waits")
    live.wake_all_for_shutdown()
    assert await asyncio.wait_for(waiting, deadline_s(5)) == []
    again = asyncio.create_task(live.dequeue(scope, "mail", wait_ms=60_000))
    await wait_until_async(lambda: _value(live.waiting_dequeues == 1), 5, "the dequeue waits")
    await fill(live, scope, "mail", 1)
    assert len(await asyncio.wait_for(again, deadline_s(5))) == 1


async def test_tasks_of_a_cancelled_dequeue_are_released_without_an_attempt(
    queues: RunQueues, scope: Scope
) -> None:
    [enqueued] = await queues.enqueue(scope, "mail", [NewTask()])
    cancelled = asyncio.create_task(queues.dequeue(scope, "mail"))
    while not queues._dispatcher.has_pending_dequeues:  # noqa: ASYNC110 - one or two loop steps away
        await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)

    async def is_released() -> bool:
        task = await queues.get_task(scope, enqueued.id)
        return task.state is TaskState.ELIGIBLE and task.attempts == 0 and task.started_ms is not None

    await wait_until_async(is_released, 5, "the task is eligible again")
    [task] = await queues.dequeue(scope, "mail")
    assert task.attempt == 1


async def test_concurrent_dequeues_get_different_tasks(queues: RunQueues, scope: Scope) -> None:
    await fill(queues, scope, "mail", 200)
    taken = await asyncio.gather(*(queues.dequeue(scope, "mail", limit=3) for _ in range(80)))
    ids = [task.id for tasks in taken for task in tasks]
    assert (len(ids), len(set(ids))) == (200, 200)
    leases = [task.lease for tasks in taken for task in tasks]
    changes = await asyncio.gather(*(queues.ack(scope, lease) for lease in leases))
    assert changes == [TaskChange(id, None) for id in ids]


async def _value(value: bool) -> bool:
    return value


async def queue_names(redis: Redis, ring: str) -> list[str]:
    names = cast("list[bytes]", await redis.zrange(ring, 0, -1))
    return [name.decode().rpartition("/")[2] for name in names]
