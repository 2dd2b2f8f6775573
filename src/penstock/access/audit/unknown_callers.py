"""Bound the audit entries of unknown callers, so that a flood of denied calls does not fill the table."""

from __future__ import annotations

from dataclasses import dataclass

MAX_ENTRIES_PER_ADDRESS = 10
MAX_ENTRIES = 100
"""For all addresses together: an attacker may have many."""


@dataclass(frozen=True, slots=True)
class UnrecordedCalls:
    """Calls from an address that have no entries of their own; from many addresses if it is empty."""

    address: str
    calls: int


class UnknownCallerLimit:
    """Counts the calls of unknown callers between two calls of `take_unrecorded`."""

    def __init__(self) -> None:
        self._entries: dict[str, int] = {}
        self._unrecorded: dict[str, int] = {}
        self._total = 0

    def admit(self, address: str) -> bool:
        """Whether a call gets an entry of its own; otherwise it is counted."""
        entries = self._entries.get(address, 0)
        if entries < MAX_ENTRIES_PER_ADDRESS and self._total < MAX_ENTRIES:
            self._entries[address] = entries + 1
            self._total += 1
            return True
        # An address without an entry of its own is not kept, so that memory and entries are bounded.
        key = address if entries else ""
        self._unrecorded[key] = self._unrecorded.get(key, 0) + 1
        return False

    def take_unrecorded(self) -> list[UnrecordedCalls]:
        """Return the counted calls and start over."""
        unrecorded = [UnrecordedCalls(address, calls) for address, calls in self._unrecorded.items()]
        self._entries, self._unrecorded, self._total = {}, {}, 0
        return unrecorded
