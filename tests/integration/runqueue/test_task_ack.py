"""Heartbeat, ack, nack and release: only the holder of the lease can change a task."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.errors import InvalidRequest, LeaseLost, PenstockError, UnknownTask
from penstock.model import Scope
from penstock.runqueue.queue import RunQueues
from penstock.runqueue.task_model import Lease, Nack, NewTask, RunningTask, TaskChange, TaskState
from tests.waiting import wait_until_async


async def start_task(
    queues: RunQueues, scope: Scope, *, max_attempts: int = 3, ttl_ms: int | None = None
) -> RunningTask:
    await queues.enqueue(scope, "mail", [NewTask(b"letter", ttl_ms=ttl_ms, max_attempts=max_attempts)])
    [task] = await queues.dequeue(scope, "mail", worker="worker 1")
    return task


ACTIONS: dict[str, Callable[[RunQueues, Scope, Lease], Awaitable[TaskChange]]] = {
    "ack": lambda queues, scope, lease: queues.ack(scope, lease),
    "nack": lambda queues, scope, lease: queues.nack(scope, Nack(lease)),
    "heartbeat": lambda queues, scope, lease: queues.heartbeat(scope, lease),
}


async def test_an_acked_task_is_deleted(queues: RunQueues, scope: Scope) -> None:
    task = await start_task(queues, scope)
    assert await queues.ack(scope, task.lease) == TaskChange(task.id, None)
    with pytest.raises(UnknownTask, match=task.id):
        await queues.get_task(scope, task.id)
    state = await queues.get_queue(scope, "mail")
    assert (state.eligible, state.running, state.dead) == (0, 0, 0)


@pytest.mark.parametrize("action", ACTIONS)
async def test_a_stale_token_is_refused_and_changes_nothing(
    queues: RunQueues, scope: Scope, action: str
) -> None:
    first = await start_task(queues, scope)
    await queues.nack(scope, Nack(first.lease, delay_ms=0))
    [second] = await queues.dequeue(scope, "mail")
    assert second.token > first.token
    before = await queues.get_task(scope, first.id)
    with pytest.raises(LeaseLost, match="Drop the work"):
        await ACTIONS[action](queues, scope, first.lease)
    assert await queues.get_task(scope, first.id) == before
    assert (await queues.get_queue(scope, "mail")).running == 1
    await queues.ack(scope, second.lease)


@pytest.mark.parametrize("action", ACTIONS)
async def test_a_task_that_does_not_run_cannot_be_acked(queues: RunQueues, scope: Scope, action: str) -> None:
    task = await start_task(queues, scope)
    await queues.nack(scope, Nack(task.lease, delay_ms=60_000))
    with pytest.raises(LeaseLost):
        await ACTIONS[action](queues, scope, task.lease)
    assert (await queues.get_task(scope, task.id)).state is TaskState.DELAYED


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("task_id", ["", "nonsense", "x-999", "x-", "0" * 60 + "-0", "0-\u0663"])
async def test_an_unknown_task_is_refused(queues: RunQueues, scope: Scope, action: str, task_id: str) -> None:
    with pytest.raises(UnknownTask):
        await ACTIONS[action](queues, scope, Lease(task_id, 1))
    with pytest.raises(UnknownTask):
        await queues.get_task(scope, task_id)


@pytest.mark.parametrize("action", ACTIONS)
async def test_another_environment_cannot_touch_a_task(queues: RunQueues, scope: Scope, action: str) -> None:
    task = await start_task(queues, scope)
    other_scope = Scope("stranger", scope.project, scope.environment)
    with pytest.raises(UnknownTask):
        await ACTIONS[action](queues, other_scope, task.lease)
    with pytest.raises(UnknownTask):
        await queues.get_task(other_scope, task.id)
    await queues.ack(scope, task.lease)


async def test_each_item_of_a_call_has_its_own_outcome(queues: RunQueues, scope: Scope) -> None:
    await queues.enqueue(scope, "mail", [NewTask()] * 3)
    first, second, third = await queues.dequeue(scope, "mail", limit=3)
    outcomes = await queues.ack_many(
        scope,
        [first.lease, Lease(second.id, second.token + 1), Lease("nonsense", 1), first.lease, third.lease],
    )
    assert outcomes[0] == TaskChange(first.id, None)
    assert isinstance(outcomes[1], LeaseLost)
    assert isinstance(outcomes[2], UnknownTask)
    assert isinstance(outcomes[3], UnknownTask), "acked earlier in the same call"
    assert outcomes[4] == TaskChange(third.id, None)
    assert (await queues.get_queue(scope, "mail")).running == 1


async def test_concurrent_acks_count_once(queues: RunQueues, scope: Scope) -> None:
    task = await start_task(queues, scope)
    outcomes = await asyncio.gather(
        *(queues.ack(scope, task.lease) for _ in range(5)), return_exceptions=True
    )
    assert sum(isinstance(outcome, TaskChange) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, UnknownTask) for outcome in outcomes) == 4
    assert (await queues.get_environment(scope)).running == 0


async def test_a_heartbeat_extends_the_lease(queues: RunQueues, scope: Scope) -> None:
    await queues.enqueue(scope, "mail", [NewTask()] * 2)
    extended, expiring = await queues.dequeue(scope, "mail", limit=2, visibility_ms=100)
    change = await queues.heartbeat(scope, extended.lease, visibility_ms=60_000)
    assert change.state is TaskState.RUNNING
    assert (change.due_ms or 0) >= extended.started_ms + 60_000

    async def released() -> bool:
        await queues.sweep()
        return (await queues.get_task(scope, expiring.id)).state is TaskState.ELIGIBLE

    await wait_until_async(released, 5, "the task without a heartbeat is eligible again")
    assert (await queues.get_task(scope, extended.id)).state is TaskState.RUNNING
    with pytest.raises(InvalidRequest, match="visibility_ms"):
        await queues.heartbeat(scope, extended.lease, visibility_ms=1)


@pytest.mark.parametrize(("attempt", "max_delay_ms"), [(1, 1_000), (2, 2_000), (5, 16_000), (20, 3_600_000)])
async def test_failed_attempts_are_retried_with_exponential_backoff(
    queues: RunQueues, scope: Scope, attempt: int, max_delay_ms: int
) -> None:
    task = await start_task(queues, scope, max_attempts=21)
    for _ in range(attempt - 1):
        await queues.nack(scope, Nack(task.lease, delay_ms=0))
        [task] = await queues.dequeue(scope, "mail")
    assert task.attempt == attempt
    change = await queues.nack(scope, Nack(task.lease, "out of paper"))
    stored = await queues.get_task(scope, task.id)
    assert change == TaskChange(task.id, TaskState.DELAYED, stored.due_ms)
    assert stored.error == "out of paper"
    # Half of the backoff is fixed, half is jitter; the call itself takes time.
    assert max_delay_ms / 2 <= (stored.due_ms or 0) - task.started_ms <= max_delay_ms + 1_000


async def test_an_ack_after_the_deadline_but_before_the_sweep_counts(queues: RunQueues, scope: Scope) -> None:
    await queues.enqueue(scope, "mail", [NewTask()])
    [task] = await queues.dequeue(scope, "mail", visibility_ms=100)

    async def deadline_passed() -> bool:
        return await queues._scripts.now_ms(0) > task.deadline_ms

    await wait_until_async(deadline_passed, 5, "the deadline has passed")
    assert await queues.ack(scope, task.lease) == TaskChange(task.id, None)


async def test_a_task_is_dead_after_its_last_attempt_fails(queues: RunQueues, scope: Scope) -> None:
    task = await start_task(queues, scope, max_attempts=2)
    await queues.nack(scope, Nack(task.lease, "the first", delay_ms=0))
    [task] = await queues.dequeue(scope, "mail")
    assert await queues.nack(scope, Nack(task.lease, "the last")) == TaskChange(task.id, TaskState.DEAD)
    dead = await queues.get_task(scope, task.id)
    assert (dead.state, dead.attempts, dead.error, dead.due_ms) == (TaskState.DEAD, 2, "the last", None)


async def test_a_nack_may_set_the_delay_or_forbid_a_retry(queues: RunQueues, scope: Scope) -> None:
    task = await start_task(queues, scope)
    assert await queues.nack(scope, Nack(task.lease, delay_ms=0)) == TaskChange(task.id, TaskState.ELIGIBLE)
    [task] = await queues.dequeue(scope, "mail")
    change = await queues.nack(scope, Nack(task.lease, "no use", retry=False))
    assert change == TaskChange(task.id, TaskState.DEAD)
    with pytest.raises(InvalidRequest, match="delay_ms"):
        await queues.nack(scope, Nack(task.lease, delay_ms=-5))


async def test_a_long_or_invalid_error_is_truncated_and_repaired(queues: RunQueues, scope: Scope) -> None:
    task = await start_task(queues, scope)
    await queues.nack(scope, Nack(task.lease, "\ud800" + "é" * 5_000, retry=False))
    assert (await queues.get_task(scope, task.id)).error == "?" + "é" * 1_999


async def test_a_retried_task_does_not_expire(queues: RunQueues, scope: Scope) -> None:
    """The time to live applies to the first start only."""
    task = await start_task(queues, scope, ttl_ms=60_000)
    await queues.nack(scope, Nack(task.lease, delay_ms=0))
    assert (await queues.get_task(scope, task.id)).due_ms is None


async def test_a_released_task_keeps_its_position(queues: RunQueues, scope: Scope) -> None:
    await queues.enqueue(scope, "mail", [NewTask(b"1", ttl_ms=60_000), NewTask(b"2")])
    [first] = await queues.dequeue(scope, "mail")
    assert await queues.release(scope, [first.lease]) == [TaskChange(first.id, TaskState.ELIGIBLE)]
    stored = await queues.get_task(scope, first.id)
    assert (stored.attempts, stored.worker, stored.due_ms) == (0, "", stored.enqueued_ms + 60_000)
    again, _ = await queues.dequeue(scope, "mail", limit=2)
    assert (again.id, again.attempt) == (first.id, 1)
    [outcome] = await queues.release(scope, [first.lease])
    assert isinstance(outcome, PenstockError)


async def test_a_running_task_names_its_worker(queues: RunQueues, scope: Scope) -> None:
    task = await start_task(queues, scope)
    stored = await queues.get_task(scope, task.id)
    assert (stored.state, stored.worker, stored.attempts) == (TaskState.RUNNING, "worker 1", 1)
    assert (stored.started_ms, stored.due_ms) == (task.started_ms, task.deadline_ms)
