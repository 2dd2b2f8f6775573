"""Which process a number means: a pid together with the moment the process began.

A pid alone is reused by the kernel, so nothing here is ever signalled by pid alone. A pid file holds both;
a pid whose process began at another moment is somebody else's and counts as gone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process, not to be mistaken for a later one with the same pid."""

    pid: int
    began: str

    @property
    def alive(self) -> bool:
        """Whether this very process still runs; a zombie does not count as running."""
        return identify(self.pid) == self


def identify(pid: int) -> ProcessIdentity | None:
    """The identity of the process that has this pid now, or None when there is none (or only a zombie)."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return ProcessIdentity(pid, _beginning(process))
    except (psutil.NoSuchProcess, ProcessLookupError, FileNotFoundError):
        return None


def _beginning(process: psutil.Process) -> str:
    """When it began, in a form that a change of the wall clock cannot alter where the kernel offers one."""
    stat = Path(f"/proc/{process.pid}/stat")
    if stat.exists():
        after_name = stat.read_text().rpartition(")")[2].split()
        return f"{_boot()}/{after_name[19]}"
    return f"{process.create_time():.2f}"


@cache
def _boot() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id")
    return boot.read_text().strip() if boot.exists() else "-"


def write_pid_file(path: Path, identity: ProcessIdentity) -> None:
    """Replace the pid file in one step: a reader sees the old one or the new one."""
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps({"pid": identity.pid, "began": identity.began}))
    fresh.replace(path)


def read_pid_file(path: Path) -> ProcessIdentity | None:
    """What the pid file says, or None when it is missing or was cut short by a crash."""
    try:
        content = json.loads(path.read_text())
        return ProcessIdentity(int(content["pid"]), str(content["began"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
