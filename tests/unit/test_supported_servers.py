"""The servers that Penstock works with: their URLs, their versions, and the page that lists these."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import ServerUnusable
from penstock.supported_servers import CLICKHOUSE, POSTGRES, REDIS, SupportedServer

INSTALL_PAGE = Path(__file__).parents[2] / "docs" / "install.md"


@pytest.mark.parametrize(
    ("server", "url", "address"),
    [
        (POSTGRES, "postgresql://me:a%2Fb@db/app", "db:5432"),
        (POSTGRES, "postgres://db1:6000,db2:6001/app", "db1:6000"),
        (POSTGRES, "postgresql:///app?host=/run/postgresql", "/run/postgresql"),
        (POSTGRES, "postgresql://me@[::1]:6000/app", "::1:6000"),
        (REDIS, "rediss://:secret@cache:6380/1", "cache:6380"),
        (REDIS, "unix:///run/redis.sock?db=1", "/run/redis.sock"),
        (CLICKHOUSE, "https://metrics/app", "metrics:8443"),
        (CLICKHOUSE, "http://metrics/app", "metrics:8123"),
    ],
)
def test_the_address_of_a_valid_url_shows_host_and_port(
    server: SupportedServer, url: str, address: str
) -> None:
    server.check_url(url)
    assert server.address(url) == address


@pytest.mark.parametrize(
    ("server", "url"),
    [
        (POSTGRES, "me:secret@db:5432/app"),
        (POSTGRES, "postgresql+asyncpg://me:secret@db/app"),
        (POSTGRES, "postgresql://me:x/secret@db/app"),
        (POSTGRES, "postgresql://me:x?secret@db/app"),
        (POSTGRES, "postgresql://me:x#secret@db/app"),
        (POSTGRES, "postgresql://me:secret@db:port/app"),
        (REDIS, "localhost:6379"),
        (REDIS, "redis://:secret@cache:999999/0"),
        (CLICKHOUSE, "//metrics:8123"),
        (CLICKHOUSE, "tcp://me:secret@metrics:9000/app"),
    ],
)
def test_an_invalid_url_is_refused_without_being_shown(server: SupportedServer, url: str) -> None:
    with pytest.raises(ServerUnusable) as caught:
        server.check_url(url)
    assert caught.value.detail.startswith(f"{server.setting}: ")
    assert "secret" not in caught.value.detail


@pytest.mark.parametrize(
    ("server", "version", "product", "outcome"),
    [
        (POSTGRES, "13.22", "", "too old"),
        (POSTGRES, "14.1", "", "not tested"),
        (POSTGRES, "15.18", "", "tested"),
        (POSTGRES, "17.2", "", "not tested"),
        (POSTGRES, "18.6", "", "tested"),
        (POSTGRES, "19beta1", "", "not tested"),
        (REDIS, "6.2.14", "Redis", "too old"),
        (REDIS, "7.0.15", "Redis", "not tested"),
        (REDIS, "9.1.2", "Valkey", "tested"),
        (CLICKHOUSE, "24.7.1.1", "", "too old"),
        (CLICKHOUSE, "25.3.1.1", "", "not tested"),
        (CLICKHOUSE, "26.9.2.1", "", "tested"),
    ],
)
def test_old_versions_are_refused_and_untested_ones_get_a_warning(
    server: SupportedServer, version: str, product: str, outcome: str
) -> None:
    if outcome == "too old":
        with pytest.raises(ServerUnusable, match="or newer"):
            server.check_version(server.example, version, product)
    else:
        warning = server.check_version(server.example, version, product)
        assert (warning is None) == (outcome == "tested")
        assert warning is None or server.tested[0] in warning


@pytest.mark.parametrize("server", [POSTGRES, REDIS, CLICKHOUSE], ids=lambda server: server.product)
def test_the_install_page_lists_the_versions(server: SupportedServer) -> None:
    minimum = ".".join(map(str, server.minimum))
    rows = [line for line in INSTALL_PAGE.read_text().splitlines() if line.startswith(f"| {server.product}")]
    assert rows[0].endswith(f"| {minimum} | {', '.join(server.tested)} |")
