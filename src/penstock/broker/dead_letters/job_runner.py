"""Carrying out jobs on dead letters, in the background of every broker process.

A process takes jobs under a lease, a few at a time, and does each chunk by chunk. A chunk is one transaction
that also notes how far the job has come and renews the lease. A process that dies leaves its jobs to the next
one that looks, which goes on behind the last chunk: no letter is missed, and none is taken twice.

Jobs are in no hurry: after each chunk they leave the database alone for as long as the chunk took, or for as
long as the job's rate asks for.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from penstock.broker.dead_letters.letters import DeadLetters
from penstock.broker.encryption import KeyMissing
from penstock.durable.maintenance_lock import ResourceBusy
from penstock.errors import DatabaseUnavailable, PenstockError, RedisUnavailable
from penstock.ids import new_id

logger = logging.getLogger(__name__)

CHUNK = {"requeue": 100, "purge": 500}
"""Letters per transaction at most: few enough that nobody notices who has to wait for it."""
SMALLER = 10
"""A chunk is never smaller than this part of that: a slow disk takes its time for the smallest too."""
AIM_S = 0.05
"""How long a chunk may take. Letters may be large, and the disk busy; then chunks get smaller."""
LOOK_AT = 5_000
AT_ONCE = 4
"""Jobs of one process at the same time: one that is slow on purpose must not hold up the others."""
IDLE_S = 5.0
"""How often a process looks for jobs that others have left or made."""
HELD_S = 1.0
"""Until a requeue tries again that a queue had no room for."""
SHORTEST_S = 0.002
LONGEST_S = 1.0


class DeadJobs:
    """The background task. `start` and `stop` may be called twice; `stop` leaves its jobs to others."""

    def __init__(self, letters: DeadLetters) -> None:
        self._letters = letters
        self._due = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._running: dict[asyncio.Task[None], Any] = {}

    async def start(self) -> None:
        if self._task is None:
            self._letters.wake = self._due.set
            self._task = asyncio.create_task(self._run(), name="dead letter jobs")

    async def stop(self) -> None:
        if self._task is None:
            return
        running, self._running = self._running, {}
        for task in (self._task, *running):
            task.cancel()
        await asyncio.gather(self._task, *running, return_exceptions=True)
        self._task = None
        for job in running.values():
            try:
                await self._letters.let_go(job, job.owner)
            except PenstockError as error:
                logger.warning("job %s waits until its lease runs out: %s", job.id, error.detail)

    async def _run(self) -> None:
        while True:
            self._due.clear()
            try:
                while (
                    len(self._running) < AT_ONCE and (job := await self._letters.take(new_id())) is not None
                ):
                    task = asyncio.create_task(self._do(job), name=f"job {job['id']}")
                    self._running[task] = job
                    task.add_done_callback(self._ended)
            except PenstockError as error:
                logger.warning("jobs on dead letters wait: %s", error.detail)
            except Exception:
                # Whatever is wrong now may be right when somebody looks again.
                logger.exception("jobs on dead letters were not looked for")
            try:
                async with asyncio.timeout(IDLE_S):
                    await self._due.wait()
            except TimeoutError:
                pass  # look again

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        self._due.set()

    async def _do(self, job: Any) -> None:
        """Carry out a job, until it has ended or is somebody else's."""
        owner, most = job.owner, chunk_of(job.kind, job.rate)
        limit = max(1, most // SMALLER)  # how large its letters are is not known yet
        logger.info("job %s: %s of about %d dead letters", job.id, job.kind, job.total)
        while job.state == "running" and job.owner == owner:
            started, before = time.monotonic(), job.changed
            try:
                job = await self._letters.advance(job, owner, limit, LOOK_AT)
            except KeyMissing as error:
                await self._letters.fail(job, owner, error.detail)
                return
            except (ResourceBusy, DatabaseUnavailable, RedisUnavailable) as error:
                logger.warning("job %s waits: %s", job.id, error.detail)
                await asyncio.sleep(HELD_S)
                continue
            except Exception:
                # It stays as it is, and is tried again when its lease has run out.
                logger.exception("job %s was interrupted", job.id)
                return
            if job.note:
                await asyncio.sleep(HELD_S)
                continue
            took_s = time.monotonic() - started
            limit = next_chunk(limit, most, took_s)
            await asyncio.sleep(pause_s(job.rate, job.changed - before, took_s))
        logger.info("job %s: %s, %d letters changed", job.id, job.state, job.changed)


def chunk_of(kind: str, rate: int | None) -> int:
    """How many letters at a time at most: with a rate, about twice a second."""
    return CHUNK[kind] if rate is None else max(1, min(CHUNK[kind], rate // 2))


def next_chunk(limit: int, most: int, took_s: float) -> int:
    """How many letters to take after a chunk of `limit` that took so long."""
    if took_s > AIM_S:
        return max(1, most // SMALLER, limit // 2)
    return min(most, limit * 2) if took_s < AIM_S / 2 else limit


def pause_s(rate: int | None, changed: int, took_s: float) -> float:
    """How long to wait after a chunk that took so long."""
    if rate is None:
        return min(max(took_s, SHORTEST_S), LONGEST_S)
    return max(changed / rate - took_s, SHORTEST_S)
