"""Environments as the API manages them: create, list, limit, delete."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

import msgspec

from penstock.access.quotas.quota_definitions import parse_quotas
from penstock.durable.access.environment_store import EnvironmentRow, EnvironmentStore
from penstock.durable.pool import Session
from penstock.errors import DatabaseUnavailable, InvalidRequest, UnknownEnvironment, WrongState
from penstock.model import DEFAULT_SCOPE, Scope

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True, slots=True)
class EnvironmentDescription:
    """An environment. `deletion` says how far its deletion has come; None while it is in use."""

    scope: Scope
    created_at: datetime
    quotas: dict[str, int]
    queues: int
    deletion_requested_at: datetime | None
    deletion: dict[str, object] | None


@dataclass(frozen=True, slots=True)
class EnvironmentPage:
    environments: list[EnvironmentDescription]
    total: int


def parse_environment(name: str) -> Scope:
    """Return the environment of a name as people write it: organization/project/environment.

    Raises UnknownEnvironment if there can be none of this name.
    """
    names = name.split("/")
    if len(names) != 3:
        raise unknown_environment(name)
    return Scope(*names)


def check_environment_names(scope: Scope) -> None:
    """Raise InvalidRequest unless a new environment may have these names."""
    for field, name in zip(Scope._fields, scope, strict=True):
        if not _NAME.fullmatch(name):
            raise InvalidRequest(
                f"{field} {name[:100]!r} is not valid. Use 1 to 63 letters, digits, dots, dashes and "
                "underscores, and begin with a letter or a digit.",
                field=field,
            )


class Environments:
    """Creates, lists, limits and deletes environments.

    `refresh` is called after a change, so that this broker applies it at once. Others follow within a second.
    """

    def __init__(self, session: Session, refresh: Callable[[], Awaitable[None]]) -> None:
        self._store = EnvironmentStore(session)
        self._refresh = refresh

    async def create(self, scope: Scope, quotas: Mapping[str, object]) -> EnvironmentDescription:
        """Create an environment. Raises InvalidRequest for a name or quota, and WrongState if it exists."""
        check_environment_names(scope)
        if not await self._store.create(scope, _encode(parse_quotas(quotas))):
            raise WrongState(
                f"The environment {'/'.join(scope)} exists or is being deleted. Use another name, or wait "
                "until its deletion has ended.",
                environment="/".join(scope),
            )
        await self._apply_here()
        return await self.get(scope)

    async def list_page(self, *, limit: int, offset: int) -> EnvironmentPage:
        """Return a page of environments by name, also those that are being deleted."""
        rows = await self._store.list_environments(limit=limit, offset=offset)
        return EnvironmentPage([_describe(row) for row in rows], rows[0].total if rows else 0)

    async def get(self, scope: Scope) -> EnvironmentDescription:
        """Return an environment, also while it is being deleted. Raises UnknownEnvironment."""
        row = await self._store.find(scope)
        if row is None:
            raise unknown_environment("/".join(scope))
        return _describe(row)

    async def set_quotas(self, scope: Scope, quotas: Mapping[str, object]) -> EnvironmentDescription:
        """Replace the quotas. Raises InvalidRequest for a quota, and UnknownEnvironment."""
        if not await self._store.set_quotas(scope, _encode(parse_quotas(quotas))):
            raise unknown_environment("/".join(scope))
        await self._apply_here()
        return await self.get(scope)

    async def delete(self, scope: Scope) -> EnvironmentDescription:
        """Start to delete an environment. From now on its requests are refused.

        Raises UnknownEnvironment, and WrongState for the default environment, which requests without a token
        use.
        """
        if scope == DEFAULT_SCOPE:
            raise WrongState("The default environment cannot be deleted. Delete its queues instead.")
        if not await self._store.request_deletion(scope):
            raise unknown_environment("/".join(scope))
        await self._apply_here()
        return await self.get(scope)

    async def _apply_here(self) -> None:
        """Let this broker know the change. It is stored in any case."""
        with suppress(DatabaseUnavailable):
            await self._refresh()


def unknown_environment(name: str) -> UnknownEnvironment:
    return UnknownEnvironment(
        f"Environment {name[:200]!r} does not exist. GET /api/v1/environments lists yours.",
        environment=name[:200],
    )


def _describe(row: EnvironmentRow) -> EnvironmentDescription:
    return EnvironmentDescription(
        row.scope,
        row.created_at,
        msgspec.json.decode(row.quotas, type=dict[str, int]),
        row.queues,
        row.deletion_requested_at,
        msgspec.json.decode(row.deletion_progress, type=dict[str, object])
        if row.deletion_requested_at
        else None,
    )


def _encode(quotas: Mapping[str, int]) -> str:
    return msgspec.json.encode(quotas).decode()
