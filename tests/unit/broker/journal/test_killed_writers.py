"""Appending processes are killed: every record whose append has returned is in the journal, in order."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

from penstock.broker.journal.push_journal import Journal
from tests.unit.broker.journal.record_store import RecordStore
from tests.waiting import wait_until

APPEND_PROCESS = Path(__file__).with_name("append_process.py")
ROUNDS = int(os.environ.get("JOURNAL_KILLS", "4"))


def start_writer(
    directory: Path, name: str, at_a_time: int, total: int, output: Path
) -> subprocess.Popen[bytes]:
    arguments = [str(directory), name, str(at_a_time), str(total)]
    with output.open("wb") as file:
        return subprocess.Popen([sys.executable, str(APPEND_PROCESS), *arguments], stdout=file)


def record_numbers(records: list[bytes], name: str) -> list[int]:
    """Return the numbers of the records of one writer, after checking that each record is complete."""
    numbers = []
    for record in records:
        writer, number, filling = record.split(b" ", 2)
        if writer.decode() == name:
            assert filling == b"x" * (int(number) % 3000)
            numbers.append(int(number))
    return numbers


def acknowledged_numbers(output: Path) -> set[int]:
    return {int(line) for line in output.read_text().split("\n")[:-1]}


def has_acknowledged(output: Path, count: int) -> bool:
    return len(acknowledged_numbers(output)) > count


async def test_no_accepted_record_is_lost_when_writers_are_killed(tmp_path: Path) -> None:
    directory = tmp_path / "journal"
    store = RecordStore()
    rng = random.Random(7)
    for round_number in range(ROUNDS):
        names = [f"{round_number}a", f"{round_number}b"]
        outputs = [tmp_path / name for name in names]
        writers = [
            start_writer(directory, name, 8, 0, output) for name, output in zip(names, outputs, strict=True)
        ]
        try:
            min_records = rng.randrange(50, 400)
            for output in outputs:
                wait_until(partial(has_acknowledged, output, min_records), 60, "the process appends")
        finally:
            for writer in writers:
                writer.send_signal(signal.SIGKILL)
                writer.wait()
        journal = Journal(directory, 1 << 30)
        assert journal.depth().records > 2 * min_records
        await store.replay(journal)
        assert not journal.has_records
        await journal.close()
        for name, output in zip(names, outputs, strict=True):
            stored = record_numbers(store.records, name)
            assert stored == list(range(len(stored)))
            assert acknowledged_numbers(output) <= set(stored)
            assert len(stored) - len(acknowledged_numbers(output)) <= 8
    assert not list(directory.glob("journal.damaged-*"))


async def test_two_processes_append_while_a_third_replays(tmp_path: Path) -> None:
    directory = tmp_path / "journal"
    writers = [start_writer(directory, name, 4, 400, tmp_path / name) for name in ("a", "b")]
    journal = Journal(directory, 1 << 30)
    store = RecordStore()
    while any(writer.poll() is None for writer in writers) or journal.has_records:
        await store.replay(journal, batch_bytes=50_000, final_bytes=10_000)
    assert [writer.wait() for writer in writers] == [0, 0]
    for name in ("a", "b"):
        assert record_numbers(store.records, name) == list(range(400))
    assert len(store.records) == 800
    await journal.close()
