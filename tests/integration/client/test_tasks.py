"""Run queues through the client: every method, on a broker with Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from penstock.client import (
    Client,
    InvalidRequest,
    LeaseLost,
    NewTask,
    NotFound,
    SyncClient,
    Unavailable,
    WrongState,
)
from tests.deadlines import deadline_s
from tests.integration.client.broker_server import FAST_RETRIES, LossyProxy, run_broker
from tests.integration.databases import new_database
from tests.waiting import wait_until


@pytest_asyncio.fixture(scope="module")
async def broker_url(postgres_url: str, shared_redis_url: str, template: str) -> AsyncIterator[str]:
    async with (
        new_database(postgres_url, template) as database,
        run_broker(database, redis_url=shared_redis_url) as url,
    ):
        yield url


@dataclass
class Order:
    id: int


async def test_a_task_is_enqueued_dequeued_and_acked(client: Client, queue: str) -> None:
    enqueued = await client.tasks.enqueue(queue, Order(7), priority=2, max_attempts=5)
    assert enqueued.status == "queued"
    assert (await client.tasks.get(enqueued.id)).state == "eligible"
    [task] = await client.tasks.dequeue(queue, visibility_s=60)
    assert task.into(Order) == Order(7)
    assert (task.attempt, task.max_attempts, task.priority, task.queue) == (1, 5, 2, queue)
    assert (task.held_until - task.started_at).total_seconds() == pytest.approx(60, abs=0.1)
    assert (await client.tasks.ack(task)).state is None
    with pytest.raises(NotFound):
        await client.tasks.get(enqueued.id)
    with pytest.raises((LeaseLost, NotFound)):
        await client.tasks.ack(task)
    assert await client.tasks.dequeue(queue) == []


async def test_batches_of_tasks_have_one_result_per_task(client: Client, queue: str) -> None:
    new_tasks = [NewTask({"n": n}, idempotency_key="same" if n < 2 else None) for n in range(5)]
    results = await client.tasks.enqueue_many(queue, new_tasks)
    assert [result.status for result in results] == ["queued", "duplicate", "queued", "queued", "queued"]
    assert results[0].id == results[1].id
    first, second, third, fourth = await client.tasks.dequeue(queue, limit=10)
    extended = await client.tasks.heartbeat_many([first, second, third, fourth], 120)
    assert all(result.success and result.due_at > first.held_until for result in extended if result.due_at)
    assert [r.success for r in await client.tasks.ack_many([first, second])] == [True, True]
    partly_refused = await client.tasks.ack_many([first, third])
    assert [result.success for result in partly_refused] == [False, True]
    assert partly_refused[0].error
    [failed] = await client.tasks.nack_many([(fourth, "no")])
    assert failed.state in ("delayed", "eligible")
    state = await client.tasks.queue(queue)
    assert (state.depth + state.delayed, state.running) == (1, 0)


async def test_a_dead_task_is_listed_redriven_and_deleted(client: Client, queue: str) -> None:
    await client.tasks.enqueue(queue, "x", max_attempts=1)
    [task] = await client.tasks.dequeue(queue)
    assert (await client.tasks.nack(task, "broken")).state == "dead"
    dead = await client.tasks.dead_letters(queue)
    assert (dead.total, [(dead_task.id, dead_task.error) for dead_task in dead.tasks]) == (
        1,
        [(task.id, "broken")],
    )
    assert await client.tasks.redrive(queue, [task.id]) == 1
    [task] = await client.tasks.dequeue(queue)
    await client.tasks.nack(task, retry=False)
    assert await client.tasks.delete_dead(queue) == 1
    assert (await client.tasks.dead_letters(queue)).tasks == []


async def test_delays_and_expiry_are_given_in_seconds(client: Client, queue: str) -> None:
    await client.tasks.enqueue(queue, "later", delay_s=0.3)
    await client.tasks.enqueue(queue, "never", delay_s=3600, ttl_s=7200)
    assert await client.tasks.dequeue(queue) == []
    state = await client.tasks.queue(queue)
    assert (state.depth, state.delayed) == (0, 2)
    [task] = await client.tasks.dequeue(queue, wait_s=10)
    assert task.payload == "later"
    assert (await client.tasks.heartbeat(task, 30)).state == "running"
    assert (await client.tasks.give_back(task)).state == "eligible"


async def test_limits_and_pauses_of_a_run_queue(client: Client, queue: str) -> None:
    await client.tasks.enqueue_many(queue, [NewTask(n) for n in range(3)])
    assert (await client.tasks.set_limit(queue, 1)).concurrency == 1
    assert len(await client.tasks.dequeue(queue, limit=3)) == 1
    assert (await client.tasks.set_limit(queue, None)).concurrency is None
    assert (await client.tasks.pause(queue)).paused
    assert await client.tasks.dequeue(queue) == []
    assert not (await client.tasks.resume(queue)).paused
    assert [state.name for state in await client.tasks.queues(search=queue)] == [queue]
    with pytest.raises(WrongState, match="still has tasks"):
        await client.tasks.delete_queue(queue)
    limits = await client.tasks.set_limits(5, burst=2.0)
    assert (limits.concurrency, limits.burst) == (5, 2.0)
    assert (await client.tasks.limits()).concurrency == 5
    assert (await client.tasks.limits("default")).concurrency == 5
    with pytest.raises(NotFound):
        await client.tasks.set_limits(1, environment="another")
    await client.tasks.set_limits(None)


async def test_invalid_requests_are_refused(client: Client, queue: str) -> None:
    with pytest.raises(InvalidRequest, match="priority"):
        await client.tasks.enqueue(queue, 1, priority=10)
    with pytest.raises(NotFound):
        await client.tasks.queue(queue)
    await client.push(f"{queue}-durable", 1)
    with pytest.raises(WrongState, match="durable"):
        await client.tasks.enqueue(f"{queue}-durable", 1)


async def test_a_lost_response_does_not_duplicate_a_task(broker_url: str, queue: str) -> None:
    async with LossyProxy(broker_url) as proxy, Client(proxy.url, FAST_RETRIES) as client:
        proxy.drop_responses()
        enqueued = await client.tasks.enqueue(queue, 1)
        assert (proxy.dropped, enqueued.status) == (1, "queued")
        assert (await client.tasks.queue(queue)).depth == 1
        [task] = await client.tasks.dequeue(queue)
        proxy.drop_responses()
        [result] = await client.tasks.ack_many([task])
        assert (result.success, result.uncertain) == (False, True)
        assert (await client.tasks.queue(queue)).running == 0


async def test_a_cancelled_dequeue_takes_no_task(broker_url: str, client: Client, queue: str) -> None:
    async with Client(broker_url, FAST_RETRIES) as cancelling_client:
        waiting = asyncio.create_task(cancelling_client.tasks.dequeue(queue, wait_s=30))
        await client.tasks.enqueue(f"{queue}-other", 1)  # by now the dequeue is sent, and most likely waits
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    await client.tasks.enqueue(queue, "kept")
    [task] = await client.tasks.dequeue(queue, wait_s=10)
    assert (task.payload, task.attempt) == ("kept", 1)


async def test_the_synchronous_client_has_tasks_and_workers(broker_url: str, queue: str) -> None:
    def work() -> list[object]:
        with SyncClient(broker_url, FAST_RETRIES) as client:
            client.tasks.enqueue(queue, 1)
            [task] = client.tasks.dequeue(queue)
            client.tasks.ack(task)
            client.tasks.enqueue_many(queue, [NewTask(2), NewTask(3)])
            handled: list[object] = []
            worker = client.tasks.worker(queue, lambda task: handled.append(task.payload))
            with worker:
                wait_until(
                    lambda: len(handled) == 2 and not client.tasks.queue(queue).running,
                    15,
                    "both tasks are acked",
                )
            return sorted([task.payload, *handled])

    assert await asyncio.wait_for(asyncio.to_thread(work), deadline_s(20)) == [1, 2, 3]


async def test_a_stopping_broker_ends_waiting_dequeues(database_url: str, redis_url: str, queue: str) -> None:
    async with run_broker(database_url, redis_url=redis_url) as url:
        client = Client(url, FAST_RETRIES)
        await client.tasks.enqueue(queue, 1)
        [task] = await client.tasks.dequeue(queue)
        waiting = asyncio.create_task(client.tasks.dequeue(queue, wait_s=60))
        await client.tasks.ack(task)
    assert await asyncio.wait_for(waiting, deadline_s(5)) == []
    await client.close()


async def test_without_redis_tasks_are_unavailable(database_url: str, queue: str) -> None:
    async with run_broker(database_url) as url, Client(url, FAST_RETRIES) as client:
        with pytest.raises(Unavailable, match="Redis"):
            await client.tasks.enqueue(queue, 1)
