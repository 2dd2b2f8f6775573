"""A flood of calls of unknown callers leaves a bounded number of entries."""

from __future__ import annotations

from penstock.access.audit.unknown_callers import (
    MAX_ENTRIES,
    MAX_ENTRIES_PER_ADDRESS,
    UnknownCallerLimit,
    UnrecordedCalls,
)


def test_an_address_has_a_bounded_number_of_entries() -> None:
    limit = UnknownCallerLimit()
    admitted = [limit.admit("192.0.2.1") for _ in range(500)]
    assert admitted == [True] * MAX_ENTRIES_PER_ADDRESS + [False] * (500 - MAX_ENTRIES_PER_ADDRESS)
    assert limit.admit("192.0.2.2")
    assert limit.take_unrecorded() == [UnrecordedCalls("192.0.2.1", 500 - MAX_ENTRIES_PER_ADDRESS)]


def test_many_addresses_together_have_a_bounded_number_of_entries() -> None:
    limit = UnknownCallerLimit()
    addresses = [f"2001:db8::{number:x}" for number in range(5_000)]
    assert sum(limit.admit(address) for address in addresses) == MAX_ENTRIES
    assert limit.take_unrecorded() == [UnrecordedCalls("", 5_000 - MAX_ENTRIES)]


def test_counting_starts_over_after_each_interval() -> None:
    limit = UnknownCallerLimit()
    for _ in range(MAX_ENTRIES_PER_ADDRESS + 1):
        limit.admit("192.0.2.1")
    assert limit.take_unrecorded() == [UnrecordedCalls("192.0.2.1", 1)]
    assert limit.take_unrecorded() == []
    assert limit.admit("192.0.2.1")
