"""Delete the metrics of an environment."""

from __future__ import annotations

from penstock.definitions import QUEUE
from penstock.model import Scope
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.distributed_tables import alter_target
from penstock.warehouse.schema import tier_tables

WAIT_FOR_MUTATION = {"mutations_sync": 1}


def delete_environment_metrics(warehouse: Warehouse, scope: Scope) -> None:
    """Delete the rows of an environment from every tier. ClickHouse rewrites the parts that have some.

    May be repeated. Raises WarehouseUnavailable.
    """
    parameters = scope._asdict()
    for table in tier_tables(QUEUE):
        condition = " AND ".join(f"{name} = {{{name}:String}}" for name in parameters)
        if warehouse.query(f"SELECT 1 FROM {table.name} WHERE {condition} LIMIT 1", parameters):
            literals = " AND ".join(f"{name} = {_quote(value)}" for name, value in parameters.items())
            target = alter_target(warehouse, table.name)
            warehouse.command(f"ALTER TABLE {target} DELETE WHERE {literals}", WAIT_FOR_MUTATION)


def _quote(text: str) -> str:
    """Return a string literal. ClickHouse binds no parameters in mutations."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
