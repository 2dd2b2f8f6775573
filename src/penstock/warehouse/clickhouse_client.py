"""An HTTP client for ClickHouse that connects on first use and raises Penstock errors."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import clickhouse_connect
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError, DatabaseError, OperationalError
from urllib3.exceptions import HTTPError

from penstock.errors import PenstockError, WarehouseUnavailable

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.warehouse.series.native_format import Column

ResultRow = dict[str, Any]
"""One row of a result, by column name."""

TRANSIENT_CODES = frozenset({159, 202, 209, 210, 236, 241, 242, 243, 252, 279, 319, 425, 439, 999})
"""Server errors after which a retry may succeed: timeouts, too many queries or parts, no memory or disk,
shutdown, Keeper or a shard unreachable.
https://github.com/ClickHouse/ClickHouse/blob/master/src/Common/ErrorCodes.cpp"""

MISSING_CODES = frozenset({60, 81})
"""Unknown table and unknown database: the migrations have not run yet."""

INSERT_ONCE_SETTINGS: dict[str, int | str] = {
    "async_insert": 0,
    "insert_deduplicate": 1,
    "deduplicate_blocks_in_dependent_materialized_views": 1,
    # ClickHouse would otherwise reject a batch that spans many days on every retry.
    "throw_on_max_partitions_per_insert_block": 0,
    # The response means that every shard has its rows. Only distributed tables use this setting.
    "distributed_foreground_insert": 1,
}
"""Settings with which the table and its views accept each deduplication token once. All are explicit, because
the defaults differ between ClickHouse versions and between users."""


logging.getLogger("clickhouse_connect").setLevel(logging.ERROR)
"""The driver also logs the errors that it raises, as warnings without a reason."""


class WarehouseRefused(PenstockError):
    """ClickHouse rejected a request; a retry would fail too. The detail quotes the server's message."""

    code = "warehouse_refused"
    title = "Request rejected"


class Warehouse:
    """One ClickHouse database. Safe to share between threads.

    Every method raises WarehouseUnavailable if a retry may succeed, and WarehouseRefused if it cannot.
    """

    def __init__(self, url: str, timeout_s: float = 60.0) -> None:
        self.url = url
        self._timeout_s = timeout_s
        self._client: Client | None = None
        self._lock = threading.Lock()

    def query(self, sql: str, parameters: Mapping[str, object] | None = None) -> list[ResultRow]:
        """Return the rows. The server binds the parameters, written `{name:Type}` in the SQL."""
        try:
            result = self._connect().query(sql, parameters=dict(parameters or {}))
        except (ClickHouseError, HTTPError, OSError) as error:
            raise self._to_penstock_error(error) from error
        return [dict(zip(result.column_names, row, strict=True)) for row in result.result_rows]

    def query_columns(self, sql: str, parameters: Mapping[str, object] | None = None) -> dict[str, Column]:
        """Return numeric columns by name, for large results; see `native_format.parse_columns`."""
        # numpy takes 12 MB, and a broker that only checks whether ClickHouse answers does not need it.
        from penstock.warehouse.series.native_format import InvalidNativeError, parse_columns

        try:
            return parse_columns(self._connect().raw_query(sql, dict(parameters or {}), fmt="Native"))
        except (ClickHouseError, HTTPError, OSError) as error:
            raise self._to_penstock_error(error) from error
        except InvalidNativeError as error:
            raise WarehouseUnavailable(
                "ClickHouse broke off its response. Send the request again; if this repeats, read its log."
            ) from error

    def query_arrow(self, sql: str, parameters: Mapping[str, object] | None = None) -> pa.Table:
        """Return an Arrow table, for results too large to be Python objects."""
        try:
            return self._connect().query_arrow(sql, parameters=dict(parameters or {}), use_strings=True)
        except (ClickHouseError, HTTPError, OSError) as error:
            raise self._to_penstock_error(error) from error

    def command(self, sql: str, settings: Mapping[str, int | str] | None = None) -> None:
        """Execute a statement that returns no rows."""
        try:
            self._connect().command(sql, settings=dict(settings or {}))
        except (ClickHouseError, HTTPError, OSError) as error:
            raise self._to_penstock_error(error) from error

    def insert_once(self, table: str, rows: pa.Table, token: str) -> None:
        """Insert rows once, however often this is called with the same token.

        ClickHouse compares only the token: it drops different rows that arrive under a used token.
        """
        try:
            client = self._connect()
            settings: dict[str, int | str] = {**INSERT_ONCE_SETTINGS, "insert_deduplication_token": token}
            if "deduplicate_insert" in client.server_settings:  # overrides insert_deduplicate since 26.2
                settings["deduplicate_insert"] = "enable"
            client.insert_arrow(table, rows, settings=settings)
        except (ClickHouseError, HTTPError, OSError) as error:
            raise self._to_penstock_error(error) from error

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _connect(self) -> Client:
        with self._lock:
            if self._client is None:
                self._client = open_client(self.url, connect_timeout_s=3, timeout_s=int(self._timeout_s))
            return self._client

    def _to_penstock_error(self, error: Exception) -> PenstockError:
        code = getattr(error, "code", None)
        is_transport_error = code is None and (
            isinstance(error, OperationalError | HTTPError | OSError) or type(error) is DatabaseError
        )
        if is_transport_error or code in TRANSIENT_CODES:
            return WarehouseUnavailable(f"ClickHouse at {self._address()} does not answer: {error}")
        if code in MISSING_CODES:
            return WarehouseUnavailable(
                f"ClickHouse at {self._address()} has no Penstock tables. Run `penstock migrate`. ({error})"
            )
        return WarehouseRefused(
            f"ClickHouse at {self._address()} rejected the request: {error}", server_code=code
        )

    def _address(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.hostname}:{parts.port or 8123}"


def open_client(url: str, connect_timeout_s: int, timeout_s: int) -> Client:
    """Log in and return the driver's client. The driver ignores the scheme, so `https` is passed on."""
    return clickhouse_connect.get_client(
        dsn=url,
        interface="https" if urlsplit(url).scheme in ("https", "clickhouses") else None,
        connect_timeout=connect_timeout_s,
        send_receive_timeout=timeout_s,
        query_retries=0,
        autogenerate_session_id=False,  # a session would serialize the threads
        compress=False,
    )


def connect(url: str, timeout_s: float = 60.0) -> Warehouse:
    """Return a client for a database: `http://user:password@host:8123/database`.

    The client connects on first use, so this succeeds while ClickHouse is unreachable.
    """
    return Warehouse(url, timeout_s)
