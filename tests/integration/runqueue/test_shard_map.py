"""Environments keep their shard while the number of shards is raised."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from penstock.model import Scope
from penstock.runqueue.keys import (
    ENVIRONMENTS_KEY,
    MAX_SHARDS,
    SHARD_RECORDS_KEY,
    SHARDS_KEY,
    environment_name,
    shard_of_environment,
    shard_of_task,
    shard_prefix,
)
from penstock.runqueue.queue import RunQueues
from penstock.runqueue.shard_map import ShardMap
from penstock.runqueue.sweeper import SweepIntervals
from penstock.runqueue.task_model import NewTask
from tests.deadlines import deadline_s
from tests.task_load import TaskLoad
from tests.waiting import wait_until_async

QUICK = SweepIntervals(sweep_s=0.05, shared_s=0.05)

OpenService = Callable[[int], RunQueues]


@pytest.fixture
async def open_service(redis_url: str) -> AsyncIterator[OpenService]:
    """Opens run queues as a process with this number of shards would, without background tasks."""
    opened: list[RunQueues] = []

    def open_one(shards: int) -> RunQueues:
        opened.append(RunQueues(redis_url, shards=shards, sweep_intervals=QUICK))
        return opened[-1]

    yield open_one
    for service in opened:
        await service.stop()


def scopes_in(*, old: int, new: int, count: int, is_moved: bool) -> list[Scope]:
    """Return environments whose shards differ, or not, between two numbers of shards."""
    found: list[Scope] = []
    while len(found) < count:
        scope = Scope(f"org-{uuid4().hex[:8]}")
        if (shard_of_environment(scope, old) != shard_of_environment(scope, new)) == is_moved:
            found.append(scope)
    return found


async def enqueue_in(service: RunQueues, scope: Scope) -> int:
    """Enqueue a task, and return its shard."""
    [added] = await service.enqueue(scope, "mail", [NewTask()])
    return shard_of_task(added.id)


async def shards_with(redis: Redis, scope: Scope) -> list[int]:
    """Return the shards that have something of the environment."""
    async with redis.pipeline() as pipeline:
        for shard in range(MAX_SHARDS):
            key = shard_prefix(shard) + ENVIRONMENTS_KEY["environments_key"]
            pipeline.sismember(key, environment_name(scope))
        return [shard for shard, is_member in enumerate(await pipeline.execute()) if is_member]


async def test_only_new_environments_use_the_shards_that_were_added(
    open_service: OpenService, redis: Redis
) -> None:
    old = open_service(2)
    before = scopes_in(old=2, new=16, count=5, is_moved=True)
    for scope in before:
        assert await enqueue_in(old, scope) == shard_of_environment(scope, 2)
    new = open_service(16)
    after = scopes_in(old=2, new=16, count=5, is_moved=True)
    for scope in before:
        assert await enqueue_in(new, scope) == shard_of_environment(scope, 2)
        assert len(await old.dequeue(scope, limit=5)) == 2
    for scope in after[:2]:
        assert await enqueue_in(old, scope) == shard_of_environment(scope, 16), "the new number decides"
    for scope in after[2:]:
        assert await enqueue_in(new, scope) == shard_of_environment(scope, 16)
    for scope in after:
        assert await shards_with(redis, scope) == [shard_of_environment(scope, 16)]
        assert len(await old.dequeue(scope)) == 1


async def test_a_lower_setting_is_logged_and_not_used(
    open_service: OpenService, caplog: pytest.LogCaptureFixture
) -> None:
    raised, low = open_service(16), open_service(3)
    [scope] = scopes_in(old=3, new=16, count=1, is_moved=True)
    await raised.sweep()
    assert await enqueue_in(low, scope) == shard_of_environment(scope, 16)
    await enqueue_in(low, Scope(scope.organization, "other"))
    assert caplog.text.count("run_queue_shards is 3, but the run queues in this Redis have 16 shards") == 1
    assert f"delete the keys {SHARDS_KEY} and {SHARD_RECORDS_KEY}" in caplog.text


async def test_processes_with_different_numbers_agree_on_the_shard_of_a_new_environment(
    open_service: OpenService, redis: Redis
) -> None:
    services = [open_service(shards) for shards in (1, 2, 3, 5, 8, 16, 64, 256)]
    for _ in range(5):
        scopes = [Scope(f"org-{uuid4().hex[:8]}") for _ in range(10)]
        shards = await asyncio.gather(
            *(asyncio.gather(*(enqueue_in(service, scope) for service in services)) for scope in scopes)
        )
        for scope, shards_of_scope in zip(scopes, shards, strict=True):
            assert set(shards_of_scope) == set(await shards_with(redis, scope))
            assert len(set(shards_of_scope)) == 1
            assert len(await services[0].dequeue(scope, limit=20)) == len(services)


async def test_concurrent_first_requests_share_their_lookups(open_service: OpenService, redis: Redis) -> None:
    service, scope = open_service(2), Scope(f"org-{uuid4().hex[:8]}")
    await asyncio.gather(*(service.load_shard(scope) for _ in range(500)))
    assert service._shards.lookups.stats.requests == 500
    assert service._shards.lookups.stats.batches <= 2


@pytest.mark.parametrize("first_setting", [2, 16])
async def test_environments_without_a_record_stay_where_their_tasks_are(
    open_service: OpenService, redis: Redis, first_setting: int
) -> None:
    """As after an upgrade from a version without records, also if the setting is raised with it."""
    scopes = scopes_in(old=2, new=16, count=10, is_moved=True)
    for scope in scopes:
        await enqueue_in(open_service(2), scope)
    await redis.delete(SHARD_RECORDS_KEY)
    services = [open_service(first_setting), open_service(16)]
    for scope in scopes:
        shards = await asyncio.gather(*(enqueue_in(service, scope) for service in services))
        assert set(shards) == {shard_of_environment(scope, 2)}
        assert len(await services[1].dequeue(scope, limit=5)) == 3


async def test_leftovers_of_an_earlier_number_do_not_attract_an_old_environment(
    open_service: OpenService, redis: Redis
) -> None:
    """The number was 16 and was lowered before there were records; limits stayed in the shard of then."""
    [scope] = scopes_in(old=2, new=16, count=1, is_moved=True)
    await open_service(16).set_environment_limit(scope, 5)
    await redis.delete(SHARDS_KEY, SHARD_RECORDS_KEY)
    await enqueue_in(open_service(2), scope)
    assert len(await shards_with(redis, scope)) == 2
    await redis.delete(SHARD_RECORDS_KEY)
    raised = open_service(16)
    assert await enqueue_in(raised, scope) == shard_of_environment(scope, 2)
    assert len(await raised.dequeue(scope, limit=5)) == 2


async def test_a_deleted_environment_keeps_its_shard(open_service: OpenService) -> None:
    """A process that has cached the shard may use the environment again."""
    old, new = open_service(2), open_service(16)
    [scope] = scopes_in(old=2, new=16, count=1, is_moved=True)
    shard = await enqueue_in(old, scope)
    while await old.delete_some_tasks(scope):
        pass
    assert await enqueue_in(new, scope) == shard
    assert await enqueue_in(old, scope) == shard


async def test_a_running_process_sweeps_the_shards_that_another_one_adds(open_service: OpenService) -> None:
    old = open_service(2)
    await old.start()
    await old.sweep()
    new = open_service(16)  # it never sweeps
    [scope] = scopes_in(old=2, new=16, count=1, is_moved=True)
    await new.enqueue(scope, "mail", [NewTask(delay_ms=1)])

    async def is_promoted() -> bool:
        return (await new.get_queue(scope, "mail")).eligible == 1

    await wait_until_async(is_promoted, 5, "the delayed task is eligible")
    assert not old.knows_shard(scope)


async def test_a_waiting_dequeue_of_any_environment_gets_tasks_of_new_shards(
    open_service: OpenService,
) -> None:
    old = open_service(2)
    await old.start()
    waiting = asyncio.create_task(old.dequeue(None, wait_ms=60_000))

    async def is_waiting() -> bool:
        return old._wakeups.parked == 1

    await wait_until_async(is_waiting, 5, "the dequeue waits")
    new = open_service(16)
    [scope] = scopes_in(old=2, new=16, count=1, is_moved=True)
    await enqueue_in(new, scope)
    [task] = await asyncio.wait_for(waiting, deadline_s(10))
    assert task.scope == scope


async def test_running_processes_record_the_shards_again_that_redis_has_lost(
    redis_url: str, redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """Else a process that starts later would put an idle environment elsewhere."""
    raised: list[bool] = []
    running = ShardMap(redis, 2, on_raised=lambda: raised.append(True))
    await running.refresh()
    idle, used = scopes_in(old=2, new=16, count=2, is_moved=True)
    shards = {scope: await running.shard_of(scope) for scope in (idle, used)}
    await redis.delete(SHARDS_KEY, SHARD_RECORDS_KEY)
    early = ShardMap(redis, 16, on_raised=lambda: None)
    assert await early.shard_of(used) == shard_of_environment(used, 16), "the first record wins"
    await running.refresh()
    assert "2 of them are recorded again" in caplog.text
    assert await early.shard_of(idle) == shards[idle]
    assert await running.shard_of(used) == await early.shard_of(used)
    assert f"{environment_name(used)} are now in shard" in caplog.text
    assert (await running.count(), raised) == (16, [True])


async def test_a_number_lowered_by_hand_rises_to_the_shards_in_use(
    open_service: OpenService, redis: Redis
) -> None:
    [scope] = scopes_in(old=2, new=16, count=1, is_moved=True)
    shard = await enqueue_in(open_service(16), scope)
    await redis.delete(SHARDS_KEY)
    low = open_service(2)
    assert await enqueue_in(low, scope) == shard
    assert await redis.get(SHARDS_KEY) == b"%d" % (shard + 1)


async def test_tasks_and_limits_are_exact_while_the_number_is_raised_under_load(
    open_service: OpenService, redis: Redis
) -> None:
    queue = f"raised-{uuid4().hex[:8]}"
    old, load = open_service(2), TaskLoad(queue)
    await old.start()
    scopes = scopes_in(old=2, new=8, count=9, is_moved=True)
    before, meanwhile, after = scopes[:3], scopes[3:6], scopes[6:]
    for scope in before:
        load.start(scope, [old])
    await wait_until_async(lambda: _value(load.acked_count > 100), 20, "tasks are acked")
    new = open_service(8)
    for scope in meanwhile:
        load.start(scope, [old, new])
    await new.start()
    await new.sweep()
    for scope in after:
        load.start(scope, [old, new])
    acked_before = load.acked_count
    await wait_until_async(lambda: _value(load.acked_count > acked_before + 300), 20, "more are acked")
    await load.stop()
    await load.check(new, redis)
    for scope in before:
        assert await shards_with(redis, scope) == [shard_of_environment(scope, 2)]
    for scope in meanwhile:
        assert len(await shards_with(redis, scope)) == 1
    for scope in after:
        assert await shards_with(redis, scope) == [shard_of_environment(scope, 8)]


async def _value(value: bool) -> bool:
    return value
