"""Test that the totals are exact after kills at every kill point, and would not be without tokens."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
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
from tests.chaos.pipeline.rounds import TIMEOUT_S, Rounds
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
def test_totals_are_exact_after_kills_at_every_point(
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

    # The driver is killed at one point after the other. Each start repeats the batch that the last one left.
    rounds.emit()
    job.order_kill("reading", "task")
    job.order_kill("before-insert", "driver")
    assert job.run_until_killed(QUEUE), job.log_tail()
    assert job.is_executed("reading")
    assert rounds.counted() == rounds.expected(0)

    job.order_kill("after-insert", "driver")
    assert job.run_until_killed(QUEUE, *MUTANTS), job.log_tail()
    assert rounds.counted() == rounds.expected(1)

    rounds.emit()
    job.order_kill("after-trim", "driver")
    assert job.run_until_killed(QUEUE), job.log_tail()
    assert rounds.counted() == rounds.expected(1)

    # The pipeline runs, and the servers are killed: before they execute a request, or before they reply.
    with job.running(QUEUE, *MUTANTS):
        rounds.wait_until_counted()
        for kill_point, server in (
            ("before-insert", clickhouse),
            ("after-insert", clickhouse),
            ("reading", valkey),
            ("before-move", valkey),
        ):
            job.order_kill(kill_point, server.pid)
            rounds.emit()
            wait_until(partial(getattr, server, "is_dead"), TIMEOUT_S, f"{kill_point}: the server is killed")
            server.restart()
            rounds.wait_until_counted()
        wait_until(job.has_no_lag, TIMEOUT_S, "the heartbeat says that all is counted")
    assert (read_progress(redis_url) or {})["state"] == "stopped"
    assert rounds.counted() == rounds.expected()
    assert set_aside(warehouse) == []

    # The same events with the same kills: a token per attempt counts twice, and deduplication by content
    # loses batches that are equal by chance.
    for mutant, is_wrong in ((FRESH_TOKEN, int.__gt__), (NO_TOKEN, int.__lt__)):
        for table, (events, *_) in totals(warehouse, mutant).items():
            assert is_wrong(events, rounds.count * EVENTS), (table, events)
