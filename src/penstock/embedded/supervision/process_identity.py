"""Identify a process by its pid and its start time.

The kernel reuses pids, so this package never signals a process by pid alone. A pid file holds both; a process
with the same pid and another start time is a different process, and the recorded one counts as gone.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec
import psutil


class ProcessIdentity(msgspec.Struct, frozen=True, rename={"start_time": "began"}):
    """One process, distinct from any later process with the same pid."""

    pid: int
    start_time: str

    @property
    def is_alive(self) -> bool:
        """Whether exactly this process still runs; a zombie does not count as running."""
        return identify(self.pid) == self


def identify(pid: int) -> ProcessIdentity | None:
    """Return the identity of the process that has this pid now; None when there is none, or only a zombie."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return ProcessIdentity(pid, _read_start_time(process))
    except (psutil.NoSuchProcess, ProcessLookupError, FileNotFoundError):
        return None


def _read_start_time(process: psutil.Process) -> str:
    """Return the start time, if possible in a form that a change of the wall clock cannot alter."""
    stat = Path(f"/proc/{process.pid}/stat")
    if stat.exists():
        fields_after_name = stat.read_text().rpartition(")")[2].split()
        return f"{_read_boot_id()}/{fields_after_name[19]}"
    return f"{process.create_time():.2f}"


@cache
def _read_boot_id() -> str:
    boot_id = Path("/proc/sys/kernel/random/boot_id")
    return boot_id.read_text().strip() if boot_id.exists() else "-"


def write_pid_file(path: Path, identity: ProcessIdentity) -> None:
    """Replace the pid file atomically: a reader sees the old file or the new one."""
    new_file = path.with_suffix(".new")
    new_file.write_bytes(msgspec.json.encode(identity))
    new_file.replace(path)


def read_pid_file(path: Path) -> ProcessIdentity | None:
    """Return the identity in the pid file, or None when the file is missing or a crash truncated it."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=ProcessIdentity)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
