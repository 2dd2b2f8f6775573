"""Two installed versions of Penstock: the one that runs, and the next one with a further migration.

`PREVIOUS_WHEEL` names the wheel of an earlier release; then this tree is the next version. Without it the
wheel of this tree is the earlier version, and the next one is the same code with another version and a
further migration.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from chaos.next_version import InstalledVersion, make_next_version

ROOT = Path(__file__).parents[2]


def install_versions(directory: Path) -> tuple[InstalledVersion, InstalledVersion]:
    """Return the earlier and the next version."""
    current = _install(_build_wheel(directory / "source"), directory / "current")
    if wheel := os.environ.get("PREVIOUS_WHEEL"):
        return _install(Path(wheel), directory / "previous"), current
    return current, make_next_version(current.directory, directory / "next")


def _build_wheel(copy: Path) -> Path:
    """Build a wheel from a copy, because the build writes into the directory it reads."""
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "guide")
    shutil.copytree(ROOT / "src", copy / "src", ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", copy / "dist", copy)
    [wheel] = (copy / "dist").iterdir()
    return wheel


def _install(wheel: Path, directory: Path) -> InstalledVersion:
    _pip("install", "--no-deps", "--no-compile", "--target", directory, wheel)
    return InstalledVersion(directory)


def _pip(command: str, *arguments: object) -> None:
    options = [command, "--quiet", "--no-index", "--disable-pip-version-check", *map(str, arguments)]
    subprocess.run([sys.executable, "-m", "pip", *options], check=True, cwd="/")
