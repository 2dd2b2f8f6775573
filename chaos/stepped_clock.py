"""Wall clocks that are stepped for single components, while the clock of the machine stays as it is.

A small library is compiled and preloaded into the component. It needs Linux and a C compiler.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("stepped_clock.c")


def find_compiler() -> str | None:
    return shutil.which("cc") if sys.platform.startswith("linux") else None


def build_library(folder: Path) -> Path:
    """Compile the library that adds an offset to the wall clock."""
    compiler = find_compiler()
    if compiler is None:
        raise RuntimeError("No C compiler is installed. Install cc, or leave the kinds of clocks out.")
    library = folder / "stepped_clock.so"
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
        offset_file.chmod(0o644)  # PostgreSQL runs as another user
        return clock

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self.library), "STEPPED_CLOCK_FILE": str(self.offset_file)}

    def set_offset(self, seconds: float) -> None:
        """Step the clock to this distance from the clock of the machine, in all processes at once."""
        file = os.open(self.offset_file, os.O_WRONLY)
        try:
            os.pwrite(file, struct.pack("=q", round(seconds * 1e9)), 0)
        finally:
            os.close(file)
