"""Run queues through the client: every verb, on a real broker and a real Redis."""

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
from tests.integration.client.served import QUICK, Line, serving
from tests.integration.databases import new_database


@pytest_asyncio.fixture(scope="module")
async def broker_url(postgres_url: str, redis_url: str, template: str) -> AsyncIterator[str]:
    async with (
        new_database(postgres_url, template) as database,
        serving(database, redis_url=redis_url) as url,
    ):
        yield url


@dataclass
class Order:
    id: int


async def test_a_task_goes_its_way(client: Client, queue: str) -> None:
    made = await client.tasks.enqueue(queue, Order(7), priority=2, max_attempts=5)
    assert made.status == "queued"
    assert (await client.tasks.get(made.id)).state == "eligible"
    [task] = await client.tasks.dequeue(queue, visibility_s=60)
    assert task.into(Order) == Order(7)
    assert (task.attempt, task.max_attempts, task.priority, task.queue) == (1, 5, 2, queue)
    assert (task.held_until - task.started_at).total_seconds() == pytest.approx(60, abs=0.1)
    assert (await client.tasks.ack(task)).state is None
    with pytest.raises(NotFound):
        await client.tasks.get(made.id)
    with pytest.raises((LeaseLost, NotFound)):
        await client.tasks.ack(task)
    assert await client.tasks.dequeue(queue) == []


async def test_many_travel_together_and_each_has_its_result(client: Client, queue: str) -> None:
    new = [NewTask({"n": n}, idempotency_key="same" if n < 2 else None) for n in range(5)]
    results = await client.tasks.enqueue_many(queue, new)
    assert [result.status for result in results] == ["queued", "duplicate", "queued", "queued", "queued"]
    assert results[0].id == results[1].id
    one, two, three, four = await client.tasks.dequeue(queue, limit=10)
    held = await client.tasks.heartbeat_many([one, two, three, four], 120)
    assert all(result.success and result.due_at > one.held_until for result in held if result.due_at)
    assert [r.success for r in await client.tasks.ack_many([one, two])] == [True, True]
    again = await client.tasks.ack_many([one, three])
    assert [result.success for result in again] == [False, True]
    assert again[0].error
    [failed] = await client.tasks.nack_many([(four, "no")])
    assert failed.state in ("delayed", "eligible")
    state = await client.tasks.queue(queue)
    assert (state.depth + state.delayed, state.running) == (1, 0)


async def test_a_failed_task_dies_is_looked_at_and_redriven(client: Client, queue: str) -> None:
    await client.tasks.enqueue(queue, "x", max_attempts=1)
    [task] = await client.tasks.dequeue(queue)
    assert (await client.tasks.nack(task, "broken")).state == "dead"
    dead = await client.tasks.dead_letters(queue)
    assert (dead.total, [(letter.id, letter.error) for letter in dead.tasks]) == (1, [(task.id, "broken")])
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


async def test_limits_and_pauses(client: Client, queue: str) -> None:
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
    environment = f"env-{queue}"
    limits = await client.tasks.set_limits(5, burst=2.0, environment=environment)
    assert (limits.concurrency, limits.burst) == (5, 2.0)
    assert (await client.tasks.limits(environment)).concurrency == 5


async def test_what_cannot_be_is_told(client: Client, queue: str) -> None:
    with pytest.raises(InvalidRequest, match="priority"):
        await client.tasks.enqueue(queue, 1, priority=10)
    with pytest.raises(NotFound):
        await client.tasks.queue(queue)
    await client.push(f"{queue}-durable", 1)
    with pytest.raises(WrongState, match="durable"):
        await client.tasks.enqueue(f"{queue}-durable", 1)


async def test_a_lost_answer_does_not_double_a_task(broker_url: str, queue: str) -> None:
    async with Line(broker_url) as line, Client(line.url, QUICK) as client:
        line.lose_answers()
        made = await client.tasks.enqueue(queue, 1)
        assert (line.lost, made.status) == (1, "queued")
        assert (await client.tasks.queue(queue)).depth == 1
        [task] = await client.tasks.dequeue(queue)
        line.lose_answers()
        [result] = await client.tasks.ack_many([task])
        assert (result.success, result.uncertain) == (False, True)
        assert (await client.tasks.queue(queue)).running == 0


async def test_a_worker_that_leaves_while_it_waits_takes_nothing_with_it(
    broker_url: str, client: Client, queue: str
) -> None:
    async with Client(broker_url, QUICK) as leaving:
        waiting = asyncio.create_task(leaving.tasks.dequeue(queue, wait_s=30))
        await client.tasks.enqueue(f"{queue}-other", 1)  # by now it has been sent, and most likely waits
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    await client.tasks.enqueue(queue, "kept")
    [task] = await client.tasks.dequeue(queue, wait_s=10)
    assert (task.payload, task.attempt) == ("kept", 1)


async def test_the_same_from_plain_threads(broker_url: str, queue: str) -> None:
    def work() -> list[object]:
        with SyncClient(broker_url, QUICK) as client:
            client.tasks.enqueue(queue, 1)
            [task] = client.tasks.dequeue(queue)
            client.tasks.ack(task)
            client.tasks.enqueue_many(queue, [NewTask(2), NewTask(3)])
            seen: list[object] = []
            worker = client.tasks.worker(queue, lambda task: seen.append(task.payload))
            with worker:
                while len(seen) < 2 or client.tasks.queue(queue).running:
                    pass
            return sorted([task.payload, *seen])

    assert await asyncio.wait_for(asyncio.to_thread(work), 20) == [1, 2, 3]


async def test_a_broker_that_stops_lets_waiting_dequeues_go(
    database_url: str, redis_url: str, queue: str
) -> None:
    async with serving(database_url, redis_url=redis_url) as url:
        client = Client(url, QUICK)
        await client.tasks.enqueue(queue, 1)
        [task] = await client.tasks.dequeue(queue)
        waiting = asyncio.create_task(client.tasks.dequeue(queue, wait_s=60))
        await client.tasks.ack(task)
    assert await asyncio.wait_for(waiting, 5) == []
    await client.close()


async def test_without_redis_tasks_are_unavailable(database_url: str, queue: str) -> None:
    async with serving(database_url) as url, Client(url, QUICK) as client:
        with pytest.raises(Unavailable, match="Redis"):
            await client.tasks.enqueue(queue, 1)
