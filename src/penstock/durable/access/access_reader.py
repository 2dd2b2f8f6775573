"""Read all live tokens and environments, as brokers keep them in memory."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime

from penstock.durable.access.session_store import SessionStore
from penstock.durable.access.token_store import TokenRights
from penstock.durable.pool import fetch_all, fetch_value
from penstock.durable.reserved_connection import ReservedConnection


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSecret(TokenRights):
    """A secret that brokers accept, and what its token allows."""

    hash: bytes = field(repr=False)
    token_id: uuid.UUID
    token_number: int
    organization: str
    project: str
    environment: str
    expires_in_s: float | None = field(compare=False)
    """None: it does not expire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownEnvironmentRow:
    """An environment with its quotas as JSON."""

    id: int
    organization: str
    project: str
    name: str
    quotas: str
    deletion_requested_at: datetime | None


class AccessReader:
    """Reads on a connection of its own, so that a busy pool never delays the revocation of a token."""

    def __init__(self, url: str) -> None:
        self._connection = ReservedConnection(url, "penstock access")
        self.sessions = SessionStore(self._connection)

    async def read_version(self) -> int:
        return await fetch_value(self._connection, int, "SELECT access_version_v1()")

    async def read_secrets(self) -> list[LiveSecret]:
        return await fetch_all(self._connection, LiveSecret, "SELECT * FROM live_token_secrets_v1()")

    async def read_environments(self) -> list[KnownEnvironmentRow]:
        return await fetch_all(self._connection, KnownEnvironmentRow, "SELECT * FROM known_environments_v1()")

    async def record_use(self, token_ids: Collection[uuid.UUID]) -> None:
        """Set the time of the last use of these tokens to now."""
        await self._connection.fetch("SELECT record_token_use_v1($1)", list(token_ids))

    def close(self) -> None:
        """Close the connection. May be called twice."""
        self._connection.close()
