"""External servers: their probes, and the reasons of failed ones."""

from __future__ import annotations

import pytest

from penstock.embedded.servers.external import (
    ExternalServer,
    external_clickhouse,
    external_postgres,
    external_redis,
    external_spark,
)
from penstock.embedded.servers.ports import any_free_port


def test_servers_that_answer_are_healthy(postgres_url: str, redis_url: str, clickhouse_url: str) -> None:
    servers = (
        external_postgres(postgres_url),
        external_redis(redis_url),
        external_clickhouse(clickhouse_url),
    )
    for server in servers:
        assert server.probe().ok, server.probe().reason
        assert "***" in server.address


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
    assert not health.ok
    assert "refused" in health.reason or "No such file" in health.reason


def test_a_wrong_redis_password_is_the_reason(redis_url: str) -> None:
    assert "invalid" in external_redis(redis_url.replace("@", "x@")).probe().reason


def test_a_spark_master_without_an_address_counts_as_healthy() -> None:
    assert external_spark("yarn").probe().ok
