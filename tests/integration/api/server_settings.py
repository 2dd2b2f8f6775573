"""The settings of an application on the servers of the tests."""

from __future__ import annotations

import base64
from pathlib import Path

from penstock.config import Settings


def build_settings(home: Path, database_url: str, redis_url: str, clickhouse_url: str) -> Settings:
    key = base64.b64encode(bytes(range(32))).decode()
    return Settings(
        home=home,
        load_management=False,  # responses must not depend on the load of the machine
        postgres_url=database_url,
        redis_url=redis_url,
        clickhouse_url=clickhouse_url,
        encryption_keys=f"k1:{key}",
    )
