"""Enqueue: tasks keep their fields, run by priority and age, and once per idempotency key."""

from __future__ import annotations

import time

import pytest

from penstock.errors import InvalidRequest, UnknownTask
from penstock.model import Scope
from penstock.runqueue.limits import MAX_DELAY_MS
from penstock.runqueue.queue import RunQueues
from penstock.runqueue.task_model import NewTask, TaskState
from tests.waiting import wait_until


async def test_tasks_are_dequeued_by_priority_and_then_in_order(queues: RunQueues, scope: Scope) -> None:
    await queues.enqueue(scope, "mail", [NewTask(b"1"), NewTask(b"2", priority=9), NewTask(b"3", priority=4)])
    await queues.enqueue(scope, "mail", [NewTask(b"4"), NewTask(b"5", priority=9)])
    tasks = await queues.dequeue(scope, "mail", limit=10)
    assert [task.payload for task in tasks] == [b"2", b"5", b"3", b"1", b"4"]
    assert [task.priority for task in tasks] == [9, 9, 4, 0, 0]


async def test_a_task_keeps_its_fields(queues: RunQueues, scope: Scope) -> None:
    payload = bytes(range(256)) * 40
    [enqueued] = await queues.enqueue(scope, "mail", [NewTask(payload, 3, 0, 60_000, "order 7", 5)])
    task = await queues.get_task(scope, enqueued.id)
    assert (task.queue, task.state, task.priority) == ("mail", TaskState.ELIGIBLE, 3)
    assert (task.attempts, task.max_attempts, task.payload) == (0, 5, payload)
    assert (task.ttl_ms, task.due_ms) == (60_000, task.enqueued_ms + 60_000)
    assert (task.started_ms, task.dead_ms, task.error) == (None, None, "")


@pytest.mark.parametrize("name", ["a:b", "a/b", "100%", "große Aufträge", "{tag}", "%2F", " "])
async def test_every_name_is_a_separate_queue(queues: RunQueues, scope: Scope, name: str) -> None:
    await queues.enqueue(scope, name, [NewTask(name.encode())])
    await queues.enqueue(scope, name + "/other", [NewTask(b"other")])
    [task] = await queues.dequeue(scope, name, limit=10)
    assert (task.queue, task.payload) == (name, name.encode())
    assert {state.queue for state in await queues.list_queues(scope)} == {name, name + "/other"}


async def test_environments_whose_joined_names_are_equal_are_separate(
    queues: RunQueues, scope: Scope
) -> None:
    first = Scope(scope.organization, "a/b", "c")
    second = Scope(scope.organization, "a", "b/c")
    await queues.enqueue(first, "mail", [NewTask()])
    assert await queues.dequeue(second, "mail") == []
    assert await queues.list_queues(second) == []


async def test_a_second_task_with_the_same_idempotency_key_is_not_added(
    queues: RunQueues, scope: Scope
) -> None:
    keyed = NewTask(b"first", idempotency_key="order 7")
    first, second = await queues.enqueue(
        scope, "mail", [keyed, NewTask(b"second", idempotency_key="order 7")]
    )
    [third] = await queues.enqueue(scope, "mail", [NewTask(b"third", idempotency_key="order 7")])
    assert (first.duplicate, second.duplicate, third.duplicate) == (False, True, True)
    assert first.id == second.id == third.id
    [in_other_queue] = await queues.enqueue(scope, "calls", [keyed])
    assert not in_other_queue.duplicate
    [task] = await queues.dequeue(scope, "mail", limit=10)
    assert task.payload == b"first"


async def test_an_idempotency_key_is_remembered_after_its_task_is_acked(
    queues: RunQueues, scope: Scope
) -> None:
    [first] = await queues.enqueue(scope, "mail", [NewTask(idempotency_key="order 7")])
    [task] = await queues.dequeue(scope, "mail")
    await queues.ack(scope, task.lease)
    [again] = await queues.enqueue(scope, "mail", [NewTask(idempotency_key="order 7")])
    assert (again.id, again.duplicate) == (first.id, True)
    assert await queues.dequeue(scope, "mail") == []


async def test_a_delayed_task_starts_when_it_is_due(live: RunQueues, scope: Scope) -> None:
    [enqueued] = await live.enqueue(scope, "mail", [NewTask(b"later", delay_ms=300)])
    task = await live.get_task(scope, enqueued.id)
    assert (task.state, task.due_ms) == (TaskState.DELAYED, task.enqueued_ms + 300)
    assert await live.dequeue(scope, "mail") == []
    [running] = await live.dequeue(scope, "mail", wait_ms=10_000)
    assert running.payload == b"later"
    assert running.started_ms >= task.enqueued_ms + 300


async def test_a_task_that_does_not_start_within_its_ttl_expires(queues: RunQueues, scope: Scope) -> None:
    [enqueued] = await queues.enqueue(scope, "mail", [NewTask(ttl_ms=1)])
    [running] = await queues.enqueue(scope, "mail", [NewTask(b"stays", ttl_ms=60_000)])

    expires_s = time.time() + 0.01
    wait_until(lambda: time.time() > expires_s, 5, "the ttl is over")

    tasks = await queues.dequeue(scope, "mail", limit=10)

    assert [task.id for task in tasks] == [running.id]
    with pytest.raises(UnknownTask):
        await queues.get_task(scope, enqueued.id)


@pytest.mark.parametrize(
    "task",
    [
        NewTask(priority=10),
        NewTask(priority=-1),
        NewTask(delay_ms=-1),
        NewTask(delay_ms=MAX_DELAY_MS + 1),
        NewTask(ttl_ms=0),
        NewTask(max_attempts=0),
        NewTask(idempotency_key=""),
        NewTask(idempotency_key="x" * 256),
    ],
)
async def test_a_task_out_of_range_refuses_the_whole_call(
    queues: RunQueues, scope: Scope, task: NewTask
) -> None:
    with pytest.raises(InvalidRequest, match=r"must be|characters"):
        await queues.enqueue(scope, "mail", [NewTask(b"good"), task])
    assert await queues.list_queues(scope) == []


async def test_names_and_sizes_out_of_range_are_refused(queues: RunQueues, scope: Scope) -> None:
    for name in ("", "x" * 256, "\ud800"):
        with pytest.raises(InvalidRequest):
            await queues.enqueue(scope, name, [NewTask()])
    with pytest.raises(InvalidRequest, match="at most 10000"):
        await queues.enqueue(scope, "mail", [NewTask()] * 10_001)
    assert await queues.enqueue(scope, "mail", []) == []


async def test_thousands_in_one_call_keep_their_order(queues: RunQueues, scope: Scope) -> None:
    enqueued = await queues.enqueue(scope, "mail", [NewTask(str(n).encode()) for n in range(5_000)])
    assert len({result.id for result in enqueued}) == 5_000
    tasks = [task for _ in range(5) for task in await queues.dequeue(scope, "mail", limit=1_000)]
    assert [int(task.payload) for task in tasks] == list(range(5_000))
    outcomes = await queues.ack_many(scope, [task.lease for task in tasks])
    assert [getattr(outcome, "id", outcome) for outcome in outcomes] == [result.id for result in enqueued]
