"""Dead tasks: listed in pages, tried again or deleted, some or all."""

from __future__ import annotations

import pytest

from penstock.errors import InvalidRequest, UnknownQueue, UnknownTask, WrongState
from penstock.model import Scope
from penstock.runqueue.queue import RunQueues
from penstock.runqueue.task_model import Nack, NewTask, Settled, TaskState


async def bury(queues: RunQueues, scope: Scope, tasks: int, queue: str = "mail", **options: int) -> list[str]:
    await queues.enqueue(scope, queue, [NewTask(str(n).encode(), **options) for n in range(tasks)])
    running = await queues.dequeue(scope, queue, limit=1_000)
    await queues.nack_many(
        scope, [Nack(task.lease, f"error {task.payload!r}", retry=False) for task in running]
    )
    return [task.id for task in running]


async def test_pages_go_through_all_of_them_oldest_first(queues: RunQueues, scope: Scope) -> None:
    ids = await bury(queues, scope, 25)
    ids += await bury(queues, scope, 7)
    seen, after = [], None
    for size in (10, 10, 10, 2):
        page = await queues.dead_letters(scope, "mail", limit=10, after=after)
        assert len(page.tasks) == size
        seen += list(page.tasks)
        after = page.next
    assert after is None
    assert [task.id for task in seen] == ids
    assert (seen[3].payload, seen[3].error, seen[3].state) == (b"3", "error b'3'", TaskState.DEAD)
    assert (await queues.queue(scope, "mail")).dead == 32


async def test_a_page_that_ends_where_they_end_has_no_next(queues: RunQueues, scope: Scope) -> None:
    await bury(queues, scope, 3)
    assert (await queues.dead_letters(scope, "mail", limit=3)).next is None


async def test_a_redriven_task_has_all_its_attempts(queues: RunQueues, scope: Scope) -> None:
    [one, two] = await bury(queues, scope, 2, max_attempts=1, ttl_ms=60_000)
    outcomes = await queues.redrive(scope, "mail", [one, "nonsense", one])
    assert outcomes[0] == Settled(one, TaskState.ELIGIBLE)
    assert isinstance(outcomes[1], UnknownTask)
    assert isinstance(outcomes[2], UnknownTask)
    task = await queues.task(scope, one)
    assert (task.attempts, task.dead_ms, task.due_ms) == (0, None, task.eligible_ms + 60_000)
    [running] = await queues.dequeue(scope, "mail", limit=5)
    assert (running.id, running.attempt) == (one, 1)
    assert [dead.id for dead in (await queues.dead_letters(scope, "mail")).tasks] == [two]


async def test_all_are_redriven(queues: RunQueues, scope: Scope) -> None:
    await bury(queues, scope, 700)
    assert await queues.redrive_all(scope, "mail") == 700
    state = await queues.queue(scope, "mail")
    assert (state.eligible, state.dead) == (700, 0)
    assert await queues.redrive_all(scope, "mail") == 0


async def test_deleted_ones_are_gone_for_good(queues: RunQueues, scope: Scope) -> None:
    one, two, three = await bury(queues, scope, 3)
    [elsewhere] = await bury(queues, scope, 1, "calls")
    [alive] = await queues.enqueue(scope, "mail", [NewTask()])
    outcomes = await queues.delete_dead(scope, "mail", [two, elsewhere, alive.id])
    assert outcomes[0] == Settled(two, None)
    assert all(isinstance(outcome, UnknownTask) for outcome in outcomes[1:])
    assert [task.id for task in (await queues.dead_letters(scope, "mail")).tasks] == [one, three]
    assert await queues.purge_dead(scope, "mail") == 2
    assert (await queues.queue(scope, "mail")).dead == 0
    assert (await queues.task(scope, alive.id)).state is TaskState.ELIGIBLE
    assert (await queues.task(scope, elsewhere)).state is TaskState.DEAD


async def test_a_queue_is_deleted_only_without_tasks(queues: RunQueues, scope: Scope) -> None:
    [dead] = await bury(queues, scope, 1)
    await queues.set_queue_limit(scope, "mail", 3)
    with pytest.raises(WrongState, match="1 dead"):
        await queues.delete_queue(scope, "mail")
    await queues.delete_dead(scope, "mail", [dead])
    await queues.delete_queue(scope, "mail")
    assert not await queues.has_queue(scope, "mail")
    assert await queues.queues(scope) == []
    await queues.enqueue(scope, "mail", [NewTask()] * 5)
    assert (await queues.queue(scope, "mail")).limit is None, "a new queue knows nothing of the old one"
    assert len(await queues.dequeue(scope, "mail", limit=5)) == 5
    assert await queues.repair() == 0


async def test_an_unknown_queue_is_named(queues: RunQueues, scope: Scope) -> None:
    for call in (
        queues.dead_letters(scope, "mail"),
        queues.redrive(scope, "mail", ["x"]),
        queues.redrive_all(scope, "mail"),
        queues.purge_dead(scope, "mail"),
        queues.delete_dead(scope, "mail", ["x"]),
        queues.queue(scope, "mail"),
        queues.delete_queue(scope, "mail"),
    ):
        with pytest.raises(UnknownQueue, match="no run queue 'mail'"):
            await call


@pytest.mark.parametrize("after", ["nonsense", "12", "x:y", f"{10**20}:x"])
async def test_a_place_that_no_page_gave_is_refused(queues: RunQueues, scope: Scope, after: str) -> None:
    await bury(queues, scope, 1)
    with pytest.raises(InvalidRequest, match="`next` of a page"):
        await queues.dead_letters(scope, "mail", after=after)
    with pytest.raises(InvalidRequest, match="limit"):
        await queues.dead_letters(scope, "mail", limit=0)
