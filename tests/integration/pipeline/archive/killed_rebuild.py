"""Drain the streams, then rebuild today in a process that kills itself after two table swaps.

The settings are in the environment.
"""

from __future__ import annotations

import os
import signal
from datetime import UTC, date, datetime

from penstock.cli.main import app
from penstock.warehouse.schema import TierTable
from penstock.warehouse.table_copies import TableCopies

original_swap = TableCopies.swap
swapped_tables: list[TierTable] = []


def swap_two_then_die(self: TableCopies, table: TierTable, day: date, cluster: str = "") -> None:
    if len(swapped_tables) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    swapped_tables.append(table)
    original_swap(self, table, day, cluster)


if __name__ == "__main__":
    assert app(["pipeline", "drain", "--json"], standalone_mode=False) == 0
    setattr(TableCopies, "swap", swap_two_then_die)  # noqa: B010 - replaces a method
    today = datetime.now(UTC).date().isoformat()
    app(["pipeline", "rebuild", "--from", today, "--to", today], standalone_mode=False)
