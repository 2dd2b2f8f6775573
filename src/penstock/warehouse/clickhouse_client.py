"""A connection to ClickHouse over HTTP: made on first use, shared by threads, speaking our errors."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import clickhouse_connect
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError, DatabaseError, OperationalError
from urllib3.exceptions import HTTPError

from penstock.errors import PenstockError, WarehouseUnavailable
from penstock.warehouse.series.native_format import Column, columns

if TYPE_CHECKING:
    import pyarrow as pa

TRANSIENT_CODES = frozenset({159, 202, 209, 210, 236, 241, 242, 243, 252, 319, 425, 439, 999})
"""Server errors that pass by themselves: time-outs, too many queries or parts, no memory or disk, shutting
down, a keeper that is away. https://github.com/ClickHouse/ClickHouse/blob/master/src/Common/ErrorCodes.cpp"""

MISSING_CODES = frozenset({60, 81})
"""There is no such table or database: the migrations have not run yet."""

INSERT_ONCE = {
    "async_insert": 0,
    "insert_deduplicate": 1,
    "deduplicate_blocks_in_dependent_materialized_views": 1,
    # A batch that holds more days than usual must not be refused for ever.
    "throw_on_max_partitions_per_insert_block": 0,
}
"""What an insert needs so that the same token is taken once, by the table and by its views. All of it is said
explicitly, because the defaults differ between versions and can be changed per user."""


class WarehouseRefused(PenstockError):
    """ClickHouse answered, and said no; the detail has its words."""

    code = "warehouse_refused"
    title = "ClickHouse refused a request"


class Warehouse:
    """One ClickHouse database. Safe to share between threads.

    Every method raises WarehouseUnavailable when it may succeed later, and WarehouseRefused when not.
    """

    def __init__(self, url: str, timeout_s: float = 60.0) -> None:
        self.url = url
        self._timeout_s = timeout_s
        self._client: Client | None = None
        self._lock = threading.Lock()

    def query(self, sql: str, parameters: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """The rows, each by column name. Parameters are bound by the server: `{name:Type}`."""
        try:
            result = self._connected().query(sql, parameters=dict(parameters or {}))
        except (ClickHouseError, HTTPError, OSError) as error:
            raise self._translated(error) from error
        return [dict(zip(result.column_names, row, strict=True)) for row in result.result_rows]

    def query_columns(self, sql: str, parameters: Mapping[str, Any] | None = None) -> dict[str, Column]:
        """The same by column, for many rows of numbers; see `native.columns`."""
        try:
            return columns(self._connected().raw_query(sql, dict(parameters or {}), fmt="Native"))
        except (ClickHouseError, HTTPError, OSError) as error:
            raise self._translated(error) from error

    def query_arrow(self, sql: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        """The rows as Arrow columns, for results too large to be Python objects."""
        try:
            return self._connected().query_arrow(sql, parameters=dict(parameters or {}), use_strings=True)
        except (ClickHouseError, HTTPError, OSError) as error:
            raise self._translated(error) from error

    def command(self, sql: str, settings: Mapping[str, Any] | None = None) -> None:
        try:
            self._connected().command(sql, settings=dict(settings or {}))
        except (ClickHouseError, HTTPError, OSError) as error:
            raise self._translated(error) from error

    def insert_once(self, table: str, rows: pa.Table, token: str) -> None:
        """Insert rows that count once however often this is called with the same token.

        The token alone decides: other rows under a token that was used are dropped.
        """
        try:
            client = self._connected()
            settings: dict[str, Any] = {**INSERT_ONCE, "insert_deduplication_token": token}
            if "deduplicate_insert" in client.server_settings:  # since 26.2 it overrides insert_deduplicate
                settings["deduplicate_insert"] = "enable"
            client.insert_arrow(table, rows, settings=settings)
        except (ClickHouseError, HTTPError, OSError) as error:
            raise self._translated(error) from error

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _connected(self) -> Client:
        with self._lock:
            if self._client is None:
                self._client = clickhouse_connect.get_client(
                    dsn=self.url,
                    connect_timeout=3,
                    send_receive_timeout=int(self._timeout_s),
                    query_retries=0,
                    autogenerate_session_id=False,  # a session would serialise the threads
                    compress=False,
                )
            return self._client

    def _translated(self, error: Exception) -> PenstockError:
        code = getattr(error, "code", None)
        transport = code is None and (
            isinstance(error, OperationalError | HTTPError | OSError) or type(error) is DatabaseError
        )
        if transport or code in TRANSIENT_CODES:
            return WarehouseUnavailable(f"ClickHouse at {self._address()} does not answer: {error}")
        if code in MISSING_CODES:
            return WarehouseUnavailable(
                f"ClickHouse at {self._address()} has no tables yet: run `penstock migrate` ({error})"
            )
        return WarehouseRefused(f"ClickHouse at {self._address()} refused: {error}", server_code=code)

    def _address(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.hostname}:{parts.port or 8123}"


def connect(url: str, timeout_s: float = 60.0) -> Warehouse:
    """A connection to the database that `url` names: `http://user:password@host:8123/database`.

    Nothing is sent yet, so this succeeds while ClickHouse is away.
    """
    return Warehouse(url, timeout_s)
