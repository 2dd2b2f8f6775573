"""Memory, CPU time and wake-ups of the parts of a running platform, read from /proc.

A part is a component of the platform, or a group of processes within one: the pipeline consists of its
driver, Spark's Java process and Spark's Python processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from penstock.embedded.supervision.state import PlatformState

SUPERVISOR = "supervisor"
PIPELINE_PYTHON = "pipeline Python"
PARTS = (
    SUPERVISOR,
    "broker",
    "postgres",
    "valkey",
    "clickhouse",
    "pipeline driver",
    "pipeline Java",
    PIPELINE_PYTHON,
    "alerts",
)


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """What one process uses. CPU time and wake-ups count from its start."""

    part: str
    pss_mb: float
    """Proportional set size: a page that several processes share counts in fractions."""
    own_mb: float
    """The same without pages of files, which the system drops and reads again as it likes."""
    cpu_s: float
    ended_children_cpu_s: float
    """CPU time of its children that ended, with their own children."""
    wakeups: int
    """Times a thread stopped waiting."""

    @property
    def all_cpu_s(self) -> float:
        return self.cpu_s + self.ended_children_cpu_s


Snapshot = dict[int, ProcessUsage]
"""The processes of a platform by pid."""


@dataclass(slots=True)
class PartUsage:
    """What the processes of one part use between two snapshots; memory and processes at the second one."""

    pss_mb: float = 0.0
    cpu_s: float = 0.0
    wakeups: int = 0
    processes: int = 0


def take_snapshot(state: PlatformState) -> Snapshot:
    """Return the usage of all processes. Raises RuntimeError when a component does not run."""
    supervisor = psutil.Process(state.supervisor.pid)
    usages = {supervisor.pid: _measure(supervisor, SUPERVISOR)}
    for component in state.components:
        if component.pid is None:
            raise RuntimeError(f"{component.name} does not run: {component.last_failure}")
        leader = psutil.Process(component.pid)
        for process in (leader, *leader.children(recursive=True)):
            usages[process.pid] = _measure(process, _find_part(component.name, process, leader))
    return {pid: usage for pid, usage in usages.items() if usage is not None}


def compare(before: Snapshot, after: Snapshot) -> dict[str, PartUsage]:
    """Return the usage of every part between two snapshots.

    A process that ended in between adds its CPU time to a parent that waits for it. That time counts for the
    part of the parent, less what the process had used before; the pipeline's parents end Python processes.
    """
    parts = {part: PartUsage() for part in PARTS}
    for pid, usage in after.items():
        earlier = before.get(pid)
        part = parts[usage.part]
        part.processes += 1
        part.pss_mb += usage.pss_mb
        part.cpu_s += usage.cpu_s - (earlier.cpu_s if earlier else 0.0)
        part.wakeups += usage.wakeups - (earlier.wakeups if earlier else 0)
        parent = parts[PIPELINE_PYTHON] if usage.part.startswith("pipeline") else part
        parent.cpu_s += usage.ended_children_cpu_s - (earlier.ended_children_cpu_s if earlier else 0.0)
    for pid, usage in before.items():
        if pid not in after:
            parts[usage.part].cpu_s -= usage.all_cpu_s
    return parts


def sum_parts(parts: Mapping[str, PartUsage]) -> PartUsage:
    """Return the usage of the whole platform."""
    values = parts.values()
    return PartUsage(
        sum(part.pss_mb for part in values),
        sum(part.cpu_s for part in values),
        sum(part.wakeups for part in values),
        sum(part.processes for part in values),
    )


def _find_part(component: str, process: psutil.Process, leader: psutil.Process) -> str:
    if component != "pipeline":
        return component
    if process == leader:
        return "pipeline driver"
    try:
        return "pipeline Java" if process.name() == "java" else PIPELINE_PYTHON
    except psutil.NoSuchProcess:  # Spark ends its Python processes after a while
        return PIPELINE_PYTHON


def _measure(process: psutil.Process, part: str) -> ProcessUsage | None:
    """Return the usage of one process, or None if it ended meanwhile."""
    directory = Path("/proc", str(process.pid))
    try:
        times = process.cpu_times()
        return ProcessUsage(
            part,
            measure_pss_mb(process.pid),
            measure_pss_mb(process.pid, "Pss_Anon:") + measure_pss_mb(process.pid, "Pss_Shmem:"),
            times.user + times.system,
            times.children_user + times.children_system,
            _count_wakeups(directory),
        )
    except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
        return None


def _count_wakeups(directory: Path) -> int:
    wakeups = 0
    for task in (directory / "task").iterdir():
        try:
            wakeups += _read_field(task / "status", "voluntary_ctxt_switches:")
        except (FileNotFoundError, ProcessLookupError):  # the thread ended meanwhile
            continue
    return wakeups


def measure_pss_mb(pid: int, field: str = "Pss:") -> float:
    """Return the proportional set size of a process in megabytes, or that of one kind of pages."""
    return _read_field(Path("/proc", str(pid), "smaps_rollup"), field) / 1024


def _read_field(path: Path, name: str) -> int:
    for line in path.read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1])
    return 0
