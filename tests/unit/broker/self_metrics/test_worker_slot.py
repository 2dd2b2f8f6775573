"""Slot numbers of the processes behind a port, and tsuccessor snapshots."""

from __future__ import annotations

from pathlib import Path

from penstock.broker.self_metrics.worker_slot import WorkerSlot, clear_stale_slots, slots_directory
from penstock.config import Settings


def claim_slot(directory: Path) -> WorkerSlot:
    slot = WorkerSlot(directory)
    slot.claim()
    return slot


def test_a_new_process_takes_the_lowest_free_number_and_its_snapshot(tmp_path: Path) -> None:
    first, second, third = (claim_slot(tmp_path) for _ in range(3))
    assert [slot.number for slot in (first, second, third)] == [0, 1, 2]
    second.write_snapshot(b"a")
    second.write_snapshot(b"ab")
    assert list(first.read_other_snapshots()) == [(1, b"ab")]
    second.release()
    assert list(third.read_other_snapshots()) == [(1, b"ab")], "a snapshot outlives its process"
    successor = claim_slot(tmp_path)
    assert (successor.number, successor.inherited, third.inherited) == (1, b"ab", None)
    assert list(successor.read_other_snapshots()) == []


def test_a_start_deletes_the_snapshots_of_dead_processes(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    directory = slots_directory(settings)
    dead, alive = claim_slot(directory), claim_slot(directory)
    dead.write_snapshot(b"old")
    alive.write_snapshot(b"new")
    dead.release()
    clear_stale_slots(settings)
    assert [file.read_bytes() for file in directory.glob("*.json")] == [b"new"]
    clear_stale_slots(Settings(home=tmp_path / "missing"))


def test_without_a_directory_a_broker_has_number_zero(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    slot = claim_slot(tmp_path / "file" / "slots")
    slot.write_snapshot(b"unused")
    assert (slot.number, list(slot.read_other_snapshots())) == (0, [])
    slot.release()
    slot.release()
