"""Keep the checkpoint in an object store, so that a driver on any host can continue from it.

Spark writes the checkpoint to a local directory, because it needs renames. Before a batch is read and
inserted, `publish_batch` copies its offsets to the object store. The next driver, wherever it starts,
downloads the files and repeats the newest batch if it has no commit: same query id, batch id and range, so
the same insert tokens.

Fencing needs neither a lock nor a rename: files are created and never replaced (`If-None-Match: *`). Two
drivers that continue from the same batch both plan the next one, but only one of them can create its file.
The other one gets CheckpointInUse before it inserts anything.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from penstock.config import Settings
from penstock.pipeline.checkpoint import IDENTITY_FILE, CheckpointInUse, batch_numbers
from penstock.pipeline.object_files import ObjectFiles
from penstock.private_directories import make_private

METADATA, OFFSETS, COMMITS = "metadata", "offsets", "commits"
RETAINED_BATCHES = 100
"""Spark keeps as many batches in the local directory."""

CONFIRM_AFTER_S = 10.0
"""A driver that was suspended this long may have been replaced: others wait 15 s for its heartbeat."""


class MetricCheckpoint:
    """The stored checkpoint of one metric. Only one thread uses it at a time."""

    def __init__(
        self, files: ObjectFiles, metric: str, local: Path, *, confirm_after_s: float = CONFIRM_AFTER_S
    ) -> None:
        self._files = files
        self._metric = metric
        self._local = local
        self._confirm_after_s = confirm_after_s
        self._published_at = 0.0
        self._stored: set[int] = set()
        """The batches whose offsets are in the store."""
        self._stored_commit = -1
        self.fenced: CheckpointInUse | None = None
        """Set when another driver has taken over."""

    def download(self) -> None:
        """Replace the local checkpoint by the stored one; if none is stored, store the local one."""
        names = self._files.list_paths(self._metric)
        if METADATA not in names:
            for name in names:  # left by a process that was killed while it moved or stored the checkpoint
                self._files.delete(self._path(name))
            self._store_local_checkpoint()
            return
        if self._local.exists():
            shutil.rmtree(self._local)
        for name in names:
            file = self._local / name
            make_private(file.parent)
            file.write_bytes(self._files.read(self._path(name)))
        self._stored = set(batch_numbers(self._local / OFFSETS))
        self._stored_commit = max(batch_numbers(self._local / COMMITS), default=-1)

    def publish_batch(self, batch_id: int) -> None:
        """Store the offsets of a batch, and the commit before it. A repetition changes nothing.

        Raises CheckpointInUse if another driver has planned this batch.
        """
        if not self._stored:
            self._replace_identity()
            self._create(METADATA)
        self._publish_commit(batch_id - 1)
        self._create(f"{OFFSETS}/{batch_id}")
        self._stored.add(batch_id)
        self._published_at = time.monotonic()
        if len(self._stored) > 2 * RETAINED_BATCHES:
            self._delete_batches_before(batch_id - RETAINED_BATCHES)

    def confirm_batch(self, batch_id: int) -> None:
        """Raise CheckpointInUse if another driver went on while this one was suspended."""
        if time.monotonic() - self._published_at < self._confirm_after_s:
            return
        next_offsets = f"{OFFSETS}/{batch_id + 1}"
        if next_offsets in self._files.list_paths(self._metric):
            self._raise_fenced(next_offsets)

    def publish_last_commit(self) -> None:
        """Store the newest commit after the last batch, so that the next driver need not repeat it."""
        newest = max(batch_numbers(self._local / COMMITS), default=-1)
        if newest in self._stored:
            self._publish_commit(newest)

    def move_aside(self) -> str | None:
        """Move the stored checkpoint to another prefix; returns its URL, None if there was none."""
        names = self._files.list_paths(self._metric)
        aside = f"{self._metric}.{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
        for name in names:
            self._files.copy(self._path(name), f"{aside}/{name}")
        # The metadata goes first: from then on the checkpoint counts as absent.
        for name in sorted(names, key=lambda name: name != METADATA):
            self._files.delete(self._path(name))
        return f"{self._files.url}/{aside}" if names else None

    def _store_local_checkpoint(self) -> None:
        """Store a checkpoint that was local until now. It counts as absent until its metadata is stored."""
        if not (self._local / METADATA).exists():
            return
        batches = batch_numbers(self._local / OFFSETS)[-RETAINED_BATCHES:]
        commits = batch_numbers(self._local / COMMITS)
        for number in batches:
            if number in commits:
                self._create(f"{COMMITS}/{number}")
            self._create(f"{OFFSETS}/{number}")
        self._replace_identity()
        self._create(METADATA)
        self._stored = set(batches)
        self._stored_commit = max(commits, default=-1)

    def _publish_commit(self, batch_id: int) -> None:
        if batch_id > self._stored_commit and (self._local / COMMITS / str(batch_id)).exists():
            self._create(f"{COMMITS}/{batch_id}")
            self._stored_commit = batch_id

    def _replace_identity(self) -> None:
        if (file := self._local / IDENTITY_FILE).exists():
            self._files.replace(self._path(IDENTITY_FILE), file.read_bytes())

    def _create(self, name: str) -> None:
        if not self._files.create(self._path(name), (self._local / name).read_bytes()):
            self._raise_fenced(name)

    def _raise_fenced(self, name: str) -> NoReturn:
        self.fenced = CheckpointInUse(
            f"Another pipeline continues from the checkpoint {self._files.url}/{self._metric}: it wrote "
            f"{name}. This one stops. Run one pipeline per checkpoint"
        )
        raise self.fenced

    def _delete_batches_before(self, first_retained: int) -> None:
        for number in sorted(number for number in self._stored if number < first_retained):
            self._files.delete(self._path(f"{OFFSETS}/{number}"))
            self._files.delete(self._path(f"{COMMITS}/{number}"))
            self._stored.discard(number)

    def _path(self, name: str) -> str:
        return f"{self._metric}/{name}"


def open_checkpoint_stores(
    settings: Settings, local: Path, metrics: Iterable[str]
) -> dict[str, MetricCheckpoint]:
    """Return the stored checkpoint of each metric; none if the checkpoint is local only."""
    if not settings.checkpoint_url:
        return {}
    files = ObjectFiles(settings.checkpoint_url)
    return {metric: MetricCheckpoint(files, metric, local / metric) for metric in metrics}
