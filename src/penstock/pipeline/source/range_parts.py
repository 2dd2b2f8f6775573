"""Count the entries of a range that several tasks read in parts.

The *rank* of an id is the number of entries ever added to the stream up to it. The number of lost entries can
be computed for the whole range only: a part that does not begin the range does not know the rank of its
start. Each part reports its counts; `combine_parts` adds them up in order.

A part learns a rank in the one case that matters: when its first entry is the oldest of the stream, all
earlier entries were trimmed, and the stream's own count of removed entries is the rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(slots=True)
class PartCounts:
    """The counts and ranks that one task found while it read its part of a range."""

    range_start_rank: int | None
    """Rank of the start of the range (not of the part), if known beforehand."""
    range_end_rank: int | None
    """Rank of the end of the range, if known beforehand."""
    entries: int = 0
    lost: int = 0
    """Entries missing after the id at which the rank became known."""
    learned_rank: int | None = None
    """The rank that the part learned while reading; None if it learned none."""
    entries_before_learned: int = 0
    """How many of its own entries the part had read when it learned the rank."""
    reached_rank: int | None = None
    """Rank of the end of the part, if known."""
    gap_ms: tuple[int, int] | None = None
    """The times of the stream ids between which entries may be missing."""

    @property
    def may_miss_entries(self) -> bool:
        """Whether the part, if it is the whole range, lacks entries or has none."""
        whole = combine_parts([self])
        return bool(whole.lost) or whole.stream_replaced or not whole.entries

    def add_entries(self, entries: int) -> None:
        """Count entries that were read."""
        self.entries += entries
        if self.reached_rank is not None:
            self.reached_rank += entries

    def learn_rank(self, rank: int) -> None:
        """Record that `rank` entries precede the next entry."""
        if self.reached_rank is None:
            self.learned_rank, self.entries_before_learned = rank, self.entries
        else:
            self.lost += max(0, rank - self.reached_rank)
        self.reached_rank = rank


class RangeCounts(NamedTuple):
    """The counts of a whole range."""

    entries: int
    lost: int
    reached_rank: int | None
    """Rank of the end of the range, if it can be computed."""
    stream_replaced: bool
    """The stream was replaced: its end has a lower rank than the start of the range."""
    gap_ms: tuple[int, int] | None
    """The times of the stream ids between which entries may be missing."""


def combine_parts(parts: Sequence[PartCounts]) -> RangeCounts:
    """Return the counts of the range whose parts these are, in order."""
    first, entries = parts[0], sum(part.entries for part in parts)
    start, end = first.range_start_rank, first.range_end_rank
    gaps = [part.gap_ms for part in parts if part.gap_ms is not None]
    gap_ms = (min(gap[0] for gap in gaps), max(gap[1] for gap in gaps)) if gaps else None
    if end is not None:
        missing = 0 if start is None else max(0, end - start - entries)
        return RangeCounts(entries, missing, end, start is not None and end < start, gap_ms)
    lost, rank = first.lost, first.reached_rank
    for part in parts[1:]:
        lost += part.lost
        if part.learned_rank is not None:
            if rank is not None:
                lost += max(0, part.learned_rank - rank - part.entries_before_learned)
            rank = part.reached_rank
        elif rank is not None:
            rank += part.entries
    return RangeCounts(entries, lost, rank, False, gap_ms)
