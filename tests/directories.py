"""Temporary directories for homes of servers and platforms."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def make_directory() -> Path:
    """Return a new directory whose path has a space and a letter outside of ASCII, as homes of users may.

    Other users can pass through it, because as root PostgreSQL runs as another user.
    """
    directory = Path(tempfile.mkdtemp(prefix="penstock tëst-"))
    directory.chmod(0o755)
    return directory


@contextmanager
def temporary_directory() -> Iterator[Path]:
    """Yield such a directory and remove it at the end of the block."""
    directory = make_directory()
    try:
        yield directory
    finally:
        shutil.rmtree(directory)
