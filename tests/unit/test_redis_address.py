"""The forms of the Redis URL."""

from __future__ import annotations

import pytest

from penstock.errors import ServerUnusable
from penstock.redis_address import parse_redis_url
from penstock.supported_servers import REDIS


def test_an_ordinary_url_is_one_server() -> None:
    address = parse_redis_url("rediss://:p%40ss@host:6379/3")
    assert (address.server_url, address.nodes, address.is_cluster) == (
        "rediss://:p%40ss@host:6379/3",
        (),
        False,
    )


def test_a_cluster_url_names_nodes_and_one_login() -> None:
    address = parse_redis_url("rediss+cluster://user:p%40ss@a:7000,b,[::1]:7002?ssl_cert_reqs=none")
    assert address.is_cluster
    assert address.nodes == (("a", 7000), ("b", 6379), ("::1", 7002))
    assert address.server_url == "rediss://user:p%40ss@a:7000/0?ssl_cert_reqs=none"


def test_a_sentinel_url_names_sentinels_service_and_database() -> None:
    address = parse_redis_url("redis+sentinel://:secret@a,b:26380/tasks/2")
    assert not address.is_cluster
    assert address.nodes == (("a", 26379), ("b", 26380))
    assert (address.service, address.server_url) == ("tasks", "redis://:secret@a:26379/2")


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("redis+cluster://:secret@a,b/1", "a Redis Cluster has the database 0 only"),
        ("redis+cluster://:secret@a,:7000", "a node has no valid host or port"),
        ("redis+sentinel://:secret@a,b", "names no service"),
        ("redis+sentinel://:secret@a,b/tasks/x", "is not a number"),
        ("redis+ring://:secret@a", "is not the scheme of Redis"),
    ],
)
def test_a_wrong_url_is_refused_without_its_password(url: str, problem: str) -> None:
    with pytest.raises(ServerUnusable, match=problem) as refusal:
        REDIS.check_url(url)
    assert "secret" not in str(refusal.value)
