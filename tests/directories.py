"""Temporary directories for homes of servers and platforms."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MEMORY = Path("/dev/shm")
"""A file system in memory, on Linux."""
MIN_FREE_MEMORY_BYTES = 4 * 2**30


def make_directory(parent: Path | None = None) -> Path:
    """Return a new directory whose path has a space and a letter outside of ASCII, as homes of users may.

    Other users can pass through it, because as root PostgreSQL runs as another user.
    """
    directory = Path(tempfile.mkdtemp(prefix="penstock tëst-", dir=parent))
    directory.chmod(0o755)
    return directory


def memory_directory() -> Path | None:
    """Return a parent directory in memory, or None if this machine has none with enough space."""
    has_space = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= MIN_FREE_MEMORY_BYTES
    return MEMORY if has_space else None


@contextmanager
def temporary_directory(parent: Path | None = None) -> Iterator[Path]:
    """Yield such a directory and remove it at the end of the block."""
    directory = make_directory(parent)
    try:
        yield directory
    finally:
        shutil.rmtree(directory)
