"""One range read as several pieces, and what they tell together about loss and position.

How many entries were lost can only be said for the whole range: a piece that does not begin it does not know
how many entries there had been before. Each piece tells what it found; `settle` adds it up in order.

A piece learns its place in one case, which is the one that matters: when its first entry is the oldest of the
stream, everything before it was trimmed, and the stream's own count says how many that is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(slots=True)
class Found:
    """What reading one piece told about positions. Positions count all entries ever added up to an id."""

    start: int | None
    """The range's first position (not the piece's), and its last, where known beforehand."""
    end: int | None
    entries: int = 0
    lost: int = 0
    """Entries missing after the place where the position became known."""
    rank: int | None = None
    """How many entries were before the one where the piece learned its position; None if it did not."""
    before: int = 0
    """How many of its own entries the piece had read by then."""
    reached: int | None = None
    """The position at the piece's end, if known."""

    def read(self, entries: int) -> None:
        self.entries += entries
        if self.reached is not None:
            self.reached += entries

    def learn(self, rank: int) -> None:
        """The next entry is known to have `rank` entries before it."""
        if self.reached is None:
            self.rank, self.before = rank, self.entries
        else:
            self.lost += max(0, rank - self.reached)
        self.reached = rank


class Settled(NamedTuple):
    entries: int
    lost: int
    reached: int | None
    """The position at the range's end, if it can be told."""
    replaced: bool
    """The stream is not the one it was: fewer entries were ever added than at the range's start."""


def settle(pieces: Sequence[Found]) -> Settled:
    """What all pieces of a range tell, in order."""
    first, entries = pieces[0], sum(piece.entries for piece in pieces)
    if first.end is not None:
        missing = 0 if first.start is None else max(0, first.end - first.start - entries)
        return Settled(entries, missing, first.end, first.start is not None and first.end < first.start)
    lost, position = first.lost, first.reached
    for piece in pieces[1:]:
        lost += piece.lost
        if piece.rank is not None:
            if position is not None:
                lost += max(0, piece.rank - position - piece.before)
            position = piece.reached
        elif position is not None:
            position += piece.entries
    return Settled(entries, lost, position, False)
