"""Log files of the parts: kept small, read from the end, followed.

A part writes to its file directly, so that it neither blocks nor dies with the supervisor. Rotation therefore
copies the file away and empties it; what is written in between, a moment, may be lost from the log.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

MAX_BYTES = 10 * 1024 * 1024
KEEP = 2


def rotate(log: Path, max_bytes: int = MAX_BYTES, keep: int = KEEP) -> bool:
    """Move a log that grew beyond `max_bytes` to `<log>.1`, older ones up to `<log>.<keep>`."""
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


def last_lines(log: Path, count: int) -> list[str]:
    """The last `count` lines, read from the end in blocks, whatever the size of the file."""
    block = 64 * 1024
    with log.open("rb") as file:
        position = file.seek(0, os.SEEK_END)
        content = b""
        while position > 0 and content.count(b"\n") <= count:
            step = min(block, position)
            position = file.seek(position - step)
            content = file.read(step) + content
    return content.decode(errors="replace").splitlines()[-count:] if count > 0 else []


def follow(log: Path, keep_going: Callable[[], bool] = lambda: True, poll_s: float = 0.2) -> Iterator[str]:
    """New lines as they are written, from the present end on; goes on after a rotation."""
    with log.open("rb") as file:
        position = file.seek(0, os.SEEK_END)
        pending = b""
        while keep_going():
            if log.stat().st_size < position:
                position = file.seek(0)
            pending += file.read()
            position = file.tell()
            *lines, pending = pending.split(b"\n")
            yield from (line.decode(errors="replace") for line in lines)
            if not lines:
                time.sleep(poll_s)
