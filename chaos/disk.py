"""A small file system in memory that a run can fill, for the home of a platform."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DISK_MB = 1_500
_STEPS_BYTES = (16 * 2**20, 2**20, 4096)


class SmallDisk:
    """A mounted tmpfs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    def fill(self) -> None:
        """Use up all free space, in ever smaller steps, because others write meanwhile."""
        size = 0
        with self._ballast.open("wb") as file:
            for step in _STEPS_BYTES:
                while _allocate(file.fileno(), size, step):
                    size += step

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)


def _allocate(file: int, offset: int, size: int) -> bool:
    """Extend a file, and return whether there was room."""
    try:
        os.posix_fallocate(file, offset, size)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return False
    return True


@contextmanager
def small_disk(parent: Path) -> Iterator[SmallDisk | None]:
    """Mount a small disk below `parent`, or yield None where this process may not mount one."""
    path = parent / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m,mode=755", "tmpfs", str(path)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode != 0:
        yield None
        return
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
