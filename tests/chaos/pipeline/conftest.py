"""Fixtures of the tests that kill parts of a pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import pytest

from penstock.warehouse.clickhouse_client import Warehouse, connect
from penstock.warehouse.schema_migrations import migrate


@pytest.fixture
def warehouse(clickhouse_url: str) -> Iterator[Warehouse]:
    """A migrated ClickHouse database."""
    database = f"killed_{uuid4().hex[:12]}"
    url = urlunsplit(urlsplit(clickhouse_url)._replace(path=f"/{database}"))
    migrate(url)
    connected = connect(url)
    yield connected
    connected.command(f"DROP DATABASE {database}")
    connected.close()
