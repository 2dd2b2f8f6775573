"""Killed at every seam, the pipeline ends with the exact totals; without its tokens it would not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.definitions import QUEUE
from penstock.embedded.servers.clickhouse import ClickHouse
from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.servers.valkey import Valkey
from penstock.streams.progress import read_progress
from penstock.warehouse.clickhouse_client import connect
from penstock.warehouse.schema import metric_statements
from penstock.warehouse.schema_migrations import migrate
from tests.chaos.pipeline.kill_metrics import FRESH_TOKEN, MUTANTS, NO_TOKEN, set_aside, totals
from tests.chaos.pipeline.killable import KillableJob, KillableServer
from tests.chaos.pipeline.rounds import PATIENCE_S, Rounds
from tests.waiting import wait_until

EVENTS = 700


@pytest.fixture
def valkey(open_tmp_path: Path) -> Iterator[KillableServer]:
    server = KillableServer(Valkey(open_tmp_path, any_free_port()))
    yield server
    server.stop()


@pytest.fixture
def clickhouse(open_tmp_path: Path) -> Iterator[KillableServer]:
    server = KillableServer(ClickHouse(open_tmp_path, any_free_port()))
    yield server
    server.stop()


@pytest.mark.timeout(900)
def test_kills_at_every_seam_leave_exact_totals(
    java_home: str, valkey: KillableServer, clickhouse: KillableServer, tmp_path: Path
) -> None:
    redis_url, clickhouse_url = valkey.program.url, clickhouse.program.url
    migrate(clickhouse_url)
    warehouse = connect(clickhouse_url)
    for mutant in MUTANTS:
        for statement in metric_statements(mutant):
            warehouse.command(statement)
    rounds = Rounds(EVENTS, redis_url, warehouse, (QUEUE, *MUTANTS))
    job = KillableJob(
        tmp_path,
        {
            "JAVA_HOME": java_home,
            "PENSTOCK_REDIS_URL": redis_url,
            "PENSTOCK_CLICKHOUSE_URL": clickhouse_url,
            "PENSTOCK_TRIGGER_MS": "200",
        },
    )

    # The driver dies at one seam after the other. Each start repeats the batch that the last one left behind.
    rounds.emit()
    job.order("reading", "task")
    job.order("before-insert", "driver")
    assert job.dies(QUEUE), job.words()
    assert job.carried_out("reading")
    assert rounds.found() == rounds.expected(0)

    job.order("after-insert", "driver")
    assert job.dies(QUEUE, *MUTANTS), job.words()
    assert rounds.found() == rounds.expected(1)

    rounds.emit()
    job.order("after-trim", "driver")
    assert job.dies(QUEUE), job.words()
    assert rounds.found() == rounds.expected(1)

    # It lives, and the servers die: before they could do what they were asked, or before they could answer.
    with job.lives(QUEUE, *MUTANTS):
        rounds.wait_until_counted()
        for seam, server in (
            ("before-insert", clickhouse),
            ("after-insert", clickhouse),
            ("reading", valkey),
            ("before-move", valkey),
        ):
            job.order(seam, server.pid)
            rounds.emit()
            wait_until(lambda server=server: server.is_dead, PATIENCE_S, f"{seam}: somebody dies")
            server.restart()
            rounds.wait_until_counted()
        wait_until(job.nothing_waits, PATIENCE_S, "the report says that all is counted")
    assert (read_progress(redis_url) or {})["state"] == "stopped"
    assert rounds.found() == rounds.expected()
    assert set_aside(warehouse) == []

    # The same events through the same kills: a token per attempt counts twice, and content alone loses
    # batches that happen to be equal.
    for mutant, is_wrong in ((FRESH_TOKEN, int.__gt__), (NO_TOKEN, int.__lt__)):
        for table, (events, *_) in totals(warehouse, mutant).items():
            assert is_wrong(events, rounds.count * EVENTS), (table, events)
