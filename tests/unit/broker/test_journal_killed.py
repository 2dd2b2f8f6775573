"""Processes that append are killed: everything whose append has returned is there, in order."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

from penstock.broker.journal.push_journal import Journal
from tests.unit.broker.journal_reader import Store
from tests.waiting import wait_until

WRITER = Path(__file__).with_name("journal_writer.py")
ROUNDS = int(os.environ.get("JOURNAL_KILLS", "4"))


def start(directory: Path, name: str, at_a_time: int, total: int, told: Path) -> subprocess.Popen[bytes]:
    arguments = [str(directory), name, str(at_a_time), str(total)]
    with told.open("wb") as out:
        return subprocess.Popen([sys.executable, str(WRITER), *arguments], stdout=out)


def numbers_of(records: list[bytes], name: str) -> list[int]:
    """Which records of a process are there, each checked to be whole."""
    found = []
    for record in records:
        writer, number, filling = record.split(b" ", 2)
        if writer.decode() == name:
            assert filling == b"x" * (int(number) % 3000)
            found.append(int(number))
    return found


def told_by(told: Path) -> set[int]:
    return {int(line) for line in told.read_text().split("\n")[:-1]}


def has_told(told: Path, count: int) -> bool:
    return len(told_by(told)) > count


async def test_nothing_that_was_accepted_is_lost_when_processes_are_killed(tmp_path: Path) -> None:
    directory = tmp_path / "journal"
    store = Store()
    chance = random.Random(7)
    for round_ in range(ROUNDS):
        names = [f"{round_}a", f"{round_}b"]
        told = [tmp_path / name for name in names]
        writers = [start(directory, name, 8, 0, file) for name, file in zip(names, told, strict=True)]
        try:
            enough = chance.randrange(50, 400)
            for file in told:
                wait_until(partial(has_told, file, enough), 60, "the process appends")
        finally:
            for writer in writers:
                writer.send_signal(signal.SIGKILL)
                writer.wait()
        journal = Journal(directory, 1 << 30)
        assert journal.depth().records > 2 * enough
        await store.replay(journal)
        assert not journal.has_records
        await journal.close()
        for name, file in zip(names, told, strict=True):
            there = numbers_of(store.records, name)
            assert there == list(range(len(there)))
            assert told_by(file) <= set(there)
            assert len(there) - len(told_by(file)) <= 8
    assert not list(directory.glob("journal.damaged-*"))


async def test_two_processes_append_at_once_and_a_third_replays(tmp_path: Path) -> None:
    directory = tmp_path / "journal"
    writers = [start(directory, name, 4, 400, tmp_path / name) for name in ("a", "b")]
    journal = Journal(directory, 1 << 30)
    store = Store()
    while any(writer.poll() is None for writer in writers) or journal.has_records:
        await store.replay(journal, batch_bytes=50_000, last_bytes=10_000)
    assert [writer.wait() for writer in writers] == [0, 0]
    for name in ("a", "b"):
        assert numbers_of(store.records, name) == list(range(400))
    assert len(store.records) == 800
    await journal.close()
