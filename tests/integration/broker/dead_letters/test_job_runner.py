"""Jobs on dead letters: one process executes a job at a time, and another continues it."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter

import pytest

from penstock.broker.broker import Broker
from penstock.broker.dead_letters.dead_letter_source import JobRequest
from penstock.broker.dead_letters.job_runner import DeadLetterJobRunner, JobPacing, next_chunk_size
from penstock.durable.dead_letters.dead_letter_store import DeadLetterFilter
from penstock.durable.dead_letters.jobs import JobSample
from penstock.durable.pool import Database
from penstock.model import DEFAULT_SCOPE
from tests.deadlines import deadline_s
from tests.integration.broker.brokers import Brokers, ack, payloads, pop, push, wait_for_parked_pops
from tests.waiting import wait_until_async

DEAD_LETTERS = 60


def job_request(kind: str, queue: str, rate: int | None = None) -> JobRequest:
    return JobRequest(kind, DeadLetterFilter(queue=queue), rate=rate)


async def create_dead_letters(broker: Broker, queue: str = "q") -> None:
    await push(broker, *(str(number) for number in range(DEAD_LETTERS)), queue=queue)
    while (popped := await pop(broker, queue, batch=100)).messages:
        await ack(broker, popped, "dlq")


async def wait_for_job(broker: Broker, job_id: uuid.UUID, changed: int = 0, state: str = "running") -> None:
    async def has_progress() -> bool:
        job = await broker.dead_letters.get_job(DEFAULT_SCOPE, job_id)
        return job.changed >= changed and job.state == state

    await wait_until_async(has_progress, 20, f"the job is {state} and has changed {changed}")


@pytest.mark.parametrize("ending", ["killed", "stopped"])
async def test_another_process_continues_a_job(brokers: Brokers, database: Database, ending: str) -> None:
    pacing = JobPacing(max_chunk={"requeue": 5, "purge": 5}, poll_interval_s=0.05, min_pause_s=0.05)
    first, second = await brokers.start(), await brokers.start()
    await create_dead_letters(first)
    first_runner = DeadLetterJobRunner(first.dead_letters, pacing)
    second_runner = DeadLetterJobRunner(second.dead_letters, pacing)
    await first_runner.start()
    job = await first.dead_letters.create_job(DEFAULT_SCOPE, job_request("requeue", "q"))
    await wait_for_job(first, job.id, changed=5)
    if ending == "killed":  # it does not release its job, whose lease expires
        assert first_runner._task is not None
        for task in (first_runner._task, *first_runner._running):
            task.cancel()
        await database.fetch("UPDATE jobs SET lease_expires_at = now()")
    else:
        await first_runner.stop()
    changed = (await second.dead_letters.get_job(DEFAULT_SCOPE, job.id)).changed
    assert changed < DEAD_LETTERS
    await second_runner.start()
    await wait_for_job(second, job.id, changed=DEAD_LETTERS, state="done")
    await second_runner.stop()
    received: list[str] = []
    while (popped := await pop(second, batch=100)).messages:
        received += payloads(popped)
        await ack(second, popped)
    assert Counter(received) == Counter(str(number) for number in range(DEAD_LETTERS)), "each once"
    assert received == sorted(received, key=int), "in their original order"


async def test_another_process_continues_a_job_that_waits_for_its_sample(
    brokers: Brokers, database: Database
) -> None:
    pacing = JobPacing(poll_interval_s=0.05, retry_interval_s=0.05)
    first, second = await brokers.start(), await brokers.start()
    await create_dead_letters(first)
    first_runner = DeadLetterJobRunner(first.dead_letters, pacing)
    second_runner = DeadLetterJobRunner(second.dead_letters, pacing)
    await first_runner.start()
    request = job_request("requeue", "q")._replace(sample=JobSample(10))
    job = await first.dead_letters.create_job(DEFAULT_SCOPE, request)
    await wait_for_job(first, job.id, changed=10)
    assert first_runner._task is not None
    for task in (first_runner._task, *first_runner._running):  # as when the process is killed
        task.cancel()
    await database.fetch("UPDATE jobs SET lease_expires_at = now()")
    popped = await pop(second, batch=100)
    assert payloads(popped) == [str(number) for number in range(10)]
    await ack(second, popped)

    await second_runner.start()
    await wait_for_job(second, job.id, changed=DEAD_LETTERS, state="done")
    await second_runner.stop()
    received = []
    while (popped := await pop(second, batch=100)).messages:
        received += payloads(popped)
        await ack(second, popped)
    assert received == [str(number) for number in range(10, DEAD_LETTERS)], "the rest, each once"


async def test_a_job_with_a_low_rate_does_not_block_others(broker: Broker) -> None:
    for queue in ("slow", "fast"):
        await create_dead_letters(broker, queue)
    runner = DeadLetterJobRunner(broker.dead_letters)
    await runner.start()
    create_job = broker.dead_letters.create_job
    slow = await create_job(DEFAULT_SCOPE, job_request("purge", "slow", rate=1))
    await wait_for_job(broker, slow.id, changed=1)
    fast = await create_job(DEFAULT_SCOPE, job_request("purge", "fast"))
    await wait_for_job(broker, fast.id, changed=DEAD_LETTERS, state="done")
    assert (await broker.dead_letters.get_job(DEFAULT_SCOPE, slow.id)).state == "running"
    await runner.stop()


async def test_a_requeue_wakes_a_waiting_consumer(broker: Broker) -> None:
    await create_dead_letters(broker)
    runner = DeadLetterJobRunner(broker.dead_letters)
    await runner.start()
    waiting = asyncio.create_task(pop(broker, wait_s=30, batch=1))
    await wait_for_parked_pops(broker, 1)
    await broker.dead_letters.create_job(DEFAULT_SCOPE, job_request("requeue", "q"))
    popped = await asyncio.wait_for(waiting, deadline_s(10))
    assert payloads(popped) == ["0"]
    await runner.stop()
    await runner.stop()


def test_the_rate_limits_the_chunk_size_and_sets_the_pause() -> None:
    pacing = JobPacing()
    assert pacing.chunk_limit("purge", None) == 500
    assert [pacing.chunk_limit("purge", rate) for rate in (10, 1)] == [5, 1]
    assert pacing.chunk_limit("requeue", 100_000) == 100
    assert pacing.pause_s(10, 5, 0.1) == pytest.approx(0.4)
    assert pacing.pause_s(10, 0, 3.0) < 0.01
    assert pacing.pause_s(None, 500, 0.03) == 0.03, "as long as the chunk took"


def test_slow_chunks_get_smaller_and_fast_chunks_get_larger() -> None:
    sizes = [50]
    for took_s in (0.01, 0.01, 0.01, 0.01, 0.04, 0.2, 0.2, 0.2, 0.2, 0.03, 0.01):
        sizes.append(next_chunk_size(sizes[-1], 500, took_s))
    assert sizes == [50, 100, 200, 400, 500, 500, 250, 125, 62, 50, 50, 100]
    assert [next_chunk_size(3, 5, took_s) for took_s in (0.01, 9.0)] == [5, 1]
    assert next_chunk_size(1, 1, 9.0) == 1
