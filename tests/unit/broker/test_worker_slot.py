"""Numbers of the processes behind a port, and what they leave for each other."""

from __future__ import annotations

from pathlib import Path

from penstock.broker.self_metrics.worker_slot import WorkerSlot, clear_slots, slots_directory
from penstock.config import Settings


def claimed(directory: Path) -> WorkerSlot:
    slot = WorkerSlot(directory)
    slot.claim()
    return slot


def test_the_lowest_free_number_is_taken_over_with_what_was_left(tmp_path: Path) -> None:
    first, second, third = (claimed(tmp_path) for _ in range(3))
    assert [slot.number for slot in (first, second, third)] == [0, 1, 2]
    second.leave(b"a")
    second.leave(b"ab")
    assert list(first.others()) == [(1, b"ab")]
    second.release()
    assert list(third.others()) == [(1, b"ab")], "what a process left outlives it"
    heir = claimed(tmp_path)
    assert (heir.number, heir.inherited, third.inherited) == (1, b"ab", None)
    assert list(heir.others()) == []


def test_a_start_removes_what_nobody_holds_any_more(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    directory = slots_directory(settings)
    gone, alive = claimed(directory), claimed(directory)
    gone.leave(b"old")
    alive.leave(b"new")
    gone.release()
    clear_slots(settings)
    assert [file.read_bytes() for file in directory.glob("*.json")] == [b"new"]
    clear_slots(Settings(home=tmp_path / "never was"))


def test_without_a_directory_a_broker_is_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    slot = claimed(tmp_path / "file" / "slots")
    slot.leave(b"nobody reads this")
    assert (slot.number, list(slot.others())) == (0, [])
    slot.release()
    slot.release()
