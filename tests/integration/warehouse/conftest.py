from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import pytest

from penstock.embedded.servers.ports import any_free_port
from penstock.warehouse.clickhouse_client import Warehouse, connect
from penstock.warehouse.schema_migrations import migrate


def database_url(clickhouse_url: str) -> str:
    return urlunsplit(urlsplit(clickhouse_url)._replace(path=f"/test_{uuid4().hex[:12]}"))


@pytest.fixture
def empty_url(clickhouse_url: str) -> Iterator[str]:
    """A database of its own that does not exist yet."""
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
    opened = connect(url)
    yield opened
    opened.command(f"DROP DATABASE {urlsplit(url).path[1:]}")
    opened.close()


@pytest.fixture
def free_port() -> int:
    return any_free_port()
