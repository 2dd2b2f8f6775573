"""Tests of the checkpoint in an object store, against an S3 server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from penstock.config import Settings
from penstock.errors import ConfigError
from penstock.pipeline import checkpoint_store, control
from penstock.pipeline.checkpoint import CheckpointInUse, batch_numbers, checkpoint_path
from penstock.pipeline.checkpoint_store import MetricCheckpoint, open_checkpoint_stores
from penstock.pipeline.object_files import ObjectFiles, ObjectStoreUnavailable
from tests.s3_server import BUCKET, running_s3_server

METRIC = "queue"


@pytest.fixture(scope="module")
def s3() -> Iterator[None]:
    with running_s3_server() as variables, pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        yield


@pytest.fixture
def url(s3: None) -> str:
    return f"s3://{BUCKET}/{uuid4().hex}"


class Host:
    """A local checkpoint directory, written as Spark would, and its stored copy."""

    def __init__(self, url: str, directory: Path, *, confirm_after_s: float = 10.0) -> None:
        self.directory = directory
        self.stored = MetricCheckpoint(ObjectFiles(url), METRIC, directory, confirm_after_s=confirm_after_s)

    def plan(self, batch_id: int, content: str) -> None:
        self._write("metadata", f'{{"id": "{self.directory.name}"}}', keep=True)
        self._write("identity.json", "{}", keep=True)
        self._write(f"offsets/{batch_id}", content)

    def commit(self, batch_id: int) -> None:
        self._write(f"commits/{batch_id}", "v1\n{}")

    def run(self, batch_id: int, content: str) -> None:
        self.plan(batch_id, content)
        self.stored.publish_batch(batch_id)
        self.commit(batch_id)

    def _write(self, name: str, text: str, *, keep: bool = False) -> None:
        file = self.directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if not (keep and file.exists()):
            file.write_text(text)

    def read(self, name: str) -> str:
        return (self.directory / name).read_text()


def test_another_host_continues_with_the_newest_batch(url: str, tmp_path: Path) -> None:
    first, second = Host(url, tmp_path / "first"), Host(url, tmp_path / "second")
    first.stored.download()
    first.run(0, "range 0")
    first.run(1, "range 1")
    first.plan(2, "range 2")
    first.stored.publish_batch(2)
    second.stored.download()
    assert second.read("metadata") == first.read("metadata")
    assert second.read("offsets/2") == "range 2"
    assert batch_numbers(second.directory / "commits") == [0, 1]
    second.stored.publish_batch(2)
    second.commit(2)
    second.run(3, "range 3")


def test_a_clean_stop_leaves_no_batch_to_repeat(url: str, tmp_path: Path) -> None:
    first, second = Host(url, tmp_path / "first"), Host(url, tmp_path / "second")
    first.run(0, "range 0")
    first.stored.publish_last_commit()
    second.stored.download()
    assert batch_numbers(second.directory / "commits") == [0]


def test_the_second_driver_to_plan_a_batch_is_fenced(url: str, tmp_path: Path) -> None:
    first, second = Host(url, tmp_path / "first"), Host(url, tmp_path / "second")
    first.run(0, "range 0")
    second.stored.download()
    second.commit(0)
    second.run(1, "range of the second")
    first.plan(1, "range of the first")
    with pytest.raises(CheckpointInUse, match="it wrote offsets/1"):
        first.stored.publish_batch(1)
    assert isinstance(first.stored.fenced, CheckpointInUse)
    third = Host(url, tmp_path / "third")
    third.stored.download()
    assert third.read("offsets/1") == "range of the second"


def test_two_new_checkpoints_under_one_url_are_refused(url: str, tmp_path: Path) -> None:
    first, second = Host(url, tmp_path / "first"), Host(url, tmp_path / "second")
    first.run(0, "range")
    second.plan(0, "range")
    with pytest.raises(CheckpointInUse, match="it wrote metadata"):
        second.stored.publish_batch(0)


def test_a_suspended_driver_notices_that_another_one_went_on(url: str, tmp_path: Path) -> None:
    suspended = Host(url, tmp_path / "suspended", confirm_after_s=0.0)
    suspended.plan(0, "range 0")
    suspended.stored.publish_batch(0)
    suspended.stored.confirm_batch(0)
    successor = Host(url, tmp_path / "successor")
    successor.stored.download()
    successor.commit(0)
    successor.run(1, "range 1")
    with pytest.raises(CheckpointInUse):
        suspended.stored.confirm_batch(0)


def test_a_quick_batch_is_not_confirmed_with_a_request(url: str, tmp_path: Path) -> None:
    host = Host(url, tmp_path / "host")
    host.run(0, "range 0")
    successor = Host(url, tmp_path / "successor")
    successor.stored.download()
    successor.commit(0)
    successor.run(1, "range 1")
    host.stored.confirm_batch(0)


def test_a_local_checkpoint_moves_to_the_store(url: str, tmp_path: Path) -> None:
    local = Host(url, tmp_path / "local")
    for number in range(3):
        local.plan(number, f"range {number}")
        local.commit(number)
    local.stored.download()
    other = Host(url, tmp_path / "other")
    other.stored.download()
    assert other.read("offsets/2") == "range 2"
    assert batch_numbers(other.directory / "commits") == [0, 1, 2]
    local.run(3, "range 3")


def test_files_of_an_interrupted_move_are_removed(url: str, tmp_path: Path) -> None:
    host = Host(url, tmp_path / "host")
    host.run(0, "range 0")
    files = ObjectFiles(url)
    files.delete(f"{METRIC}/metadata")
    new = Host(url, tmp_path / "new")
    new.stored.download()
    assert files.list_paths(METRIC) == []
    new.run(0, "another range 0")


def test_old_batches_are_deleted(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_store, "RETAINED_BATCHES", 2)
    host = Host(url, tmp_path / "host")
    for number in range(5):
        host.run(number, f"range {number}")
    names = ObjectFiles(url).list_paths(METRIC)
    assert sorted(name for name in names if "/" in name) == [
        "commits/2",
        "commits/3",
        "offsets/2",
        "offsets/3",
        "offsets/4",
    ]


def test_a_reset_moves_the_stored_checkpoint_too(url: str, redis_url: str, tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, checkpoint_url=url, redis_url=redis_url)
    host = Host(url, checkpoint_path(settings) / METRIC)
    host.run(0, "range 0")
    aside = control.reset(settings)
    assert aside is not None
    assert (aside / METRIC / "offsets" / "0").exists()
    files = ObjectFiles(url)
    assert files.list_paths(METRIC) == []
    new = Host(url, tmp_path / "new")
    new.stored.download()
    new.run(0, "another range 0")


def test_an_unreachable_store_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    host = Host(f"s3://{BUCKET}/x", tmp_path / "host")
    with pytest.raises(ObjectStoreUnavailable, match="Check the URL, the network and the credentials"):
        host.stored.download()


def test_a_url_that_is_no_object_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Cannot use ftp://example as an object store"):
        open_checkpoint_stores(Settings(checkpoint_url="ftp://example"), tmp_path, [METRIC])


def test_without_a_url_the_checkpoint_is_local(tmp_path: Path) -> None:
    assert open_checkpoint_stores(Settings(), tmp_path, [METRIC]) == {}
