"""The content of a run of stream entries, and the reader that reads entries one by one.

The fast readers (`resp_columns`, `packed_entries`) use the one-by-one reader for irregular entries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from penstock.definitions import MetricDefinition
from penstock.pipeline.source.rows import Rows, concatenate, events_to_rows
from penstock.streams.wire import Event, LostEvents, RejectedEvent, RejectionReason, read_events

MAX_KEPT_EVENTS, MAX_KEPT_BYTES = 1_000, 4 << 20
"""Limits per range for rejected events that are kept, not only counted."""

Entry = tuple[bytes, list[tuple[bytes, bytes]]]
"""An entry id, and pairs of field name and value."""


@dataclass(slots=True)
class EntryChunk:
    """Rows to count, and per reason the number of events that were set aside, with one example.

    `rejected` are those events, `lost` are the reports of emitters about events that they dropped.
    """

    rows: Rows
    entries: int = 0
    first_id: bytes | None = None
    last_id: bytes | None = None
    set_aside: Counter[RejectionReason] = field(default_factory=Counter)
    examples: dict[RejectionReason, str] = field(default_factory=dict)
    rejected: list[RejectedEvent] = field(default_factory=list)
    lost: list[LostEvents] = field(default_factory=list)


def build_chunk(
    definition: MetricDefinition, results: Iterable[Event | LostEvents | RejectedEvent]
) -> EntryChunk:
    """Collect the events, and count those that were set aside."""
    events: list[Event] = []
    chunk = EntryChunk(events_to_rows(definition, ()))
    for result in results:
        if isinstance(result, RejectedEvent):
            chunk.set_aside[result.reason] += 1
            chunk.examples.setdefault(result.reason, result.example)
            chunk.rejected.append(result)
        elif isinstance(result, LostEvents):
            chunk.lost.append(result)
        else:
            events.append(result)
    chunk.rows = events_to_rows(definition, events)
    return chunk


def read_one_by_one(definition: MetricDefinition, entries: Sequence[Entry]) -> EntryChunk:
    """Return the content of the entries, read one by one with the reference reader in `streams.wire`."""
    chunk = build_chunk(
        definition, (result for entry in entries for result in read_events(definition, *entry))
    )
    chunk.entries = len(entries)
    if entries:
        chunk.first_id, chunk.last_id = entries[0][0], entries[-1][0]
    return chunk


def join_chunks(chunks: Sequence[EntryChunk]) -> EntryChunk:
    """Return all chunks as one, without ids. Needs at least one chunk."""
    non_empty = [chunk.rows for chunk in chunks if len(chunk.rows)]
    joined = EntryChunk(concatenate(non_empty or [chunks[0].rows]), sum(chunk.entries for chunk in chunks))
    for chunk in chunks:
        joined.set_aside += chunk.set_aside
        joined.examples = {**chunk.examples, **joined.examples}
        joined.rejected += chunk.rejected
        joined.lost += chunk.lost
    return joined


def limit_kept(rejected: Sequence[RejectedEvent]) -> list[RejectedEvent]:
    """Return the first rejected events, up to the limits in number and size."""
    kept, size_bytes = [], 0
    for event in rejected[:MAX_KEPT_EVENTS]:
        size_bytes += len(event.fields)
        if size_bytes > MAX_KEPT_BYTES:
            break
        kept.append(event)
    return kept
