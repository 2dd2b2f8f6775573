"""Sessions of the console in PostgreSQL."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from penstock.durable.pool import Session, fetch_all, fetch_one, fetch_value


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSession:
    """A session that has not ended."""

    hash: bytes = field(repr=False)
    subject: str
    display_name: str
    token_id: uuid.UUID | None
    groups: list[str]
    """Of the person, at the identity provider."""
    csrf_token: str = field(repr=False)
    expires_in_s: float = field(compare=False)


@dataclass(frozen=True, slots=True)
class SessionLifetime:
    expires_in_s: float


class SessionStore:
    """Reads and writes sessions. A session is known by the hash of its cookie alone."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def create(
        self,
        cookie_hash: bytes,
        *,
        subject: str,
        display_name: str,
        token_id: uuid.UUID | None,
        groups: Sequence[str],
        csrf_token: str,
        lifetime_s: float,
    ) -> SessionLifetime | None:
        """Store a session; None if its token is revoked or expired."""
        return await fetch_one(
            self._session,
            SessionLifetime,
            "SELECT * FROM create_access_session_v1($1, $2, $3, $4, $5, $6, $7)",
            cookie_hash,
            subject,
            display_name,
            token_id,
            groups,
            csrf_token,
            lifetime_s,
        )

    async def read(self, hashes: Collection[bytes]) -> list[StoredSession]:
        """Return the sessions with these hashes that have not ended."""
        return await fetch_all(
            self._session, StoredSession, "SELECT * FROM access_sessions_v1($1)", list(hashes)
        )

    async def delete(self, cookie_hash: bytes) -> bool:
        """End a session on every broker; whether it existed."""
        return await fetch_value(self._session, bool, "SELECT delete_access_session_v1($1)", cookie_hash)
