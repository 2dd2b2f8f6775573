"""The checkpoint: where Spark writes down which entries each batch covers, one directory per metric.

Before Spark opens it, it is looked at here: Spark's own words for a damaged one are a stack trace, and Spark
cannot know that a sound one belongs to other servers. Nothing in here needs Spark.

One pipeline per checkpoint: a lock beside it, which the kernel releases when its holder ends in any way. It
holds on one machine, and on a shared file system that supports locks. Where there is none, two pipelines on
one checkpoint still cannot count twice: they read the same batches under the same tokens, and Spark ends the
one that is second to write a batch down.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Self

from penstock.config import Settings
from penstock.definitions import MetricDefinition
from penstock.errors import PenstockError

WAY_OUT = (
    "`penstock pipeline reset` puts it aside, and the pipeline goes on where its consumer group stands "
    "(docs/pipeline.md, 'A checkpoint that cannot be used')"
)
IDENTITY = "identity.json"
NEWEST_FILES = 2
"""Spark reads the newest offsets and the ones before them; older files are history."""

_ENTRY_ID = re.compile(r"\d{1,20}-\d{1,20}( \d{1,20}-\d{1,20})*")
"""An id, and those that divide the range before it."""

SPARKS_WORDS = re.compile(
    r"ChecksumException|Checksum error|(Incomplete|Malformed) log file|batch \d+ doesn't exist"
)
"""What Spark says about damage that is not seen from here."""


def checkpoint_of(settings: Settings) -> Path:
    return settings.home / "pipeline" / "checkpoint"


class CheckpointUnusable(PenstockError):
    """The checkpoint is damaged or belongs to something else. Trying again changes nothing."""

    code = "checkpoint_unusable"
    title = "The checkpoint cannot be used"
    exit_code: ClassVar[int] = os.EX_CONFIG

    def __init__(self, place: Path, why: str) -> None:
        super().__init__(f"the checkpoint in {place} cannot be used: {why}. {WAY_OUT}", place=str(place))


class CheckpointInUse(PenstockError):
    code = "checkpoint_in_use"
    title = "A pipeline runs on this checkpoint"


class CheckpointLock:
    """The right to use a checkpoint. Held until closed, or until the process ends in any way."""

    def __init__(self, checkpoint: Path) -> None:
        """Take it. Raises CheckpointInUse naming who has it."""
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        # Beside the directory, which a reset moves away.
        self._file = checkpoint.with_name(f"{checkpoint.name}.lock").open("a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.seek(0)
            holder = self._file.read().strip() or "another process"
            self._file.close()
            raise CheckpointInUse(f"{holder} uses the checkpoint in {checkpoint}: stop it first") from None
        self._file.truncate(0)
        self._file.write(f"process {os.getpid()} on {os.uname().nodename}")
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def check_files(place: Path, definition: MetricDefinition) -> None:
    """Raise CheckpointUnusable if one metric's checkpoint cannot be continued. One that is not there can."""
    if not place.exists():
        return
    with _telling(place, "metadata"):
        if (metadata := place / "metadata").exists():
            query_id = json.loads(metadata.read_text())["id"]
            if not isinstance(query_id, str):
                raise ValueError("there is no id in it")
    batches = _numbers(place / "offsets")
    if not batches:
        return
    if not (place / "metadata").exists():
        raise CheckpointUnusable(place, "it has batches, but the file metadata is gone")
    done = _numbers(place / "commits")
    if done and done[-1] > batches[-1]:
        raise CheckpointUnusable(place, f"batch {done[-1]} is done, but the file offsets/{done[-1]} is gone")
    if (done[-1] if done else -1) < batches[-1] - 1:
        raise CheckpointUnusable(place, f"the file commits/{batches[-1] - 1} is gone")
    for number in batches[-NEWEST_FILES:]:
        with _telling(place, f"offsets/{number}"):
            _check_shards(place, _offset(place / "offsets" / str(number)), definition)
    for number in done[-NEWEST_FILES:]:
        with _telling(place, f"commits/{number}"):
            _versioned(place / "commits" / str(number))


def check_identity(place: Path, identity: dict[str, str]) -> None:
    """Raise CheckpointUnusable if the checkpoint was made for something else; note whose a new one is."""
    file = place / IDENTITY
    if file.exists():
        with _telling(place, IDENTITY):
            recorded = {name: str(value) for name, value in json.loads(file.read_text()).items()}
        for name, value in identity.items():
            if recorded.get(name, value) != value:
                raise CheckpointUnusable(
                    place, f"it belongs to another {name} ({recorded[name]}; this one is {value})"
                )
        if recorded.keys() >= identity.keys():
            return
    place.mkdir(parents=True, exist_ok=True)
    new = file.with_suffix(".new")
    new.write_text(json.dumps(identity, indent=1))
    new.replace(file)


def recorded_identity(place: Path) -> dict[str, Any]:
    """What is noted about whose checkpoint this is; empty for one that is new."""
    try:
        found = json.loads((place / IDENTITY).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def move_aside(checkpoint: Path) -> Path | None:
    """Give the checkpoint up but keep its files; returns where they are now, None if there were none."""
    if not checkpoint.exists():
        return None
    aside = checkpoint.with_name(f"{checkpoint.name}.{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}")
    checkpoint.rename(aside)
    return aside


@contextmanager
def _telling(place: Path, file: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise CheckpointUnusable(place, f"the file {file} cannot be read ({why})") from error


def _numbers(directory: Path) -> list[int]:
    if not directory.exists():
        return []
    return sorted(int(file.name) for file in directory.iterdir() if file.name.isdecimal())


def _versioned(file: Path) -> list[str]:
    lines = file.read_text().splitlines()
    if not lines or not lines[0].startswith("v"):
        raise ValueError("it is empty" if not lines else "it does not begin with its version")
    return lines


def _offset(file: Path) -> dict[str, str]:
    lines = _versioned(file)
    if len(lines) < 3:
        raise ValueError("it is cut short")
    offset = json.loads(lines[2])
    if not isinstance(offset, dict) or not all(
        shard.isdecimal() and isinstance(entry, str) and _ENTRY_ID.fullmatch(entry)
        for shard, entry in offset.items()
    ):
        raise ValueError("it does not hold the ids of streams")
    return offset


def _check_shards(place: Path, offset: dict[str, str], definition: MetricDefinition) -> None:
    # More shards than before are no harm: the new ones are read from their beginning.
    if len(offset) > definition.shards:
        raise CheckpointUnusable(
            place,
            f"it reads {len(offset)} streams of the metric {definition.name}, which now has "
            f"{definition.shards}; what the others hold would never be counted",
        )
