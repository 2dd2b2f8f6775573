"""Rotate, read and follow the log files of components.

A component writes to its log file directly, so it neither blocks nor dies with the supervisor. Rotation
therefore copies the file and truncates it; lines that the component writes between these two steps may be
lost.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

MAX_LOG_BYTES = 10 * 1024 * 1024
ROTATED_LOGS = 2
_BLOCK_BYTES = 64 * 1024


def rotate(log: Path, max_bytes: int = MAX_LOG_BYTES, keep: int = ROTATED_LOGS) -> bool:
    """Move a log larger than `max_bytes` to `<log>.1`, and older ones up to `<log>.<keep>`."""
    try:
        if log.stat().st_size <= max_bytes:
            return False
    except FileNotFoundError:
        return False
    for number in range(keep, 1, -1):
        older = log.with_name(f"{log.name}.{number - 1}")
        if older.exists():
            older.replace(log.with_name(f"{log.name}.{number}"))
    shutil.copyfile(log, log.with_name(f"{log.name}.1"))
    os.truncate(log, 0)
    return True


def read_last_lines(log: Path, count: int) -> list[str]:
    """Return the last `count` lines. Reads blocks from the end, so the size of the file does not matter."""
    with log.open("rb") as file:
        position = file.seek(0, os.SEEK_END)
        content = b""
        while position > 0 and content.count(b"\n") <= count:
            block_bytes = min(_BLOCK_BYTES, position)
            position = file.seek(position - block_bytes)
            content = file.read(block_bytes) + content
    return content.decode(errors="replace").splitlines()[-count:] if count > 0 else []


def follow(log: Path, keep_going: Callable[[], bool] = lambda: True, poll_s: float = 0.2) -> Iterator[str]:
    """Yield new lines as the component writes them, also after a rotation."""
    with log.open("rb") as file:
        position = file.seek(0, os.SEEK_END)
        incomplete_line = b""
        while keep_going():
            if log.stat().st_size < position:
                position = file.seek(0)
            incomplete_line += file.read()
            position = file.tell()
            *lines, incomplete_line = incomplete_line.split(b"\n")
            yield from (line.decode(errors="replace") for line in lines)
            if not lines:
                time.sleep(poll_s)
