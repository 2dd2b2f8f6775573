"""Wall clocks that are stepped for single components, while the clock of the machine stays as it is.

A small library is compiled and preloaded into the component. It needs Linux and a C compiler.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

SOURCE = Path(__file__).with_name("stepped_clock.c")
LIBRARY = "stepped_clock.so"


def find_compiler() -> str | None:
    return shutil.which("cc") if sys.platform.startswith("linux") else None


@contextmanager
def stepped_clocks(parts: Sequence[str]) -> Iterator[dict[str, SteppedClock]]:
    """Yield a clock for each part. Their files are removed at the end of the block."""
    with tempfile.TemporaryDirectory(prefix="penstock-clocks-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # PostgreSQL runs as another user
        library = build_library(folder) if parts else None
        yield {part: SteppedClock.create(library, folder / part) for part in parts if library}


def build_library(folder: Path) -> Path:
    """Compile the library that adds an offset to the wall clock."""
    if re.search(r"[\s:]", str(folder)):
        raise RuntimeError(f"No library in {folder} can be preloaded. Set TMPDIR to a path without spaces.")
    compiler = find_compiler()
    if compiler is None:
        raise RuntimeError("No C compiler is installed. Install cc, or leave the kinds of clocks out.")
    library = folder / LIBRARY
    command = [compiler, "-shared", "-fPIC", "-O2", "-Wall", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True)
    return library


@dataclass(frozen=True, slots=True)
class SteppedClock:
    """The wall clock of the processes that have `environment`."""

    library: Path
    offset_file: Path

    @classmethod
    def create(cls, library: Path, offset_file: Path) -> SteppedClock:
        clock = cls(library, offset_file)
        offset_file.write_bytes(struct.pack("=q", 0))
        offset_file.chmod(0o644)
        return clock

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self.library), "STEPPED_CLOCK_FILE": str(self.offset_file)}

    def is_used_by(self, process: psutil.Process) -> bool:
        """Whether the library is loaded into a process, which it is not if its user cannot read it."""
        return any(mapped.path == str(self.library) for mapped in process.memory_maps())

    def set_offset(self, seconds: float) -> None:
        """Step the clock to this distance from the clock of the machine, in all processes at once."""
        file = os.open(self.offset_file, os.O_WRONLY)
        try:
            os.pwrite(file, struct.pack("=q", round(seconds * 1e9)), 0)
        finally:
            os.close(file)
