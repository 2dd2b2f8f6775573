"""Dequeue: within the limits, in turn, woken when there is something."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from redis.asyncio import Redis

from penstock.errors import InvalidRequest
from penstock.model import Scope
from penstock.runqueue.keys import PER_NAME, environment_name, shard_of_environment, shard_prefix
from penstock.runqueue.queue import RunQueues
from penstock.runqueue.task_model import NewTask, Settled, TaskState
from tests.waiting import wait_until_async


async def fill(queues: RunQueues, scope: Scope, queue: str, tasks: int) -> None:
    await queues.enqueue(scope, queue, [NewTask(f"{queue} {n}".encode()) for n in range(tasks)])


async def test_an_empty_or_unknown_queue_gives_nothing_and_is_not_made(
    queues: RunQueues, scope: Scope
) -> None:
    assert await queues.dequeue(scope, "mail") == []
    assert await queues.dequeue(scope) == []
    assert await queues.queues(scope) == []


async def test_a_queue_runs_as_many_as_its_limit(queues: RunQueues, scope: Scope) -> None:
    await queues.set_queue_limit(scope, "mail", 3)
    await fill(queues, scope, "mail", 10)
    running = await queues.dequeue(scope, "mail", limit=10)
    assert len(running) == 3
    assert await queues.dequeue(scope, "mail", limit=10) == []
    await queues.ack(scope, running[0].lease)
    assert len(await queues.dequeue(scope, limit=10)) == 1
    await queues.set_queue_limit(scope, "mail", None)
    assert len(await queues.dequeue(scope, limit=10)) == 6


async def test_queues_together_run_as_many_as_the_environments_limit_and_burst(
    queues: RunQueues, scope: Scope
) -> None:
    await queues.set_environment_limit(scope, 4, burst=1.5)
    for queue in ("a", "b", "c"):
        await fill(queues, scope, queue, 10)
    assert len(await queues.dequeue(scope, "a", limit=10)) == 4, "one queue alone does not use the burst"
    rest = await queues.dequeue(scope, limit=10)
    assert len(rest) == 2
    assert await queues.dequeue(scope, "b", limit=10) == []
    await queues.ack_many(scope, [task.lease for task in rest])
    assert len(await queues.dequeue(scope, limit=10)) == 2
    await queues.set_environment_limit(scope, None)
    assert len(await queues.dequeue(scope, limit=30)) == 22


async def test_a_paused_queue_hands_out_nothing_until_it_is_resumed(queues: RunQueues, scope: Scope) -> None:
    await fill(queues, scope, "mail", 2)
    assert (await queues.pause(scope, "mail")).paused
    assert await queues.dequeue(scope, "mail") == []
    assert await queues.dequeue(scope) == []
    assert not (await queues.resume(scope, "mail")).paused
    assert len(await queues.dequeue(scope, limit=2)) == 2


async def test_a_queue_that_is_full_paused_or_empty_is_not_even_looked_at(
    queues: RunQueues, scope: Scope, redis: Redis
) -> None:
    shard = shard_of_environment(scope, 2)
    ring = shard_prefix(shard) + PER_NAME["ring_of"] + environment_name(scope)
    ready = shard_prefix(shard) + "ready"
    for queue in ("full", "paused", "empty", "ready"):
        await fill(queues, scope, queue, 2)
    assert await redis.zcard(ring) == 4
    await queues.pause(scope, "paused")
    await queues.set_queue_limit(scope, "full", 1)
    [one] = await queues.dequeue(scope, "full", limit=2)
    assert len(await queues.dequeue(scope, "empty", limit=2)) == 2
    assert [name.decode().rpartition("/")[2] for name in await redis.zrange(ring, 0, -1)] == ["ready"]
    assert await redis.zscore(ready, environment_name(scope)) is not None
    assert len(await queues.dequeue(scope, "ready", limit=2)) == 2
    assert await redis.exists(ring) == 0
    assert await redis.zscore(ready, environment_name(scope)) is None
    await queues.ack(scope, one.lease)
    assert [name.decode().rpartition("/")[2] for name in await redis.zrange(ring, 0, -1)] == ["full"]


async def test_queues_of_an_environment_take_turns(queues: RunQueues, scope: Scope) -> None:
    await fill(queues, scope, "noisy", 1_000)
    for queue in ("a", "b", "c"):
        await fill(queues, scope, queue, 10)
    for _ in range(10):
        tasks = await queues.dequeue(scope, limit=4)
        assert sorted(task.queue for task in tasks) == ["a", "b", "c", "noisy"]
    assert [task.queue for task in await queues.dequeue(scope, limit=5)] == ["noisy"] * 5


async def test_few_queues_share_a_large_request(queues: RunQueues, scope: Scope) -> None:
    await fill(queues, scope, "a", 100)
    await fill(queues, scope, "b", 3)
    tasks = await queues.dequeue(scope, limit=20)
    assert Counter(task.queue for task in tasks) == {"a": 17, "b": 3}


async def test_a_noisy_environment_does_not_starve_the_others(redis_url: str) -> None:
    """On a database of its own, because this serves whoever has something."""
    queues = RunQueues(redis_url.removesuffix("/0") + "/6", shards=1)
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
    with pytest.raises(InvalidRequest, match="name both"):
        await queues.dequeue(None, "mail")


@pytest.mark.parametrize("wrong", [{"limit": 0}, {"limit": 1_001}, {"visibility_ms": 99}, {"wait_ms": -1}])
async def test_numbers_out_of_range_are_refused(
    queues: RunQueues, scope: Scope, wrong: dict[str, int]
) -> None:
    with pytest.raises(InvalidRequest, match="whole number from"):
        await queues.dequeue(scope, "mail", **wrong)  # type: ignore[arg-type]


async def test_who_waits_is_woken_by_what_comes(live: RunQueues, scope: Scope, redis_url: str) -> None:
    """By another process too: the second object knows nothing of the first."""
    other = RunQueues(redis_url)
    of_queue = asyncio.create_task(live.dequeue(scope, "mail", wait_ms=20_000))
    of_any = asyncio.create_task(live.dequeue(scope, wait_ms=20_000))
    await wait_until_async(lambda: _value(live.waiting == 2), 5, "both wait")
    await fill(other, scope, "mail", 2)
    taken = await asyncio.wait_for(asyncio.gather(of_queue, of_any), 10)
    assert sorted(task.payload for tasks in taken for task in tasks) == [b"mail 0", b"mail 1"]
    await other.stop()


async def test_one_batch_serves_all_who_wait(live: RunQueues, scope: Scope) -> None:
    waiting = [asyncio.create_task(live.dequeue(scope, "mail", wait_ms=20_000)) for _ in range(50)]
    await wait_until_async(lambda: _value(live.waiting == 50), 5, "all of them wait")
    await fill(live, scope, "mail", 50)
    taken = await asyncio.wait_for(asyncio.gather(*waiting), 10)
    assert len({task.id for tasks in taken for task in tasks}) == 50


@pytest.mark.parametrize("freed", ["queue", "environment", "resumed", "limit"])
async def test_who_waits_is_woken_when_there_is_room_again(live: RunQueues, scope: Scope, freed: str) -> None:
    await fill(live, scope, "mail", 2)
    if freed == "queue":
        await live.set_queue_limit(scope, "mail", 1)
    elif freed == "resumed":
        await live.pause(scope, "mail")
    else:
        await live.set_environment_limit(scope, 1)
    first = await live.dequeue(scope, "mail")
    waiting = asyncio.create_task(live.dequeue(scope, "mail", wait_ms=20_000))
    await wait_until_async(lambda: _value(live.waiting == 1), 5, "it waits")
    if freed == "resumed":
        await live.resume(scope, "mail")
    elif freed == "limit":
        await live.set_environment_limit(scope, 2)
    else:
        await live.ack(scope, first[0].lease)
    [task] = await asyncio.wait_for(waiting, 10)
    assert task.payload == (b"mail 0" if freed == "resumed" else b"mail 1")


async def test_large_payloads_come_in_several_answers_and_wake_all_who_wait(
    live: RunQueues, scope: Scope
) -> None:
    waiting = [asyncio.create_task(live.dequeue(scope, "mail", limit=50, wait_ms=20_000)) for _ in range(4)]
    await wait_until_async(lambda: _value(live.waiting == 4), 5, "all of them wait")
    megabyte = b"x" * 1024 * 1024
    for _ in range(7):
        await live.enqueue(scope, "mail", [NewTask(megabyte)] * 7)
    taken: list[str] = []
    while len(taken) < 49:
        done, left = await asyncio.wait(waiting, timeout=20, return_when=asyncio.FIRST_COMPLETED)
        assert done, f"nobody was woken for the rest of {len(taken)}"
        for one in done:
            tasks = one.result()
            assert 1 <= len(tasks) <= 16, "the first few are taken before their sizes are known"
            taken += [task.id for task in tasks]
        waiting = [*left, asyncio.create_task(live.dequeue(scope, "mail", limit=50, wait_ms=20_000))]
    assert len(set(taken)) == 49
    for one in waiting:
        one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    with pytest.raises(InvalidRequest, match="store it elsewhere"):
        await live.enqueue(scope, "mail", [NewTask(megabyte + b"x")])


async def test_who_waits_in_vain_gets_nothing(live: RunQueues, scope: Scope) -> None:
    assert await live.dequeue(scope, "mail", wait_ms=50) == []


async def test_stopping_ends_the_waiting(redis_url: str, scope: Scope) -> None:
    queues = RunQueues(redis_url)
    await queues.start()
    await queues.start()
    waiting = asyncio.create_task(queues.dequeue(scope, "mail", wait_ms=60_000))
    await wait_until_async(lambda: _value(queues.waiting == 1), 5, "it waits")
    await queues.stop()
    await queues.stop()
    assert await asyncio.wait_for(waiting, 5) == []


async def test_those_who_wait_are_let_go_and_others_may_wait_again(live: RunQueues, scope: Scope) -> None:
    waiting = asyncio.create_task(live.dequeue(scope, "mail", wait_ms=60_000))
    await wait_until_async(lambda: _value(live.waiting == 1), 5, "it waits")
    live.let_go()
    assert await asyncio.wait_for(waiting, 5) == []
    again = asyncio.create_task(live.dequeue(scope, "mail", wait_ms=60_000))
    await wait_until_async(lambda: _value(live.waiting == 1), 5, "it waits")
    await fill(live, scope, "mail", 1)
    assert len(await asyncio.wait_for(again, 5)) == 1


async def test_what_was_taken_for_somebody_who_left_comes_back_uncounted(
    queues: RunQueues, scope: Scope
) -> None:
    [enqueued] = await queues.enqueue(scope, "mail", [NewTask()])
    leaving = asyncio.create_task(queues.dequeue(scope, "mail"))
    while not queues._handing._dequeue._waiting:  # noqa: ASYNC110 - a step or two of the loop away
        await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)

    async def back() -> bool:
        task = await queues.task(scope, enqueued.id)
        return task.state is TaskState.ELIGIBLE and task.attempts == 0 and task.started_ms is not None

    await wait_until_async(back, 5, "the task is eligible again")
    [task] = await queues.dequeue(scope, "mail")
    assert task.attempt == 1


async def test_many_who_ask_at_once_get_different_tasks(queues: RunQueues, scope: Scope) -> None:
    await fill(queues, scope, "mail", 200)
    taken = await asyncio.gather(*(queues.dequeue(scope, "mail", limit=3) for _ in range(80)))
    ids = [task.id for tasks in taken for task in tasks]
    assert (len(ids), len(set(ids))) == (200, 200)
    leases = [task.lease for tasks in taken for task in tasks]
    settled = await asyncio.gather(*(queues.ack(scope, lease) for lease in leases))
    assert settled == [Settled(id, None) for id in ids]


async def _value(value: bool) -> bool:
    return value
