"""Servers of your own: asked whether they answer, in words when they do not."""

from __future__ import annotations

import pytest

from penstock.embedded.servers.external import (
    ExternalServer,
    own_clickhouse,
    own_postgres,
    own_redis,
    own_spark,
)
from penstock.embedded.servers.ports import any_free_port


def test_servers_that_answer_are_healthy(postgres_url: str, redis_url: str, clickhouse_url: str) -> None:
    for server in (own_postgres(postgres_url), own_redis(redis_url), own_clickhouse(clickhouse_url)):
        assert server.probe().ok, server.probe().reason
        assert "***" in server.address


@pytest.mark.parametrize(
    "server",
    [
        own_postgres(f"postgresql://me@127.0.0.1:{any_free_port()}/app"),
        own_postgres("postgresql:///app?host=/no/such/directory"),
        own_redis(f"redis://127.0.0.1:{any_free_port()}/0"),
        own_clickhouse(f"http://127.0.0.1:{any_free_port()}/app"),
        own_spark(f"spark://127.0.0.1:{any_free_port()}"),
    ],
    ids=lambda server: server.address.partition(":")[0],
)
def test_a_server_that_is_not_there_is_not_healthy_and_says_why(server: ExternalServer) -> None:
    health = server.probe()
    assert not health.ok
    assert "refused" in health.reason or "No such file" in health.reason


def test_a_wrong_password_for_redis_is_told(redis_url: str) -> None:
    assert "invalid" in own_redis(redis_url.replace("@", "x@")).probe().reason


def test_a_master_without_an_address_counts_as_there() -> None:
    assert own_spark("yarn").probe().ok
