"""The journal: pushes taken on the local disk while PostgreSQL is away, and replayed when it is back.

All broker processes of a machine share one, so its order is the order of acceptance over all of them. What
`append` has returned for survives kill -9 and a power cut.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.broker.journal.depth import DepthGauge, JournalDepth, ReplayNote
from penstock.broker.journal.journal_file import HeldFile, JournalFile
from penstock.broker.journal.record_format import HEADER_BYTES, encode_record
from penstock.broker.journal.replay import BATCH_BYTES, LAST_BYTES, JournalId, Position, Replay, Take
from penstock.broker.journal.writer_thread import FileThread
from penstock.clock import Clock, now_ms, system_clock
from penstock.errors import ConfigError, JournalFull

__all__ = ["Journal", "JournalDepth", "JournalId", "Position", "Take"]


@dataclass(slots=True, eq=False)
class _Request:
    data: bytes
    unless_empty: bool
    done: asyncio.Future[bool]


class Journal:
    """One per process. Raises ConfigError if its directory cannot be used."""

    def __init__(self, directory: Path, max_bytes: int, *, clock: Clock = system_clock) -> None:
        self._max_bytes = max_bytes
        self._clock = clock
        self._lock_path = directory / "replay.lock"
        try:
            self._file = JournalFile(directory)
            os.close(self._open_replay_lock())
        except OSError as error:
            raise ConfigError(
                f"the journal cannot be kept in {directory} ({error.strerror}):"
                " name a directory that the broker may write to"
            ) from error
        self._note = ReplayNote(self._lock_path)
        self._gauge = DepthGauge(self._file, self._note)
        self._writer = FileThread("penstock-journal", self._file.path)
        self._replayer = FileThread("penstock-replay", self._file.path)
        self._pending: list[_Request] = []
        self._writing: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Finish what is being appended. A replay must have ended before."""
        if self._writing is not None:
            await self._writing
        self._writer.close()
        self._replayer.close()
        self._file.close()

    @property
    def has_records(self) -> bool:
        """Whether any process of this machine has put something in that is not replayed. Costs 1 µs."""
        return self._file.size > 0

    def depth(self) -> JournalDepth:
        """What is not replayed yet, for status."""
        return self._gauge.read(now_ms(self._clock))

    async def append(self, records: Sequence[bytes], *, unless_empty: bool = False) -> bool:
        """Put records at the end, together and in order; they are on disk when this returns.

        With `behind`, only if there is something to be behind of: False says that the journal is empty by
        now, nothing was written, and PostgreSQL has everything that came before. Raises JournalFull, or
        JournalFailed if the disk does not take it; nothing is written then. Whoever is cancelled does not
        know whether it was written.
        """
        if not records:
            return True
        time_ms = now_ms(self._clock)
        data = b"".join(encode_record(record, time_ms) for record in records)
        request = _Request(data, unless_empty, asyncio.get_running_loop().create_future())
        self._pending.append(request)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_pending())
        return await request.done

    async def replay(
        self, take: Take, position: Position, *, batch_bytes: int = BATCH_BYTES, last_bytes: int = LAST_BYTES
    ) -> int:
        """Hand everything to `take`, in order and in batches, then empty the journal; returns how many.

        One process does this at a time; 0 at once if another is at it. It goes on from `position`, so a crash
        at any point repeats nothing that was taken. What is appended meanwhile is taken too. If `take`
        raises, that ends it and everything stays.
        """
        with self._sole_replay() as sole:
            if not sole:
                return 0
            replay = Replay(self._file, self._replayer, self._note, take, batch_bytes, last_bytes)
            await replay.run(position)
            return replay.taken

    @contextmanager
    def _sole_replay(self) -> Iterator[bool]:
        fd = self._open_replay_lock()
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                sole = False
            else:
                sole = True
            yield sole
        finally:
            os.close(fd)

    def _open_replay_lock(self) -> int:
        return os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    async def _write_pending(self) -> None:
        """Write what has gathered, again and again until nothing has: each time one write and one sync."""
        try:
            while self._pending:
                requests, self._pending = self._pending, []
                outcomes: Sequence[bool | Exception]
                try:
                    outcomes = await self._writer.do(self._write, requests)
                except Exception as error:  # noqa: BLE001 - handed to everybody who waits for this write
                    outcomes = [error] * len(requests)
                for request, outcome in zip(requests, outcomes, strict=True):
                    if request.done.done():
                        continue
                    if isinstance(outcome, bool):
                        request.done.set_result(outcome)
                    else:
                        request.done.set_exception(outcome)
        finally:
            self._writing = None

    def _write(self, requests: Sequence[_Request]) -> list[bool | JournalFull]:
        held = self._file.hold()
        try:
            outcomes, data = self._choose(held, requests)
            if data:
                held.write(data)
            return outcomes
        finally:
            held.release()

    def _choose(self, held: HeldFile, requests: Sequence[_Request]) -> tuple[list[bool | JournalFull], bytes]:
        """What becomes of each request if the write succeeds, and what is to be written for that."""
        size = held.size
        outcomes: list[bool | JournalFull] = []
        chosen: list[bytes] = []
        for request in requests:
            grown = (size or HEADER_BYTES) + len(request.data)
            if request.unless_empty and not size:
                outcomes.append(False)
            elif grown > self._max_bytes:
                outcomes.append(self._full(size))
            else:
                outcomes.append(True)
                chosen.append(request.data)
                size = grown
        return outcomes, b"".join(chosen)

    def _full(self, size: int) -> JournalFull:
        return JournalFull(
            f"the journal holds {size} of {self._max_bytes} bytes until PostgreSQL is back: try again later",
            bytes=size,
            maxBytes=self._max_bytes,
        )
