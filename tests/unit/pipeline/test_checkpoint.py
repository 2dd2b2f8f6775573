"""A checkpoint is looked at before Spark opens it."""

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
def place(tmp_path: Path) -> Path:
    """A sound checkpoint of three batches, the last one not done yet."""
    made = tmp_path / "checkpoint" / "queue"
    (made / "offsets").mkdir(parents=True)
    (made / "commits").mkdir()
    (made / "metadata").write_text('{"id":"7ff0cf0e-8a1f-4d2c-9a3f-6f7b8f1d8f55"}')
    for batch in range(3):
        shards = {str(shard): f"{batch + 1}-0" for shard in range(QUEUE.shards)}
        (made / "offsets" / str(batch)).write_text(f'v1\n{{"conf":{{}}}}\n{json.dumps(shards)}')
        (made / "offsets" / f".{batch}.crc").write_text("crc")
    for batch in range(2):
        (made / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return made


def test_a_sound_checkpoint_and_a_missing_one_can_be_used(place: Path, tmp_path: Path) -> None:
    check_files(place, QUEUE)
    check_files(tmp_path / "nothing", QUEUE)


def test_an_offset_may_say_how_its_range_is_divided(place: Path) -> None:
    (place / "offsets" / "2").write_text('v1\n{}\n{"0": "9-0 4-18446744073709551615 6-18446744073709551615"}')
    check_files(place, QUEUE)
    (place / "offsets" / "2").write_text('v1\n{}\n{"0": "9-0 "}')
    with pytest.raises(CheckpointUnusable, match="the ids of streams"):
        check_files(place, QUEUE)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda place: (place / "metadata").write_text(""), "metadata cannot be read"),
        (lambda place: (place / "metadata").unlink(), "metadata is gone"),
        (lambda place: (place / "offsets" / "2").write_text(""), "offsets/2 cannot be read .it is empty"),
        (lambda place: (place / "offsets" / "2").write_text("v1\n{}"), "cut short"),
        (lambda place: (place / "offsets" / "1").write_bytes(b"\xff\xfe\x00"), "offsets/1 cannot be read"),
        (lambda place: (place / "offsets" / "2").write_text('v1\n{}\n{"0": 7}'), "the ids of streams"),
        (lambda place: (place / "offsets" / "2").write_text('v1\n{}\n{"0": "x"}'), "the ids of streams"),
        (lambda place: (place / "commits" / "1").write_text(""), "commits/1 cannot be read"),
        (lambda place: (place / "commits" / "1").unlink(), "commits/1 is gone"),
        (lambda place: (place / "commits" / "9").write_text("v1\n{}"), "offsets/9 is gone"),
    ],
)
def test_damage_is_told_with_the_file_and_the_way_out(
    place: Path, damage: Callable[[Path], None], words: str
) -> None:
    damage(place)
    with pytest.raises(CheckpointUnusable, match=words) as told:
        check_files(place, QUEUE)
    assert "penstock pipeline reset" in told.value.detail
    assert str(place) in told.value.detail


def test_a_checkpoint_of_more_streams_than_the_metric_has_is_refused(place: Path) -> None:
    shards = {str(shard): "1-0" for shard in range(QUEUE.shards + 1)}
    (place / "offsets" / "2").write_text(f"v1\n{{}}\n{json.dumps(shards)}")
    with pytest.raises(CheckpointUnusable, match="would never be counted"):
        check_files(place, QUEUE)


def test_a_checkpoint_knows_whose_it_is(place: Path) -> None:
    mine = {"metric": "queue", "Redis": "a", "ClickHouse database": "b"}
    check_identity(place, mine)
    check_identity(place, mine)
    with pytest.raises(CheckpointUnusable, match="another Redis"):
        check_identity(place, mine | {"Redis": "c"})
    with pytest.raises(CheckpointUnusable, match="another metric"):
        check_identity(place, mine | {"metric": "worker"})
    (place / "identity.json").write_text("[")
    with pytest.raises(CheckpointUnusable, match=r"identity.json cannot be read"):
        check_identity(place, mine)


def test_one_process_at_a_time_uses_a_checkpoint(place: Path) -> None:
    with CheckpointLock(place.parent), pytest.raises(CheckpointInUse, match=r"process \d+ on .+ uses"):
        CheckpointLock(place.parent)
    CheckpointLock(place.parent).close()


def test_a_checkpoint_that_is_given_up_keeps_its_files(place: Path) -> None:
    aside = move_aside(place.parent)
    assert aside is not None
    assert (aside / "queue" / "metadata").exists()
    assert not place.exists()
    assert move_aside(place.parent) is None
