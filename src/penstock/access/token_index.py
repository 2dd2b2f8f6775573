"""All live tokens and all environments in memory, so that checking a request costs no query.

Brokers poll the access version and read everything again when it changed. While PostgreSQL is unreachable
they go on with what they have; tokens expire all the same.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import msgspec

from penstock.access.token_secret import hash_secret
from penstock.background import BackgroundTask, cancel_and_wait
from penstock.caller import ACCESS_SCOPE_NAMES, AccessScope, Caller, NamePatterns
from penstock.durable.access.access_reader import AccessReader, KnownEnvironmentRow, LiveSecret
from penstock.errors import DatabaseUnavailable, SchemaOutdated, UnknownEnvironment
from penstock.model import Scope

logger = logging.getLogger(__name__)

POLL_INTERVAL_S = 0.5
"""How often the version is read, and expired tokens are ended."""

RECORD_USE_INTERVAL_S = 30.0
SHARED_READ_PAUSE_S = 0.01
"""Requests with unknown tokens cause one query per this time at most, and wait as long."""

UNREADABLE = (DatabaseUnavailable, SchemaOutdated)
"""PostgreSQL is unreachable, or not migrated yet."""

MAX_DERIVED_CALLERS = 10_000


@dataclass(frozen=True, slots=True)
class KnownEnvironment:
    """An environment that exists. `quotas` are limits by the name of the quota."""

    id: int
    scope: Scope
    quotas: dict[str, float]
    is_being_deleted: bool


@dataclass(slots=True)
class _IndexedSecret:
    stored: LiveSecret
    caller: Caller
    expires_at_s: float
    """By the monotonic clock; infinite if it does not expire."""


class TokenIndex(BackgroundTask):
    """Finds the caller of a secret, and environments by name.

    One secret has one Caller object while its token stays the same, so it may be kept: `active` tells when it
    ends. `on_tokens_ended(numbers)` is called when callers have ended, with the numbers of the tokens that
    were revoked or have expired. There may be none: a token goes on if only one of its secrets has ended.
    """

    task_name = "token index"

    def __init__(
        self,
        postgres_url: str,
        *,
        poll_interval_s: float = POLL_INTERVAL_S,
        record_use_interval_s: float = RECORD_USE_INTERVAL_S,
    ) -> None:
        self._reader = AccessReader(postgres_url)
        self._poll_interval_s = poll_interval_s
        self._record_use_interval_s = record_use_interval_s
        self._version: int | None = None
        self._secrets: dict[bytes, _IndexedSecret] = {}
        self._secrets_without_environment: set[bytes] = set()
        """Hashes of secrets whose environment is being deleted."""
        self._callers_by_id: dict[str, Caller] = {}
        """A caller of each token, of the secret that expires last."""
        self._next_expiry_s = math.inf
        self._environments: dict[Scope, KnownEnvironment] = {}
        self._derived_callers: dict[tuple[Caller, Scope], Caller] = {}
        self._refresh_lock = asyncio.Lock()
        self._changed = asyncio.Event()
        self._shared_read: asyncio.Task[None] | None = None
        self._use_recorded_at_s = time.monotonic()
        self._is_failing = False
        self.on_environments_changed: Callable[[], None] = lambda: None
        """Called after environments or tokens were read again."""
        self.on_tokens_ended: Callable[[set[int]], None] = lambda numbers: None
        self.on_version_changed: Callable[[AccessReader], Awaitable[None]] = _ignore_change
        """Called when tokens, sessions or environments changed, with a reader that no busy pool delays."""
        self.on_poll: Callable[[], None] = lambda: None
        """Called at each poll, also while PostgreSQL is unreachable."""

    def find(self, secret: str) -> Caller | None:
        """Return the caller of a secret; None if it is unknown, revoked or expired.

        Raises UnknownEnvironment while its environment is being deleted, and DatabaseUnavailable if the
        tokens were not read yet.
        """
        secret_hash = hash_secret(secret)
        indexed = self._secrets.get(secret_hash)
        if indexed is None:
            self._require_loaded()
            if secret_hash in self._secrets_without_environment:
                raise UnknownEnvironment("The environment of the token does not exist any more.")
            return None
        indexed.caller.was_used = True
        return indexed.caller

    def find_by_id(self, token_id: str) -> Caller | None:
        """Return the caller of a token; None if it is unknown, revoked or expired."""
        self._require_loaded()
        caller = self._callers_by_id.get(token_id)
        if caller is None or not caller.active:
            return None
        caller.was_used = True
        return caller

    def environment(self, scope: Scope) -> KnownEnvironment:
        """Return an environment. Raises UnknownEnvironment, also if it is being deleted.

        Raises DatabaseUnavailable if the environments were not read yet.
        """
        environment = self._environments.get(scope)
        if environment is None:
            self._require_loaded()
        if environment is None or environment.is_being_deleted:
            raise UnknownEnvironment(f"The environment {'/'.join(scope)} does not exist.")
        return environment

    def environments(self) -> list[KnownEnvironment]:
        """Return all environments, also those that are being deleted."""
        return list(self._environments.values())

    def caller_in(self, caller: Caller, scope: Scope) -> Caller:
        """Return the caller as it acts in another environment. Raises as `environment` does.

        The result ends with the caller and with the environment. Whether the caller may act there is the
        decision of this method's caller.
        """
        derived = self._derived_callers.get((caller, scope))
        if derived is None:
            self.environment(scope)
            derived = replace(caller, environment=scope)
            if len(self._derived_callers) >= MAX_DERIVED_CALLERS:
                self._end_derived_callers(lambda caller, scope: True)
            self._derived_callers[caller, scope] = derived
        derived.was_used = caller.was_used = True
        return derived

    def notify_change(self) -> None:
        """Read the version now instead of at the next poll."""
        self._changed.set()

    async def start(self) -> None:
        """Read the tokens, unless PostgreSQL is unreachable or not migrated, and keep them up to date."""
        with suppress(*UNREADABLE):
            await self.refresh()
        await super().start()

    async def stop(self) -> None:
        await super().stop()
        if self._shared_read is not None:
            await cancel_and_wait(self._shared_read)
        with suppress(*UNREADABLE):
            await self._record_use()
        self._reader.close()

    async def refresh(self) -> None:
        """Read tokens and environments if they changed. Raises DatabaseUnavailable."""
        async with self._refresh_lock:
            version = await self._reader.read_version()
            if version != self._version:
                secrets = await self._reader.read_secrets()
                environments = await self._reader.read_environments()
                self._replace_environments(environments)
                self._replace_secrets(secrets)
                await self.on_version_changed(self._reader)
                self._version = version
                self.on_environments_changed()

    async def find_changes(self) -> bool:
        """Read what another broker may have changed a moment ago; whether there was a change.

        For requests with a token or an environment that is not known. Requests that arrive together share one
        read, so that invalid tokens do not load PostgreSQL.
        """
        if self._shared_read is None:
            self._shared_read = asyncio.create_task(self._read_after_pause(), name="token index read")
        version = self._version
        await asyncio.shield(self._shared_read)
        return self._version != version

    async def _read_after_pause(self) -> None:
        await asyncio.sleep(SHARED_READ_PAUSE_S)
        self._shared_read = None  # requests from now on may be later than this read
        with suppress(*UNREADABLE):
            await self.refresh()

    async def _run(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._poll_interval_s):
                    await self._changed.wait()
            self._changed.clear()
            self._end_expired()
            self.on_poll()
            try:
                await self.refresh()
                if time.monotonic() - self._use_recorded_at_s >= self._record_use_interval_s:
                    await self._record_use()
                self._is_failing = False
            except Exception as error:  # noqa: BLE001 - without this loop, revoked tokens would stay valid
                if not self._is_failing:
                    logger.warning("Tokens stay as they are until PostgreSQL can be read: %s", error)
                self._is_failing = True

    def _replace_environments(self, rows: list[KnownEnvironmentRow]) -> None:
        self._environments = {environment.scope: environment for environment in map(_to_environment, rows)}
        in_use = {scope for scope, known in self._environments.items() if not known.is_being_deleted}
        if self._end_derived_callers(lambda caller, scope: scope not in in_use):
            self.on_tokens_ended(set())

    def _replace_secrets(self, rows: list[LiveSecret]) -> None:
        """Keep the callers of unchanged tokens, add new ones, and end the others."""
        now_s = time.monotonic()
        previous = self._secrets
        self._secrets = {}
        self._secrets_without_environment = set()
        for row in rows:
            environment = self._environments.get(Scope(row.organization, row.project, row.environment))
            if environment is None or environment.is_being_deleted:
                self._secrets_without_environment.add(row.hash)
                continue
            indexed = previous.get(row.hash)
            caller = indexed.caller if indexed is not None and indexed.stored == row else _to_caller(row)
            expires_at_s = math.inf if row.expires_in_s is None else now_s + row.expires_in_s
            self._secrets[row.hash] = _IndexedSecret(row, caller, expires_at_s)
        self._index_secrets()
        callers = {indexed.caller for indexed in self._secrets.values()}
        self._end([indexed for indexed in previous.values() if indexed.caller not in callers])

    def _index_secrets(self) -> None:
        by_expiry = sorted(self._secrets.values(), key=lambda indexed: indexed.expires_at_s)
        self._callers_by_id = {str(indexed.stored.token_id): indexed.caller for indexed in by_expiry}
        self._next_expiry_s = by_expiry[0].expires_at_s if by_expiry else math.inf

    def _end_expired(self) -> None:
        now_s = time.monotonic()
        if now_s < self._next_expiry_s:
            return
        expired = [indexed for indexed in self._secrets.values() if indexed.expires_at_s <= now_s]
        for indexed in expired:
            del self._secrets[indexed.stored.hash]
        self._index_secrets()
        self._end(expired)

    def _end(self, ended_secrets: list[_IndexedSecret]) -> None:
        """Deactivate the callers of these secrets, and report the tokens that have no secret left."""
        if not ended_secrets:
            return
        for indexed in ended_secrets:
            indexed.caller.active = False
        self._end_derived_callers(lambda caller, scope: not caller.active)
        live_numbers = {indexed.stored.token_number for indexed in self._secrets.values()}
        numbers = {indexed.stored.token_number for indexed in ended_secrets} - live_numbers
        self.on_tokens_ended(numbers)

    def _end_derived_callers(self, has_ended: Callable[[Caller, Scope], bool]) -> bool:
        """Deactivate derived callers; return whether there were any."""
        ended = [key for key in self._derived_callers if has_ended(*key)]
        for key in ended:
            self._derived_callers.pop(key).active = False
        return bool(ended)

    async def _record_use(self) -> None:
        """Store which tokens were used since the last time."""
        callers = [*self._derived_callers.values(), *(indexed.caller for indexed in self._secrets.values())]
        used_callers = [caller for caller in callers if caller.was_used]
        token_ids = {uuid.UUID(caller.token_id) for caller in used_callers if caller.token_id is not None}
        for caller in used_callers:
            caller.was_used = False
        self._use_recorded_at_s = time.monotonic()
        if token_ids:
            await self._reader.record_use(token_ids)

    def _require_loaded(self) -> None:
        if self._version is None:
            raise DatabaseUnavailable("Tokens cannot be checked before PostgreSQL responds. Retry shortly.")


async def _ignore_change(reader: AccessReader) -> None:
    """The default of `on_version_changed`."""


def _to_environment(row: KnownEnvironmentRow) -> KnownEnvironment:
    quotas = msgspec.json.decode(row.quotas, type=dict[str, float])
    scope = Scope(row.organization, row.project, row.name)
    return KnownEnvironment(row.id, scope, quotas, row.deletion_requested_at is not None)


def _to_caller(row: LiveSecret) -> Caller:
    access = AccessScope(0)
    for scope, name in ACCESS_SCOPE_NAMES.items():  # a newer broker may have stored names that this one lacks
        if name in row.scopes:
            access |= scope
    return Caller(
        Scope(row.organization, row.project, row.environment),
        access,
        f"token:{row.name}",
        queues=None if row.queues is None else NamePatterns(tuple(row.queues)),
        groups=None if row.groups is None else NamePatterns(tuple(row.groups)),
        token_id=str(row.token_id),
        token_number=row.token_number,
        is_platform_admin=row.is_platform_admin,
        token_quotas=msgspec.json.decode(row.quotas, type=dict[str, float]),
    )
