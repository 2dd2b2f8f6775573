"""What some entries held: rows to count, and what was set aside. And the plain way from one to the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from penstock.definitions import MetricDefinition
from penstock.pipeline.source.rows import Rows, concatenated, rows_of_events
from penstock.streams.wire import Event, Reason, SetAside, read_events

Entry = tuple[bytes, list[tuple[bytes, bytes]]]
"""An id, and names with values."""


@dataclass(slots=True)
class Chunk:
    """Rows to count, and how many events were set aside why, with an example each."""

    rows: Rows
    entries: int = 0
    first_id: bytes | None = None
    last_id: bytes | None = None
    set_aside: Counter[Reason] = field(default_factory=Counter)
    examples: dict[Reason, str] = field(default_factory=dict)


def chunk_of_events(definition: MetricDefinition, found: Iterable[Event | SetAside]) -> Chunk:
    events: list[Event] = []
    chunk = Chunk(rows_of_events(definition, ()))
    for read in found:
        if isinstance(read, SetAside):
            chunk.set_aside[read.reason] += 1
            chunk.examples.setdefault(read.reason, read.example)
        else:
            events.append(read)
    chunk.rows = rows_of_events(definition, events)
    return chunk


def read_plainly(definition: MetricDefinition, entries: Sequence[Entry]) -> Chunk:
    """The content of the entries, read one by one."""
    chunk = chunk_of_events(
        definition, (read for entry in entries for read in read_events(definition, *entry))
    )
    chunk.entries = len(entries)
    if entries:
        chunk.first_id, chunk.last_id = entries[0][0], entries[-1][0]
    return chunk


def joined_chunks(chunks: Sequence[Chunk]) -> Chunk:
    """All of them as one, without ids. At least one."""
    filled = [chunk.rows for chunk in chunks if len(chunk.rows)]
    whole = Chunk(concatenated(filled or [chunks[0].rows]), sum(chunk.entries for chunk in chunks))
    for chunk in chunks:
        whole.set_aside += chunk.set_aside
        whole.examples = {**chunk.examples, **whole.examples}
    return whole
