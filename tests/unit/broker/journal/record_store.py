"""The destination of a replay in tests: stands in for the tables of records and positions."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.broker.journal.push_journal import Journal, JournalId


class RecordStore:
    """Stores records and the position after them together."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.positions: dict[JournalId, int] = {}
        self.batches: list[int] = []

    async def store_records(self, journal_id: JournalId, position: int, records: Sequence[bytes]) -> None:
        self.records += records
        self.positions[journal_id] = position
        self.batches.append(len(records))

    async def read_position(self, journal_id: JournalId) -> int:
        return self.positions.get(journal_id, 0)

    async def replay(self, journal: Journal, batch_bytes: int = 1 << 20, final_bytes: int = 1 << 18) -> int:
        return await journal.replay(
            self.store_records, self.read_position, batch_bytes=batch_bytes, final_bytes=final_bytes
        )
