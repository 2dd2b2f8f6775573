"""Workers: handlers, heartbeats, lost tasks, and graceful stops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from penstock.client import Client, InvalidRequest, NewTask, Task
from tests.deadlines import deadline_s
from tests.integration.client.broker_server import FAST_RETRIES, run_broker
from tests.integration.databases import new_database
from tests.waiting import wait_until_async


@pytest_asyncio.fixture(scope="module")
async def broker_url(postgres_url: str, shared_redis_url: str, template: str) -> AsyncIterator[str]:
    async with (
        new_database(postgres_url, template) as database,
        run_broker(database, redis_url=shared_redis_url) as url,
    ):
        yield url


async def wait_until_empty(client: Client, queue: str) -> None:
    async def is_empty() -> bool:
        state = await client.tasks.queue(queue)
        return state.depth == state.delayed == state.running == 0

    await wait_until_async(is_empty, 15, f"{queue} is empty")


async def test_every_task_is_handled_once_and_acked(client: Client, queue: str) -> None:
    handled: list[int] = []

    async def handle(task: Task) -> None:
        await asyncio.sleep(0)
        handled.append(task.payload)

    await client.tasks.enqueue_many(queue, [NewTask(n) for n in range(200)])
    async with client.tasks.worker(queue, handle, concurrency=20):
        await wait_until_empty(client, queue)
    assert sorted(handled) == list(range(200))


async def test_a_worker_runs_at_most_its_concurrency(client: Client, queue: str) -> None:
    running, max_running = 0, 0

    async def handle(task: Task) -> None:
        nonlocal running, max_running
        running += 1
        max_running = max(max_running, running)
        await asyncio.sleep(0.01)
        running -= 1

    await client.tasks.enqueue_many(queue, [NewTask(n) for n in range(30)])
    async with client.tasks.worker(queue, handle, concurrency=4):
        await wait_until_empty(client, queue)
    assert max_running == 4


async def test_a_task_is_dead_with_the_error_of_its_handler(client: Client, queue: str) -> None:
    attempts: list[int] = []

    async def handle(task: Task) -> None:
        attempts.append(task.attempt)
        raise ValueError("invalid payload")

    await client.tasks.enqueue(queue, 1, max_attempts=1)
    async with client.tasks.worker(queue, handle):

        async def is_dead() -> bool:
            return (await client.tasks.queue(queue)).dead == 1

        await wait_until_async(is_dead, 15, "the task is dead")
    [dead_task] = (await client.tasks.dead_letters(queue)).tasks
    assert (dead_task.error, attempts) == ("ValueError: invalid payload", [1])


async def test_heartbeats_extend_the_lease_while_the_handler_runs(client: Client, queue: str) -> None:
    attempts: list[int] = []

    async def handle(task: Task) -> None:
        attempts.append(task.attempt)
        first_due = (await client.tasks.get(task.id)).due_at

        async def is_extended() -> bool:
            due = (await client.tasks.get(task.id)).due_at
            return due is not None and first_due is not None and (due - first_due).total_seconds() > 0.6

        await wait_until_async(is_extended, 15, "heartbeats extend the lease")

    await client.tasks.enqueue(queue, 1)
    async with client.tasks.worker(queue, handle, visibility_s=0.9):
        await wait_until_empty(client, queue)
    assert attempts == [1]


async def test_a_lost_task_is_reported_and_its_handler_cancelled(
    client: Client, queue: str, shared_redis_url: str
) -> None:
    lost: list[Task] = []
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def handle(task: Task) -> None:
        started.set()
        try:
            await asyncio.Event().wait()  # forever
        except asyncio.CancelledError:
            cancelled.set()
            raise

    await client.tasks.enqueue(queue, 1)
    async with client.tasks.worker(queue, handle, visibility_s=0.6, on_lost=lost.append):
        await asyncio.wait_for(started.wait(), deadline_s(10))
        async with Redis.from_url(shared_redis_url) as redis:
            await redis.flushdb()  # like a Redis that lost its data
        await asyncio.wait_for(cancelled.wait(), deadline_s(10))
    assert [task.payload for task in lost] == [1]


async def test_stop_finishes_running_handlers_and_takes_no_more_tasks(client: Client, queue: str) -> None:
    started, may_finish = asyncio.Event(), asyncio.Event()
    finished: list[int] = []

    async def handle(task: Task) -> None:
        started.set()
        await may_finish.wait()
        finished.append(task.payload)

    await client.tasks.enqueue_many(queue, [NewTask(n) for n in range(3)])
    worker = client.tasks.worker(queue, handle, concurrency=1)
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(started.wait(), deadline_s(10))
    worker.stop()
    assert worker.stopping
    may_finish.set()
    await asyncio.wait_for(running, deadline_s(10))
    assert finished == [0]
    state = await client.tasks.queue(queue)
    assert (state.depth, state.running) == (2, 0)


async def test_a_handler_past_its_grace_is_cancelled_without_counting_the_attempt(
    client: Client, queue: str
) -> None:
    started = asyncio.Event()

    async def handle(task: Task) -> None:
        started.set()
        await asyncio.Event().wait()  # forever

    await client.tasks.enqueue(queue, 1)
    async with client.tasks.worker(queue, handle, grace_s=0):
        await asyncio.wait_for(started.wait(), deadline_s(10))
    [task] = await client.tasks.dequeue(queue)
    assert task.attempt == 1


async def test_a_waiting_worker_stops_at_once(client: Client, queue: str) -> None:
    async with client.tasks.worker(queue, print, wait_s=30):
        await client.tasks.enqueue(f"{queue}-other", 1)
    await client.tasks.enqueue(queue, 1)
    assert len(await client.tasks.dequeue(queue, wait_s=5)) == 1


async def test_plain_functions_run_in_threads(client: Client, queue: str) -> None:
    together = threading.Barrier(3)

    def handle(task: Task) -> None:
        together.wait(deadline_s(10))

    await client.tasks.enqueue_many(queue, [NewTask(n) for n in range(3)])
    async with client.tasks.worker(queue, handle, concurrency=3):
        await wait_until_empty(client, queue)


async def test_a_worker_without_a_queue_serves_all_queues(client: Client, queue: str) -> None:
    handled_queues: set[str] = set()

    async def handle(task: Task) -> None:
        handled_queues.add(task.queue)

    names = {f"{queue}-{n}" for n in range(3)}
    for name in names:
        await client.tasks.enqueue(name, 1)
    async with client.tasks.worker(None, handle, concurrency=5):

        async def all_handled() -> bool:
            return names <= handled_queues

        await wait_until_async(all_handled, 15, "tasks of all queues were handled")


async def test_an_invalid_request_ends_the_worker(client: Client) -> None:
    with pytest.raises(InvalidRequest, match="name"):
        await asyncio.wait_for(client.tasks.worker("a\tb", print).run(), deadline_s(10))


async def test_closing_the_client_stops_its_workers(broker_url: str, queue: str) -> None:
    client = Client(broker_url, FAST_RETRIES)
    await client.tasks.enqueue(queue, 1)
    started = asyncio.Event()

    async def handle(task: Task) -> None:
        started.set()

    running = asyncio.create_task(client.tasks.worker(queue, handle).run())
    await asyncio.wait_for(started.wait(), deadline_s(10))
    await client.close()
    await asyncio.wait_for(running, deadline_s(1))


async def test_a_task_group_runs_workers_until_they_are_stopped(client: Client, queue: str) -> None:
    handled: asyncio.Queue[int] = asyncio.Queue()
    workers = [client.tasks.worker(queue, lambda task: handled.put(task.payload)) for _ in range(2)]
    await client.tasks.enqueue(queue, 7)
    async with asyncio.TaskGroup() as group:
        for worker in workers:
            group.create_task(worker)
        assert await handled.get() == 7
        for worker in workers:
            worker.stop()
    state = await client.tasks.queue(queue)
    assert (state.depth, state.running) == (0, 0)
