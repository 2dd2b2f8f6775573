"""Tokens in PostgreSQL. Their secrets are stored as hashes."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from penstock.durable.pool import Session, fetch_all, fetch_value
from penstock.model import Scope

CREATED, NAME_EXISTS, UNKNOWN_ENVIRONMENT = "created", "name exists", "unknown environment"
"""The results of creating a token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRights:
    """The name of a token and what it allows. The patterns of queues and groups are None for every name."""

    name: str
    scopes: list[str]
    queues: list[str] | None
    groups: list[str] | None
    is_platform_admin: bool
    quotas: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow(TokenRights):
    """A token with the prefixes and times of its live secrets as JSON."""

    id: uuid.UUID
    created_by: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    state: str
    secrets: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredToken(TokenRights):
    """What is stored of a new token. Without `lifetime`, from now, and `expires_at` it does not expire."""

    id: uuid.UUID
    created_by: str
    expires_at: datetime | None
    lifetime: timedelta | None


@dataclass(frozen=True, slots=True)
class StoredSecret:
    """The hash of a secret, and its first characters to recognise it by."""

    hash: bytes = field(repr=False)
    prefix: str


class TokenStore:
    """Reads and writes tokens. Every change raises the access version in the same transaction."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def create(self, scope: Scope, token: StoredToken, secret: StoredSecret) -> str:
        """Store a token; CREATED, NAME_EXISTS or UNKNOWN_ENVIRONMENT."""
        return await fetch_value(
            self._session,
            str,
            "SELECT create_access_token_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)",
            *scope,
            token.id,
            token.name,
            token.scopes,
            token.queues,
            token.groups,
            token.is_platform_admin,
            token.quotas,
            token.created_by,
            token.expires_at,
            token.lifetime,
            secret.hash,
            secret.prefix,
        )

    async def list_tokens(
        self,
        scope: Scope,
        *,
        token_id: uuid.UUID | None = None,
        name: str | None = None,
        with_revoked: bool = False,
        limit: int = 1,
        offset: int = 0,
    ) -> list[TokenRow]:
        """Return a page of the tokens of an environment by name."""
        return await fetch_all(
            self._session,
            TokenRow,
            "SELECT * FROM access_tokens_v1($1, $2, $3, $4, $5, $6, $7, $8)",
            *scope,
            token_id,
            name,
            with_revoked,
            limit,
            offset,
        )

    async def rotate(self, token_id: uuid.UUID, secret: StoredSecret, overlap: timedelta) -> bool:
        """Add a secret and let the others expire after `overlap`; False if the token is not active."""
        return await fetch_value(
            self._session,
            bool,
            "SELECT rotate_access_token_v1($1, $2, $3, $4)",
            token_id,
            secret.hash,
            secret.prefix,
            overlap,
        )

    async def revoke(self, token_id: uuid.UUID) -> bool:
        """Revoke a token; False if it was revoked before."""
        return await fetch_value(self._session, bool, "SELECT revoke_access_token_v1($1)", token_id)
