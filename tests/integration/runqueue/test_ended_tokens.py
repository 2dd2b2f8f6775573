"""When a token is revoked or expires, its waiting dequeues end and its running tasks are released."""

from __future__ import annotations

import asyncio

import pytest

from penstock.caller import ALL_ACCESS, Caller
from penstock.errors import LeaseLost, Unauthorized
from penstock.model import Scope
from penstock.runqueue.queue import RunQueues
from penstock.runqueue.task_model import NewTask, TaskState
from tests.deadlines import deadline_s
from tests.waiting import wait_until_async


def caller_of(scope: Scope, token_number: int) -> Caller:
    return Caller(scope, ALL_ACCESS, f"token:{token_number}", token_number=token_number)


async def test_waiting_dequeues_of_an_ended_token_end_and_the_others_wait(
    live: RunQueues, scope: Scope
) -> None:
    revoked, active = caller_of(scope, 7), caller_of(scope, 8)
    waiting = {
        caller: asyncio.create_task(live.dequeue(scope, "q", wait_ms=60_000, caller=caller))
        for caller in (revoked, active)
    }

    async def both_wait() -> bool:
        return live.waiting_dequeues == 2

    await wait_until_async(both_wait, 20, "both dequeues wait")
    revoked.active = False
    live.end_inactive_callers()
    async with asyncio.timeout(deadline_s(20)):
        with pytest.raises(Unauthorized):
            await waiting[revoked]
        await live.enqueue(scope, "q", [NewTask(b"a")])
        assert [task.payload for task in await waiting[active]] == [b"a"]


async def test_running_tasks_of_an_ended_token_are_released(queues: RunQueues, scope: Scope) -> None:
    revoked, active = caller_of(scope, 7), caller_of(scope, 8)
    await queues.enqueue(scope, "q", [NewTask(b"a"), NewTask(b"b")])
    [held] = await queues.dequeue(scope, "q", caller=revoked)
    [kept] = await queues.dequeue(scope, "q", caller=active)
    revoked.active = False
    assert await queues.release_tasks_of_tokens(scope, [7]) == 1
    assert await queues.release_tasks_of_tokens(scope, [7]) == 0
    task = await queues.get_task(scope, held.id)
    assert (task.state, task.attempts) == (TaskState.ELIGIBLE, 0)
    with pytest.raises(LeaseLost):
        await queues.ack(scope, held.lease)
    await queues.ack(scope, kept.lease)
    [again] = await queues.dequeue(scope, None, caller=active)
    assert again.id == held.id
    assert (await queues.get_environment(scope)).running == 1


async def test_a_dequeue_that_ends_after_its_token_gets_nothing_and_leases_nothing(
    queues: RunQueues, scope: Scope
) -> None:
    caller = caller_of(scope, 7)
    await queues.enqueue(scope, "q", [NewTask(b"a")])
    dequeue = asyncio.create_task(queues.dequeue(scope, "q", caller=caller))
    await asyncio.sleep(0)  # it is in its batch
    caller.active = False
    with pytest.raises(Unauthorized):
        await dequeue

    async def is_released() -> bool:
        return (await queues.get_queue(scope, "q")).eligible == 1

    await wait_until_async(is_released, 20, "the task is eligible again")
