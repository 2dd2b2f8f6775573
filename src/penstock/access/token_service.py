"""Tokens as the API and the command line manage them: create, list, rotate, revoke."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import msgspec

from penstock.access.quotas.quota_definitions import parse_quotas
from penstock.access.token_rights import check_quotas_within, check_rights, parse_access, parse_patterns
from penstock.access.token_secret import hash_secret, new_secret, secret_prefix
from penstock.caller import Caller
from penstock.durable.access.token_store import (
    CREATED,
    NAME_EXISTS,
    StoredSecret,
    StoredToken,
    TokenRow,
    TokenStore,
)
from penstock.durable.pool import Session
from penstock.errors import (
    DatabaseUnavailable,
    Forbidden,
    InvalidRequest,
    PenstockError,
    UnknownEnvironment,
    WrongState,
)
from penstock.ids import new_id
from penstock.model import Scope

MAX_LIFETIME_S = 10 * 366 * 86_400
MAX_OVERLAP_S = 31 * 86_400
DEFAULT_OVERLAP_S = 86_400
MAX_NAME_LENGTH = 100
ACTIVE = "active"


class UnknownToken(PenstockError):
    code = "unknown_token"
    status = 404
    title = "Unknown token"


class TokenExists(PenstockError):
    code = "token_exists"
    status = 409
    title = "Token exists"


class SecretDescription(msgspec.Struct, rename="camel", frozen=True):
    """A live secret of a token, without the secret."""

    prefix: str
    created_at: datetime
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class TokenDescription:
    """A token without its secrets."""

    environment: Scope
    row: TokenRow
    secrets: list[SecretDescription]


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A token with its new secret, which cannot be read again."""

    token: TokenDescription
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken:
    """What a token is created from. Without `expires_at` and `expires_in_s` it does not expire."""

    name: str
    scopes: list[str]
    queues: list[str] | None = None
    groups: list[str] | None = None
    is_platform_admin: bool = False
    expires_at: datetime | None = None
    expires_in_s: float | None = None
    quotas: Mapping[str, object] = field(default_factory=dict)


class AccessTokens:
    """Creates, lists, rotates and revokes the tokens of an environment.

    A caller can neither create nor change a token that allows more than the caller may do itself. A broker
    passes `refresh_index`, so that it knows a change when it responds.
    """

    def __init__(self, session: Session, refresh_index: Callable[[], Awaitable[None]] | None = None) -> None:
        self._store = TokenStore(session)
        self._refresh_index = refresh_index

    async def _refresh(self) -> None:
        """Refresh the index. The change is stored, so it must not fail now: brokers read it later."""
        if self._refresh_index is not None:
            with suppress(DatabaseUnavailable):
                await self._refresh_index()

    async def list_tokens(
        self,
        scope: Scope,
        *,
        name: str | None = None,
        with_revoked: bool = False,
        limit: int,
        offset: int = 0,
    ) -> list[TokenDescription]:
        """Return a page of the tokens by name."""
        rows = await self._store.list_tokens(
            scope, name=name, with_revoked=with_revoked, limit=limit, offset=offset
        )
        return [_describe(scope, row) for row in rows]

    async def get(self, scope: Scope, token_id: uuid.UUID) -> TokenDescription:
        """Return a token, also a revoked one. Raises UnknownToken."""
        return _describe(scope, await self._find(scope, token_id))

    async def create(self, creator: Caller, token: NewToken) -> IssuedToken:
        """Create a token in the creator's environment. Raises InvalidRequest, Forbidden or TokenExists."""
        access = parse_access(token.scopes)
        queues, groups = parse_patterns("queues", token.queues), parse_patterns("groups", token.groups)
        check_rights(creator, access, queues, groups, token.is_platform_admin)
        quotas = parse_quotas(token.quotas)
        check_quotas_within(creator, quotas)
        stored = StoredToken(
            id=new_id(),
            name=token.name,
            scopes=token.scopes,
            queues=token.queues,
            groups=token.groups,
            is_platform_admin=token.is_platform_admin,
            quotas=msgspec.json.encode(quotas).decode(),
            created_by=creator.subject,
            expires_at=_check_expiry(token),
            lifetime=None if token.expires_in_s is None else timedelta(seconds=token.expires_in_s),
        )
        secret = new_secret()
        result = await self._store.create(creator.environment, stored, _to_stored(secret))
        if result == NAME_EXISTS:
            raise TokenExists(
                f"The token {token.name!r} exists. Choose another name, rotate the token with "
                "`penstock tokens rotate`, or revoke it."
            )
        if result != CREATED:
            raise UnknownEnvironment(f"The environment {'/'.join(creator.environment)} does not exist.")
        await self._refresh()
        return IssuedToken(await self.get(creator.environment, stored.id), secret)

    async def rotate(self, caller: Caller, token_id: uuid.UUID, overlap_s: float) -> IssuedToken:
        """Give a token a new secret; the previous ones work for another `overlap_s` seconds.

        Raises UnknownToken, Forbidden, or WrongState if the token is revoked or expired.
        """
        if not 0 <= overlap_s <= MAX_OVERLAP_S:
            raise InvalidRequest("overlapS must be between 0 and 31 days.", field="overlapS")
        row = await self._find_own(caller, token_id)
        secret = new_secret()
        overlap = timedelta(seconds=overlap_s)
        if row.state != ACTIVE or not await self._store.rotate(row.id, _to_stored(secret), overlap):
            row = await self._find(caller.environment, token_id)
            raise WrongState(f"The token {row.name!r} is {row.state}. Create a new one.")
        await self._refresh()
        return IssuedToken(await self.get(caller.environment, token_id), secret)

    async def revoke(self, caller: Caller, token_id: uuid.UUID) -> TokenDescription:
        """End a token for good; revoking it again changes nothing. Raises UnknownToken or Forbidden."""
        await self._find_own(caller, token_id)
        await self._store.revoke(token_id)
        await self._refresh()
        return await self.get(caller.environment, token_id)

    async def _find(self, scope: Scope, token_id: uuid.UUID) -> TokenRow:
        rows = await self._store.list_tokens(scope, token_id=token_id)
        if not rows:
            raise UnknownToken(f"The token {token_id} does not exist. `penstock tokens ls` lists them.")
        return rows[0]

    async def _find_own(self, caller: Caller, token_id: uuid.UUID) -> TokenRow:
        """Return a token that the caller may change: rotating one with more rights would hand these over."""
        row = await self._find(caller.environment, token_id)
        _check_may_change(caller, row)
        return row


def may_change(caller: Caller, token: TokenDescription) -> bool:
    """Whether the caller may rotate and revoke the token."""
    try:
        _check_may_change(caller, token.row)
    except Forbidden:
        return False
    return True


def _check_may_change(caller: Caller, row: TokenRow) -> None:
    queues, groups = parse_patterns("queues", row.queues), parse_patterns("groups", row.groups)
    check_rights(caller, parse_access(row.scopes), queues, groups, row.is_platform_admin)


def _check_expiry(token: NewToken) -> datetime | None:
    """Return the time of expiry. Raises InvalidRequest unless it is in the future and there is only one."""
    if token.expires_in_s is not None and not 0 < token.expires_in_s <= MAX_LIFETIME_S:
        raise InvalidRequest("expiresInS must be more than 0 and at most 10 years.", field="expiresInS")
    if token.expires_at is None:
        return None
    if token.expires_in_s is not None:
        raise InvalidRequest("Send expiresAt or expiresInS, not both.", field="expiresAt")
    if token.expires_at <= datetime.now(UTC):
        raise InvalidRequest("expiresAt is in the past. Send a later time.", field="expiresAt")
    return token.expires_at


def _to_stored(secret: str) -> StoredSecret:
    return StoredSecret(hash_secret(secret), secret_prefix(secret))


def _describe(scope: Scope, row: TokenRow) -> TokenDescription:
    return TokenDescription(scope, row, msgspec.json.decode(row.secrets, type=list[SecretDescription]))
