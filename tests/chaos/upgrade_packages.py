"""Two installed versions of Penstock: the one that runs, and the next one with a further migration.

`PREVIOUS_WHEEL` names the wheel of an earlier release; then this tree is the next version. Without it the
wheel of this tree is the earlier version, and the next one is the same code with another version and a
further migration.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
NEXT_MIGRATION = """
-- A column and a table that the earlier version does not know.
ALTER TABLE penstock.queues ADD COLUMN next_version_note text;
CREATE TABLE penstock.next_version_notes (id bigint PRIMARY KEY, note text NOT NULL);
"""


@dataclass(frozen=True)
class InstalledVersion:
    """A directory with the package, before all others on the path of Python."""

    directory: Path

    @property
    def version(self) -> str:
        source = (self.directory / "penstock" / "__init__.py").read_text()
        [version] = re.findall(r'^__version__ = "(.+)"$', source, re.MULTILINE)
        return str(version)

    def environment(self, settings: dict[str, str]) -> dict[str, str]:
        """Return the variables of a process. It keeps bytecode, so that later ones start faster."""
        python = {"PYTHONPATH": str(self.directory), "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": ""}
        return {**os.environ, **settings, **python}

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "penstock.cli.main", *arguments]

    def run(self, settings: dict[str, str], *arguments: str) -> str:
        """Run a command of this version and return what it printed."""
        result = subprocess.run(
            self.command(*arguments),
            env=self.environment(settings),
            cwd=self.directory,
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout


def install_versions(directory: Path) -> tuple[InstalledVersion, InstalledVersion]:
    """Return the earlier and the next version."""
    current = _install(_build_wheel(directory / "source"), directory / "current")
    if wheel := os.environ.get("PREVIOUS_WHEEL"):
        return _install(Path(wheel), directory / "previous"), current
    return current, _make_next_version(current.directory, directory / "next")


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


def _make_next_version(current: Path, directory: Path) -> InstalledVersion:
    shutil.copytree(current, directory)
    package = directory / "penstock"
    (package / "__init__.py").write_text('"""The next version."""\n\n__version__ = "99.0.0"\n')
    (package / "durable" / "sql" / "migrations" / "9999_next_version.sql").write_text(NEXT_MIGRATION)
    return InstalledVersion(directory)
