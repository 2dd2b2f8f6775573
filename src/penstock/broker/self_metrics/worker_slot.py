"""Which of the processes behind one port this is, and what they leave for each other to read.

Processes that share a port share a directory. Each holds the lock of one number there for as long as it
lives, so numbers are small, and the one that replaces a dead process takes over its number together with
what it had left.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from penstock.config import Settings

logger = logging.getLogger(__name__)

MOST = 256


def slots_directory(settings: Settings) -> Path:
    return settings.home / "run" / f"workers-{settings.port}"


def clear_slots(settings: Settings) -> None:
    """Remove what processes that are gone have left, before new ones start to count from 0."""
    for left in slots_directory(settings).glob("*.json"):
        try:
            lock = _try_lock(left.with_suffix(".lock"))
            if lock is not None:
                left.unlink(missing_ok=True)
                lock.close()
        except OSError as error:
            logger.warning("what an earlier broker had counted is still there: %s", error)


class WorkerSlot:
    """A number among the processes of a port. Without a directory that can be written to it is 0, and nobody
    reads what anybody leaves."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock: IO[str] | None = None
        self.number = 0
        self.inherited: bytes | None = None
        """What the last process with this number left."""

    def claim(self) -> None:
        """Take the lowest number that is free."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            for number in range(MOST):
                lock = _try_lock(self._directory / f"{number}.lock")
                if lock is not None:
                    self._lock, self.number = lock, number
                    self.inherited = _read(self._file(number))
                    return
        except OSError as error:
            logger.warning("brokers behind this port do not know of each other: %s", error)

    def release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def leave(self, content: bytes) -> None:
        """Let the others read this from now on; they see the old or the new one, never a part."""
        if self._lock is not None:
            fresh = self._directory / f"{self.number}.new"
            fresh.write_bytes(content)
            fresh.replace(self._file(self.number))

    def others(self) -> Iterator[tuple[int, bytes]]:
        """What each other process has left, those that are gone too."""
        for number in range(MOST) if self._lock is not None else ():
            if number != self.number and (content := _read(self._file(number))) is not None:
                yield number, content
            elif not (self._directory / f"{number}.lock").exists():
                return

    def _file(self, number: int) -> Path:
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


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
