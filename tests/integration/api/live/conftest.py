from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import pytest

from penstock.config import Settings
from penstock.warehouse.clickhouse_client import Warehouse, connect
from penstock.warehouse.schema_migrations import migrate


@pytest.fixture(scope="module")
def warehouse_url(clickhouse_url: str) -> str:
    url = urlunsplit(urlsplit(clickhouse_url)._replace(path=f"/test_{uuid4().hex[:12]}"))
    migrate(url)
    return url


@pytest.fixture(scope="module")
def warehouse(warehouse_url: str) -> Iterator[Warehouse]:
    client = connect(warehouse_url)
    yield client
    client.close()


@pytest.fixture(scope="module")
def shared_settings(shared_settings: Settings, warehouse_url: str) -> Settings:
    """Settings without an emitter."""
    return shared_settings.model_copy(update={"clickhouse_url": warehouse_url, "metrics_enabled": False})
