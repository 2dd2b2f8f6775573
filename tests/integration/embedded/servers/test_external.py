"""External servers: their probes, the connections these keep, and the reasons of failed ones."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import asyncpg
import pytest

from penstock.durable.postgres_probe import PostgresProbe
from penstock.embedded.servers.external import (
    ExternalServer,
    external_clickhouse,
    external_postgres,
    external_redis,
    external_spark,
)
from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.servers.redis_probe import RedisProbe
from penstock.warehouse.clickhouse_probe import ClickHouseProbe


def test_servers_that_answer_are_healthy(postgres_url: str, redis_url: str, clickhouse_url: str) -> None:
    servers = (
        external_postgres(postgres_url),
        external_redis(redis_url),
        external_clickhouse(clickhouse_url),
    )
    for server in servers:
        health = server.probe()
        assert health.ok, health.reason
        assert "***" in server.address
        server.close()


def test_the_servers_of_these_tests_count_as_tested(
    postgres_url: str, redis_url: str, clickhouse_url: str
) -> None:
    """`make matrix` names other programs of PostgreSQL, for which a warning is right."""
    probes = (PostgresProbe(postgres_url), RedisProbe(redis_url), ClickHouseProbe(clickhouse_url))
    warnings = [probe.check() for probe in probes]
    for probe in probes:
        probe.close()
    assert warnings[1:] == [None, None]
    assert warnings[0] is None or os.environ.get("TEST_POSTGRES_PROGRAMS")


async def test_probes_keep_one_session_and_leave_no_line_in_the_log(
    postgres_url: str, server_home: Path
) -> None:
    log = server_home / "logs" / "postgres.log"
    admin = await asyncpg.connect(postgres_url)
    lines_before = log.read_text().splitlines()
    server = external_postgres(postgres_url)

    async def session_pids() -> list[int]:
        query = "SELECT pid FROM pg_stat_activity WHERE application_name = 'penstock probe' ORDER BY pid"
        return [row["pid"] for row in await admin.fetch(query)]

    assert (await asyncio.to_thread(server.probe)).ok
    pids = await session_pids()
    for _ in range(5):
        assert (await asyncio.to_thread(server.probe)).ok
    assert await session_pids() == pids
    assert len(pids) == 1
    server.close()
    await admin.close()
    assert log.read_text().splitlines() == lines_before


@pytest.mark.parametrize(
    "server",
    [
        external_postgres(f"postgresql://me@127.0.0.1:{any_free_port()}/app"),
        external_postgres("postgresql:///app?host=/no/such/directory"),
        external_redis(f"redis://127.0.0.1:{any_free_port()}/0"),
        external_clickhouse(f"http://127.0.0.1:{any_free_port()}/app"),
        external_spark(f"spark://127.0.0.1:{any_free_port()}"),
    ],
    ids=lambda server: server.address.partition(":")[0],
)
def test_an_unreachable_server_is_unhealthy_with_a_reason(server: ExternalServer) -> None:
    health = server.probe()
    server.close()
    assert not health.ok
    assert health.reason.startswith(f"{server.setting}: ")
    assert "refused" in health.reason or "No such file" in health.reason


def test_wrong_passwords_and_a_missing_database_are_unhealthy(
    postgres_url: str, redis_url: str, clickhouse_url: str
) -> None:
    reasons = []
    for server in (
        external_postgres(postgres_url.replace("@", "x@")),
        external_redis(redis_url.replace("@", "x@")),
        external_clickhouse(clickhouse_url.replace("@", "x@")),
        external_postgres(f"{postgres_url}_missing"),
    ):
        reasons.append(server.probe().reason)
        server.close()
    assert ["does not accept the password" in reason for reason in reasons] == [True, True, True, False]
    assert "has no database penstock_missing" in reasons[3]


def test_a_probe_logs_in_again_after_a_lost_session(postgres_url: str) -> None:
    server = external_postgres(postgres_url)
    assert server.probe().ok
    asyncio.run(end_probe_sessions(postgres_url))
    assert not server.probe().ok
    assert server.probe().ok
    server.close()


async def end_probe_sessions(url: str) -> None:
    admin = await asyncpg.connect(url)
    query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'penstock probe'"
    await admin.fetch(query)
    await admin.close()


def test_a_spark_master_without_an_address_counts_as_healthy() -> None:
    assert external_spark("yarn").probe().ok
