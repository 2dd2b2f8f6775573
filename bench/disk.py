"""A probe of the disk: a file of its own, synced a hundred times a second, beside whatever is measured.

It touches no server. When it has to wait, so does everybody who commits, and no server is to blame for that.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from pathlib import Path
from types import TracebackType

BLOCK = 8192
BLOCKS = 2000
PAUSE_S = 0.01
STALL_S = 0.02


class DiskProbe:
    """Measures between `with` and its end; then tells."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "probe"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="disk probe")
        self.syncs: list[tuple[float, float]] = []
        """When each began, by `time.perf_counter`, and how many seconds it took."""

    def __enter__(self) -> DiskProbe:
        self._path.write_bytes(bytes(BLOCK * BLOCKS))
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._path.unlink()

    def _run(self) -> None:
        with self._path.open("r+b", buffering=0) as file:
            os.fsync(file.fileno())
            place = 0
            while not self._ended.wait(PAUSE_S):
                began = time.perf_counter()
                os.pwrite(file.fileno(), b"x" * BLOCK, place * BLOCK)
                os.fdatasync(file.fileno())
                self.syncs.append((began, time.perf_counter() - began))
                place = (place + 1) % BLOCKS

    def stalls(self) -> list[tuple[float, float]]:
        """From when to when the disk did not answer."""
        return [(began, began + took) for began, took in self.syncs if took > STALL_S]

    def milliseconds(self) -> dict[str, float]:
        return spread([took * 1000 for _, took in self.syncs])


def spread(times: list[float]) -> dict[str, float]:
    """How long calls took: the usual, the slow, the slowest."""
    return {
        "calls": len(times),
        "p50": round(statistics.median(times), 2),
        "p99": round(sorted(times)[int(len(times) * 0.99)], 2),
        "max": round(max(times), 2),
    }
