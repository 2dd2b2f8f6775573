"""The journal: keep pushes on the local disk while PostgreSQL is unavailable, and replay them afterwards.

All broker processes of a machine share one journal, so its order is the order in which all of them accepted
pushes. A record survives kill -9 and a power failure once `append` has returned.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from penstock.broker.journal.depth import DepthGauge, JournalDepth, ReplayProgress
from penstock.broker.journal.journal_file import JournalFile, LockedJournalFile
from penstock.broker.journal.record_format import HEADER_BYTES, encode_record
from penstock.broker.journal.replay import (
    BATCH_BYTES,
    FINAL_BYTES,
    LOCK_TIMEOUT_S,
    JournalId,
    ReadPosition,
    Replay,
    StoreRecords,
)
from penstock.broker.journal.writer_thread import FileThread
from penstock.clock import Clock, now_ms, system_clock
from penstock.config import Settings
from penstock.errors import ConfigError, JournalFull

MIN_FREE_BYTES = 64 << 10
"""A journal with less free space than this counts as full."""

FAILURE_S = 10.0
"""How long a failed write counts. Without requests there is no other write that shows that the disk works."""

__all__ = [
    "Journal",
    "JournalDepth",
    "JournalId",
    "ReadPosition",
    "StoreRecords",
    "journal_directory",
    "read_depth",
]


def journal_directory(settings: Settings) -> Path:
    """Return the directory that all broker processes of this machine use for this database.

    Each database has its own, so that no push is replayed into another one. The embedded database always has
    the same, whatever port it listens on, so that a restart finds its journal. Of a URL with several
    hosts the first one counts, so that adding a standby keeps the journal.
    """
    if settings.journal_dir:
        return Path(settings.journal_dir).expanduser()
    url = urlsplit(settings.postgres_url)
    first = urlsplit(f"//{url.netloc.rpartition('@')[2].partition(',')[0]}")
    address = f"{first.hostname}:{first.port or 5432}{url.path}"
    name = hashlib.sha256(address.encode()).hexdigest()[:12] if settings.postgres_url else "embedded"
    return settings.home / "journal" / name


def can_journal(settings: Settings) -> bool:
    """Return whether a broker of this home has a journal for this database: it has served it before."""
    return settings.journal_mb > 0 and journal_directory(settings).is_dir()


def read_depth(settings: Settings) -> JournalDepth:
    """Return the depth of the journal for a process that is not a broker. Creates nothing."""
    directory = journal_directory(settings)
    return Journal(directory, 0).depth() if directory.is_dir() else JournalDepth(0, 0, 0.0)


@dataclass(slots=True, eq=False)
class _AppendRequest:
    data: bytes
    unless_empty: bool
    future: asyncio.Future[bool]


class Journal:
    """The journal of this process. Raises ConfigError if its directory cannot be used."""

    def __init__(self, directory: Path, max_bytes: int, *, clock: Clock = system_clock) -> None:
        self.max_bytes = max_bytes
        self._clock = clock
        self._replay_lock_path = directory / "replay.lock"
        try:
            self._file = JournalFile(directory)
            os.close(self._open_replay_lock())
        except OSError as error:
            raise ConfigError(
                f"The journal cannot be kept in {directory} ({error.strerror})."
                " Set PENSTOCK_JOURNAL_DIR to a directory that the broker can write to."
            ) from error
        self._progress = ReplayProgress(self._replay_lock_path)
        self._depth_gauge = DepthGauge(self._file, self._progress)
        self._append_thread = FileThread("penstock-journal", self._file.path)
        self._replay_thread = FileThread("penstock-replay", self._file.path)
        self._pending: list[_AppendRequest] = []
        self._write_task: asyncio.Task[None] | None = None
        self._failure: Exception | None = None
        self._failed_at = 0.0

    async def close(self) -> None:
        """Finish pending appends. A replay must have ended before."""
        if self._write_task is not None:
            await self._write_task
        self._append_thread.close()
        self._replay_thread.close()
        self._file.close()

    @property
    def has_records(self) -> bool:
        """Whether any process of this machine has appended records that are not replayed."""
        return self._file.flag[0] != 0

    def refusal_reason(self) -> str | None:
        """Return why the journal cannot take another push now, or None if it can."""
        size = self._file.size
        if size + MIN_FREE_BYTES > self.max_bytes:
            return f"the journal is full ({size} of {self.max_bytes} bytes)"
        if self._failure is not None and time.monotonic() - self._failed_at < FAILURE_S:
            return f"the journal cannot be written: {self._failure}"
        return None

    def depth(self) -> JournalDepth:
        """Measure the records that are not replayed yet."""
        return self._depth_gauge.read(now_ms(self._clock))

    async def append(self, records: Sequence[bytes], *, unless_empty: bool = False) -> bool:
        """Append records together and in order. They are on disk when this returns.

        With `unless_empty`, append only after records that are still in the journal. False means that the
        journal is empty by now: nothing was written, and PostgreSQL has all earlier records. Raises
        JournalFull, or JournalFailed if the disk fails; nothing is written then. If the caller is cancelled,
        the records may or may not have been written.
        """
        if not records:
            return True
        time_ms = now_ms(self._clock)
        data = b"".join(encode_record(record, time_ms) for record in records)
        request = _AppendRequest(data, unless_empty, asyncio.get_running_loop().create_future())
        self._pending.append(request)
        if self._write_task is None:
            self._write_task = asyncio.create_task(self._write_pending())
        return await request.future

    async def replay(
        self,
        store_records: StoreRecords,
        read_position: ReadPosition,
        *,
        batch_bytes: int = BATCH_BYTES,
        final_bytes: int = FINAL_BYTES,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
    ) -> int:
        """Store all records in order and in batches, then empty the journal; return the number of records.

        Only one process replays at a time: another one returns 0 at once. The replay continues from the
        stored position, so a crash at any point repeats no record. It includes records that are appended
        meanwhile. If `store_records` raises, the replay ends and the journal keeps its records.
        """
        with self._replay_lock() as is_locked:
            if not is_locked:
                return 0
            replay = Replay(
                self._file,
                self._replay_thread,
                self._progress,
                store_records,
                batch_bytes=batch_bytes,
                final_bytes=final_bytes,
                lock_timeout_s=lock_timeout_s,
            )
            await replay.run(read_position)
            return replay.replayed

    @contextmanager
    def _replay_lock(self) -> Iterator[bool]:
        fd = self._open_replay_lock()
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                is_locked = False
            else:
                is_locked = True
            yield is_locked
        finally:
            os.close(fd)

    def _open_replay_lock(self) -> int:
        return os.open(self._replay_lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    async def _write_pending(self) -> None:
        """Write pending requests until there are none; each round is one write and one sync."""
        try:
            while self._pending:
                requests, self._pending = self._pending, []
                outcomes: Sequence[bool | Exception]
                try:
                    outcomes = await self._append_thread.run(self._write, requests)
                    self._failure = None
                except Exception as error:  # noqa: BLE001 - every caller of this write gets it
                    outcomes = [error] * len(requests)
                    self._failure, self._failed_at = error, time.monotonic()
                for request, outcome in zip(requests, outcomes, strict=True):
                    if request.future.done():
                        continue
                    if isinstance(outcome, bool):
                        request.future.set_result(outcome)
                    else:
                        request.future.set_exception(outcome)
        finally:
            self._write_task = None

    def _write(self, requests: Sequence[_AppendRequest]) -> list[bool | JournalFull]:
        locked = self._file.lock()
        try:
            outcomes, data = self._plan_write(locked, requests)
            if data:
                locked.write(data)
            return outcomes
        finally:
            locked.release()

    def _plan_write(
        self, locked: LockedJournalFile, requests: Sequence[_AppendRequest]
    ) -> tuple[list[bool | JournalFull], bytes]:
        """Return the outcome of each request if the write succeeds, and the bytes to write."""
        size = locked.size
        outcomes: list[bool | JournalFull] = []
        accepted: list[bytes] = []
        for request in requests:
            new_size = (size or HEADER_BYTES) + len(request.data)
            if request.unless_empty and not size:
                outcomes.append(False)
            elif new_size > self.max_bytes:
                outcomes.append(self._full_error(size))
            else:
                outcomes.append(True)
                accepted.append(request.data)
                size = new_size
        return outcomes, b"".join(accepted)

    def _full_error(self, size: int) -> JournalFull:
        return JournalFull(
            f"The journal holds {size} of {self.max_bytes} bytes. Retry when PostgreSQL is available again.",
            bytes=size,
            maxBytes=self.max_bytes,
        )
