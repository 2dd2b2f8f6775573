"""Tests of the checks that a checkpoint passes before Spark opens it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.definitions import QUEUE
from penstock.pipeline.checkpoint import (
    CheckpointInUse,
    CheckpointLock,
    CheckpointUnusable,
    check_files,
    check_identity,
    move_aside,
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A valid checkpoint of three batches, of which the last is not committed."""
    created = tmp_path / "checkpoint" / "queue"
    (created / "offsets").mkdir(parents=True)
    (created / "commits").mkdir()
    (created / "metadata").write_text('{"id":"7ff0cf0e-8a1f-4d2c-9a3f-6f7b8f1d8f55"}')
    for batch in range(3):
        shards = {str(shard): f"{batch + 1}-0" for shard in range(QUEUE.shards)}
        (created / "offsets" / str(batch)).write_text(f'v1\n{{"conf":{{}}}}\n{json.dumps(shards)}')
        (created / "offsets" / f".{batch}.crc").write_text("crc")
    for batch in range(2):
        (created / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return created


def test_a_valid_checkpoint_and_a_missing_one_can_be_used(directory: Path, tmp_path: Path) -> None:
    check_files(directory, QUEUE)
    check_files(tmp_path / "nothing", QUEUE)


def test_an_offset_may_contain_ids_that_split_its_range(directory: Path) -> None:
    (directory / "offsets" / "2").write_text(
        'v1\n{}\n{"0": "9-0 4-18446744073709551615 6-18446744073709551615"}'
    )
    check_files(directory, QUEUE)
    (directory / "offsets" / "2").write_text('v1\n{}\n{"0": "9-0 "}')
    with pytest.raises(CheckpointUnusable, match="not stream ids"):
        check_files(directory, QUEUE)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda directory: (directory / "metadata").write_text(""), "metadata cannot be read"),
        (lambda directory: (directory / "metadata").unlink(), "metadata is missing"),
        (
            lambda directory: (directory / "offsets" / "2").write_text(""),
            "offsets/2 cannot be read .it is empty",
        ),
        (lambda directory: (directory / "offsets" / "2").write_text("v1\n{}"), "truncated"),
        (
            lambda directory: (directory / "offsets" / "1").write_bytes(b"\xff\xfe\x00"),
            "offsets/1 cannot be read",
        ),
        (lambda directory: (directory / "offsets" / "2").write_text('v1\n{}\n{"0": 7}'), "not stream ids"),
        (lambda directory: (directory / "offsets" / "2").write_text('v1\n{}\n{"0": "x"}'), "not stream ids"),
        (lambda directory: (directory / "commits" / "1").write_text(""), "commits/1 cannot be read"),
        (lambda directory: (directory / "commits" / "1").unlink(), "commits/1 is missing"),
        (lambda directory: (directory / "commits" / "9").write_text("v1\n{}"), "offsets/9 is missing"),
    ],
)
def test_damage_is_reported_with_the_file_and_a_hint(
    directory: Path, damage: Callable[[Path], None], message: str
) -> None:
    damage(directory)
    with pytest.raises(CheckpointUnusable, match=message) as raised:
        check_files(directory, QUEUE)
    assert "penstock pipeline reset" in raised.value.detail
    assert str(directory) in raised.value.detail


def test_a_checkpoint_of_more_streams_than_the_metric_has_is_refused(directory: Path) -> None:
    shards = {str(shard): "1-0" for shard in range(QUEUE.shards + 1)}
    (directory / "offsets" / "2").write_text(f"v1\n{{}}\n{json.dumps(shards)}")
    with pytest.raises(CheckpointUnusable, match="would never be counted"):
        check_files(directory, QUEUE)


def test_a_checkpoint_of_another_server_or_metric_is_refused(directory: Path) -> None:
    identity = {"metric": "queue", "Redis": "a", "ClickHouse database": "b"}
    check_identity(directory, identity)
    check_identity(directory, identity)
    with pytest.raises(CheckpointUnusable, match="another Redis"):
        check_identity(directory, identity | {"Redis": "c"})
    with pytest.raises(CheckpointUnusable, match="another metric"):
        check_identity(directory, identity | {"metric": "worker"})
    (directory / "identity.json").write_text("[")
    with pytest.raises(CheckpointUnusable, match=r"identity.json cannot be read"):
        check_identity(directory, identity)


def test_only_one_process_at_a_time_uses_a_checkpoint(directory: Path) -> None:
    with CheckpointLock(directory.parent), pytest.raises(CheckpointInUse, match=r"in use by process \d+ on"):
        CheckpointLock(directory.parent)
    CheckpointLock(directory.parent).close()


def test_a_checkpoint_that_is_moved_away_keeps_its_files(directory: Path) -> None:
    aside = move_aside(directory.parent)
    assert aside is not None
    assert (aside / "queue" / "metadata").exists()
    assert not directory.exists()
    assert move_aside(directory.parent) is None
