"""Replays that fail, are cancelled or killed, run concurrently with appends, or meet damaged bytes."""

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

from penstock.broker.journal.journal_file import LockedJournalFile
from penstock.broker.journal.push_journal import Journal, JournalId
from penstock.broker.journal.record_format import HEADER_BYTES, RECORD_BYTES
from penstock.errors import DatabaseUnavailable
from tests.deadlines import deadline_s
from tests.unit.broker.journal.record_store import RecordStore

MAX_BYTES = 1 << 20
RECORDS = [b"record %02d" % n for n in range(20)]
RECORD_SIZE = RECORD_BYTES + len(RECORDS[0])


@pytest_asyncio.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    opened = Journal(tmp_path, MAX_BYTES)
    yield opened
    await opened.close()


async def test_batches_are_bounded_and_their_positions_point_after_them(journal: Journal) -> None:
    await journal.append(RECORDS)
    store = RecordStore()
    positions: list[int] = []

    async def store_records(journal_id: JournalId, position: int, records: Sequence[bytes]) -> None:
        await store.store_records(journal_id, position, records)
        positions.append(position)

    assert await journal.replay(store_records, store.read_position, batch_bytes=27) == 20
    assert store.batches == [3] * 6 + [2]
    assert positions == [HEADER_BYTES + min(n * 3, 20) * RECORD_SIZE for n in range(1, 8)]


async def test_an_emptied_journal_gets_a_new_id(journal: Journal) -> None:
    store = RecordStore()
    for _ in range(3):
        await journal.append(RECORDS)
        await store.replay(journal)
    assert len(store.positions) == 3
    assert store.records == RECORDS * 3


@pytest.mark.parametrize("final_bytes", [0, MAX_BYTES])
async def test_a_failed_replay_continues_where_it_stopped(journal: Journal, final_bytes: int) -> None:
    await journal.append(RECORDS)
    store = RecordStore()

    async def fail_after_ten(journal_id: JournalId, position: int, records: Sequence[bytes]) -> None:
        if len(store.records) == 10:
            raise DatabaseUnavailable("down again")
        await store.store_records(journal_id, position, records)

    with pytest.raises(DatabaseUnavailable, match="down again"):
        await journal.replay(fail_after_ten, store.read_position, batch_bytes=1, final_bytes=final_bytes)
    assert journal.has_records
    await journal.append([b"later"])
    assert await store.replay(journal) == 11
    assert store.records == [*RECORDS, b"later"]
    assert not journal.has_records


async def test_a_replay_includes_records_appended_meanwhile(journal: Journal, tmp_path: Path) -> None:
    other = Journal(tmp_path, MAX_BYTES)
    await journal.append(RECORDS)
    store = RecordStore()

    async def store_records(journal_id: JournalId, position: int, records: Sequence[bytes]) -> None:
        if len(store.records) < 5:
            await journal.append([b"here"])
            await other.append([b"there"])
        await store.store_records(journal_id, position, records)

    replayed = await journal.replay(store_records, store.read_position, batch_bytes=1, final_bytes=0)
    assert replayed == len(store.records) == 20 + 2 * 5
    assert store.records == RECORDS + [b"here", b"there"] * 5
    assert not other.has_records
    await other.close()


async def test_constant_appends_do_not_keep_a_replay_from_emptying_the_journal(journal: Journal) -> None:
    """Appends wait while the last records are stored, then learn that the journal is not needed any more."""
    store = RecordStore()
    journaled: list[bytes] = []
    finished: list[int] = []
    stop = asyncio.Event()

    async def producer(name: int) -> None:
        n = 0
        while not stop.is_set():
            record = b"%d %d" % (name, n)
            if await journal.append([record], unless_empty=True):
                journaled.append(record)
                n += 1
            else:
                finished.append(name)
                return

    await journal.append(RECORDS)
    producers = [asyncio.create_task(producer(name)) for name in range(4)]
    try:
        await asyncio.wait_for(store.replay(journal, batch_bytes=50, final_bytes=1000), deadline_s(60))
        await asyncio.wait_for(asyncio.gather(*producers), deadline_s(60))
    finally:
        stop.set()
    assert sorted(finished) == [0, 1, 2, 3]
    assert not journal.has_records
    assert sorted(store.records) == sorted(RECORDS + journaled)
    for name in range(4):
        assert [r for r in store.records if r.startswith(b"%d " % name)] == [
            r for r in journaled if r.startswith(b"%d " % name)
        ]


async def test_only_one_process_replays_at_a_time(journal: Journal, tmp_path: Path) -> None:
    other = Journal(tmp_path, MAX_BYTES)
    await journal.append(RECORDS)
    store = RecordStore()
    started, may_continue = asyncio.Event(), asyncio.Event()

    async def store_records(journal_id: JournalId, position: int, records: Sequence[bytes]) -> None:
        started.set()
        await may_continue.wait()
        await store.store_records(journal_id, position, records)

    replaying = asyncio.create_task(journal.replay(store_records, store.read_position))
    await started.wait()
    assert await store.replay(other) == 0
    assert await store.replay(journal) == 0
    may_continue.set()
    assert await replaying == 20
    assert store.records == RECORDS
    await other.close()


async def test_a_cancelled_replay_releases_its_lock(journal: Journal) -> None:
    await journal.append(RECORDS)
    store = RecordStore()
    started = asyncio.Event()

    async def hang(journal_id: JournalId, position: int, records: Sequence[bytes]) -> None:
        started.set()
        await asyncio.Event().wait()

    replaying = asyncio.create_task(journal.replay(hang, store.read_position))
    await started.wait()
    appending = asyncio.create_task(journal.append([b"waits"]))
    replaying.cancel()
    await asyncio.wait([replaying])
    assert replaying.cancelled()
    assert await asyncio.wait_for(appending, deadline_s(30))
    assert await store.replay(journal) == 21


async def test_a_replay_cancelled_while_it_waits_for_the_lock_does_not_keep_it(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    await journal.append(RECORDS)
    file, store = journal._file, RecordStore()
    locks: list[LockedJournalFile] = []
    lock_requested = threading.Event()
    lock = file.lock

    def record_request() -> LockedJournalFile:
        lock_requested.set()
        return lock()

    async def lock_and_read_position(journal_id: JournalId) -> int:
        locks.append(lock())  # from here on, the replay has to wait for the lock
        monkeypatch.setattr(file, "lock", record_request)
        return 0

    replaying = asyncio.create_task(journal.replay(store.store_records, lock_and_read_position))
    assert await asyncio.to_thread(lock_requested.wait, 30)
    replaying.cancel()
    await asyncio.wait([replaying])
    assert replaying.cancelled()
    locks[0].release()
    assert await asyncio.wait_for(store.replay(journal), deadline_s(30)) == 20


async def test_appends_do_not_wait_forever_for_a_replay_that_hangs(journal: Journal) -> None:
    await journal.append(RECORDS)
    store = RecordStore()

    async def hang(journal_id: JournalId, position: int, records: Sequence[bytes]) -> None:
        await asyncio.Event().wait()

    with pytest.raises(DatabaseUnavailable, match="stay in the journal"):
        await journal.replay(hang, store.read_position, lock_timeout_s=0.1)
    assert await asyncio.wait_for(journal.append([b"more"]), deadline_s(30))
    assert await store.replay(journal) == 21


async def test_a_process_killed_between_storing_and_emptying_repeats_no_record(tmp_path: Path) -> None:
    """It writes the stored position to a file, which survives it, and dies before it empties the journal."""
    journal = Journal(tmp_path / "journal", MAX_BYTES)
    await journal.append(RECORDS)
    script = f"""
import asyncio, os, pathlib
from penstock.broker.journal import journal_file, push_journal
async def store_records(journal_id, position, records):
    pathlib.Path({str(tmp_path / "stored")!r}).write_text(f"{{journal_id}} {{position}} {{len(records)}}")
async def read_position(journal_id):
    return 0
journal_file.LockedJournalFile.empty = lambda locked: os.kill(os.getpid(), 9)
journal = push_journal.Journal(pathlib.Path({str(tmp_path / "journal")!r}), 1 << 20)
asyncio.run(journal.replay(store_records, read_position))
"""
    killed = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", script], check=False)
    assert killed.returncode == -9
    journal_id, position, count = (tmp_path / "stored").read_text().split()
    assert int(count) == 20
    store = RecordStore()
    store.positions[JournalId(journal_id)] = int(position)
    assert journal.has_records
    assert await store.replay(journal) == 0
    assert store.records == []
    assert not journal.has_records
    await journal.close()


def overwrite(journal: Journal, offset: int, data: bytes) -> None:
    with journal._file.path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


@pytest.mark.parametrize("damaged_offset", [0, 4, 8, 12, RECORD_BYTES + 3])
async def test_damaged_bytes_are_saved_and_the_other_records_are_replayed(
    journal: Journal, caplog: pytest.LogCaptureFixture, damaged_offset: int
) -> None:
    """Damage each field of the sixth record: mark, length, checksum, time and payload."""
    await journal.append(RECORDS)
    start = HEADER_BYTES + 5 * RECORD_SIZE
    overwrite(journal, start + damaged_offset, b"\xee\xee")
    damaged = journal._file.path.read_bytes()[start : start + RECORD_SIZE]
    await journal.append([b"later"])
    store = RecordStore()

    async def fail(journal_id: JournalId, position: int, records: Sequence[bytes]) -> None:
        raise DatabaseUnavailable("not yet")

    with caplog.at_level(logging.ERROR):
        with pytest.raises(DatabaseUnavailable):
            await journal.replay(fail, store.read_position)
        assert await store.replay(journal) == 20
    assert store.records == [*RECORDS[:5], *RECORDS[6:], b"later"]
    [saved] = journal._file.directory.glob("journal.damaged-*")
    assert saved.read_bytes() == damaged
    [logged] = [record.getMessage() for record in caplog.records]
    assert str(saved) in logged
    assert "push them again" in logged


async def test_a_damaged_last_record_is_saved_and_cut_off(journal: Journal, tmp_path: Path) -> None:
    await journal.append(RECORDS)
    overwrite(journal, HEADER_BYTES + 20 * RECORD_SIZE - 1, b"\xee")
    reopened = Journal(tmp_path, MAX_BYTES)
    await reopened.append([b"later"])
    store = RecordStore()
    await store.replay(reopened)
    assert store.records == [*RECORDS[:19], b"later"]
    [saved] = tmp_path.glob("journal.damaged-*")
    assert saved.stat().st_size == RECORD_SIZE
    await reopened.close()


@pytest.mark.parametrize("remaining", [1, RECORD_BYTES - 1, RECORD_BYTES, RECORD_SIZE - 1])
async def test_an_incomplete_last_record_is_cut_off(
    journal: Journal, tmp_path: Path, caplog: pytest.LogCaptureFixture, remaining: int
) -> None:
    await journal.append(RECORDS)
    os.truncate(journal._file.path, HEADER_BYTES + 19 * RECORD_SIZE + remaining)
    reopened = Journal(tmp_path, MAX_BYTES)
    with caplog.at_level(logging.WARNING):
        await reopened.append([b"later"])
    store = RecordStore()
    await store.replay(reopened)
    assert store.records == [*RECORDS[:19], b"later"]
    assert not list(tmp_path.glob("journal.damaged-*"))
    assert f"{remaining} bytes" in caplog.text
    await reopened.close()


async def test_a_replay_cuts_off_an_incomplete_record(journal: Journal, tmp_path: Path) -> None:
    await journal.append(RECORDS)
    os.truncate(journal._file.path, HEADER_BYTES + 20 * RECORD_SIZE - 1)
    reopened = Journal(tmp_path, MAX_BYTES)
    store = RecordStore()
    assert await store.replay(reopened) == 19
    assert not reopened.has_records
    await reopened.close()


@pytest.mark.parametrize("size", [1, HEADER_BYTES - 1])
async def test_a_journal_with_an_incomplete_header_starts_again(journal: Journal, size: int) -> None:
    await journal.append(RECORDS)
    os.truncate(journal._file.path, size)
    assert await journal.append([b"new"])
    store = RecordStore()
    assert await store.replay(journal) == 1
    assert not list(journal._file.directory.glob("journal.damaged-*"))


async def test_a_journal_with_a_damaged_header_is_saved(journal: Journal) -> None:
    await journal.append(RECORDS)
    overwrite(journal, 0, b"?")
    damaged = journal._file.path.read_bytes()
    assert await journal.append([b"new"])
    store = RecordStore()
    assert await store.replay(journal) == 1
    [saved] = journal._file.directory.glob("journal.damaged-*")
    assert saved.read_bytes() == damaged


async def test_a_journal_shorter_than_its_stored_position_is_saved(journal: Journal) -> None:
    await journal.append(RECORDS)
    store = RecordStore()
    extent = journal._file.read_extent()
    assert extent is not None
    store.positions[extent.journal_id] = extent.end + 1
    content = journal._file.path.read_bytes()
    assert await store.replay(journal) == 0
    [saved] = journal._file.directory.glob("journal.damaged-*")
    assert saved.read_bytes() == content
    assert not journal.has_records
