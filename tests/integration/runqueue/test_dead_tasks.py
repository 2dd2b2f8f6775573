"""Dead tasks: listed in pages, redriven or deleted, by id or all."""

from __future__ import annotations

import pytest

from penstock.errors import InvalidRequest, UnknownQueue, UnknownTask, WrongState
from penstock.model import Scope
from penstock.runqueue.queue import RunQueues
from penstock.runqueue.task_model import Nack, NewTask, Task, TaskChange, TaskState


async def create_dead_tasks(
    queues: RunQueues,
    scope: Scope,
    tasks: int,
    queue: str = "mail",
    *,
    max_attempts: int = 3,
    ttl_ms: int | None = None,
    error: str | None = None,
) -> list[str]:
    new_tasks = [NewTask(str(n).encode(), ttl_ms=ttl_ms, max_attempts=max_attempts) for n in range(tasks)]
    await queues.enqueue(scope, queue, new_tasks)
    running = await queues.dequeue(scope, queue, limit=1_000)
    await queues.nack_many(
        scope, [Nack(task.lease, error or f"error {task.payload!r}", retry=False) for task in running]
    )
    return [task.id for task in running]


async def test_pages_list_all_dead_tasks_oldest_first(queues: RunQueues, scope: Scope) -> None:
    ids = await create_dead_tasks(queues, scope, 25)
    ids += await create_dead_tasks(queues, scope, 7)
    listed: list[Task] = []
    after = None
    for size in (10, 10, 10, 2):
        page = await queues.list_dead_tasks(scope, "mail", limit=10, after=after)
        assert len(page.tasks) == size
        listed += page.tasks
        after = page.next
    assert after is None
    assert [task.id for task in listed] == ids
    assert (listed[3].payload, listed[3].error, listed[3].state) == (b"3", "error b'3'", TaskState.DEAD)
    assert (await queues.get_queue(scope, "mail")).dead == 32


async def test_the_last_page_has_no_next(queues: RunQueues, scope: Scope) -> None:
    await create_dead_tasks(queues, scope, 3)
    assert (await queues.list_dead_tasks(scope, "mail", limit=3)).next is None


async def test_a_redriven_task_has_all_its_attempts(queues: RunQueues, scope: Scope) -> None:
    [first, second] = await create_dead_tasks(queues, scope, 2, max_attempts=1, ttl_ms=60_000)
    outcomes = await queues.redrive(scope, "mail", [first, "nonsense", first])
    assert outcomes[0] == TaskChange(first, TaskState.ELIGIBLE)
    assert isinstance(outcomes[1], UnknownTask)
    assert isinstance(outcomes[2], UnknownTask)
    task = await queues.get_task(scope, first)
    assert (task.attempts, task.dead_ms, task.due_ms) == (0, None, task.eligible_ms + 60_000)
    [running] = await queues.dequeue(scope, "mail", limit=5)
    assert (running.id, running.attempt) == (first, 1)
    assert [dead.id for dead in (await queues.list_dead_tasks(scope, "mail")).tasks] == [second]


async def test_redrive_all_redrives_every_dead_task(queues: RunQueues, scope: Scope) -> None:
    await create_dead_tasks(queues, scope, 700)
    assert await queues.redrive_all(scope, "mail") == 700
    state = await queues.get_queue(scope, "mail")
    assert (state.eligible, state.dead) == (700, 0)
    assert await queues.redrive_all(scope, "mail") == 0


async def test_deleted_dead_tasks_are_gone(queues: RunQueues, scope: Scope) -> None:
    first, second, third = await create_dead_tasks(queues, scope, 3)
    [in_other_queue] = await create_dead_tasks(queues, scope, 1, "calls")
    [alive] = await queues.enqueue(scope, "mail", [NewTask()])
    outcomes = await queues.delete_dead(scope, "mail", [second, in_other_queue, alive.id])
    assert outcomes[0] == TaskChange(second, None)
    assert all(isinstance(outcome, UnknownTask) for outcome in outcomes[1:])
    assert [task.id for task in (await queues.list_dead_tasks(scope, "mail")).tasks] == [first, third]
    assert await queues.purge_dead(scope, "mail") == 2
    assert (await queues.get_queue(scope, "mail")).dead == 0
    assert (await queues.get_task(scope, alive.id)).state is TaskState.ELIGIBLE
    assert (await queues.get_task(scope, in_other_queue)).state is TaskState.DEAD


async def test_only_a_queue_without_tasks_can_be_deleted(queues: RunQueues, scope: Scope) -> None:
    [dead] = await create_dead_tasks(queues, scope, 1)
    await queues.set_queue_limit(scope, "mail", 3)
    with pytest.raises(WrongState, match="1 dead"):
        await queues.delete_queue(scope, "mail")
    await queues.delete_dead(scope, "mail", [dead])
    await queues.delete_queue(scope, "mail")
    assert not await queues.has_queue(scope, "mail")
    assert await queues.list_queues(scope) == []
    await queues.enqueue(scope, "mail", [NewTask()] * 5)
    assert (await queues.get_queue(scope, "mail")).limit is None, "a new queue does not inherit the limit"
    assert len(await queues.dequeue(scope, "mail", limit=5)) == 5
    assert await queues.repair() == 0


async def test_the_error_names_an_unknown_queue(queues: RunQueues, scope: Scope) -> None:
    for call in (
        queues.list_dead_tasks(scope, "mail"),
        queues.redrive(scope, "mail", ["x"]),
        queues.redrive_all(scope, "mail"),
        queues.purge_dead(scope, "mail"),
        queues.delete_dead(scope, "mail", ["x"]),
        queues.get_queue(scope, "mail"),
        queues.delete_queue(scope, "mail"),
    ):
        with pytest.raises(UnknownQueue, match="Run queue 'mail' does not exist"):
            await call


@pytest.mark.parametrize("after", ["nonsense", "12", "x:y", f"{10**20}:x"])
async def test_an_invalid_cursor_is_refused(queues: RunQueues, scope: Scope, after: str) -> None:
    await create_dead_tasks(queues, scope, 1)
    with pytest.raises(InvalidRequest, match="`next` of a page"):
        await queues.list_dead_tasks(scope, "mail", after=after)
    with pytest.raises(InvalidRequest, match="limit"):
        await queues.list_dead_tasks(scope, "mail", limit=0)
