"""Jobs on dead letters: carried out by one process at a time, and gone on with by the next."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from penstock.broker.broker import Broker
from penstock.broker.dead_letters import job_runner
from penstock.broker.dead_letters.job_runner import DeadJobs, chunk_of, next_chunk, pause_s
from penstock.durable.dead_letters import jobs
from penstock.durable.dead_letters.dead_letter_queries import Filter
from penstock.model import DEFAULT_SCOPE
from tests.integration.broker.brokers import Brokers, ack, payloads, pop, push
from tests.waiting import wait_until_async

LETTERS = 60


async def killed(broker: Broker, queue: str = "q") -> None:
    await push(broker, *(str(number) for number in range(LETTERS)), queue=queue)
    while (got := await pop(broker, queue, batch=100)).messages:
        await ack(broker, got, "dlq")


async def reached(broker: Broker, job_id: object, changed: int = 0, state: str = "running") -> None:
    async def has() -> bool:
        job = await broker.dead_letters.job(DEFAULT_SCOPE, job_id)  # type: ignore[arg-type]
        return bool(job["changed"] >= changed and job["state"] == state)

    await wait_until_async(has, 20, f"the job is {state} and has changed {changed}")


@pytest.mark.parametrize("ending", ["killed", "stopped"])
async def test_another_process_goes_on_where_one_ended(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    monkeypatch.setattr(job_runner, "CHUNK", {"requeue": 5, "purge": 5})
    monkeypatch.setattr(job_runner, "IDLE_S", 0.05)
    monkeypatch.setattr(job_runner, "SHORTEST_S", 0.05)
    if ending == "killed":
        monkeypatch.setattr(jobs, "LEASE_MS", 500)
    first, second = await brokers.start(), await brokers.start()
    await killed(first)
    here, there = DeadJobs(first.dead_letters), DeadJobs(second.dead_letters)
    await here.start()
    job = await first.dead_letters.make_job(DEFAULT_SCOPE, "requeue", Filter(queue="q"))
    await reached(first, job["id"], changed=5)
    if ending == "killed":  # nothing of it is given back
        assert here._task is not None
        for task in (here._task, *here._running):
            task.cancel()
    else:
        await here.stop()
    left = (await second.dead_letters.job(DEFAULT_SCOPE, job["id"]))["changed"]
    assert left < LETTERS
    await there.start()
    await reached(second, job["id"], changed=LETTERS, state="done")
    await there.stop()
    seen: list[str] = []
    while (got := await pop(second, batch=100)).messages:
        seen += payloads(got)
        await ack(second, got)
    assert Counter(seen) == Counter(str(number) for number in range(LETTERS)), "each came back once"
    assert seen == sorted(seen, key=int), "in the order they had"


async def test_a_job_that_is_slow_on_purpose_holds_up_no_other(broker: Broker) -> None:
    for queue in ("slow", "fast"):
        await killed(broker, queue)
    runner = DeadJobs(broker.dead_letters)
    await runner.start()
    make = broker.dead_letters.make_job
    slow = await make(DEFAULT_SCOPE, "purge", Filter(queue="slow"), rate=1)
    await reached(broker, slow["id"], changed=1)
    fast = await make(DEFAULT_SCOPE, "purge", Filter(queue="fast"))
    await reached(broker, fast["id"], changed=LETTERS, state="done")
    assert (await broker.dead_letters.job(DEFAULT_SCOPE, slow["id"]))["state"] == "running"
    await runner.stop()


async def test_a_requeue_wakes_a_consumer_that_waits(broker: Broker) -> None:
    await killed(broker)
    runner = DeadJobs(broker.dead_letters)
    await runner.start()
    waiting = asyncio.create_task(pop(broker, wait_s=30, batch=1))
    await wait_until_async(lambda: _parked(broker), 10, "a pop waits")
    await broker.dead_letters.make_job(DEFAULT_SCOPE, "requeue", Filter(queue="q"))
    got = await asyncio.wait_for(waiting, 10)
    assert payloads(got) == ["0"]
    await runner.stop()
    await runner.stop()


async def _parked(broker: Broker) -> bool:
    return broker.parked_pops.count == 1


def test_a_rate_decides_how_many_at_a_time_and_how_long_to_wait() -> None:
    assert chunk_of("purge", None) == 500
    assert (chunk_of("purge", 10), chunk_of("purge", 1), chunk_of("requeue", 100_000)) == (5, 1, 100)
    assert pause_s(10, 5, 0.1) == pytest.approx(0.4)
    assert pause_s(10, 0, 3.0) < 0.01
    assert pause_s(None, 500, 0.03) == 0.03, "as long as it took"


def test_chunks_that_take_long_get_smaller_and_grow_again() -> None:
    sizes = [50]
    for took_s in (0.01, 0.01, 0.01, 0.01, 0.04, 0.2, 0.2, 0.2, 0.2, 0.03, 0.01):
        sizes.append(next_chunk(sizes[-1], 500, took_s))
    assert sizes == [50, 100, 200, 400, 500, 500, 250, 125, 62, 50, 50, 100]
    assert [next_chunk(3, 5, took_s) for took_s in (0.01, 9.0)] == [5, 1]
    assert next_chunk(1, 1, 9.0) == 1
