"""Load the driver of ClickHouse, numpy and the readers of series when a request first needs them.

They take a good part of the start of a broker and 20 MB of its memory, and few brokers serve series.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.warehouse.clickhouse_client import Warehouse
    from penstock.warehouse.series.series_queries import SeriesQueries


PING_TIMEOUT_S = 2.0
"""A ping has a client of its own, because a query may take longer than this."""


class WarehouseAccess:
    """One ClickHouse database. Call its methods in a thread: the first call imports modules."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = Lock()
        self._warehouse: Warehouse | None = None
        self._ping_client: Warehouse | None = None
        self._series: SeriesQueries | None = None

    def ping(self) -> None:
        """Raise WarehouseUnavailable if ClickHouse does not answer."""
        with self._lock:
            if self._ping_client is None:
                from penstock.warehouse.clickhouse_client import connect

                self._ping_client = connect(self._url, PING_TIMEOUT_S)
        self._ping_client.query("SELECT 1")

    def series(self) -> SeriesQueries:
        with self._lock:
            if self._series is None:
                from penstock.warehouse.series.series_queries import SeriesQueries

                self._series = SeriesQueries(self._load_warehouse())
            return self._series

    def close(self) -> None:
        with self._lock:
            if self._series is not None:
                self._series.close()
            for warehouse in (self._warehouse, self._ping_client):
                if warehouse is not None:
                    warehouse.close()

    def _load_warehouse(self) -> Warehouse:
        if self._warehouse is None:
            from penstock.warehouse.clickhouse_client import connect

            self._warehouse = connect(self._url)
        return self._warehouse
