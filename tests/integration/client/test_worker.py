"""Workers: what they promise about tasks, handlers and stopping."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from penstock.client import Client, InvalidRequest, NewTask, RunQueue, Task
from tests.integration.client.served import QUICK, serving
from tests.integration.databases import new_database
from tests.waiting import wait_until_async


@pytest_asyncio.fixture(scope="module")
async def broker_url(postgres_url: str, redis_url: str, template: str) -> AsyncIterator[str]:
    async with (
        new_database(postgres_url, template) as database,
        serving(database, redis_url=redis_url) as url,
    ):
        yield url


async def is_empty(client: Client, queue: str) -> None:
    async def empty() -> bool:
        state = await client.tasks.queue(queue)
        return state.depth == state.delayed == state.running == 0

    await wait_until_async(empty, 15, f"{queue} is empty")


async def state_of(client: Client, queue: str) -> RunQueue:
    return await client.tasks.queue(queue)


async def test_every_task_is_handled_once_and_acked(client: Client, queue: str) -> None:
    handled: list[int] = []

    async def handle(task: Task) -> None:
        await asyncio.sleep(0)
        handled.append(task.payload)

    await client.tasks.enqueue_many(queue, [NewTask(n) for n in range(200)])
    async with client.tasks.worker(queue, handle, concurrency=20):
        await is_empty(client, queue)
    assert sorted(handled) == list(range(200))


async def test_no_more_handlers_run_than_it_has_places(client: Client, queue: str) -> None:
    running, most = 0, 0

    async def handle(task: Task) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1

    await client.tasks.enqueue_many(queue, [NewTask(n) for n in range(30)])
    async with client.tasks.worker(queue, handle, concurrency=4):
        await is_empty(client, queue)
    assert most == 4


async def test_a_task_whose_handler_raises_is_tried_again_and_dies_with_the_error(
    client: Client, queue: str
) -> None:
    attempts: list[int] = []

    async def handle(task: Task) -> None:
        attempts.append(task.attempt)
        raise ValueError("it is broken")

    await client.tasks.enqueue(queue, 1, max_attempts=1)
    async with client.tasks.worker(queue, handle):

        async def dead() -> bool:
            return (await client.tasks.queue(queue)).dead == 1

        await wait_until_async(dead, 15, "the task is dead")
    [letter] = (await client.tasks.dead_letters(queue)).tasks
    assert (letter.error, attempts) == ("ValueError: it is broken", [1])


async def test_heartbeats_hold_a_task_for_as_long_as_it_takes(client: Client, queue: str) -> None:
    started: list[int] = []

    async def handle(task: Task) -> None:
        started.append(task.attempt)
        first = (await client.tasks.get(task.id)).due_at

        async def held_for_longer() -> bool:
            due = (await client.tasks.get(task.id)).due_at
            return due is not None and first is not None and (due - first).total_seconds() > 0.6

        await wait_until_async(held_for_longer, 15, "heartbeats came")

    await client.tasks.enqueue(queue, 1)
    async with client.tasks.worker(queue, handle, visibility_s=0.9):
        await is_empty(client, queue)
    assert started == [1]


async def test_a_lost_task_is_told_and_its_handler_cancelled(
    client: Client, queue: str, redis_url: str
) -> None:
    lost: list[Task] = []
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def handle(task: Task) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()  # for ever
        except asyncio.CancelledError:
            cancelled.set()
            raise

    await client.tasks.enqueue(queue, 1)
    async with client.tasks.worker(queue, handle, visibility_s=0.6, on_lost=lost.append):
        await asyncio.wait_for(begun.wait(), 10)
        async with Redis.from_url(redis_url) as redis:
            await redis.flushdb()  # as a Redis that lost its data
        await asyncio.wait_for(cancelled.wait(), 10)
    assert [task.payload for task in lost] == [1]


async def test_stopping_lets_handlers_end_and_gives_back_the_rest(client: Client, queue: str) -> None:
    begun, go = asyncio.Event(), asyncio.Event()
    finished: list[int] = []

    async def handle(task: Task) -> None:
        begun.set()
        await go.wait()
        finished.append(task.payload)

    await client.tasks.enqueue_many(queue, [NewTask(n) for n in range(3)])
    worker = client.tasks.worker(queue, handle, concurrency=1)
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(begun.wait(), 10)
    worker.stop()
    assert worker.stopping
    go.set()
    await asyncio.wait_for(running, 10)
    assert finished == [0]
    state = await state_of(client, queue)
    assert (state.depth, state.running) == (2, 0)


async def test_a_handler_past_its_grace_is_cancelled_and_its_attempt_not_counted(
    client: Client, queue: str
) -> None:
    begun = asyncio.Event()

    async def handle(task: Task) -> None:
        begun.set()
        await asyncio.Event().wait()  # for ever

    await client.tasks.enqueue(queue, 1)
    async with client.tasks.worker(queue, handle, grace_s=0):
        await asyncio.wait_for(begun.wait(), 10)
    [task] = await client.tasks.dequeue(queue)
    assert task.attempt == 1


async def test_a_worker_that_waits_stops_at_once(client: Client, queue: str) -> None:
    async with client.tasks.worker(queue, print, wait_s=30):
        await client.tasks.enqueue(f"{queue}-other", 1)
    await client.tasks.enqueue(queue, 1)
    assert len(await client.tasks.dequeue(queue, wait_s=5)) == 1


async def test_plain_functions_run_in_threads(client: Client, queue: str) -> None:
    together = threading.Barrier(3)

    def handle(task: Task) -> None:
        together.wait(10)

    await client.tasks.enqueue_many(queue, [NewTask(n) for n in range(3)])
    async with client.tasks.worker(queue, handle, concurrency=3):
        await is_empty(client, queue)


async def test_a_worker_of_all_queues(client: Client, queue: str) -> None:
    seen: set[str] = set()

    async def handle(task: Task) -> None:
        seen.add(task.queue)

    names = {f"{queue}-{n}" for n in range(3)}
    for name in names:
        await client.tasks.enqueue(name, 1)
    async with client.tasks.worker(None, handle, concurrency=5):

        async def all_seen() -> bool:
            return names <= seen

        await wait_until_async(all_seen, 15, "tasks of all queues were handled")


async def test_what_can_never_work_ends_the_worker(client: Client) -> None:
    with pytest.raises(InvalidRequest, match="name"):
        await asyncio.wait_for(client.tasks.worker("a\tb", print).run(), 10)


async def test_closing_the_client_stops_its_workers(broker_url: str, queue: str) -> None:
    client = Client(broker_url, QUICK)
    await client.tasks.enqueue(queue, 1)
    begun = asyncio.Event()

    async def handle(task: Task) -> None:
        begun.set()

    running = asyncio.create_task(client.tasks.worker(queue, handle).run())
    await asyncio.wait_for(begun.wait(), 10)
    await client.close()
    await asyncio.wait_for(running, 1)
