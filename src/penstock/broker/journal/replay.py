"""Replay the journal: store its records in order, then empty it.

A replay reads records up to an end that was determined under the lock, so every record it stores is on disk.
It stores the last few records while it holds the lock, and appends wait during that time. Otherwise a journal
with constant appends would never become empty.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

from penstock.broker.journal.depth import ReplayProgress
from penstock.broker.journal.journal_file import Extent, JournalFile, LockedJournalFile
from penstock.broker.journal.record_format import HEADER_BYTES
from penstock.broker.journal.writer_thread import FileThread
from penstock.errors import DatabaseUnavailable

JournalId = UUID
"""The id of a journal's content. A journal that was emptied gets a new one."""
StoreRecords = Callable[[JournalId, int, Sequence[bytes]], Awaitable[None]]
"""Store records, and the position after them, in one transaction."""
ReadPosition = Callable[[JournalId], Awaitable[int]]
"""Read the last stored position of a journal; 0 if nothing of it was stored."""

BATCH_BYTES = 4 << 20
FINAL_BYTES = 256 << 10
"""When this much or less remains, the replay locks the journal, and appends wait until it is empty."""
LOCK_TIMEOUT_S = 5.0
"""How long appends wait at most."""


class Replay:
    """One replay, by the only process that replays."""

    def __init__(
        self,
        file: JournalFile,
        thread: FileThread,
        progress: ReplayProgress,
        store_records: StoreRecords,
        *,
        batch_bytes: int = BATCH_BYTES,
        final_bytes: int = FINAL_BYTES,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
    ) -> None:
        self._file = file
        self._thread = thread
        self._progress = progress
        self._store_records = store_records
        self._batch_bytes = batch_bytes
        self._final_bytes = final_bytes
        self._lock_timeout_s = lock_timeout_s
        self._journal_id: JournalId | None = None
        self._position = 0
        self.replayed = 0

    async def run(self, read_position: ReadPosition) -> None:
        """Replay until the journal is empty."""
        while extent := await self._thread.run(self._file.read_extent):
            if extent.journal_id != self._journal_id:
                self._journal_id = extent.journal_id
                self._position = max(await read_position(extent.journal_id), HEADER_BYTES)
            if not self._is_nearly_done(extent):
                await self._store_until(extent)
            elif await self._finish():
                return

    def _is_nearly_done(self, extent: Extent) -> bool:
        return extent.end - self._position <= self._final_bytes

    async def _finish(self) -> bool:
        """Store the remaining records and empty the journal.

        Returns False if the journal has been emptied by another process, or has grown too much, by now.
        """
        locked = await self._thread.acquire(self._file.lock, LockedJournalFile.release)
        try:
            extent = locked.extent
            if extent is None or extent.journal_id != self._journal_id or not self._is_nearly_done(extent):
                return False
            if self._position > extent.end:
                await self._thread.run(locked.save_copy)
            try:
                async with asyncio.timeout(self._lock_timeout_s):
                    await self._store_until(extent)
            except TimeoutError:
                raise DatabaseUnavailable(
                    "PostgreSQL did not store the last records of the journal within "
                    f"{self._lock_timeout_s:.0f} s. They stay in the journal, and the broker tries again."
                ) from None
            await self._thread.run(locked.empty)
            return True
        finally:
            # In the thread, which may still use the file: a closed descriptor is soon another file's.
            self._thread.submit(locked.release)

    async def _store_until(self, extent: Extent) -> None:
        while self._position < extent.end:
            batch = await self._thread.run(self._file.read_batch, extent, self._position, self._batch_bytes)
            await self._store_records(extent.journal_id, batch.end, batch.payloads)
            self._progress.write(extent.journal_id, batch.end)
            self._position = batch.end
            self.replayed += len(batch.payloads)
