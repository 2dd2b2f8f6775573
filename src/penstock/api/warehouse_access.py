"""Load the driver of ClickHouse, numpy and the readers of series when a request first needs them.

They take a good part of the start of a broker and 20 MB of its memory, and few brokers serve series.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

from penstock.errors import Overloaded

if TYPE_CHECKING:
    from penstock.alerts.backtest.backtest_request import BacktestRequest
    from penstock.model import Scope
    from penstock.warehouse.clickhouse_client import Warehouse
    from penstock.warehouse.matrix.queue_activity import EnvironmentActivity
    from penstock.warehouse.matrix.service_times import ServiceTime
    from penstock.warehouse.series.series_queries import SeriesQueries
    from penstock.warehouse.uncounted_events import UncountedEvents


PING_TIMEOUT_S = 2.0
"""A ping has a client of its own, because a query may take longer than this."""


BACKTEST_RETRY_S = 5.0
"""When to try again while the broker tests another alert rule."""


class WarehouseAccess:
    """One ClickHouse database. Call its methods in a thread: the first call imports modules."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = Lock()
        self._warehouse: Warehouse | None = None
        self._ping_client: Warehouse | None = None
        self._series: SeriesQueries | None = None
        self._backtest_lock = Lock()

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

    def read_activity(self, scope: Scope, end_s: int) -> EnvironmentActivity:
        """Read the recent activity of all queues of an environment. Raises WarehouseUnavailable."""
        with self._lock:
            from penstock.warehouse.matrix.queue_activity import read_activity

            warehouse = self._load_warehouse()
        return read_activity(warehouse, scope, end_s)

    def read_service_time(self, scope: Scope, queue: str, group: str, end_s: int) -> ServiceTime | None:
        """Read how long the work of a group takes; None if none has finished. Raises WarehouseUnavailable."""
        with self._lock:
            from penstock.warehouse.matrix.service_times import read_service_time

            warehouse = self._load_warehouse()
        return read_service_time(warehouse, scope, queue, group, end_s)

    def run_backtest(self, scope: Scope, request: BacktestRequest) -> dict[str, object]:
        """Test an alert rule. One test at a time: each may take a core and 450 MB. Raises Overloaded."""
        if not self._backtest_lock.acquire(blocking=False):
            raise Overloaded(BACKTEST_RETRY_S)
        try:
            with self._lock:
                from penstock.alerts.backtest.backtest_runner import run_backtest

                warehouse = self._load_warehouse()
            return run_backtest(warehouse, scope, request)
        finally:
            self._backtest_lock.release()

    def read_uncounted_events(self) -> list[UncountedEvents]:
        """Return the events that are not counted, by metric and reason. Raises WarehouseUnavailable."""
        with self._lock:
            from penstock.warehouse.uncounted_events import read_uncounted_events

            warehouse = self._load_warehouse()
        return read_uncounted_events(warehouse)

    def delete_environment_metrics(self, scope: Scope) -> None:
        """Delete the metrics of an environment. Raises WarehouseUnavailable."""
        with self._lock:
            from penstock.warehouse.environment_metrics import delete_environment_metrics

            warehouse = self._load_warehouse()
        delete_environment_metrics(warehouse, scope)

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
