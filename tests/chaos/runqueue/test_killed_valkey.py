"""Valkey killed -9 again and again while workers vanish: what was answered is kept, and limits hold."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from redis.asyncio import Redis

from penstock.definitions import QUEUE
from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.servers.valkey import Valkey
from penstock.embedded.supervision.component import start, wait_until_healthy
from penstock.embedded.supervision.process import Child, stop
from penstock.errors import LeaseLost, RedisUnavailable, UnknownTask
from penstock.model import Scope
from penstock.runqueue.queue import RunQueues
from penstock.runqueue.task_model import Nack, NewTask, RunningTask
from tests.waiting import wait_until_async

SCOPE = Scope("chaos")
QUEUES = ("mail", "calls")
LIMIT, ENVIRONMENT_LIMIT = 4, 6
TASKS, WORKERS, KILLS = 400, 10, 3
VISIBILITY_MS = 300


class Killable:
    """A Valkey as the platform runs it."""

    def __init__(self, home: Path) -> None:
        self.server = Valkey(home, any_free_port())
        self.server.prepare()
        self.child: Child = start(self.server)
        wait_until_healthy(self.server, self.child)
        self.up = asyncio.Event()
        self.up.set()

    def kill(self) -> None:
        self.up.clear()
        self.child.process.send_signal(signal.SIGKILL)
        self.child.process.wait()

    async def start_again(self) -> None:
        self.child = start(self.server)
        await asyncio.to_thread(wait_until_healthy, self.server, self.child)
        self.up.set()


@pytest.fixture
async def valkey(open_tmp_path: Path) -> AsyncIterator[Killable]:
    killable = Killable(open_tmp_path)
    yield killable
    stop(killable.child, 10)


@dataclass
class Story:
    """What callers were told."""

    accepted: dict[bytes, str] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    held: dict[str, RunningTask] = field(default_factory=dict)
    uncertain: int = 0
    is_over: bool = False
    twice: list[str] = field(default_factory=list)
    over_limit: list[str] = field(default_factory=list)

    def taken(self, task: RunningTask) -> None:
        before = self.held.get(task.id)
        if before is not None and task.started_ms < before.deadline_ms:
            self.twice.append(f"{task.id} at {task.started_ms}, held until {before.deadline_ms}")
        if task.id in self.done:
            self.twice.append(f"{task.id} was done")
        self.held[task.id] = task


async def produce(queues: RunQueues, up: asyncio.Event, story: Story, numbers: range) -> None:
    """Each task has a key, so a call whose answer was lost can be repeated."""
    for number in numbers:
        payload = b"%d" % number
        task = NewTask(payload, idempotency_key=f"task {number}", max_attempts=1_000)
        while payload not in story.accepted:
            try:
                [added] = await queues.enqueue(SCOPE, QUEUES[number % 2], [task])
            except RedisUnavailable:
                story.uncertain += 1
                await up.wait()
            else:
                story.accepted[payload] = added.id


async def work(queues: RunQueues, up: asyncio.Event, story: Story, chance: random.Random) -> None:
    queue = chance.choice([None, *QUEUES])
    while not story.is_over:
        try:
            tasks = await queues.dequeue(SCOPE, queue, limit=2, visibility_ms=VISIBILITY_MS, wait_ms=200)
        except RedisUnavailable:
            await up.wait()
            continue
        for task in tasks:
            story.taken(task)
        for task in tasks:
            fate = chance.random()
            with suppress(RedisUnavailable, LeaseLost, UnknownTask):
                if fate < 0.08:
                    continue  # the worker vanishes with it
                if fate < 0.2:
                    story.held.pop(task.id, None)  # also if the answer is lost: it may have been carried out
                    await queues.nack(SCOPE, Nack(task.lease, "failed", delay_ms=0))
                    continue
                await queues.ack(SCOPE, task.lease)
                story.done.add(task.id)


async def watch(queues: RunQueues, up: asyncio.Event, story: Story) -> None:
    while not story.is_over:
        with suppress(RedisUnavailable):
            for state in await queues.queues(SCOPE):
                if state.running > LIMIT:
                    story.over_limit.append(f"{state.queue}: {state.running}")
            if (running := (await queues.environment(SCOPE)).running) > ENVIRONMENT_LIMIT:
                story.over_limit.append(f"environment: {running}")
            continue
        await up.wait()


async def test_what_was_answered_survives_kills_of_the_server(valkey: Killable) -> None:
    story = Story()
    queues = RunQueues(valkey.server.url)
    await queues.start()
    await queues.set_environment_limit(SCOPE, LIMIT, burst=ENVIRONMENT_LIMIT / LIMIT)
    for queue in QUEUES:
        await queues.set_queue_limit(SCOPE, queue, LIMIT)
    half = TASKS // 2
    producers = [
        asyncio.create_task(produce(queues, valkey.up, story, range(n * half, (n + 1) * half)))
        for n in (0, 1)
    ]
    workers = [asyncio.create_task(work(queues, valkey.up, story, random.Random(n))) for n in range(WORKERS)]
    watching = asyncio.create_task(watch(queues, valkey.up, story))
    for kill in range(1, KILLS + 1):
        await wait_until_async(
            lambda kill=kill: _value(len(story.done) >= kill * TASKS / (KILLS + 2)),
            30,
            f"work before kill {kill}",
        )
        valkey.kill()
        await valkey.start_again()
    await asyncio.wait_for(asyncio.gather(*producers), 60)
    ids = set(story.accepted.values())
    assert len(ids) == TASKS

    async def all_gone() -> bool:
        state = await queues.environment(SCOPE)
        return state.eligible == state.delayed == state.running == 0

    await wait_until_async(all_gone, 60, "every task is finished")
    story.is_over = True
    await asyncio.wait_for(asyncio.gather(watching, *workers), 60)
    assert story.done <= ids
    assert story.twice == [], "handed out while somebody held it, or after it was done"
    assert story.over_limit == []
    assert await queues.repair() == 0, "sets and counts agree with the tasks after every crash"
    await counts_are_exact(valkey.server.url)
    await queues.stop()


async def counts_are_exact(url: str) -> None:
    """Each event is written in the script that moved the task, so a crash keeps both or neither."""
    counters: dict[bytes, int] = {}
    async with Redis.from_url(url) as client:
        for key in QUEUE.stream_keys:
            for _, fields in await client.xrange(key):
                for wire in (b"eq", b"dq", b"ak", b"nk", b"dl"):
                    counters[wire] = counters.get(wire, 0) + int(fields.get(wire, 0))
    assert (counters[b"eq"], counters[b"ak"], counters[b"dl"]) == (TASKS, TASKS, 0)
    assert counters[b"dq"] == counters[b"ak"] + counters[b"nk"]


async def _value(value: bool) -> bool:
    return value
