"""Versions of Penstock side by side: the installed one, and next ones with a further migration each."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

NEXT_MIGRATION = """
-- A column and a table that the earlier version does not know.
ALTER TABLE penstock.queues ADD COLUMN {name}_note text;
CREATE TABLE penstock.{name}_notes (id bigint PRIMARY KEY, note text NOT NULL);
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

    def environment(self, settings: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of a process. It keeps bytecode, so that later ones start faster."""
        python = {"PYTHONPATH": str(self.directory), "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": ""}
        return {**os.environ, **settings, **python}

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "penstock.cli.main", *arguments]

    def run(self, settings: Mapping[str, str], *arguments: str) -> str:
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


def make_next_version(current: Path, directory: Path, number: int = 0) -> InstalledVersion:
    """Copy a version and give it a higher number and a migration. `number` tells several copies apart."""
    name = f"next_version_{number}"
    shutil.copytree(current / "penstock", directory / "penstock", symlinks=True)
    package = directory / "penstock"
    (package / "__init__.py").write_text(f'"""The next version."""\n\n__version__ = "99.{number}.0"\n')
    migration = package / "durable" / "sql" / "migrations" / f"{9000 + number}_{name}.sql"
    migration.write_text(NEXT_MIGRATION.format(name=name))
    return InstalledVersion(directory)
