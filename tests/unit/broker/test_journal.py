"""The journal takes records, durably and in order, until it is full."""

from __future__ import annotations

import asyncio
import errno
import os
import time
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker.journal.push_journal import JournalDepth, Journal
from penstock.broker.journal.record_format import HEADER_BYTES, RECORD_BYTES
from penstock.errors import ConfigError, JournalFailed, JournalFull
from tests.unit.broker.journal_reader import Store

ROOM = 1 << 20


@pytest_asyncio.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    opened = Journal(tmp_path / "journal", ROOM)
    yield opened
    await opened.close()


async def test_what_was_appended_comes_back_in_order(journal: Journal) -> None:
    assert not journal.has_records
    for n in range(5):
        assert await journal.append([b"%d.%d" % (n, m) for m in range(n)])
    assert journal.has_records
    store = Store()
    assert await store.replay(journal) == 10
    assert store.records == [b"%d.%d" % (n, m) for n in range(5) for m in range(n)]
    assert not journal.has_records
    assert await store.replay(journal) == 0


async def test_appends_that_come_together_are_synced_together(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    sync = os.fdatasync

    def counting(fd: int) -> None:
        sync(fd)
        synced.append(os.fstat(fd).st_size)

    monkeypatch.setattr(os, "fdatasync", counting)
    await asyncio.gather(*(journal.append([b"%d" % n]) for n in range(100)))
    assert 1 <= len(synced) <= 2
    assert synced[-1] == (journal._file.path).stat().st_size
    await journal.append([b"last"])
    assert len(synced) <= 3
    assert synced[-1] == (journal._file.path).stat().st_size
    store = Store()
    await store.replay(journal)
    assert store.records == [b"%d" % n for n in range(100)] + [b"last"]


async def test_the_directory_is_synced_when_a_journal_begins(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.fstat(fd).st_ino), sync(fd))[1])
    await journal.append([b"1"])
    assert journal._file.directory.stat().st_ino in synced


async def test_the_event_loop_goes_on_while_the_disk_is_slow(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fdatasync", lambda fd: time.sleep(0.3))
    appending = asyncio.create_task(journal.append([b"1"]))
    turns = 0
    while not appending.done():
        await asyncio.sleep(0.001)
        turns += 1
    assert turns > 20


async def test_a_full_journal_takes_what_still_fits_and_says_so_of_the_rest(tmp_path: Path) -> None:
    journal = Journal(tmp_path, HEADER_BYTES + 3 * (RECORD_BYTES + 10))
    await journal.append([b"x" * 10] * 2)
    with pytest.raises(JournalFull) as full:
        await journal.append([b"y" * 10] * 2)
    assert (full.value.status, full.value.code) == (503, "journal_full")
    big, small = await asyncio.gather(
        journal.append([b"b" * 11]), journal.append([b"s" * 10]), return_exceptions=True
    )
    assert isinstance(big, JournalFull)
    assert small is True
    store = Store()
    await store.replay(journal)
    assert store.records == [b"x" * 10] * 2 + [b"s" * 10]
    assert await journal.append([b"again"])
    await journal.close()


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, JournalFull), (errno.EIO, JournalFailed)])
async def test_what_the_disk_does_not_take_leaves_no_trace(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[Exception]
) -> None:
    await journal.append([b"before"])

    def fail(fd: int) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", fail)
        with pytest.raises(kind, match=str(journal._file.path)):
            await journal.append([b"refused"])
    await journal.append([b"after"])
    store = Store()
    await store.replay(journal)
    assert store.records == [b"before", b"after"]


async def test_who_wants_to_be_behind_others_is_told_when_there_are_none(journal: Journal) -> None:
    assert not await journal.append([b"1"], unless_empty=True)
    assert not journal.has_records
    first, second = await asyncio.gather(journal.append([b"1"]), journal.append([b"2"], unless_empty=True))
    assert first
    assert second
    store = Store()
    assert await store.replay(journal) == 2


async def test_the_depth_is_what_is_not_replayed(tmp_path: Path) -> None:
    now = 1000.0
    journal = Journal(tmp_path, ROOM, clock=lambda: now)
    assert journal.depth() == JournalDepth(0, 0, 0)
    await journal.append([b"1" * 10])
    now = 1002.5
    await journal.append([b"2" * 10, b"3" * 10])
    one = RECORD_BYTES + 10
    assert journal.depth() == JournalDepth(3, 3 * one, 2.5)
    other = Journal(tmp_path, ROOM, clock=lambda: now)
    assert other.has_records
    await other.append([b"4" * 10])
    assert journal.depth() == other.depth() == JournalDepth(4, 4 * one, 2.5)

    store = Store()

    async def only_one(journal_id: object, position: int, records: object) -> None:
        if store.records:
            raise RuntimeError("enough")
        await store.take(journal_id, position, records)  # type: ignore[arg-type]

    with pytest.raises(RuntimeError, match="enough"):
        await journal.replay(only_one, store.position, batch_bytes=1, last_bytes=0)
    assert journal.depth() == other.depth() == JournalDepth(3, 3 * one, 0)
    await store.replay(other)
    assert journal.depth() == other.depth() == JournalDepth(0, 0, 0)
    await journal.append([b"5"])
    assert other.depth().records == 1
    await journal.close()
    await other.close()


async def test_a_directory_that_cannot_be_used_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="name a directory"):
        Journal(tmp_path / "file" / "journal", ROOM)


async def test_a_journal_that_was_removed_is_begun_anew(journal: Journal) -> None:
    await journal.append([b"removed"])
    journal._file.path.unlink()
    assert not journal.has_records
    await journal.append([b"kept"])
    assert journal.has_records
    store = Store()
    await store.replay(journal)
    assert store.records == [b"kept"]


async def test_a_journal_of_a_later_version_is_left_alone(journal: Journal) -> None:
    await journal.append([b"1"])
    content = bytearray(journal._file.path.read_bytes())
    content[8] = 2  # the version, then the checksum of the header
    content[28:32] = zlib.crc32(content[:28]).to_bytes(4, "little")
    journal._file.path.write_bytes(content)
    with pytest.raises(JournalFailed, match="version 2"):
        await journal.append([b"2"])
    assert journal._file.path.read_bytes() == content


@settings(max_examples=int(os.environ.get("JOURNAL_EXAMPLES", "15")), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.lists(st.binary(max_size=300), max_size=4)), max_size=12))
async def test_any_mix_of_two_writers_and_replays_keeps_order_and_loses_nothing(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, list[bytes]]]
) -> None:
    directory = tmp_path_factory.mktemp("journal")
    writers = [Journal(directory, ROOM), Journal(directory, ROOM)]
    store = Store()
    expected: list[bytes] = []
    for writer, records in steps:
        if records:
            await writers[writer].append(records)
            expected += records
        else:
            await store.replay(writers[writer], batch_bytes=100, last_bytes=50)
            assert store.records == expected
    await store.replay(writers[0])
    assert store.records == expected
    for journal in writers:
        await journal.close()
