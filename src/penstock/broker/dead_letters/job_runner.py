"""Execute jobs on dead letters, messages and tasks, in the background of every broker process.

A process leases a few jobs at a time and executes each chunk by chunk. A chunk is one transaction, which also
records the progress of the job and renews the lease. When a process dies, another process leases its jobs and
continues after the last chunk: nothing is missed, and nothing is changed twice.

Jobs have low priority: after each chunk they pause as long as the chunk took, or as long as the rate of the
job demands.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.background import BackgroundTask, cancel_and_wait
from penstock.broker.dead_letters.dead_letter_service import DeadLetterService
from penstock.durable.cluster_lock import ResourceBusy
from penstock.durable.dead_letters.jobs import DeadLetterJob
from penstock.encryption import KeyMissing
from penstock.errors import DatabaseUnavailable, PenstockError, RedisUnavailable
from penstock.ids import new_id

logger = logging.getLogger(__name__)

MIN_CHUNK_FRACTION = 10
"""A chunk is at least this fraction of the maximum: on a slow disk the smallest chunk takes long too."""
TARGET_CHUNK_S = 0.05
"""Chunks that take longer get smaller: dead letters may be large, and the disk busy."""
MAX_SCANNED_PER_CHUNK = 5_000
MAX_CONCURRENT_JOBS = 4
"""Jobs of one process at a time: a job with a low rate must not block the others."""
MAX_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class JobPacing:
    """Sizes and intervals of the runner."""

    max_chunk: Mapping[str, int] = field(
        default_factory=lambda: {"requeue": 100, "purge": 500, "dead_letter": 100}
    )
    """Dead letters, messages or tasks per transaction, by kind of job: few enough that other transactions
    do not wait noticeably."""
    poll_interval_s: float = 5.0
    """How often a process looks for jobs that other processes created or left."""
    retry_interval_s: float = 1.0
    """Pause before a retry when the queue is full or a server is unreachable."""
    min_pause_s: float = 0.002

    def chunk_limit(self, kind: str, rate: int | None) -> int:
        """Return the maximum number of dead letters per chunk: with a rate, about two chunks a second."""
        return self.max_chunk[kind] if rate is None else max(1, min(self.max_chunk[kind], rate // 2))

    def pause_s(self, rate: int | None, changed: int, took_s: float) -> float:
        """Return how long to pause after a chunk that took `took_s`."""
        if rate is None:
            return min(max(took_s, self.min_pause_s), MAX_PAUSE_S)
        return max(changed / rate - took_s, self.min_pause_s)


class DeadLetterJobRunner(BackgroundTask):
    """Execute jobs until `stop`, which releases them to other processes."""

    task_name = "dead letter jobs"

    def __init__(self, dead_letters: DeadLetterService, pacing: JobPacing | None = None) -> None:
        self._dead_letters = dead_letters
        self._pacing = pacing or JobPacing()
        self._wake = asyncio.Event()
        self._running: dict[asyncio.Task[None], DeadLetterJob] = {}

    async def start(self) -> None:
        self._dead_letters.on_job_created = self._wake.set
        await super().start()

    async def stop(self) -> None:
        await super().stop()
        running, self._running = self._running, {}
        await cancel_and_wait(*running)
        for job in running.values():
            try:
                assert job.owner is not None
                await self._dead_letters.release_job(job, job.owner)
            except PenstockError as error:
                logger.warning("Job %s stays leased until its lease expires: %s", job.id, error.detail)

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            try:
                while (
                    len(self._running) < MAX_CONCURRENT_JOBS
                    and (job := await self._dead_letters.lease_job(new_id())) is not None
                ):
                    task = asyncio.create_task(self._execute(job), name=f"job {job.id}")
                    self._running[task] = job
                    task.add_done_callback(self._on_job_ended)
            except PenstockError as error:
                logger.warning("Jobs on dead letters wait: %s", error.detail)
            except Exception:
                # The next poll may succeed.
                logger.exception("Could not look for jobs on dead letters")
            try:
                async with asyncio.timeout(self._pacing.poll_interval_s):
                    await self._wake.wait()
            except TimeoutError:
                pass  # poll again

    def _on_job_ended(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        self._wake.set()

    async def _execute(self, job: DeadLetterJob) -> None:
        """Execute a job until it has ended or another process owns it."""
        owner = job.owner
        assert owner is not None
        max_limit = self._pacing.chunk_limit(job.kind, job.rate)
        limit = max(1, max_limit // MIN_CHUNK_FRACTION)  # the size of its dead letters is unknown
        logger.info("Job %s: %s of about %d %s", job.id, job.kind, job.total, job.subject)
        while job.state == "running" and job.owner == owner:
            started_s, changed_before = time.monotonic(), job.changed
            try:
                job = await self._dead_letters.advance_job(job, owner, limit, MAX_SCANNED_PER_CHUNK)
            except KeyMissing as error:
                await self._dead_letters.fail_job(job, owner, error.detail)
                return
            except (ResourceBusy, DatabaseUnavailable, RedisUnavailable) as error:
                logger.warning("Job %s waits: %s", job.id, error.detail)
                await asyncio.sleep(self._pacing.retry_interval_s)
                continue
            except Exception:
                # The job keeps its state, and a process continues it after its lease has expired.
                logger.exception("Job %s was interrupted", job.id)
                return
            if job.note:
                await asyncio.sleep(self._pacing.retry_interval_s)
                continue
            took_s = time.monotonic() - started_s
            limit = next_chunk_size(limit, max_limit, took_s)
            await asyncio.sleep(self._pacing.pause_s(job.rate, job.changed - changed_before, took_s))
        logger.info("Job %s: %s, %d %s changed", job.id, job.state, job.changed, job.subject)


def next_chunk_size(size: int, max_size: int, took_s: float) -> int:
    """Return the size of the next chunk, after a chunk of `size` that took `took_s`."""
    if took_s > TARGET_CHUNK_S:
        return max(1, max_size // MIN_CHUNK_FRACTION, size // 2)
    return min(max_size, size * 2) if took_s < TARGET_CHUNK_S / 2 else size
