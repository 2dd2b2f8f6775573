"""Servers for tests that never read their data after a crash of the machine: they do not wait for the disk.

Tests of durability start the servers as a platform does.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.embedded.servers.postgres import Postgres
from penstock.embedded.servers.valkey import Valkey
from penstock.embedded.supervision.process import Command

_POSTGRES_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_wal_size": "256MB",  # the home may be in memory
    "min_wal_size": "80MB",
    "wal_compression": "off",  # every copy of a database is written to the log
}


class UnsyncedPostgres(Postgres):
    """PostgreSQL without fsync. A database is copied and dropped for every test."""

    def command(self) -> Command:
        command = super().command()
        flags = [
            argument for key, value in _POSTGRES_SETTINGS.items() for argument in ("-c", f"{key}={value}")
        ]
        return replace(command, argv=(*command.argv, *flags))


class UnsyncedValkey(Valkey):
    """Valkey without fsync."""

    def command(self) -> Command:
        command = super().command()
        return replace(command, argv=(*command.argv, "--appendfsync", "no"))
