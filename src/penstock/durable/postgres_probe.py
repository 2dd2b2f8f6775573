"""Probe a PostgreSQL: log in, ask for its version and the rights of the role, then ping it.

The probe keeps its connection, so a healthy server sees one login and logs no line. Methods block and must
not run at the same time.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit

import asyncpg

from penstock.durable.migrations import load_scripts
from penstock.durable.pool import SCHEMA, fetch_one
from penstock.durable.primary import FormerPrimary, PrimaryConnection, connect_to_primary, is_read_only
from penstock.errors import DatabaseMissing, ServerUnusable
from penstock.supported_servers import POSTGRES, PROBE_TIMEOUT_S, one_line, user_of

MAINTENANCE_DATABASE = "postgres"
"""Every server has it, unless an administrator dropped it."""

CREATE_TIMEOUT_S = 60.0
"""How long the creation of a database may take: the server copies files."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RoleRights:
    """The row of `rights.sql`."""

    role: str
    database: str
    has_schema: bool
    can_create_schema: bool
    can_use_schema: bool | None
    foreign_owner: str | None


class PostgresProbe:
    """The PostgreSQL at a URL. Every method raises ServerUnusable; `close` may be called twice."""

    def __init__(self, url: str) -> None:
        self.url = url
        # The driver needs an event loop, and the thread of a caller may run one already.
        self._thread: ThreadPoolExecutor | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connection: PrimaryConnection | None = None

    def check(self) -> str | None:
        """Check version and rights; return a warning about a version that is not tested."""
        POSTGRES.check_url(self.url)
        return self._run(self._check())

    def ping(self) -> None:
        """Ask one question. A lost connection is opened again."""
        self._run(self._ping())

    def create_database(self) -> None:
        """Create the database of the URL, as the user of the URL."""
        self._run(self._create_database(), CREATE_TIMEOUT_S)

    def close(self) -> None:
        if self._loop is None or self._thread is None:
            return
        if self._connection is not None:
            with suppress(ServerUnusable):  # the server may be gone
                self._run(self._connection.close(timeout=1))
            self._connection = None
        self._thread.shutdown()
        self._loop.close()
        self._loop = self._thread = None

    def _run(self, question: Coroutine[object, object, T], timeout_s: float = PROBE_TIMEOUT_S) -> T:
        if self._loop is None or self._thread is None:
            self._loop = asyncio.new_event_loop()
            self._thread = ThreadPoolExecutor(1, "postgres-probe")
        try:
            answer = self._thread.submit(self._loop.run_until_complete, asyncio.wait_for(question, timeout_s))
            return answer.result()
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
            if self._connection is not None:
                self._connection.terminate()
                self._connection = None
            raise self._to_penstock_error(error) from error

    async def _ping(self) -> None:
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._connect(self.url)
        await self._connection.execute("SELECT 1")
        if is_read_only(self._connection):
            raise self._no_primary()

    async def _check(self) -> str | None:
        await self._ping()
        assert self._connection is not None
        if await self._connection.fetchval("SELECT pg_backend_pid()") != self._connection.get_server_pid():
            raise self._connection_pooler()
        version = self._connection.get_settings().server_version.split()[0]  # without the distribution's
        warning = POSTGRES.check_version(self.url, version)
        (script,) = load_scripts("probes")
        rights = await fetch_one(self._connection, RoleRights, script.text, SCHEMA)
        assert rights is not None
        self._check_rights(rights)
        return warning

    async def _create_database(self) -> None:
        name = self._database_name()
        maintenance = await self._connect(
            urlunsplit(urlsplit(self.url)._replace(path=f"/{MAINTENANCE_DATABASE}"))
        )
        try:
            await maintenance.execute(f"CREATE DATABASE {quote_identifier(name)}")
        except asyncpg.DuplicateDatabaseError:
            return
        except asyncpg.InsufficientPrivilegeError:
            role = user_of(self.url, "postgres")
            statement = f"CREATE DATABASE {quote_identifier(name)} OWNER {quote_identifier(role)}"
            raise POSTGRES.unusable(
                f"role {role} may not create databases", f"As a superuser, run: {statement}"
            ) from None
        finally:
            await maintenance.close(timeout=1)

    async def _connect(self, url: str) -> PrimaryConnection:
        return await connect_to_primary(
            url, timeout=PROBE_TIMEOUT_S, server_settings={"application_name": "penstock probe"}
        )

    def _database_name(self) -> str:
        return unquote(urlsplit(self.url).path.removeprefix("/")) or user_of(self.url, "postgres")

    def _check_rights(self, rights: RoleRights) -> None:
        role, database = quote_identifier(rights.role), quote_identifier(rights.database)
        if not rights.has_schema and not rights.can_create_schema:
            raise POSTGRES.unusable(
                f"role {rights.role} lacks the right CREATE on database {rights.database}",
                f"As its owner, run: GRANT CREATE ON DATABASE {database} TO {role}",
            )
        if rights.has_schema and not rights.can_use_schema:
            raise POSTGRES.unusable(
                f"role {rights.role} lacks the rights USAGE and CREATE on schema {SCHEMA}",
                f"As its owner, run: GRANT USAGE, CREATE ON SCHEMA {SCHEMA} TO {role}",
            )
        if rights.foreign_owner is not None:
            owner = quote_identifier(rights.foreign_owner)
            raise POSTGRES.unusable(
                f"the tables of schema {SCHEMA} belong to role {rights.foreign_owner}, not to {rights.role}",
                f"Use that role in the URL, or as a superuser run: GRANT {owner} TO {role}",
            )

    def _to_penstock_error(self, error: Exception) -> ServerUnusable:
        user, server = user_of(self.url, "of this process"), POSTGRES.describe(self.url)
        match error:
            case asyncpg.InvalidCatalogNameError():
                return self._database_missing()
            case asyncpg.InvalidPasswordError():
                return POSTGRES.wrong_password(self.url, user)
            case asyncpg.InvalidAuthorizationSpecificationError():
                remedy = "Correct the user in the URL, or allow it in pg_hba.conf of the server."
                return POSTGRES.unusable(f"{server} refuses user {user} ({one_line(error)})", remedy)
            case asyncpg.InsufficientPrivilegeError():
                statement = f"GRANT CONNECT ON DATABASE {quote_identifier(self._database_name())} TO {user}"
                return POSTGRES.unusable(
                    f"{server} refuses user {user} ({one_line(error)})", f"As its owner, run: {statement}"
                )
            case asyncpg.OperatorInterventionError() | asyncpg.TooManyConnectionsError():
                return POSTGRES.starting(self.url, error)
            case asyncpg.DuplicatePreparedStatementError() | asyncpg.InvalidSQLStatementNameError():
                return self._connection_pooler()
            case asyncpg.TargetServerAttributeNotMatched():
                return self._no_primary()
            case FormerPrimary():
                return POSTGRES.unusable(
                    f"{server} was a primary once ({one_line(error)})", "Name the primary."
                )
            case asyncpg.ClientConfigurationError():
                return POSTGRES.unusable("the URL is not valid", f"Write it as {POSTGRES.example}.")
            case ssl.SSLError():
                return POSTGRES.unusable(
                    f"{server} and this machine agree on no TLS ({one_line(error)})",
                    "Correct sslmode and the certificates in the URL.",
                )
            case TimeoutError():
                return POSTGRES.no_answer(self.url, "no answer in time")
            case asyncpg.ProtocolViolationError() if "startup parameter" in str(error):
                return self._connection_pooler()  # it does not pass settings of the session on
            case _:
                return POSTGRES.no_answer(self.url, error)

    def _connection_pooler(self) -> ServerUnusable:
        """Return the error for PgBouncer and the like: the server session is not the one of the login."""
        return POSTGRES.unusable(
            f"{POSTGRES.address(self.url)} is a connection pooler such as PgBouncer, whose sessions keep no "
            "LISTEN, advisory lock, prepared statement or setting",
            "Name PostgreSQL itself: the broker has a pool of its own (PENSTOCK_POSTGRES_POOL).",
        )

    def _no_primary(self) -> ServerUnusable:
        return POSTGRES.unusable(
            f"{POSTGRES.describe(self.url)} is a standby or read-only",
            "Name the primary, or all servers: postgresql://user:password@host1:5432,host2:5432/database.",
        )

    def _database_missing(self) -> DatabaseMissing:
        host, port = POSTGRES.host_and_port(self.url)
        name, user = self._database_name(), urlsplit(self.url).username
        command = " ".join(
            ["createdb", "-h", host, "-p", str(port), *(("-U", unquote(user)) if user else ()), name]
        )
        return DatabaseMissing(
            POSTGRES.setting,
            f"{POSTGRES.describe(self.url)} has no database {name}",
            f"Create it with `penstock migrate --create-database`, or with `{command}`.",
        )


def quote_identifier(name: str) -> str:
    """Return the name as SQL takes it: in quotes unless it consists of small letters, digits and _."""
    return name if re.fullmatch(r"[a-z_][a-z0-9_]*", name) else '"{}"'.format(name.replace('"', '""'))
