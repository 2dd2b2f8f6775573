"""Heartbeat, ack, nack and giving back: only who holds a task can change it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.errors import InvalidRequest, LeaseLost, PenstockError, UnknownTask
from penstock.model import Scope
from penstock.runqueue.queue import RunQueues
from penstock.runqueue.task_model import Lease, Nack, NewTask, RunningTask, Settled, TaskState
from tests.waiting import wait_until_async


async def started(queues: RunQueues, scope: Scope, **options: int) -> RunningTask:
    await queues.enqueue(scope, "mail", [NewTask(b"letter", **options)])
    [task] = await queues.dequeue(scope, "mail", worker="worker 1")
    return task


VERBS: dict[str, Callable[[RunQueues, Scope, Lease], Awaitable[Settled]]] = {
    "ack": lambda queues, scope, lease: queues.ack(scope, lease),
    "nack": lambda queues, scope, lease: queues.nack(scope, Nack(lease)),
    "heartbeat": lambda queues, scope, lease: queues.heartbeat(scope, lease),
}


async def test_an_acked_task_is_gone(queues: RunQueues, scope: Scope) -> None:
    task = await started(queues, scope)
    assert await queues.ack(scope, task.lease) == Settled(task.id, None)
    with pytest.raises(UnknownTask, match=task.id):
        await queues.task(scope, task.id)
    state = await queues.queue(scope, "mail")
    assert (state.eligible, state.running, state.dead) == (0, 0, 0)


@pytest.mark.parametrize("verb", VERBS)
async def test_a_stale_token_gets_an_error_and_changes_nothing(
    queues: RunQueues, scope: Scope, verb: str
) -> None:
    first = await started(queues, scope)
    await queues.nack(scope, Nack(first.lease, delay_ms=0))
    [second] = await queues.dequeue(scope, "mail")
    assert second.token > first.token
    before = await queues.task(scope, first.id)
    with pytest.raises(LeaseLost, match="drop the work"):
        await VERBS[verb](queues, scope, first.lease)
    assert await queues.task(scope, first.id) == before
    assert (await queues.queue(scope, "mail")).running == 1
    await queues.ack(scope, second.lease)


@pytest.mark.parametrize("verb", VERBS)
async def test_a_task_that_does_not_run_cannot_be_settled(queues: RunQueues, scope: Scope, verb: str) -> None:
    task = await started(queues, scope)
    await queues.nack(scope, Nack(task.lease, delay_ms=60_000))
    with pytest.raises(LeaseLost):
        await VERBS[verb](queues, scope, task.lease)
    assert (await queues.task(scope, task.id)).state is TaskState.DELAYED


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("task_id", ["", "nonsense", "x-999", "x-", "0" * 60 + "-0", "0-\u0663"])
async def test_an_unknown_task_is_named(queues: RunQueues, scope: Scope, verb: str, task_id: str) -> None:
    with pytest.raises(UnknownTask):
        await VERBS[verb](queues, scope, Lease(task_id, 1))
    with pytest.raises(UnknownTask):
        await queues.task(scope, task_id)


@pytest.mark.parametrize("verb", VERBS)
async def test_another_environment_cannot_touch_a_task(queues: RunQueues, scope: Scope, verb: str) -> None:
    task = await started(queues, scope)
    stranger = Scope("stranger", scope.project, scope.environment)
    with pytest.raises(UnknownTask):
        await VERBS[verb](queues, stranger, task.lease)
    with pytest.raises(UnknownTask):
        await queues.task(stranger, task.id)
    await queues.ack(scope, task.lease)


async def test_each_of_many_has_its_own_outcome(queues: RunQueues, scope: Scope) -> None:
    await queues.enqueue(scope, "mail", [NewTask()] * 3)
    one, two, three = await queues.dequeue(scope, "mail", limit=3)
    outcomes = await queues.ack_many(
        scope, [one.lease, Lease(two.id, two.token + 1), Lease("nonsense", 1), one.lease, three.lease]
    )
    assert outcomes[0] == Settled(one.id, None)
    assert isinstance(outcomes[1], LeaseLost)
    assert isinstance(outcomes[2], UnknownTask)
    assert isinstance(outcomes[3], UnknownTask), "acked a moment before, in the same call"
    assert outcomes[4] == Settled(three.id, None)
    assert (await queues.queue(scope, "mail")).running == 1


async def test_acks_at_the_same_moment_count_once(queues: RunQueues, scope: Scope) -> None:
    task = await started(queues, scope)
    outcomes = await asyncio.gather(
        *(queues.ack(scope, task.lease) for _ in range(5)), return_exceptions=True
    )
    assert sum(isinstance(outcome, Settled) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, UnknownTask) for outcome in outcomes) == 4
    assert (await queues.environment(scope)).running == 0


async def test_a_heartbeat_holds_the_task_longer(queues: RunQueues, scope: Scope) -> None:
    await queues.enqueue(scope, "mail", [NewTask()] * 2)
    kept, left = await queues.dequeue(scope, "mail", limit=2, visibility_ms=100)
    settled = await queues.heartbeat(scope, kept.lease, visibility_ms=60_000)
    assert settled.state is TaskState.RUNNING
    assert (settled.due_ms or 0) >= kept.started_ms + 60_000

    async def released() -> bool:
        await queues.sweep()
        return (await queues.task(scope, left.id)).state is TaskState.ELIGIBLE

    await wait_until_async(released, 5, "the task without a heartbeat comes back")
    assert (await queues.task(scope, kept.id)).state is TaskState.RUNNING
    with pytest.raises(InvalidRequest, match="visibility_ms"):
        await queues.heartbeat(scope, kept.lease, visibility_ms=1)


@pytest.mark.parametrize(("attempt", "longest_ms"), [(1, 1_000), (2, 2_000), (5, 16_000), (20, 3_600_000)])
async def test_a_failed_attempt_is_retried_later_and_later(
    queues: RunQueues, scope: Scope, attempt: int, longest_ms: int
) -> None:
    task = await started(queues, scope, max_attempts=21)
    for _ in range(attempt - 1):
        await queues.nack(scope, Nack(task.lease, delay_ms=0))
        [task] = await queues.dequeue(scope, "mail")
    assert task.attempt == attempt
    settled = await queues.nack(scope, Nack(task.lease, "out of paper"))
    stored = await queues.task(scope, task.id)
    assert settled == Settled(task.id, TaskState.DELAYED, stored.due_ms)
    assert stored.error == "out of paper"
    # Half of the backoff is certain, half is chance; the call itself took a moment.
    assert longest_ms / 2 <= (stored.due_ms or 0) - task.started_ms <= longest_ms + 1_000


async def test_an_ack_that_is_late_but_before_the_sweep_counts(queues: RunQueues, scope: Scope) -> None:
    await queues.enqueue(scope, "mail", [NewTask()])
    [task] = await queues.dequeue(scope, "mail", visibility_ms=100)

    async def late() -> bool:
        return await queues._scripts.now_ms() > task.deadline_ms

    await wait_until_async(late, 5, "the deadline has passed")
    assert await queues.ack(scope, task.lease) == Settled(task.id, None)


async def test_the_last_attempt_that_fails_leaves_a_dead_task(queues: RunQueues, scope: Scope) -> None:
    task = await started(queues, scope, max_attempts=2)
    await queues.nack(scope, Nack(task.lease, "the first", delay_ms=0))
    [task] = await queues.dequeue(scope, "mail")
    assert await queues.nack(scope, Nack(task.lease, "the last")) == Settled(task.id, TaskState.DEAD)
    dead = await queues.task(scope, task.id)
    assert (dead.state, dead.attempts, dead.error, dead.due_ms) == (TaskState.DEAD, 2, "the last", None)


async def test_the_caller_may_choose_the_delay_or_no_retry(queues: RunQueues, scope: Scope) -> None:
    task = await started(queues, scope)
    assert await queues.nack(scope, Nack(task.lease, delay_ms=0)) == Settled(task.id, TaskState.ELIGIBLE)
    [task] = await queues.dequeue(scope, "mail")
    settled = await queues.nack(scope, Nack(task.lease, "no use", retry=False))
    assert settled == Settled(task.id, TaskState.DEAD)
    with pytest.raises(InvalidRequest, match="delay_ms"):
        await queues.nack(scope, Nack(task.lease, delay_ms=-5))


async def test_a_long_or_odd_error_is_kept_as_far_as_it_fits(queues: RunQueues, scope: Scope) -> None:
    task = await started(queues, scope)
    await queues.nack(scope, Nack(task.lease, "\ud800" + "é" * 5_000, retry=False))
    assert (await queues.task(scope, task.id)).error == "?" + "é" * 1_999


async def test_a_retried_task_does_not_expire(queues: RunQueues, scope: Scope) -> None:
    """Its time to live is for the first start."""
    task = await started(queues, scope, ttl_ms=60_000)
    await queues.nack(scope, Nack(task.lease, delay_ms=0))
    assert (await queues.task(scope, task.id)).due_ms is None


async def test_a_task_given_back_is_at_its_old_place(queues: RunQueues, scope: Scope) -> None:
    await queues.enqueue(scope, "mail", [NewTask(b"1", ttl_ms=60_000), NewTask(b"2")])
    [first] = await queues.dequeue(scope, "mail")
    assert await queues.give_back(scope, [first.lease]) == [Settled(first.id, TaskState.ELIGIBLE)]
    stored = await queues.task(scope, first.id)
    assert (stored.attempts, stored.worker, stored.due_ms) == (0, "", stored.enqueued_ms + 60_000)
    again, _ = await queues.dequeue(scope, "mail", limit=2)
    assert (again.id, again.attempt) == (first.id, 1)
    [outcome] = await queues.give_back(scope, [first.lease])
    assert isinstance(outcome, PenstockError)


async def test_a_running_task_says_who_runs_it(queues: RunQueues, scope: Scope) -> None:
    task = await started(queues, scope)
    stored = await queues.task(scope, task.id)
    assert (stored.state, stored.worker, stored.attempts) == (TaskState.RUNNING, "worker 1", 1)
    assert (stored.started_ms, stored.due_ms) == (task.started_ms, task.deadline_ms)
