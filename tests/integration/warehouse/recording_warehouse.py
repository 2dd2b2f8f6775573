"""A ClickHouse client that records the queries of a series."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.series.native_format import Column


class RecordingWarehouse(Warehouse):
    """Records the SQL of every query about a queue or an environment."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.statements: list[str] = []

    def query_columns(self, sql: str, parameters: Mapping[str, object] | None = None) -> dict[str, Column]:
        if "environment" in (parameters or {}):
            self.statements.append(sql)
        return super().query_columns(sql, parameters)

    @property
    def point_queries(self) -> list[str]:
        """The queries of points, without those of gauges before the window."""
        return [sql for sql in self.statements if "GROUP BY" in sql or "LIMIT" in sql]

    @property
    def digest_queries(self) -> int:
        return sum("_digest" in sql for sql in self.statements)
