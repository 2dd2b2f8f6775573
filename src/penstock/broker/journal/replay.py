"""Replay: what is in the journal is handed over in order, then the journal is emptied.

MessageActions are read up to an end that was seen under the lock, so everything that is handed over is on disk. The
last few are taken while the lock is held: appends wait for that moment, else a journal that is written to
all the time would never be empty.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

from penstock.broker.journal.depth import ReplayNote
from penstock.broker.journal.journal_file import Extent, HeldFile, JournalFile
from penstock.broker.journal.record_format import HEADER_BYTES
from penstock.broker.journal.writer_thread import FileThread
from penstock.errors import DatabaseUnavailable

JournalId = UUID
"""Of one filling of the journal: it is another one each time the journal was emptied."""
Take = Callable[[JournalId, int, Sequence[bytes]], Awaitable[None]]
"""Stores records and the position behind them, in one transaction."""
Position = Callable[[JournalId], Awaitable[int]]
"""The position that was stored last for a journal; 0 for one that is not known."""

BATCH_BYTES = 4 << 20
LAST_BYTES = 256 << 10
"""When no more than this is left, appends wait until it is taken."""
HELD_S = 5.0
"""How long they wait at most."""


class Replay:
    """One run, by the one process that replays."""

    def __init__(
        self,
        file: JournalFile,
        thread: FileThread,
        note: ReplayNote,
        take: Take,
        batch_bytes: int = BATCH_BYTES,
        last_bytes: int = LAST_BYTES,
    ) -> None:
        self._file = file
        self._thread = thread
        self._note = note
        self._take = take
        self._batch_bytes = batch_bytes
        self._last_bytes = last_bytes
        self._journal_id: JournalId | None = None
        self._at = 0
        self.taken = 0

    async def run(self, position: Position) -> None:
        """Return when the journal is empty."""
        while extent := await self._thread.do(self._file.look):
            if extent.journal_id != self._journal_id:
                self._journal_id = extent.journal_id
                self._at = max(await position(extent.journal_id), HEADER_BYTES)
            if not self._is_little(extent):
                await self._take_until(extent)
            elif await self._finish():
                return

    def _is_little(self, extent: Extent) -> bool:
        return extent.end - self._at <= self._last_bytes

    async def _finish(self) -> bool:
        """Take what is left and empty the journal; False if it is another one, or much more, by now."""
        held = await self._thread.get(self._file.hold, HeldFile.release)
        try:
            extent = held.extent
            if extent is None or extent.journal_id != self._journal_id or not self._is_little(extent):
                return False
            if self._at > extent.end:
                await self._thread.do(held.set_aside)
            try:
                async with asyncio.timeout(HELD_S):
                    await self._take_until(extent)
            except TimeoutError:
                raise DatabaseUnavailable(
                    f"the last records of the journal were not taken within {HELD_S:.0f} s; they stay in it"
                ) from None
            await self._thread.do(held.empty)
            return True
        finally:
            # By the thread that may still be at work on it: a closed file's number is soon another's.
            self._thread.later(held.release)

    async def _take_until(self, extent: Extent) -> None:
        while self._at < extent.end:
            batch = await self._thread.do(self._file.read_batch, extent, self._at, self._batch_bytes)
            await self._take(extent.journal_id, batch.end, batch.payloads)
            self._note.write(extent.journal_id, batch.end)
            self._at = batch.end
            self.taken += len(batch.payloads)
