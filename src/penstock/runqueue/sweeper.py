"""Sweep the tasks that are due, in the background of every broker process.

Each shard has one sorted set of due times, so a sweep costs only what is due. Any number of processes may
sweep: a script takes the due tasks, and the next one finds none. A process sweeps when a task it knows of
is due, and at least once a second.

Every ten minutes one process checks all tasks and repairs the sets and counts that disagree with their
states.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from redis.asyncio import Redis
from redis.exceptions import RedisError

from penstock.background import BackgroundTask
from penstock.definitions import ENABLED_KEY, QUEUE
from penstock.errors import PenstockError
from penstock.runqueue.connection import warn_about_durability
from penstock.runqueue.keys import ENVIRONMENTS_KEY, KEY_PREFIXES, REPAIR_LOCK, shard_prefix
from penstock.runqueue.overview import read_set
from penstock.runqueue.scripts import Scripts
from penstock.runqueue.shard_map import ShardMap
from penstock.runqueue.task_model import SweepResult, TaskState

logger = logging.getLogger(__name__)

TASKS_PER_CALL = 500
"""A larger call would block Redis for other clients."""


@dataclass(frozen=True, slots=True)
class SweepIntervals:
    """`sweep_s`: longest pause between two sweeps.

    `shared_s`: how often a process reads what all processes share: the number of shards, the metrics switch.
    """

    sweep_s: float = 1.0
    shared_s: float = 3.0
    repair_s: float = 600.0


class Sweeper(BackgroundTask):
    """Sweeps all shards."""

    task_name = "run queue sweep"

    def __init__(
        self,
        client: Redis,
        scripts: Scripts,
        shards: ShardMap,
        *,
        metrics_enabled: bool,
        intervals: SweepIntervals | None = None,
    ) -> None:
        self._client = client
        self._scripts = scripts
        self._shards = shards
        self._metrics_enabled = metrics_enabled
        self._intervals = intervals or SweepIntervals()
        self._due_time_changed = asyncio.Event()
        self._due_s: float | None = None
        self._shared_read_s = -self._intervals.shared_s

    def sweep_within(self, delay_ms: int) -> None:
        """Sweep again after `delay_ms`: this process has just changed a task that is due then."""
        due_s = asyncio.get_running_loop().time() + delay_ms / 1000
        if delay_ms <= self._intervals.sweep_s * 1000 and (self._due_s is None or due_s < self._due_s):
            self._due_s = due_s
            self._due_time_changed.set()

    async def sweep(self) -> SweepResult:
        """Handle everything that is due now in all shards."""
        totals = [0, 0, 0, 0]
        next_due_ms: list[int] = []
        for shard in range(await self._shards.count()):
            while True:
                *counts, next_ms = await self._scripts.call("sweep", shard, TASKS_PER_CALL)
                totals = [total + count for total, count in zip(totals, counts, strict=True)]
                if next_ms != 0:
                    break
            if next_ms > 0:
                next_due_ms.append(next_ms)
        promoted, released, dead, expired = totals
        return SweepResult(promoted, released, dead, expired, min(next_due_ms, default=None))

    async def repair(self) -> int:
        """Check all tasks, sets and counts; return how many were repaired."""
        return sum([await self._repair_shard(shard) for shard in range(await self._shards.count())])

    async def _repair_shard(self, shard: int) -> int:
        prefix = shard_prefix(shard)
        repaired = await self._repair_pages("repair_tasks", shard)
        environments = await read_set(self._client, prefix + ENVIRONMENTS_KEY["environments_key"])
        for environment in environments:
            for queue in await read_set(self._client, prefix + KEY_PREFIXES["queues_of"] + environment):
                for state in TaskState:
                    repaired += await self._repair_pages("repair_queue", shard, queue, state)
            repaired += await self._scripts.call("repair_environment", shard, environment)
        return repaired

    async def _repair_pages(self, command: str, shard: int, *arguments: str) -> int:
        cursor, repaired = b"0", 0
        while True:
            cursor, repaired_on_page = await self._scripts.call(
                command, shard, *arguments, cursor, TASKS_PER_CALL
            )
            repaired += int(repaired_on_page)
            if cursor == b"0":
                return repaired

    async def _run(self) -> None:
        is_failing, durability_checked = False, False
        while not self._is_stopping:
            pause_s = self._intervals.sweep_s
            try:
                if not durability_checked:
                    await warn_about_durability(self._client)
                    durability_checked = True
                await self._read_shared_state()
                self._due_s = None
                result = await self.sweep()
                if result.next_ms is not None:
                    pause_s = min(pause_s, result.next_ms / 1000)
                await self._repair_if_due()
                is_failing = False
            except (PenstockError, RedisError, OSError) as error:
                if not is_failing:
                    logger.warning("Run queues are not swept: %s", error)
                is_failing = True
            await self._pause(pause_s)

    async def _pause(self, pause_s: float) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + pause_s
        while not self._is_stopping and (wait_s := min(until_s, self._due_s or until_s) - loop.time()) > 0:
            self._due_time_changed.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self._due_time_changed.wait()
            except TimeoutError:
                return

    async def _repair_if_due(self) -> None:
        for shard in range(await self._shards.count()):
            # The lock expires when the next repair is due: one process repairs, and none has to release it.
            lock = shard_prefix(shard) + REPAIR_LOCK
            if await self._client.set(lock, 1, nx=True, px=int(self._intervals.repair_s * 1000)):
                repaired = await self._repair_shard(shard)
                if repaired:
                    logger.error("Run queues: repaired %d wrong sets or counts of shard %d", repaired, shard)

    async def _read_shared_state(self) -> None:
        """Follow the number of shards, which may be raised, and the switch that turns metrics off for all."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._shared_read_s < self._intervals.shared_s:
            return
        self._shared_read_s = now_s
        await self._shards.refresh()
        if self._metrics_enabled:
            is_on = await self._client.get(ENABLED_KEY) != b"0"
            self._scripts.emit_length = QUEUE.max_stream_length if is_on else 0  # scripts receive it
