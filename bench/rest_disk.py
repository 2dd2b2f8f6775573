"""Disk space of an installation without tools and tests: its packages, its guide, and its home."""

from __future__ import annotations

import importlib.metadata
import os
import re
from collections.abc import Iterable, Iterator
from importlib.util import cache_from_source
from pathlib import Path

ROOT = Path(__file__).parent.parent
REQUIREMENTS = ("requirements.txt", "requirements-docs.txt")
"""The files whose packages `make up` installs."""
INSTALLERS = ("pip", "uv")
"""What `make up` installs to install the others."""
_PACKAGE = re.compile(r"^([A-Za-z0-9._-]+)==", re.MULTILINE)


def measure_disk(home: Path) -> dict[str, float]:
    """Return megabytes on disk of the packages of `make up`, of Penstock with its guide, and of a home."""
    return {
        "packages": sum(measure_packages().values()),
        "penstock and its guide": _disk_mb(_files_below(ROOT / "src")),
        "home": _disk_mb(_files_below(home)),
    }


def measure_packages() -> dict[str, float]:
    """Return megabytes on disk by package, with compiled bytecode. A package that is missing has none."""
    names = {name.lower() for file in REQUIREMENTS for name in _PACKAGE.findall((ROOT / file).read_text())}
    return {name: _disk_mb(_package_files(name)) for name in sorted(names.union(INSTALLERS))}


def _package_files(name: str) -> Iterator[Path]:
    """Yield the files of a package and their compiled bytecode, as far as they exist."""
    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return
    for file in distribution.files or ():
        path = Path(str(distribution.locate_file(file)))
        if path.suffix == ".py":
            yield Path(cache_from_source(str(path)))
        if path.suffix != ".pyc":
            yield path


def _files_below(directory: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(directory):
        yield from (Path(parent, name) for name in names)


def _disk_mb(files: Iterable[Path]) -> float:
    return sum(_disk_bytes(file) for file in files) / 2**20


def _disk_bytes(file: Path) -> int:
    try:
        return file.lstat().st_blocks * 512
    except FileNotFoundError:  # a package may list files that setup removes, and servers delete files
        return 0
