"""End what callers wait for and hold when their access token is revoked or expires.

Every broker does so when it learns that a token has ended: it ends the pops and dequeues that wait in this
process, and releases the leases in PostgreSQL and Redis, which is safe to repeat. A pop or dequeue that was
in flight to its server meanwhile notices the end by itself and releases what it got.
"""

from __future__ import annotations

import asyncio
import logging

from penstock.background import BackgroundTask
from penstock.broker.queues.pop import Pops
from penstock.durable.access.environment_store import EnvironmentStore
from penstock.durable.pool import Database
from penstock.errors import PenstockError
from penstock.runqueue.queue import RunQueues

logger = logging.getLogger(__name__)

RETRY_INTERVAL_S = 1.0


class TokenRevocation(BackgroundTask):
    """Releases leases in the background, until it succeeds."""

    task_name = "token revocation"

    def __init__(self, database: Database, pops: Pops, run_queues: RunQueues) -> None:
        self._environments = EnvironmentStore(database)
        self._pops = pops
        self._run_queues = run_queues
        self._token_numbers: set[int] = set()
        self._has_work = asyncio.Event()

    def on_tokens_ended(self, token_numbers: set[int]) -> None:
        """End the waiting requests of inactive callers at once, and release the leases of these tokens soon.

        A token with several secrets may lose one of them and go on, so the numbers may be fewer than the
        callers, or none.
        """
        self._pops.end_inactive_callers()
        self._run_queues.end_inactive_callers()
        if token_numbers:
            self._token_numbers |= token_numbers
            self._has_work.set()

    async def release_leases(self, token_numbers: set[int]) -> None:
        """Release the leases of durable queues, then the running tasks of run queues. May be repeated."""
        await self._pops.release_leases_of_tokens(token_numbers)
        for scope in await self._environments.list_of_tokens(token_numbers):
            await self._run_queues.release_tasks_of_tokens(scope, token_numbers)

    async def _run(self) -> None:
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            token_numbers, self._token_numbers = self._token_numbers, set()
            try:
                await self.release_leases(token_numbers)
            except PenstockError as error:
                logger.warning("The leases of ended tokens are released later: %s", error.detail)
                self._token_numbers |= token_numbers
                self._has_work.set()
                await asyncio.sleep(RETRY_INTERVAL_S)
            except Exception:
                # The leases expire by themselves, and the next token must not wait for them.
                logger.exception("The leases of ended tokens were not released")
