"""Where a replay puts records in tests: a stand-in for the table that has the position too."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.broker.journal.push_journal import Journal, JournalId


class Store:
    """Records and the position behind them, which change together."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.positions: dict[JournalId, int] = {}
        self.batches: list[int] = []

    async def take(self, journal_id: JournalId, position: int, records: Sequence[bytes]) -> None:
        self.records += records
        self.positions[journal_id] = position
        self.batches.append(len(records))

    async def position(self, journal_id: JournalId) -> int:
        return self.positions.get(journal_id, 0)

    async def replay(self, journal: Journal, batch_bytes: int = 1 << 20, last_bytes: int = 1 << 18) -> int:
        return await journal.replay(self.take, self.position, batch_bytes=batch_bytes, last_bytes=last_bytes)
