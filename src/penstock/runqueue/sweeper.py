"""The sweep: what happens to tasks by the clock, in the background of every broker process.

Each shard keeps one sorted set of what is due when, so a sweep costs what is due and no more. It may run in
any number of processes: a script takes what is due, and the next one finds nothing. A process sweeps when
something it knows of is due, and at least once a second.

Now and then one process goes over all tasks and sees that sets and counts agree with the tasks' states.
"""

from __future__ import annotations

import asyncio
import logging

from redis.asyncio import Redis
from redis.exceptions import RedisError

from penstock.definitions import ENABLED_KEY, QUEUE
from penstock.errors import PenstockError
from penstock.runqueue.connection import Shards, warn_of_forgetting
from penstock.runqueue.keys import ONCE_IN_SCRIPTS, PER_NAME, REPAIR_LOCK, shard_prefix
from penstock.runqueue.overview import members
from penstock.runqueue.scripts import Scripts
from penstock.runqueue.task_model import Swept, TaskState

logger = logging.getLogger(__name__)

MOST = 500
"""Tasks per script call: few enough not to hold Redis up."""

LONGEST_PAUSE_S = 1.0
LOOK_EVERY_S = 3.0
REPAIR_EVERY_S = 600.0


class Sweeper:
    """Sweeps all shards. `start` and `stop` may be called twice."""

    def __init__(self, client: Redis, scripts: Scripts, shards: Shards, *, metrics_enabled: bool) -> None:
        self._client = client
        self._scripts = scripts
        self._shards = shards
        self._metrics_enabled = metrics_enabled
        self._sooner = asyncio.Event()
        self._due_s: float | None = None
        self._looked_s = -LOOK_EVERY_S
        self._task: asyncio.Task[None] | None = None
        self._stopping = False

    def start(self) -> None:
        self._stopping = False
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="run queue sweep")

    async def stop(self) -> None:
        self._stopping = True  # a cancellation alone may be lost in the Redis client
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def due_in(self, milliseconds: int) -> None:
        """Something that this process has just done is due then."""
        at_s = asyncio.get_running_loop().time() + milliseconds / 1000
        if milliseconds <= LONGEST_PAUSE_S * 1000 and (self._due_s is None or at_s < self._due_s):
            self._due_s = at_s
            self._sooner.set()

    async def sweep(self) -> Swept:
        """Everything that is due now in all shards."""
        total = [0, 0, 0, 0]
        nexts: list[int] = []
        for shard in range(await self._shards.number()):
            while True:
                *done, next_ms = await self._scripts.call("sweep", shard, MOST)
                total = [before + now for before, now in zip(total, done, strict=True)]
                if next_ms != 0:
                    break
            if next_ms > 0:
                nexts.append(next_ms)
        promoted, released, dead, expired = total
        return Swept(promoted, released, dead, expired, min(nexts, default=None))

    async def repair(self) -> int:
        """Go over all tasks, sets and counts; returns how many were put right."""
        return sum([await self._repair_shard(shard) for shard in range(await self._shards.number())])

    async def _repair_shard(self, shard: int) -> int:
        prefix = shard_prefix(shard)
        repaired = await self._walk("repair_tasks", shard)
        environments = await members(self._client, prefix + ONCE_IN_SCRIPTS["environments_key"])
        for environment in environments:
            for queue in await members(self._client, prefix + PER_NAME["queues_of"] + environment):
                for state in TaskState:
                    repaired += await self._walk("repair_queue", shard, queue, state)
            repaired += await self._scripts.call("repair_environment", shard, environment)
        return repaired

    async def _walk(self, command: str, shard: int, *of: str) -> int:
        cursor, repaired = b"0", 0
        while True:
            cursor, more = await self._scripts.call(command, shard, *of, cursor, MOST)
            repaired += int(more)
            if cursor == b"0":
                return repaired

    async def _run(self) -> None:
        failing, met = False, False
        while not self._stopping:
            pause_s = LONGEST_PAUSE_S
            try:
                if not met:
                    await warn_of_forgetting(self._client)
                    met = True
                await self._watch_switch()
                self._due_s = None
                swept = await self.sweep()
                if swept.next_ms is not None:
                    pause_s = min(pause_s, swept.next_ms / 1000)
                await self._repair_in_turn()
                failing = False
            except (PenstockError, RedisError, OSError) as error:
                if not failing:
                    logger.warning("run queues are not swept: %s", error)
                failing = True
            await self._pause(pause_s)

    async def _pause(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + seconds
        while not self._stopping and (left_s := min(until_s, self._due_s or until_s) - loop.time()) > 0:
            self._sooner.clear()
            try:
                async with asyncio.timeout(left_s):
                    await self._sooner.wait()
            except TimeoutError:
                return

    async def _repair_in_turn(self) -> None:
        for shard in range(await self._shards.number()):
            # The lock lasts until the next repair is due: one process does it, nobody has to let go of it.
            lock = shard_prefix(shard) + REPAIR_LOCK
            if await self._client.set(lock, 1, nx=True, px=int(REPAIR_EVERY_S * 1000)):
                repaired = await self._repair_shard(shard)
                if repaired:
                    logger.error("run queues: %d sets or counts of shard %d were put right", repaired, shard)

    async def _watch_switch(self) -> None:
        """Metrics can be switched off for all processes at once; scripts are told, they do not look."""
        now_s = asyncio.get_running_loop().time()
        if self._metrics_enabled and now_s - self._looked_s >= LOOK_EVERY_S:
            self._looked_s = now_s
            on = await self._client.get(ENABLED_KEY) != b"0"
            self._scripts.emit_length = QUEUE.max_stream_length if on else 0
