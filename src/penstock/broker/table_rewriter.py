"""Keep busy tables small while something holds the vacuum horizon.

Every broker process has one such task, and one process in the cluster works: the one that holds the advisory
lock. It compares the sizes of the busy tables with their sizes after the last rewrite.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from penstock.background import BackgroundTask
from penstock.durable.cluster_lock import BUSY_TABLES_KEY, ClusterLock
from penstock.durable.storage import busy_tables
from penstock.durable.storage.busy_tables import BUSY_TABLES, BusyTable, BusyTableSizes
from penstock.errors import PenstockError

logger = logging.getLogger(__name__)

IDLE_INTERVAL_S = 0.5
BUSY_INTERVAL_S = 0.2
"""Interval while a table grows and the horizon is held."""
LOCK_INTERVAL_S = 30.0
"""How often other processes try to become the one that works."""
HELD_AFTER_S = 1.0
"""A horizon that has not moved for this long is held."""
MAX_LOCKED_SHARE = 0.04
"""The part of the time for which rewrites may lock a table."""
MIN_RETRY_S = 0.4
MAX_RETRY_S = 6.4


@dataclass(slots=True)
class _TableState:
    bytes_after_rewrite: int = 0
    next_rewrite_at: float = 0.0
    retry_s: float = MIN_RETRY_S


class RewritePolicy:
    """Decide which tables to rewrite, from readings of their sizes and of the horizon."""

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._states = {table.name: _TableState() for table in BUSY_TABLES}
        self._horizon_xid = -1
        self._horizon_since = now()
        self._last_bytes: dict[str, int] = {}
        self.is_urgent = False
        """Whether the horizon was held and a table had changed its size at the last reading."""

    def observe(self, sizes: BusyTableSizes) -> list[BusyTable]:
        """Return the tables to rewrite now. While the horizon moves, vacuum does the work."""
        now = self._now()
        if sizes.horizon_xid != self._horizon_xid:
            self._horizon_xid, self._horizon_since = sizes.horizon_xid, now
        is_held = now - self._horizon_since >= HELD_AFTER_S
        self.is_urgent = is_held and sizes.bytes_by_name != self._last_bytes
        self._last_bytes = sizes.bytes_by_name
        if not is_held:
            return []
        return [table for table in BUSY_TABLES if self._is_due(table, sizes.bytes_by_name[table.name], now)]

    def _is_due(self, table: BusyTable, size: int, now: float) -> bool:
        state = self._states[table.name]
        growth = size - state.bytes_after_rewrite
        limit = max(table.min_growth_bytes, table.min_growth_ratio * state.bytes_after_rewrite)
        return growth > limit and now >= state.next_rewrite_at

    def on_rewritten(self, table: BusyTable, size: int, locked_ms: float) -> None:
        state = self._states[table.name]
        state.bytes_after_rewrite = size
        state.next_rewrite_at = self._now() + locked_ms / 1000 / MAX_LOCKED_SHARE
        state.retry_s = MIN_RETRY_S

    def on_postponed(self, table: BusyTable) -> None:
        """Retry later and later: operations wait for a moment in every attempt."""
        state = self._states[table.name]
        state.next_rewrite_at = self._now() + state.retry_s
        state.retry_s = min(2 * state.retry_s, MAX_RETRY_S)


class TableRewriter(BackgroundTask):
    """Rewrite busy tables while the horizon is held.

    `stop` may interrupt a rewrite, which then has no effect.
    """

    task_name = "table rewriter"

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock: ClusterLock | None = None
        self._policy = RewritePolicy()
        self.rewrites = 0

    async def stop(self) -> None:
        await super().stop()
        await self._release_lock()

    async def run_round(self) -> float:
        """Rewrite what is due if this process holds or gets the lock; return the seconds to the next
        round."""
        if self._lock is None or self._lock.is_closed:
            self._lock = await ClusterLock.acquire(self._url, BUSY_TABLES_KEY)
            self._policy = RewritePolicy()
        lock = self._lock
        if lock is None:
            return LOCK_INTERVAL_S
        sizes = await busy_tables.read_sizes(lock)
        for table in self._policy.observe(sizes):
            await self._rewrite(lock, table)
        return BUSY_INTERVAL_S if self._policy.is_urgent else IDLE_INTERVAL_S

    async def _rewrite(self, lock: ClusterLock, table: BusyTable) -> None:
        locked_ms = await busy_tables.rewrite(lock, table)
        if locked_ms is None:
            self._policy.on_postponed(table)
            logger.debug("Postponed the rewrite of %s", table.name)
            return
        sizes = await busy_tables.read_sizes(lock)
        self._policy.on_rewritten(table, sizes.bytes_by_name[table.name], locked_ms)
        self.rewrites += 1
        logger.debug("Rewrote %s in %.1f ms", table.name, locked_ms)

    async def _run(self) -> None:
        while True:
            interval_s = IDLE_INTERVAL_S
            try:
                interval_s = await self.run_round()
            except PenstockError as error:
                logger.warning("The rewrite of busy tables waits for the database: %s", error.detail)
                await self._release_lock()
                interval_s = LOCK_INTERVAL_S
            except Exception:
                logger.exception("A rewrite of busy tables failed")
                await self._release_lock()
                interval_s = LOCK_INTERVAL_S
            await asyncio.sleep(interval_s)

    async def _release_lock(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            await lock.close()
