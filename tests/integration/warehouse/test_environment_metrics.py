"""The metrics of an environment can be deleted from every tier."""

from __future__ import annotations

import time

from penstock.definitions import QUEUE
from penstock.model import Scope
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.environment_metrics import delete_environment_metrics
from penstock.warehouse.schema import tier_tables
from tests.integration.warehouse.landing_rows import insert_rows, landing_row

NOW_S = int(time.time())
DELETED, OTHER = Scope("acme", "shop", "it's \\ here"), Scope("acme", "shop", "production")


def count_rows(warehouse: Warehouse, scope: Scope) -> dict[str, int]:
    parameters = scope._asdict()
    condition = " AND ".join(f"{name} = {{{name}:String}}" for name in parameters)
    counts = {}
    for table in tier_tables(QUEUE):
        [row] = warehouse.query(f"SELECT count() AS n FROM {table.name} WHERE {condition}", parameters)
        counts[table.name] = int(row["n"])
    return counts


def test_only_the_rows_of_the_environment_are_deleted(warehouse: Warehouse) -> None:
    for scope in (DELETED, OTHER):
        for age_s in (10, 100_000):
            insert_rows(
                warehouse,
                landing_row(
                    NOW_S - age_s,
                    queue="q",
                    organization=scope.organization,
                    project=scope.project,
                    environment=scope.environment,
                    enqueued=1,
                ),
            )
    kept = count_rows(warehouse, OTHER)
    assert min(kept.values()) > 0
    for _ in range(2):
        delete_environment_metrics(warehouse, DELETED)
        assert set(count_rows(warehouse, DELETED).values()) == {0}
        assert count_rows(warehouse, OTHER) == kept
