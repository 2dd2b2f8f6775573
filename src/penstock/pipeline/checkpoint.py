"""Check, lock and reset the checkpoint, where Spark records which entries each batch covers.

The checkpoint has one directory per metric. On restart a query continues from it. This module checks it
before Spark opens it: Spark reports damage as a stack trace, and it cannot know that an intact checkpoint
belongs to other servers. Nothing here needs Spark.

One pipeline may use a checkpoint. A lock file next to it enforces this; the kernel releases the lock when its
holder ends in any way. The lock works on one machine, and on a shared file system that supports locks.
Without such support, two pipelines on one checkpoint still cannot count twice: they read the same batches
under the same tokens, and Spark ends the one that is second to write a batch to the checkpoint.
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
from typing import ClassVar, Self

from redis import Redis

from penstock.config import Settings
from penstock.definitions import MetricDefinition
from penstock.errors import PenstockError
from penstock.ids import new_id
from penstock.private_directories import make_private
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.schema import MIGRATIONS_TABLE

RESET_HINT = (
    "Run `penstock pipeline reset` to move it away; the pipeline then continues from the position of its "
    "consumer group (docs/pipeline.md, 'A checkpoint that cannot be used')"
)
IDENTITY_FILE = "identity.json"
METRIC, REDIS, CLICKHOUSE = "metric", "Redis", "ClickHouse database"
"""Keys of the identity file."""

STREAMS_KEY = "penstock:pipeline:streams"
"""The Redis key that holds the name of this Redis."""

CHECKED_FILES = 2
"""Spark reads the newest two offset files; older ones are history."""

_ENTRY_ID = re.compile(r"\d{1,20}-\d{1,20}( \d{1,20}-\d{1,20})*( inserted-by-task)?")
"""An entry id, followed by the ids that split the range before it, and by who inserts its rows."""

SPARK_ERROR_PATTERN = re.compile(
    r"ChecksumException|Checksum error|(Incomplete|Malformed) log file|batch \d+ doesn't exist"
)
"""Spark's messages about damage that `check_files` does not detect."""


def checkpoint_path(settings: Settings) -> Path:
    """Return the directory of the checkpoint. It need not exist."""
    return settings.home / "pipeline" / "checkpoint"


class CheckpointUnusable(PenstockError):
    """The checkpoint is damaged or belongs to other servers or another metric. A retry does not help."""

    code = "checkpoint_unusable"
    title = "Checkpoint unusable"
    exit_code: ClassVar[int] = os.EX_CONFIG

    def __init__(self, directory: Path, reason: str) -> None:
        super().__init__(
            f"The checkpoint in {directory} cannot be used: {reason}. {RESET_HINT}", place=str(directory)
        )


class CheckpointInUse(PenstockError):
    """Another pipeline uses the checkpoint or reads the same streams."""

    code = "checkpoint_in_use"
    title = "Checkpoint in use"


class CheckpointLock:
    """Exclusive use of a checkpoint, held until `close` or until the process ends in any way."""

    def __init__(self, checkpoint: Path) -> None:
        """Take the lock. Raises CheckpointInUse with the process that holds it."""
        make_private(checkpoint.parent)
        # The lock file is outside the directory, because a reset moves the directory.
        self._file = checkpoint.with_name(f"{checkpoint.name}.lock").open("a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.seek(0)
            holder = self._file.read().strip() or "another process"
            self._file.close()
            raise CheckpointInUse(
                f"The checkpoint in {checkpoint} is in use by {holder}. Stop it first"
            ) from None
        self._file.truncate(0)
        self._file.write(f"process {os.getpid()} on {os.uname().nodename}")
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def check_files(directory: Path, definition: MetricDefinition) -> None:
    """Raise CheckpointUnusable if a query cannot continue from the checkpoint of one metric.

    A directory that does not exist is valid: the query creates it.
    """
    if not directory.exists():
        return
    with _report_unreadable(directory, "metadata"):
        if (metadata := directory / "metadata").exists():
            query_id = json.loads(metadata.read_text())["id"]
            if not isinstance(query_id, str):
                raise ValueError("it has no id")
    batches = batch_numbers(directory / "offsets")
    if not batches:
        return
    if not (directory / "metadata").exists():
        raise CheckpointUnusable(directory, "it has batches, but the file metadata is missing")
    committed = batch_numbers(directory / "commits")
    if committed and committed[-1] > batches[-1]:
        raise CheckpointUnusable(
            directory, f"batch {committed[-1]} is committed, but the file offsets/{committed[-1]} is missing"
        )
    if (committed[-1] if committed else -1) < batches[-1] - 1:
        raise CheckpointUnusable(directory, f"the file commits/{batches[-1] - 1} is missing")
    for number in batches[-CHECKED_FILES:]:
        with _report_unreadable(directory, f"offsets/{number}"):
            _check_shards(directory, _read_offset(directory / "offsets" / str(number)), definition)
    for number in committed[-CHECKED_FILES:]:
        with _report_unreadable(directory, f"commits/{number}"):
            _read_versioned(directory / "commits" / str(number))


def check_identity(directory: Path, identity: dict[str, str]) -> None:
    """Raise CheckpointUnusable if the checkpoint has another identity; write the identity of a new one."""
    file = directory / IDENTITY_FILE
    if file.exists():
        with _report_unreadable(directory, IDENTITY_FILE):
            recorded = {name: str(value) for name, value in json.loads(file.read_text()).items()}
        for name, value in identity.items():
            if recorded.get(name, value) != value:
                raise CheckpointUnusable(
                    directory, f"it belongs to another {name} (recorded: {recorded[name]}; now: {value})"
                )
        if recorded.keys() >= identity.keys():
            return
    directory.mkdir(parents=True, exist_ok=True)
    new = file.with_suffix(".new")
    new.write_text(json.dumps(identity, indent=1))
    new.replace(file)


def check_servers(directory: Path, definition: MetricDefinition, redis: Redis, warehouse: Warehouse) -> None:
    """Raise CheckpointUnusable if the checkpoint belongs to another Redis or another ClickHouse database.

    Servers are recognized by a name, whatever their address is. Raises redis.RedisError or
    WarehouseUnavailable when a server is unreachable.
    """
    recorded = _read_identity(directory)
    check_identity(
        directory,
        {
            METRIC: definition.name,
            REDIS: _redis_name(redis, recorded.get(REDIS)),
            CLICKHOUSE: _database_name(warehouse),
        },
    )


def move_aside(checkpoint: Path) -> Path | None:
    """Move the checkpoint away but keep its files; returns their new directory, None if there was none."""
    if not checkpoint.exists():
        return None
    aside = checkpoint.with_name(f"{checkpoint.name}.{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}")
    checkpoint.rename(aside)
    return aside


def _read_identity(directory: Path) -> dict[str, str]:
    """Return the recorded identity; empty for a new or unreadable one."""
    try:
        identity = json.loads((directory / IDENTITY_FILE).read_text())
    except (OSError, ValueError):
        return {}
    return identity if isinstance(identity, dict) else {}


def _redis_name(redis: Redis, recorded: str | None) -> str:
    """Return the name of this Redis. A Redis without one gets the recorded name, or a new one.

    So a Redis that lost its data does not stop the pipeline; the source detects the loss itself.
    """
    redis.set(STREAMS_KEY, recorded or str(new_id()), nx=True)
    name = redis.get(STREAMS_KEY)
    return name.decode() if isinstance(name, bytes) else str(name)


def _database_name(warehouse: Warehouse) -> str:
    """Return the database's name and the time of its first migration, equal on all replicas."""
    [row] = warehouse.query(
        "SELECT currentDatabase() AS name, toUnixTimestamp64Milli(min(applied_at)) AS made "
        f"FROM {MIGRATIONS_TABLE}"
    )
    return f"{row['name']} of {row['made']}"


@contextmanager
def _report_unreadable(directory: Path, file: str) -> Iterator[None]:
    """Turn an error while reading the file into CheckpointUnusable."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise CheckpointUnusable(directory, f"the file {file} cannot be read ({reason})") from error


def batch_numbers(directory: Path) -> list[int]:
    """Return the numbers of the batches that have a file in the directory, in ascending order."""
    if not directory.exists():
        return []
    return sorted(int(file.name) for file in directory.iterdir() if file.name.isdecimal())


def _read_versioned(file: Path) -> list[str]:
    lines = file.read_text().splitlines()
    if not lines or not lines[0].startswith("v"):
        raise ValueError("it is empty" if not lines else "it does not begin with a version")
    return lines


def _read_offset(file: Path) -> dict[str, str]:
    lines = _read_versioned(file)
    if len(lines) < 3:
        raise ValueError("it is truncated")
    offset = json.loads(lines[2])
    if not isinstance(offset, dict) or not all(
        shard.isdecimal() and isinstance(entry, str) and _ENTRY_ID.fullmatch(entry)
        for shard, entry in offset.items()
    ):
        raise ValueError("it has values that are not stream ids")
    return offset


def _check_shards(directory: Path, offset: dict[str, str], definition: MetricDefinition) -> None:
    # More shards than before are harmless: the new ones are read from their beginning.
    if len(offset) > definition.shards:
        raise CheckpointUnusable(
            directory,
            f"it reads {len(offset)} streams of the metric {definition.name}, which now has "
            f"{definition.shards}; events in the other streams would never be counted",
        )
