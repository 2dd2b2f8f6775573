"""Test that a driver on another host continues from the checkpoint and the archive in an object store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path

import pytest

from penstock.config import Settings
from penstock.definitions import QUEUE
from penstock.pipeline.archive.commands import rebuild
from penstock.pipeline.archive.event_archive import Archive
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.schema import tier_tables
from tests.chaos.pipeline.kill_metrics import set_aside
from tests.chaos.pipeline.killable import KillableJob
from tests.chaos.pipeline.rounds import TIMEOUT_S, Rounds
from tests.s3_server import BUCKET, running_s3_server
from tests.waiting import wait_until

EVENTS = 500


@pytest.fixture
def s3() -> Iterator[dict[str, str]]:
    with running_s3_server() as variables:
        yield variables


def host(home: Path, variables: Mapping[str, str]) -> KillableJob:
    """A pipeline with a home of its own: hosts share the servers and the object store, and nothing else."""
    home.mkdir()
    return KillableJob(home, variables)


def archived_events(root: str) -> int:
    archive = Archive(root, QUEUE)
    return sum(
        file.rows
        for day in archive.days()
        for batch in archive.batches(day)
        for file in archive.files_of(day, batch)
    )


@pytest.mark.timeout(900)
def test_totals_are_exact_when_drivers_on_several_hosts_are_killed(
    java_home: str,
    redis_url: str,
    warehouse: Warehouse,
    s3: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    archive = f"s3://{BUCKET}/archive"
    variables = {
        **s3,
        "JAVA_HOME": java_home,
        "PENSTOCK_REDIS_URL": redis_url,
        "PENSTOCK_CLICKHOUSE_URL": warehouse.url,
        "PENSTOCK_CHECKPOINT_URL": f"s3://{BUCKET}/checkpoint",
        "PENSTOCK_ARCHIVE": archive,
        "PENSTOCK_TRIGGER_MS": "200",
    }
    rounds = Rounds(EVENTS, redis_url, warehouse, (QUEUE,), waits_for_disk=False)

    # Inserted, but neither marked as written nor committed: the next host repeats it, and it counts once.
    first = host(tmp_path / "first", variables)
    rounds.emit()
    first.order_kill("after-insert", "driver")
    assert first.run_until_killed(QUEUE), first.log_tail()
    assert rounds.counted() == rounds.expected(1)

    # Committed on that host only, and its entries are trimmed: the next host must not read the batch again.
    second = host(tmp_path / "second", variables)
    rounds.emit()
    second.order_kill("after-trim", "driver")
    assert second.run_until_killed(QUEUE), second.log_tail()

    third = host(tmp_path / "third", variables)
    with third.running(QUEUE):
        rounds.emit()
        rounds.wait_until_counted()
        wait_until(third.has_no_lag, TIMEOUT_S, "the heartbeat says that all is counted")
    assert rounds.counted() == rounds.expected()
    assert set_aside(warehouse) == []
    for name, value in s3.items():
        monkeypatch.setenv(name, value)
    assert archived_events(archive) == rounds.count * EVENTS

    # A day that lost its rows is rebuilt from the same store, on a host without any of the homes.
    for table in tier_tables(QUEUE):
        warehouse.command(f"TRUNCATE TABLE {table.name}")
    monkeypatch.setenv("JAVA_HOME", java_home)
    settings = Settings(
        home=tmp_path / "fourth", redis_url=redis_url, clickhouse_url=warehouse.url, archive=archive
    )
    plans = rebuild(
        *(settings, date.min, date.max),
        metric=QUEUE.name,
        on_plan=lambda plans: None,
        on_progress=lambda day, events: None,
    )
    assert all(plan.rebuilt for plan in plans)
    assert rounds.counted() == rounds.expected()
