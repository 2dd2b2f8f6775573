"""All queries for the series of one ClickHouse database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

from penstock.definitions import WORKER
from penstock.model import Scope
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.series.metric_series import metric_series
from penstock.warehouse.series.points import SeriesReader
from penstock.warehouse.series.queue_series import environment_series, queue_is_known, queue_series
from penstock.warehouse.series.series_response import Series
from penstock.warehouse.series.window import SeriesRequest


class SeriesQueries:
    """Threads may share it. It does not close the warehouse."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse
        self._reader = SeriesReader(warehouse)

    def queue(
        self, scope: Scope, queue: str, group: str | None = None, **request: Unpack[SeriesRequest]
    ) -> Series:
        return queue_series(self._reader, scope, queue, group=group, **request)

    def environment(self, scope: Scope, **request: Unpack[SeriesRequest]) -> Series:
        return environment_series(self._reader, scope, **request)

    def worker(self, labels: Mapping[str, str], **request: Unpack[SeriesRequest]) -> Series:
        return metric_series(self._reader, WORKER, labels, **request)

    def knows_queue(self, scope: Scope, queue: str, group: str | None = None) -> bool:
        return queue_is_known(self._warehouse, scope, queue, group)

    def close(self) -> None:
        self._reader.close()
