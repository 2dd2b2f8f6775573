"""Migrate the stores of the platform in a process that ends afterwards."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from penstock.embedded.supervision.failures import explain_exit, last_line
from penstock.embedded.supervision.process import Command, process_mark, spawn
from penstock.errors import ComponentFailed, PenstockError

MODULE = "penstock.broker.migrations_process"
NAME = "migrations"


def run_migrations(home: Path, environment: Mapping[str, str]) -> str:
    """Migrate, and return a summary. Raises ComponentFailed if the process fails.

    The supervisor runs as long as the platform, so it must not keep the modules that migrations need.
    """
    command = Command((sys.executable, "-m", MODULE), cwd=home, env=environment)
    child = spawn(command, home / "logs" / f"{NAME}.log", process_mark(home, NAME))
    exit_code = child.process.wait()
    output = child.read_output()
    if exit_code == PenstockError.exit_code:
        raise ComponentFailed(last_line(output))
    if exit_code != 0:
        raise ComponentFailed(explain_exit(NAME, exit_code, output))
    return last_line(output)
