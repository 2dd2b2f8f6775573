"""Store environments: create, list, limit and delete them."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import NamedTuple

from penstock.durable.pool import Session, fetch_all, fetch_one, fetch_value
from penstock.model import Scope

ROWS_PER_DELETE = 2_000


class EnvironmentRow(NamedTuple):
    """A row of `environments_v1`. `quotas` and `deletion_progress` are JSON; `total` counts all pages."""

    organization: str
    project: str
    name: str
    created_at: datetime
    quotas: str
    queues: int
    deletion_requested_at: datetime | None
    deletion_progress: str
    total: int

    @property
    def scope(self) -> Scope:
        return Scope(self.organization, self.project, self.name)


class EnvironmentToDelete(NamedTuple):
    """A row of `environments_to_delete_v1`."""

    organization: str
    project: str
    environment: str
    deletion_progress: str

    @property
    def scope(self) -> Scope:
        return Scope(self.organization, self.project, self.environment)


class EnvironmentStore:
    """Reads and changes environments."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def create(self, scope: Scope, quotas: str) -> bool:
        """Create an environment; return False if it exists, also while it is being deleted."""
        return await fetch_value(
            self._session, bool, "SELECT create_environment_v1($1, $2, $3, $4)", *scope, quotas
        )

    async def list_environments(self, *, limit: int, offset: int = 0) -> list[EnvironmentRow]:
        """Return a page of environments by name."""
        return await fetch_all(
            self._session,
            EnvironmentRow,
            "SELECT * FROM environments_v1(NULL, NULL, NULL, $1, $2)",
            limit,
            offset,
        )

    async def find(self, scope: Scope) -> EnvironmentRow | None:
        return await fetch_one(
            self._session, EnvironmentRow, "SELECT * FROM environments_v1($1, $2, $3, 1, 0)", *scope
        )

    async def set_quotas(self, scope: Scope, quotas: str) -> bool:
        """Replace the quotas; return False if the environment does not exist or is being deleted."""
        return await fetch_value(
            self._session, bool, "SELECT set_environment_quotas_v1($1, $2, $3, $4)", *scope, quotas
        )

    async def request_deletion(self, scope: Scope) -> bool:
        """Mark an environment as being deleted; return False if it does not exist."""
        return await fetch_value(
            self._session, bool, "SELECT request_environment_deletion_v1($1, $2, $3)", *scope
        )

    async def list_to_delete(self, age_s: float) -> list[EnvironmentToDelete]:
        """Return the environments whose deletion was requested at least `age_s` ago."""
        return await fetch_all(
            self._session, EnvironmentToDelete, "SELECT * FROM environments_to_delete_v1($1)", age_s
        )

    async def record_progress(self, scope: Scope, progress: str) -> None:
        await self._session.fetch("SELECT record_deletion_progress_v1($1, $2, $3, $4)", *scope, progress)

    async def delete_some_rows(self, scope: Scope) -> int:
        """Delete some rows of an environment without queues; return how many, 0 once none is left."""
        return await fetch_value(
            self._session,
            int,
            "SELECT delete_environment_rows_v1($1, $2, $3, $4)",
            *scope,
            ROWS_PER_DELETE,
        )

    async def finish_deletion(self, scope: Scope) -> bool:
        """Delete the environment itself; return False if something was created in it meanwhile."""
        return await fetch_value(
            self._session, bool, "SELECT finish_environment_deletion_v1($1, $2, $3)", *scope
        )

    async def list_of_tokens(self, token_numbers: Collection[int]) -> list[Scope]:
        """Return the environments in which leases may have been taken with these tokens."""
        return await fetch_all(
            self._session, Scope, "SELECT * FROM token_environments_v1($1)", sorted(token_numbers)
        )
