from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import pytest

from penstock.embedded.servers.ports import any_free_port
from penstock.warehouse.clickhouse_client import Warehouse, connect
from penstock.warehouse.schema_migrations import migrate
from penstock.warehouse.series.points import SeriesReader


def database_url(clickhouse_url: str) -> str:
    return urlunsplit(urlsplit(clickhouse_url)._replace(path=f"/test_{uuid4().hex[:12]}"))


@pytest.fixture
def empty_url(clickhouse_url: str) -> Iterator[str]:
    """The URL of a database that does not exist yet."""
    url = database_url(clickhouse_url)
    yield url
    server = connect(clickhouse_url)
    server.command(f"DROP DATABASE IF EXISTS {urlsplit(url).path[1:]}")
    server.close()


@pytest.fixture(scope="module")
def warehouse(clickhouse_url: str) -> Iterator[Warehouse]:
    """A migrated database, shared by a module's tests."""
    url = database_url(clickhouse_url)
    migrate(url)
    client = connect(url)
    yield client
    client.command(f"DROP DATABASE {urlsplit(url).path[1:]}")
    client.close()


@pytest.fixture
def reader(warehouse: Warehouse) -> Iterator[SeriesReader]:
    """A series reader with an empty cache."""
    series_reader = SeriesReader(warehouse)
    yield series_reader
    series_reader.close()


@pytest.fixture
def free_port() -> int:
    return any_free_port()
