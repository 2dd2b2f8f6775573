"""Valkey is killed with SIGKILL while workers vanish: no acknowledged change is lost, and limits hold."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
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
from tests.deadlines import deadline_s
from tests.integration.runqueue.emitted_events import read_entries
from tests.waiting import wait_until_async

SCOPE = Scope("chaos")
QUEUES = ("mail", "calls")
LIMIT, ENVIRONMENT_LIMIT = 4, 6
TASKS, WORKERS, KILLS = 400, 10, 3
VISIBILITY_MS = 300


class KillableValkey:
    """A Valkey server with the settings of the platform."""

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

    async def restart(self) -> None:
        self.child = start(self.server)
        await asyncio.to_thread(wait_until_healthy, self.server, self.child)
        self.up.set()


@pytest.fixture
async def valkey(open_tmp_path: Path) -> AsyncIterator[KillableValkey]:
    server = KillableValkey(open_tmp_path)
    yield server
    stop(server.child, 10)


@dataclass
class Observations:
    """Responses that callers received, and violations."""

    accepted: dict[bytes, str] = field(default_factory=dict)
    acked: set[str] = field(default_factory=set)
    held: dict[str, RunningTask] = field(default_factory=dict)
    is_finished: bool = False
    double_leases: list[str] = field(default_factory=list)
    over_limit: list[str] = field(default_factory=list)

    def record_lease(self, task: RunningTask) -> None:
        previous = self.held.get(task.id)
        if previous is not None and task.started_ms < previous.deadline_ms:
            self.double_leases.append(f"{task.id} at {task.started_ms}, held until {previous.deadline_ms}")
        if task.id in self.acked:
            self.double_leases.append(f"{task.id} was acked")
        self.held[task.id] = task


async def produce(queues: RunQueues, up: asyncio.Event, observed: Observations, numbers: range) -> None:
    """Each task has an idempotency key, so a call whose response was lost can be repeated."""
    for number in numbers:
        payload = b"%d" % number
        task = NewTask(payload, idempotency_key=f"task {number}", max_attempts=1_000)
        while payload not in observed.accepted:
            try:
                [added] = await queues.enqueue(SCOPE, QUEUES[number % 2], [task])
            except RedisUnavailable:
                await up.wait()
            else:
                observed.accepted[payload] = added.id


async def work(queues: RunQueues, up: asyncio.Event, observed: Observations, chance: random.Random) -> None:
    queue = chance.choice([None, *QUEUES])
    while not observed.is_finished:
        try:
            tasks = await queues.dequeue(SCOPE, queue, limit=2, visibility_ms=VISIBILITY_MS, wait_ms=200)
        except RedisUnavailable:
            await up.wait()
            continue
        for task in tasks:
            observed.record_lease(task)
        for task in tasks:
            fate = chance.random()
            with suppress(RedisUnavailable, LeaseLost, UnknownTask):
                if fate < 0.08:
                    continue  # the worker vanishes with it
                if fate < 0.2:
                    observed.held.pop(
                        task.id, None
                    )  # also if the response is lost: Redis may have executed it
                    await queues.nack(SCOPE, Nack(task.lease, "failed", delay_ms=0))
                    continue
                await queues.ack(SCOPE, task.lease)
                observed.acked.add(task.id)


async def watch(queues: RunQueues, up: asyncio.Event, observed: Observations) -> None:
    while not observed.is_finished:
        with suppress(RedisUnavailable):
            for state in await queues.list_queues(SCOPE):
                if state.running > LIMIT:
                    observed.over_limit.append(f"{state.queue}: {state.running}")
            if (running := (await queues.get_environment(SCOPE)).running) > ENVIRONMENT_LIMIT:
                observed.over_limit.append(f"environment: {running}")
            continue
        await up.wait()


async def test_acknowledged_changes_survive_kills_of_the_server(valkey: KillableValkey) -> None:
    observed = Observations()
    queues = RunQueues(valkey.server.url)
    await queues.start()
    await queues.set_environment_limit(SCOPE, LIMIT, burst=ENVIRONMENT_LIMIT / LIMIT)
    for queue in QUEUES:
        await queues.set_queue_limit(SCOPE, queue, LIMIT)
    half = TASKS // 2
    producers = [
        asyncio.create_task(produce(queues, valkey.up, observed, range(n * half, (n + 1) * half)))
        for n in (0, 1)
    ]
    workers = [
        asyncio.create_task(work(queues, valkey.up, observed, random.Random(n))) for n in range(WORKERS)
    ]
    watcher = asyncio.create_task(watch(queues, valkey.up, observed))
    for kill in range(1, KILLS + 1):
        await wait_until_async(partial(enough_acked, observed, kill), 30, f"work before kill {kill}")
        valkey.kill()
        await valkey.restart()
    await asyncio.wait_for(asyncio.gather(*producers), deadline_s(60))
    ids = set(observed.accepted.values())
    assert len(ids) == TASKS

    async def all_finished() -> bool:
        state = await queues.get_environment(SCOPE)
        return state.eligible == state.delayed == state.running == 0

    await wait_until_async(all_finished, 60, "every task is finished")
    observed.is_finished = True
    await asyncio.wait_for(asyncio.gather(watcher, *workers), deadline_s(60))
    assert observed.acked <= ids
    assert observed.double_leases == [], "leased while another worker held it, or after its ack"
    assert observed.over_limit == []
    assert await queues.repair() == 0, "sets and counts agree with the tasks after every crash"
    await assert_counters_are_exact(valkey.server.url)
    await queues.stop()


async def assert_counters_are_exact(url: str) -> None:
    """The script that changes a task also emits its event, so a crash keeps both or neither."""
    counters: dict[bytes, int] = {}
    async with Redis.from_url(url) as client:
        for key in QUEUE.stream_keys:
            for _, fields in await read_entries(client, key):
                for wire in (b"eq", b"dq", b"ak", b"nk", b"dl"):
                    counters[wire] = counters.get(wire, 0) + int(fields.get(wire, 0))
    assert (counters[b"eq"], counters[b"ak"], counters[b"dl"]) == (TASKS, TASKS, 0)
    assert counters[b"dq"] == counters[b"ak"] + counters[b"nk"]


async def enough_acked(observed: Observations, kill: int) -> bool:
    return len(observed.acked) >= kill * TASKS / (KILLS + 2)
