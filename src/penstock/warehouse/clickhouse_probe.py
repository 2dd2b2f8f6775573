"""Probe a ClickHouse: log in, ask for its version and the rights of the user, then ping it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import urlsplit, urlunsplit

from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError
from urllib3.exceptions import HTTPError

from penstock.errors import DatabaseMissing, ServerUnusable
from penstock.supported_servers import CLICKHOUSE, PROBE_TIMEOUT_S, one_line, user_of
from penstock.warehouse.clickhouse_client import open_client

PRIVILEGES = ("SELECT", "INSERT", "ALTER", "CREATE TABLE", "CREATE VIEW", "DROP TABLE")
"""What migrations, the pipeline and the series API need on the tables of the database."""

CONNECT_TIMEOUT_S = 2
"""The driver connects twice before it gives up."""

SYNTAX_ERROR = 62
READ_ONLY = 164
WRONG_LOGIN = frozenset({192, 193, 194, 516})
ACCESS_DENIED = 497

T = TypeVar("T")


class ClickHouseProbe:
    """The ClickHouse at a URL, over a connection that is kept. Every method raises ServerUnusable.

    `close` may be called twice.
    """

    def __init__(self, url: str, *, creates_database: bool = False) -> None:
        self.url = url
        self._creates_database = creates_database
        """Whether a missing database is created by the migrations that follow."""
        self._opened_client: Client | None = None

    def check(self) -> str | None:
        """Check version, database and rights; return a warning about a version that is not tested."""
        CLICKHOUSE.check_url(self.url)
        version = self._ask(lambda client: str(client.server_version))
        warning = CLICKHOUSE.check_version(self.url, version)
        if self._ask(lambda client: _number(client, "SELECT getSetting('readonly')")):
            raise self._read_only()
        database = self._database_name()
        privileges: tuple[str, ...] = PRIVILEGES
        if database not in self._ask(lambda client: client.query("SHOW DATABASES").result_columns[0]):
            if not self._creates_database:
                raise DatabaseMissing(
                    CLICKHOUSE.setting,
                    f"{CLICKHOUSE.describe(self.url)} has no database {database}",
                    "Create it with `penstock migrate`.",
                )
            privileges = ("CREATE DATABASE", *PRIVILEGES)
        missing = [privilege for privilege in privileges if not self._has_privilege(privilege, database)]
        if missing:
            raise self._lacks(", ".join(missing))
        return warning

    def ping(self) -> None:
        """Ask one question. A lost connection is opened again."""
        self._ask(lambda client: client.query("SELECT 1"))

    def close(self) -> None:
        if self._opened_client is not None:
            self._opened_client.close()
            self._opened_client = None

    def _has_privilege(self, privilege: str, database: str) -> bool:
        try:
            return bool(_number(self._client(), f"CHECK GRANT {privilege} ON `{database}`.*"))
        except ClickHouseError as error:
            if getattr(error, "code", None) == SYNTAX_ERROR:  # an older server cannot tell
                return True
            raise self._to_penstock_error(error) from error

    def _ask(self, question: Callable[[Client], T]) -> T:
        try:
            return question(self._client())
        except (ClickHouseError, HTTPError, OSError, ValueError, LookupError) as error:
            raise self._to_penstock_error(error) from error

    def _client(self) -> Client:
        """Return a client without a database, so that a missing one is no error of the login."""
        if self._opened_client is None:
            url = urlunsplit(urlsplit(self.url)._replace(path=""))
            try:
                self._opened_client = open_client(url, CONNECT_TIMEOUT_S, int(PROBE_TIMEOUT_S))
            except TypeError as error:  # the driver takes the options of the URL as arguments
                raise CLICKHOUSE.unusable(
                    f"the URL has an option that the driver does not know ({one_line(error)})",
                    f"Write it as {CLICKHOUSE.example}.",
                ) from error
        return self._opened_client

    def _database_name(self) -> str:
        return urlsplit(self.url).path.strip("/") or "default"

    def _to_penstock_error(self, error: Exception) -> ServerUnusable:
        code = getattr(error, "code", None)
        if code in WRONG_LOGIN:
            return CLICKHOUSE.wrong_password(self.url, user_of(self.url, "default"))
        if code == READ_ONLY:
            return self._read_only()
        if code == ACCESS_DENIED:
            missing = re.search(r"grant ([A-Z ]+)", str(error))
            return self._lacks(missing[1].strip() if missing else ", ".join(PRIVILEGES))
        if code is not None:
            return CLICKHOUSE.unusable(
                f"{CLICKHOUSE.describe(self.url)} refuses a question ({one_line(error)})",
                f"Check the URL; its form is {CLICKHOUSE.example}.",
            )
        reason = "no answer over HTTP"
        return CLICKHOUSE.no_answer(self.url, "no answer in time" if "timed out" in str(error) else reason)

    def _read_only(self) -> ServerUnusable:
        user = user_of(self.url, "default")
        return CLICKHOUSE.unusable(
            f"user {user} is read-only (setting readonly)",
            f"Use another user, or run: ALTER USER {user} SETTINGS readonly = 0",
        )

    def _lacks(self, privileges: str) -> ServerUnusable:
        user, database = user_of(self.url, "default"), self._database_name()
        return CLICKHOUSE.unusable(
            f"user {user} lacks the rights {privileges} on database {database}",
            f"As an administrator, run: GRANT {privileges} ON {database}.* TO {user}",
        )


def _number(client: Client, question: str) -> int:
    """Return the only value of a result."""
    return int(str(client.command(question)))
