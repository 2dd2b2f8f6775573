"""Carrying out jobs on dead letters, in the background of every broker process.

A process takes one job at a time under a lease and does it chunk by chunk. Each chunk is one transaction that
also notes how far the job has come and renews the lease. A process that dies leaves the job to the next one
that looks, which goes on behind the last chunk: no letter is missed, and none is taken twice.

Jobs are in no hurry: after each chunk they leave the database alone for as long as the chunk took, or for as
long as the job's rate asks for.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from penstock.broker.dead_letters import DeadLetters
from penstock.broker.sealing import KeyMissing
from penstock.durable.upkeep import Busy
from penstock.errors import PenstockError, RedisUnavailable
from penstock.ids import new_id

logger = logging.getLogger(__name__)

CHUNK = {"requeue": 100, "purge": 500}
"""Letters per transaction: few enough that nobody notices who has to wait for it."""
LOOK_AT = 5_000
IDLE_S = 2.0
"""How often a process looks for jobs that others have left or made."""
HELD_S = 1.0
"""Until a requeue tries again that a queue had no room for."""
SHORTEST_S = 0.002
LONGEST_S = 1.0


class DeadJobs:
    """The background task. `start` and `stop` may be called twice; `stop` leaves a job to others."""

    def __init__(self, letters: DeadLetters) -> None:
        self._letters = letters
        self._owner = new_id()
        self._due = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._job: Any | None = None

    async def start(self) -> None:
        if self._task is None:
            self._letters.wake = self._due.set
            self._task = asyncio.create_task(self._run(), name="dead letter jobs")

    async def stop(self) -> None:
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None
        job, self._job = self._job, None
        if job is not None:
            try:
                await self._letters.let_go(job, self._owner)
            except PenstockError as error:
                logger.warning("job %s waits until its lease runs out: %s", job["id"], error.detail)

    async def _run(self) -> None:
        while True:
            try:
                while await self._take():
                    pass
            except PenstockError as error:
                logger.warning("jobs on dead letters wait: %s", error.detail)
            except Exception:
                # A job that fails in a way nobody thought of must not be the end of the others.
                logger.exception("a job on dead letters was interrupted")
            self._due.clear()
            try:
                async with asyncio.timeout(IDLE_S):
                    await self._due.wait()
            except TimeoutError:
                pass  # look again

    async def _take(self) -> bool:
        """Take a job and do it; whether there was one."""
        self._job = await self._letters.take(self._owner)
        if self._job is None:
            return False
        logger.info("job %s: %s of about %d dead letters", *(self._job[k] for k in ("id", "kind", "total")))
        while self._job["state"] == "running" and self._job["owner"] == self._owner:
            started = time.monotonic()
            before = self._job["changed"]
            try:
                self._job = await self._letters.advance(
                    self._job, self._owner, chunk_of(self._job["kind"], self._job["rate"]), LOOK_AT
                )
            except KeyMissing as error:
                await self._letters.fail(self._job, self._owner, error.detail)
                break
            except (Busy, RedisUnavailable):
                await asyncio.sleep(HELD_S)
                continue
            if self._job["note"]:
                await asyncio.sleep(HELD_S)
                continue
            took_s = time.monotonic() - started
            await asyncio.sleep(pause_s(self._job["rate"], self._job["changed"] - before, took_s))
        logger.info("job %s: %s, %d letters changed", *(self._job[k] for k in ("id", "state", "changed")))
        self._job = None
        return True


def chunk_of(kind: str, rate: int | None) -> int:
    """How many letters at a time: with a rate, about twice a second."""
    return CHUNK[kind] if rate is None else max(1, min(CHUNK[kind], rate // 2))


def pause_s(rate: int | None, changed: int, took_s: float) -> float:
    """How long to wait after a chunk that took so long."""
    if rate is None:
        return min(max(took_s, SHORTEST_S), LONGEST_S)
    return max(changed / rate - took_s, SHORTEST_S)
