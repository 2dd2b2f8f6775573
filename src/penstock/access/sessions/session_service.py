"""Create, find and end the sessions of the console.

A broker keeps the sessions of its requests in memory. It reads them again when the access version changes,
so a logout on one broker ends the session on all of them. While PostgreSQL is unreachable, known sessions
go on.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256

from penstock.access.people.person import Person
from penstock.access.people.roles import RoleMapping
from penstock.caller import Caller
from penstock.durable.access.session_store import SessionStore, StoredSession
from penstock.durable.pool import Database
from penstock.errors import InvalidCsrfToken, Unauthorized

COOKIE_BYTES = 32
MAX_CACHED_SESSIONS = 10_000
SHARED_READ_PAUSE_S = 0.01
"""Requests with unknown cookies cause one query per this time at most, and wait as long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSession:
    """A session of a person, or of a token."""

    cookie_hash: bytes = field(repr=False)
    name: str
    csrf_token: str = field(repr=False)
    person: Person | None
    token_id: str | None
    expires_at_s: float
    """By the monotonic clock."""

    @property
    def subject(self) -> str:
        """Who logged in, as `Caller.subject` names it."""
        return f"token:{self.name}" if self.person is None else f"user:{self.person.subject}"

    def check_csrf_token(self, csrf_token: str) -> None:
        """Raise InvalidCsrfToken unless this is the token of the session."""
        if not hmac.compare_digest(csrf_token.encode(), self.csrf_token.encode()):
            raise InvalidCsrfToken(
                "A request that changes something with a session cookie needs the header X-CSRF-Token. Send "
                "the csrfToken of GET /api/v1/session."
            )


@dataclass(frozen=True, slots=True)
class NewSession:
    """A session that was just created, with the cookie that the browser keeps."""

    cookie: str = field(repr=False)
    session: ConsoleSession
    expires_in_s: float


class ConsoleSessions:
    """All sessions; the known ones in memory."""

    def __init__(
        self,
        database: Database,
        roles: RoleMapping,
        *,
        lifetime_s: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = SessionStore(database)
        self._roles = roles
        self._lifetime_s = lifetime_s
        self._monotonic = monotonic
        self._sessions: dict[bytes, ConsoleSession] = {}
        self._refreshes = 0
        self._shared_read: asyncio.Task[dict[bytes, StoredSession]] | None = None
        self._unread_hashes: set[bytes] = set()

    async def create_for_person(self, person: Person) -> NewSession:
        return await self._create(f"user:{person.subject}", person.name, person, None)

    async def create_for_token(self, caller: Caller) -> NewSession:
        """Create a session that may do what this token may, as long as the token is valid."""
        assert caller.token_id is not None
        return await self._create(caller.subject, caller.subject.partition(":")[2], None, caller.token_id)

    async def find(self, cookie: str) -> ConsoleSession | None:
        """Return the session of a cookie; None if it has ended or never existed."""
        cookie_hash = hash_cookie(cookie)
        while cookie_hash not in self._sessions:
            refreshes = self._refreshes
            row = await self._read(cookie_hash)
            if row is None:
                return None
            # Another request may have read it meanwhile, or a refresh have ended it.
            if refreshes == self._refreshes and cookie_hash not in self._sessions:
                self._keep(self._to_session(row))
        session = self._sessions[cookie_hash]
        if session.expires_at_s <= self._monotonic():
            self._end(cookie_hash)
            return None
        return session

    async def end(self, cookie: str) -> None:
        """End a session. Other brokers end it when they read the access version."""
        cookie_hash = hash_cookie(cookie)
        await self._store.delete(cookie_hash)
        self._end(cookie_hash)

    async def refresh(self, store: SessionStore) -> None:
        """Read the known sessions from this store, and end those that have ended.

        Raises DatabaseUnavailable.
        """
        self._refreshes += 1
        known = list(self._sessions)
        if known:
            live = {row.hash for row in await store.read(known)}
            for cookie_hash in known:
                if cookie_hash not in live:
                    self._end(cookie_hash)

    def people(self) -> list[Person]:
        """Return the people of all known sessions."""
        return [session.person for session in self._sessions.values() if session.person is not None]

    def end_expired(self) -> None:
        now_s = self._monotonic()
        for cookie_hash in [key for key, session in self._sessions.items() if session.expires_at_s <= now_s]:
            self._end(cookie_hash)

    async def _read(self, cookie_hash: bytes) -> StoredSession | None:
        """Read a session. Requests that arrive together share a read, so invalid cookies cost little."""
        if self._shared_read is None:
            self._unread_hashes = set()
            self._shared_read = asyncio.create_task(self._read_after_pause(self._unread_hashes))
        self._unread_hashes.add(cookie_hash)
        return (await asyncio.shield(self._shared_read)).get(cookie_hash)

    async def _read_after_pause(self, hashes: set[bytes]) -> dict[bytes, StoredSession]:
        await asyncio.sleep(SHARED_READ_PAUSE_S)
        self._shared_read = None  # requests from now on start the next read
        return {row.hash: row for row in await self._store.read(hashes)}

    async def _create(
        self, subject: str, name: str, person: Person | None, token_id: str | None
    ) -> NewSession:
        cookie, csrf_token = secrets.token_urlsafe(COOKIE_BYTES), secrets.token_urlsafe(COOKIE_BYTES)
        cookie_hash = hash_cookie(cookie)
        lifetime = await self._store.create(
            cookie_hash,
            subject=subject,
            display_name=name,
            token_id=uuid.UUID(token_id) if token_id else None,
            groups=person.groups if person else (),
            csrf_token=csrf_token,
            lifetime_s=self._lifetime_s,
        )
        if lifetime is None:
            raise Unauthorized("The token is revoked or expired. Log in with another one.")
        session = ConsoleSession(
            cookie_hash=cookie_hash,
            name=name,
            csrf_token=csrf_token,
            person=person,
            token_id=token_id,
            expires_at_s=self._monotonic() + lifetime.expires_in_s,
        )
        self._keep(session)
        return NewSession(cookie, session, lifetime.expires_in_s)

    def _to_session(self, row: StoredSession) -> ConsoleSession:
        person = None
        if row.token_id is None:
            person = Person(
                subject=row.subject.removeprefix("user:"),
                name=row.display_name,
                groups=row.groups,
                roles=self._roles.roles_of(row.groups),
            )
        return ConsoleSession(
            cookie_hash=row.hash,
            name=row.display_name,
            csrf_token=row.csrf_token,
            person=person,
            token_id=str(row.token_id) if row.token_id else None,
            expires_at_s=self._monotonic() + row.expires_in_s,
        )

    def _keep(self, session: ConsoleSession) -> None:
        if len(self._sessions) >= MAX_CACHED_SESSIONS:
            self._end(next(iter(self._sessions)))
        self._sessions[session.cookie_hash] = session

    def _end(self, cookie_hash: bytes) -> None:
        session = self._sessions.pop(cookie_hash, None)
        if session is not None and session.person is not None:
            session.person.deactivate()


def hash_cookie(cookie: str) -> bytes:
    """Return the SHA-256 of a cookie, which is all that is stored of it."""
    return sha256(cookie.encode()).digest()
