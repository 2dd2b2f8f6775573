"""Number the processes behind one port, and let them read each other's snapshots.

Processes that share a port share a directory. Each holds the lock of one slot number there while it lives.
Slot numbers are small, and a process that replaces a dead one takes over its number and its last snapshot.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from penstock.config import Settings
from penstock.private_directories import create_private_directory

logger = logging.getLogger(__name__)

MAX_SLOTS = 256


def slots_directory(settings: Settings) -> Path:
    return settings.home / "run" / f"workers-{settings.port}"


def clear_stale_slots(settings: Settings) -> None:
    """Delete the snapshots of dead processes, before new processes claim slots from 0."""
    for snapshot in slots_directory(settings).glob("*.json"):
        try:
            lock = _try_lock(snapshot.with_suffix(".lock"))
            if lock is not None:
                snapshot.unlink(missing_ok=True)
                lock.close()
        except OSError as error:
            logger.warning("Cannot delete the counters of an earlier broker: %s", error)


class WorkerSlot:
    """A slot number among the processes of a port.

    Without a writable directory the number is 0, and processes do not see each other's snapshots.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock: IO[str] | None = None
        self.number = 0
        self.inherited: bytes | None = None
        """The last snapshot of the previous process with this number."""

    def claim(self) -> None:
        """Take the lowest free number."""
        try:
            create_private_directory(self._directory)
            for number in range(MAX_SLOTS):
                lock = _try_lock(self._directory / f"{number}.lock")
                if lock is not None:
                    self._lock, self.number = lock, number
                    self.inherited = _read_if_exists(self._snapshot_path(number))
                    return
        except OSError as error:
            logger.warning("Brokers behind this port cannot see each other's counters: %s", error)

    def release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def write_snapshot(self, content: bytes) -> None:
        """Replace the snapshot of this process atomically: readers see the old or the new one."""
        if self._lock is not None:
            new_file = self._directory / f"{self.number}.new"
            new_file.write_bytes(content)
            new_file.replace(self._snapshot_path(self.number))

    def read_other_snapshots(self) -> Iterator[tuple[int, bytes]]:
        """Yield number and snapshot of every other process, also of dead ones."""
        for number in range(MAX_SLOTS) if self._lock is not None else ():
            if (
                number != self.number
                and (content := _read_if_exists(self._snapshot_path(number))) is not None
            ):
                yield number, content
            elif not (self._directory / f"{number}.lock").exists():
                return

    def _snapshot_path(self, number: int) -> Path:
        return self._directory / f"{number}.json"


def _try_lock(path: Path) -> IO[str] | None:
    lock = path.open("a")
    os.set_inheritable(lock.fileno(), False)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


def _read_if_exists(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
