"""Appends to the journal are durable and in order, until the journal is full."""

from __future__ import annotations

import asyncio
import errno
import os
import time
import zlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker.journal.push_journal import Journal, JournalDepth, JournalId
from penstock.broker.journal.record_format import HEADER_BYTES, RECORD_BYTES
from penstock.errors import ConfigError, JournalFailed, JournalFull
from tests.unit.broker.journal.record_store import RecordStore

MAX_BYTES = 1 << 20


@pytest_asyncio.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    opened = Journal(tmp_path / "journal", MAX_BYTES)
    yield opened
    await opened.close()


async def test_a_replay_returns_records_in_the_order_of_their_appends(journal: Journal) -> None:
    assert not journal.has_records
    for n in range(5):
        assert await journal.append([b"%d.%d" % (n, m) for m in range(n)])
    assert journal.has_records
    store = RecordStore()
    assert await store.replay(journal) == 10
    assert store.records == [b"%d.%d" % (n, m) for n in range(5) for m in range(n)]
    assert not journal.has_records
    assert await store.replay(journal) == 0


async def test_concurrent_appends_share_one_sync(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    synced_sizes: list[int] = []
    fdatasync = os.fdatasync

    def record_size(fd: int) -> None:
        fdatasync(fd)
        synced_sizes.append(os.fstat(fd).st_size)

    monkeypatch.setattr(os, "fdatasync", record_size)
    await asyncio.gather(*(journal.append([b"%d" % n]) for n in range(100)))
    assert 1 <= len(synced_sizes) <= 2
    assert synced_sizes[-1] == journal._file.path.stat().st_size
    await journal.append([b"last"])
    assert len(synced_sizes) <= 3
    assert synced_sizes[-1] == journal._file.path.stat().st_size
    store = RecordStore()
    await store.replay(journal)
    assert store.records == [b"%d" % n for n in range(100)] + [b"last"]


async def test_the_first_append_syncs_the_directory(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced_inodes: list[int] = []
    fsync = os.fsync

    def record_inode(fd: int) -> None:
        synced_inodes.append(os.fstat(fd).st_ino)
        fsync(fd)

    monkeypatch.setattr(os, "fsync", record_inode)
    await journal.append([b"1"])
    assert journal._file.directory.stat().st_ino in synced_inodes


async def test_a_slow_disk_does_not_block_the_event_loop(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fdatasync", lambda fd: time.sleep(0.3))
    appending = asyncio.create_task(journal.append([b"1"]))
    iterations = 0
    while not appending.done():
        await asyncio.sleep(0.001)
        iterations += 1
    assert iterations > 20


async def test_a_full_journal_accepts_records_that_still_fit_and_refuses_the_others(tmp_path: Path) -> None:
    journal = Journal(tmp_path, HEADER_BYTES + 3 * (RECORD_BYTES + 10))
    await journal.append([b"x" * 10] * 2)
    with pytest.raises(JournalFull) as error:
        await journal.append([b"y" * 10] * 2)
    assert (error.value.status, error.value.code) == (503, "journal_full")
    large, small = await asyncio.gather(
        journal.append([b"b" * 11]), journal.append([b"s" * 10]), return_exceptions=True
    )
    assert isinstance(large, JournalFull)
    assert small is True
    store = RecordStore()
    await store.replay(journal)
    assert store.records == [b"x" * 10] * 2 + [b"s" * 10]
    assert await journal.append([b"again"])
    await journal.close()


@pytest.mark.parametrize(
    ("error_number", "error_type"), [(errno.ENOSPC, JournalFull), (errno.EIO, JournalFailed)]
)
async def test_a_failed_write_leaves_the_journal_unchanged(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, error_number: int, error_type: type[Exception]
) -> None:
    await journal.append([b"before"])

    def fail(fd: int) -> None:
        raise OSError(error_number, os.strerror(error_number))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", fail)
        with pytest.raises(error_type, match=str(journal._file.path)):
            await journal.append([b"refused"])
    await journal.append([b"after"])
    store = RecordStore()
    await store.replay(journal)
    assert store.records == [b"before", b"after"]


async def test_an_append_unless_empty_writes_only_behind_other_records(journal: Journal) -> None:
    assert not await journal.append([b"1"], unless_empty=True)
    assert not journal.has_records
    first, second = await asyncio.gather(journal.append([b"1"]), journal.append([b"2"], unless_empty=True))
    assert first
    assert second
    store = RecordStore()
    assert await store.replay(journal) == 2


async def test_the_depth_counts_records_that_are_not_replayed(tmp_path: Path) -> None:
    now = 1000.0
    journal = Journal(tmp_path, MAX_BYTES, clock=lambda: now)
    assert journal.depth() == JournalDepth(0, 0, 0)
    await journal.append([b"1" * 10])
    now = 1002.5
    await journal.append([b"2" * 10, b"3" * 10])
    record_bytes = RECORD_BYTES + 10
    assert journal.depth() == JournalDepth(3, 3 * record_bytes, 2.5)
    other = Journal(tmp_path, MAX_BYTES, clock=lambda: now)
    assert other.has_records
    await other.append([b"4" * 10])
    assert journal.depth() == other.depth() == JournalDepth(4, 4 * record_bytes, 2.5)

    store = RecordStore()

    async def fail_after_first(journal_id: JournalId, position: int, records: Sequence[bytes]) -> None:
        if store.records:
            raise RuntimeError("stopped")
        await store.store_records(journal_id, position, records)

    with pytest.raises(RuntimeError, match="stopped"):
        await journal.replay(fail_after_first, store.read_position, batch_bytes=1, final_bytes=0)
    assert journal.depth() == other.depth() == JournalDepth(3, 3 * record_bytes, 0, record_bytes)
    await store.replay(other)
    assert journal.depth() == other.depth() == JournalDepth(0, 0, 0)
    await journal.append([b"5"])
    assert other.depth().records == 1
    await journal.close()
    await other.close()


async def test_an_unusable_directory_raises_a_config_error_with_the_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="PENSTOCK_JOURNAL_DIR"):
        Journal(tmp_path / "file" / "journal", MAX_BYTES)


async def test_a_removed_journal_is_created_again(journal: Journal) -> None:
    await journal.append([b"removed"])
    journal._file.path.unlink()
    assert not await journal.append([b"x"], unless_empty=True)
    assert not journal.has_records
    await journal.append([b"kept"])
    assert journal.has_records
    store = RecordStore()
    await store.replay(journal)
    assert store.records == [b"kept"]


async def test_a_journal_of_a_later_version_is_not_changed(journal: Journal) -> None:
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
async def test_any_mix_of_two_writers_and_replays_keeps_all_records_in_order(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, list[bytes]]]
) -> None:
    directory = tmp_path_factory.mktemp("journal")
    writers = [Journal(directory, MAX_BYTES), Journal(directory, MAX_BYTES)]
    store = RecordStore()
    expected: list[bytes] = []
    for writer, records in steps:
        if records:
            await writers[writer].append(records)
            expected += records
        else:
            await store.replay(writers[writer], batch_bytes=100, final_bytes=50)
            assert store.records == expected
    await store.replay(writers[0])
    assert store.records == expected
    for journal in writers:
        await journal.close()


async def test_another_process_learns_of_records_without_a_system_call(tmp_path: Path) -> None:
    """The flag is shared memory: a writer sets it, a replay clears it."""
    writer, other = Journal(tmp_path, MAX_BYTES), Journal(tmp_path, MAX_BYTES)
    assert not other.has_records
    await writer.append([b"a"])
    assert other.has_records
    await RecordStore().replay(other)
    assert not writer.has_records
    for journal in (writer, other):
        await journal.close()


async def test_a_flag_left_by_a_killed_writer_is_corrected_by_the_next_append(tmp_path: Path) -> None:
    """The writer was killed after it had set the flag and before it wrote a record."""
    journal = Journal(tmp_path, MAX_BYTES)
    journal._file.flag[0] = True
    assert not await journal.append([b"a"], unless_empty=True)
    assert not journal.has_records
    await journal.close()


async def test_a_journal_that_holds_records_is_recognised_when_it_is_opened(tmp_path: Path) -> None:
    first = Journal(tmp_path, MAX_BYTES)
    await first.append([b"a"])
    await first.close()
    (tmp_path / "has-records").unlink()
    reopened = Journal(tmp_path, MAX_BYTES)
    assert reopened.has_records
    await reopened.close()
