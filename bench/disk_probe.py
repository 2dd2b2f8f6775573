"""A probe of the disk: it syncs a file of its own a hundred times a second during a measurement.

The probe uses no server. When one of its syncs is slow, every commit at that time is slow too, and no server
is the cause.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from pathlib import Path
from types import TracebackType

BLOCK_BYTES = 8192
BLOCKS = 2000
PAUSE_S = 0.01
STALL_S = 0.02


class DiskProbe:
    """Measures the time of syncs within its `with` block."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "probe"
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="disk probe")
        self.syncs: list[tuple[float, float]] = []
        """Start of each sync, by `time.perf_counter`, and its duration in seconds."""

    def __enter__(self) -> DiskProbe:
        self._path.write_bytes(bytes(BLOCK_BYTES * BLOCKS))
        self._thread.start()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stopped.set()
        self._thread.join()
        self._path.unlink()

    def _run(self) -> None:
        with self._path.open("r+b", buffering=0) as file:
            os.fsync(file.fileno())
            block = 0
            while not self._stopped.wait(PAUSE_S):
                started = time.perf_counter()
                os.pwrite(file.fileno(), b"x" * BLOCK_BYTES, block * BLOCK_BYTES)
                os.fdatasync(file.fileno())
                self.syncs.append((started, time.perf_counter() - started))
                block = (block + 1) % BLOCKS

    def stalls(self) -> list[tuple[float, float]]:
        """Return start and end of every sync that took longer than STALL_S."""
        return [(started, started + took_s) for started, took_s in self.syncs if took_s > STALL_S]

    def durations_ms(self) -> dict[str, float]:
        return summarize_ms([took_s * 1000 for _, took_s in self.syncs])


def summarize_ms(durations_ms: list[float]) -> dict[str, float]:
    """Return the number of calls and the median, 99th percentile and maximum of their durations."""
    return {
        "calls": len(durations_ms),
        "p50": round(statistics.median(durations_ms), 2),
        "p99": round(sorted(durations_ms)[int(len(durations_ms) * 0.99)], 2),
        "max": round(max(durations_ms), 2),
    }
