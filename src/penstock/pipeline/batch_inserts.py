"""Divide the rows of a batch into inserts, each with its deduplication token.

A token holds the id of the query (which belongs to the checkpoint), the batch, the table and the chunk. If
tasks insert, it also holds the range of the stream that the rows come from. The offsets in the checkpoint
determine the ranges, so a batch that is repeated has the same tokens for the same rows, however many cores or
executors repeat it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

CHUNK_ROWS = 100_000
"""Rows per insert. The number must not change between restarts: the chunk number is part of the token."""


@dataclass(frozen=True, slots=True)
class InsertedRows:
    """The rows that a task inserted: their number, and the times of the first and last newest event."""

    rows: int = 0
    oldest_ms: int | None = None
    newest_ms: int | None = None

    @classmethod
    def of(cls, points: pa.Table) -> Self:
        """Describe rows that were inserted."""
        times = pc.min_max(points["newest_ms"]).as_py()
        return cls(points.num_rows, times["min"], times["max"])

    def to_dict(self) -> dict[str, int | None]:
        return asdict(self)

    def add(self, other: InsertedRows) -> InsertedRows:
        oldest = [ms for ms in (self.oldest_ms, other.oldest_ms) if ms is not None]
        newest = [ms for ms in (self.newest_ms, other.newest_ms) if ms is not None]
        return InsertedRows(self.rows + other.rows, min(oldest, default=None), max(newest, default=None))


def batch_token(query_id: str, batch_id: int, table: str, range_name: str = "") -> str:
    """Return what the tokens of a batch in one table begin with; `range_name` if one task inserts a range."""
    return ":".join((query_id, str(batch_id), table, *((range_name,) if range_name else ())))


def divide_rows(rows: pa.Table, token: str, chunk_rows: int = CHUNK_ROWS) -> Iterator[tuple[pa.Table, str]]:
    """Yield the rows in chunks, each with its own token that begins with `token`."""
    for chunk, start in enumerate(range(0, rows.num_rows, chunk_rows)):
        yield rows.slice(start, chunk_rows).combine_chunks(), f"{token}:{chunk}"
