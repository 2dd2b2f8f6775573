"""Replays that are interrupted, killed, or never alone; and bytes that cannot be read."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from penstock.broker.journal import replay
from penstock.broker.journal.journal_file import HeldFile
from penstock.broker.journal.push_journal import Journal, JournalId
from penstock.broker.journal.record_format import HEADER_BYTES, RECORD_BYTES
from penstock.errors import DatabaseUnavailable
from tests.unit.broker.journal_reader import Store

ROOM = 1 << 20
RECORDS = [b"record %02d" % n for n in range(20)]
ONE = RECORD_BYTES + len(RECORDS[0])


@pytest_asyncio.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    opened = Journal(tmp_path, ROOM)
    yield opened
    await opened.close()


async def test_batches_are_bounded_and_positions_lie_behind_them(journal: Journal) -> None:
    await journal.append(RECORDS)
    store = Store()
    seen: list[int] = []

    async def take(journal_id: JournalId, position: int, records: Sequence[bytes]) -> None:
        await store.take(journal_id, position, records)
        seen.append(position)

    assert await journal.replay(take, store.position, batch_bytes=27) == 20
    assert store.batches == [3] * 6 + [2]
    assert seen == [HEADER_BYTES + min(n * 3, 20) * ONE for n in range(1, 8)]


async def test_each_filling_has_an_id_of_its_own(journal: Journal) -> None:
    store = Store()
    for _ in range(3):
        await journal.append(RECORDS)
        await store.replay(journal)
    assert len(store.positions) == 3
    assert store.records == RECORDS * 3


@pytest.mark.parametrize("last_bytes", [0, ROOM])
async def test_a_replay_that_fails_goes_on_where_it_ended(journal: Journal, last_bytes: int) -> None:
    await journal.append(RECORDS)
    store = Store()

    async def fails_at_ten(journal_id: JournalId, position: int, records: Sequence[bytes]) -> None:
        if len(store.records) == 10:
            raise DatabaseUnavailable("away again")
        await store.take(journal_id, position, records)

    with pytest.raises(DatabaseUnavailable, match="away again"):
        await journal.replay(fails_at_ten, store.position, batch_bytes=1, last_bytes=last_bytes)
    assert journal.has_records
    await journal.append([b"later"])
    assert await store.replay(journal) == 11
    assert store.records == [*RECORDS, b"later"]
    assert not journal.has_records


async def test_what_is_appended_during_a_replay_is_taken_by_it(journal: Journal, tmp_path: Path) -> None:
    other = Journal(tmp_path, ROOM)
    await journal.append(RECORDS)
    store = Store()

    async def take(journal_id: JournalId, position: int, records: Sequence[bytes]) -> None:
        if len(store.records) < 5:
            await journal.append([b"here"])
            await other.append([b"there"])
        await store.take(journal_id, position, records)

    taken = await journal.replay(take, store.position, batch_bytes=1, last_bytes=0)
    assert taken == len(store.records) == 20 + 2 * 5
    assert store.records == RECORDS + [b"here", b"there"] * 5
    assert not other.has_records
    await other.close()


async def test_a_journal_that_is_written_to_all_the_time_is_emptied_all_the_same(journal: Journal) -> None:
    """Appends wait for the last records, then learn that they need not be journaled."""
    store = Store()
    sent: list[bytes] = []
    direct: list[int] = []
    stop = asyncio.Event()

    async def producer(name: int) -> None:
        n = 0
        while not stop.is_set():
            record = b"%d %d" % (name, n)
            if await journal.append([record], unless_empty=True):
                sent.append(record)
                n += 1
            else:
                direct.append(name)
                return

    await journal.append(RECORDS)
    producers = [asyncio.create_task(producer(name)) for name in range(4)]
    try:
        await asyncio.wait_for(store.replay(journal, batch_bytes=50, last_bytes=1000), 60)
        await asyncio.wait_for(asyncio.gather(*producers), 60)
    finally:
        stop.set()
    assert sorted(direct) == [0, 1, 2, 3]
    assert not journal.has_records
    assert sorted(store.records) == sorted(RECORDS + sent)
    for name in range(4):
        assert [r for r in store.records if r.startswith(b"%d " % name)] == [
            r for r in sent if r.startswith(b"%d " % name)
        ]


async def test_only_one_replays_at_a_time(journal: Journal, tmp_path: Path) -> None:
    other = Journal(tmp_path, ROOM)
    await journal.append(RECORDS)
    store = Store()
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def take(journal_id: JournalId, position: int, records: Sequence[bytes]) -> None:
        begun.set()
        await go_on.wait()
        await store.take(journal_id, position, records)

    replaying = asyncio.create_task(journal.replay(take, store.position))
    await begun.wait()
    assert await store.replay(other) == 0
    assert await store.replay(journal) == 0
    go_on.set()
    assert await replaying == 20
    assert store.records == RECORDS
    await other.close()


async def test_a_cancelled_replay_leaves_no_lock_behind(journal: Journal) -> None:
    await journal.append(RECORDS)
    store = Store()
    begun = asyncio.Event()

    async def hang(journal_id: JournalId, position: int, records: Sequence[bytes]) -> None:
        begun.set()
        await asyncio.Event().wait()

    replaying = asyncio.create_task(journal.replay(hang, store.position))
    await begun.wait()
    appending = asyncio.create_task(journal.append([b"waits"]))
    replaying.cancel()
    await asyncio.wait([replaying])
    assert replaying.cancelled()
    assert await asyncio.wait_for(appending, 30)
    assert await store.replay(journal) == 21


async def test_who_is_cancelled_while_waiting_for_the_lock_does_not_get_it(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    await journal.append(RECORDS)
    file, store = journal._file, Store()
    locks: list[HeldFile] = []
    asked_for = threading.Event()
    hold = file.hold

    def noted() -> HeldFile:
        asked_for.set()
        return hold()

    async def position(journal_id: JournalId) -> int:
        locks.append(hold())  # from here on somebody else has it
        monkeypatch.setattr(file, "hold", noted)
        return 0

    replaying = asyncio.create_task(journal.replay(store.take, position))
    assert await asyncio.to_thread(asked_for.wait, 30)
    replaying.cancel()
    await asyncio.wait([replaying])
    assert replaying.cancelled()
    locks[0].release()
    assert await asyncio.wait_for(store.replay(journal), 30) == 20


async def test_appends_do_not_wait_for_ever_for_a_replay_that_hangs(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "HELD_S", 0.1)
    await journal.append(RECORDS)
    store = Store()

    async def hang(journal_id: JournalId, position: int, records: Sequence[bytes]) -> None:
        await asyncio.Event().wait()

    with pytest.raises(DatabaseUnavailable, match="stay in it"):
        await journal.replay(hang, store.position)
    assert await asyncio.wait_for(journal.append([b"more"]), 30)
    assert await store.replay(journal) == 21


async def test_a_process_killed_between_taking_and_emptying_repeats_nothing(tmp_path: Path) -> None:
    """It stores what it takes in a file, which survives it, and dies before the journal is emptied."""
    journal = Journal(tmp_path / "journal", ROOM)
    await journal.append(RECORDS)
    script = f"""
import asyncio, os, pathlib
from penstock.broker.journal import journal_file, push_journal
async def take(journal_id, position, records):
    pathlib.Path({str(tmp_path / "taken")!r}).write_text(f"{{journal_id}} {{position}} {{len(records)}}")
async def position(journal_id):
    return 0
journal_file.HeldFile.empty = lambda held: os.kill(os.getpid(), 9)
asyncio.run(push_journal.Journal(pathlib.Path({str(tmp_path / "journal")!r}), 1 << 20).replay(take, position))
"""
    killed = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", script], check=False)
    assert killed.returncode == -9
    journal_id, position, count = (tmp_path / "taken").read_text().split()
    assert int(count) == 20
    store = Store()
    store.positions[JournalId(journal_id)] = int(position)
    assert journal.has_records
    assert await store.replay(journal) == 0
    assert store.records == []
    assert not journal.has_records
    await journal.close()


def spoil(journal: Journal, at: int, data: bytes) -> None:
    with journal._file.path.open("r+b") as file:
        file.seek(at)
        file.write(data)


@pytest.mark.parametrize("within", [0, 4, 8, 12, RECORD_BYTES + 3])
async def test_bytes_that_cannot_be_read_are_kept_and_the_rest_is_replayed(
    journal: Journal, caplog: pytest.LogCaptureFixture, within: int
) -> None:
    """Whichever field of the fifth record is damaged: mark, length, checksum, time or payload."""
    await journal.append(RECORDS)
    start = HEADER_BYTES + 5 * ONE
    spoil(journal, start + within, b"\xee\xee")
    damaged = journal._file.path.read_bytes()[start : start + ONE]
    await journal.append([b"later"])
    store = Store()

    async def fails(journal_id: JournalId, position: int, records: Sequence[bytes]) -> None:
        raise DatabaseUnavailable("not yet")

    with caplog.at_level(logging.ERROR):
        with pytest.raises(DatabaseUnavailable):
            await journal.replay(fails, store.position)
        assert await store.replay(journal) == 20
    assert store.records == [*RECORDS[:5], *RECORDS[6:], b"later"]
    [kept] = journal._file.directory.glob("journal.damaged-*")
    assert kept.read_bytes() == damaged
    [told] = [record.getMessage() for record in caplog.records]
    assert str(kept) in told
    assert "push them again" in told


async def test_a_last_record_that_is_damaged_is_kept_and_cut_off(journal: Journal, tmp_path: Path) -> None:
    await journal.append(RECORDS)
    spoil(journal, HEADER_BYTES + 20 * ONE - 1, b"\xee")
    after = Journal(tmp_path, ROOM)
    await after.append([b"later"])
    store = Store()
    await store.replay(after)
    assert store.records == [*RECORDS[:19], b"later"]
    [kept] = tmp_path.glob("journal.damaged-*")
    assert kept.stat().st_size == ONE
    await after.close()


@pytest.mark.parametrize("left", [1, RECORD_BYTES - 1, RECORD_BYTES, ONE - 1])
async def test_a_torn_last_record_is_cut_off(
    journal: Journal, tmp_path: Path, caplog: pytest.LogCaptureFixture, left: int
) -> None:
    await journal.append(RECORDS)
    os.truncate(journal._file.path, HEADER_BYTES + 19 * ONE + left)
    after = Journal(tmp_path, ROOM)
    with caplog.at_level(logging.WARNING):
        await after.append([b"later"])
    store = Store()
    await store.replay(after)
    assert store.records == [*RECORDS[:19], b"later"]
    assert not list(tmp_path.glob("journal.damaged-*"))
    assert f"{left} bytes" in caplog.text
    await after.close()


async def test_a_replay_cuts_off_a_torn_record_too(journal: Journal, tmp_path: Path) -> None:
    await journal.append(RECORDS)
    os.truncate(journal._file.path, HEADER_BYTES + 20 * ONE - 1)
    after = Journal(tmp_path, ROOM)
    store = Store()
    assert await store.replay(after) == 19
    assert not after.has_records
    await after.close()


@pytest.mark.parametrize("size", [1, HEADER_BYTES - 1])
async def test_a_torn_header_is_begun_anew(journal: Journal, size: int) -> None:
    await journal.append(RECORDS)
    os.truncate(journal._file.path, size)
    assert await journal.append([b"anew"])
    store = Store()
    assert await store.replay(journal) == 1
    assert not list(journal._file.directory.glob("journal.damaged-*"))


async def test_a_journal_whose_header_is_damaged_is_kept(journal: Journal) -> None:
    await journal.append(RECORDS)
    spoil(journal, 0, b"?")
    damaged = journal._file.path.read_bytes()
    assert await journal.append([b"anew"])
    store = Store()
    assert await store.replay(journal) == 1
    [kept] = journal._file.directory.glob("journal.damaged-*")
    assert kept.read_bytes() == damaged


async def test_a_journal_shorter_than_what_was_taken_from_it_is_kept(journal: Journal) -> None:
    await journal.append(RECORDS)
    store = Store()
    extent = journal._file.look()
    assert extent is not None
    store.positions[extent.journal_id] = extent.end + 1
    content = journal._file.path.read_bytes()
    assert await store.replay(journal) == 0
    [kept] = journal._file.directory.glob("journal.damaged-*")
    assert kept.read_bytes() == content
    assert not journal.has_records
