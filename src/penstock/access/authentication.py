"""Find the caller of a request from its headers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.access.people.jwt_callers import JwtCallers
from penstock.access.people.person import Person
from penstock.access.people.roles import EVERY_ENVIRONMENT, format_environment, role_in
from penstock.access.sessions.session_service import ConsoleSession, ConsoleSessions
from penstock.access.token_index import TokenIndex
from penstock.access.token_secret import SECRET_START
from penstock.caller import LOCAL_CALLER, Caller
from penstock.durable.access.access_reader import AccessReader
from penstock.errors import Unauthorized, UnknownEnvironment
from penstock.model import DEFAULT_SCOPE, Scope

ENVIRONMENT_HEADER = b"x-penstock-environment"
CSRF_HEADER = b"x-csrf-token"
SESSION_COOKIE = "penstock_session"
HeaderFields = Mapping[bytes, bytes]
"""Headers of a request, by their names in lower case."""


class Authentication:
    """Checks credentials. Those that are not in memory are checked by `authenticate` alone."""

    def __init__(
        self,
        tokens: TokenIndex,
        sessions: ConsoleSessions,
        jwt_callers: JwtCallers | None = None,
        *,
        is_required: bool,
    ) -> None:
        self._tokens = tokens
        self._sessions = sessions
        self._jwt_callers = jwt_callers
        self._is_required = is_required
        self._local_caller = replace(LOCAL_CALLER)
        """A copy, because callers have the quotas of their broker process."""

    def find_caller(self, fields: HeaderFields) -> Caller | None:
        """The caller, if its credentials are in memory; None: call `authenticate`. Raises Unauthorized."""
        secret = bearer_secret(fields.get(b"authorization", b""))
        if secret.startswith(SECRET_START):
            caller = self.find_token(secret)
        elif self._jwt_callers is not None and _looks_like_jwt(secret):
            person = self._jwt_callers.find(secret)
            return None if person is None else self._person_caller(person, fields)
        elif not secret and b"cookie" in fields and session_cookie(fields):
            return None
        elif self._is_required:
            raise Unauthorized(
                "The request has no token. Send one as Authorization: Bearer pk_…; penstock tokens create "
                "makes one."
            )
        else:
            caller = self._local_caller
        return self._in_selected_environment(caller, fields) if ENVIRONMENT_HEADER in fields else caller

    async def authenticate(self, fields: HeaderFields, *, is_unsafe: bool) -> Caller:
        """The caller. Raises Unauthorized.

        A request with a session cookie that changes something (`is_unsafe`) needs the session's CSRF token:
        browsers send cookies also with requests that a page of another site makes. Raises InvalidCsrfToken.
        """
        try:
            return await self._authenticate(fields, is_unsafe=is_unsafe)
        except (Unauthorized, UnknownEnvironment):
            # Another broker may have created the token or the environment a moment ago.
            if not _names_stored_access(fields) or not await self._tokens.find_changes():
                raise
        return await self._authenticate(fields, is_unsafe=is_unsafe)

    async def _authenticate(self, fields: HeaderFields, *, is_unsafe: bool) -> Caller:
        caller = self.find_caller(fields)
        if caller is not None:
            return caller
        secret = bearer_secret(fields.get(b"authorization", b""))
        if secret:
            assert self._jwt_callers is not None
            return self._person_caller(await self._jwt_callers.authenticate(secret), fields)
        session = await self.find_session(fields)
        if session is None or (session.person is not None and not session.person.roles):
            raise Unauthorized("The session has ended. Log in again.")
        if is_unsafe:
            session.check_csrf_token(fields.get(CSRF_HEADER, b"").decode("latin-1"))
        return self._session_caller(session, fields)

    async def log_in_with_token(self, secret: str) -> Caller:
        """The caller that has this token, also if another broker created it a moment ago."""
        try:
            return self.find_token(secret)
        except Unauthorized:
            if not await self._tokens.find_changes():
                raise
        return self.find_token(secret)

    async def find_session(self, fields: HeaderFields) -> ConsoleSession | None:
        """The session of the request's cookie; None if it has no cookie, or the session has ended."""
        cookie = session_cookie(fields)
        return await self._sessions.find(cookie) if cookie else None

    async def find_person(self, fields: HeaderFields) -> Person | None:
        """The person of an authenticated request; None if it has a token, or needs none."""
        secret = bearer_secret(fields.get(b"authorization", b""))
        if secret:
            return self._jwt_callers.find(secret) if self._jwt_callers is not None else None
        session = await self.find_session(fields)
        return None if session is None else session.person

    def find_token(self, secret: str) -> Caller:
        """The caller that has this token. Raises Unauthorized unless the token is valid."""
        caller = self._tokens.find(secret)
        if caller is None:
            raise Unauthorized(
                "The token is unknown, expired or revoked. Use another one: penstock tokens create makes one."
            )
        return caller

    async def refresh(self, reader: AccessReader) -> None:
        """End what a change of tokens, sessions or environments has ended. Raises DatabaseUnavailable."""
        await self._sessions.refresh(reader.sessions)
        known = {known.scope for known in self._tokens.environments() if not known.is_being_deleted}
        people = [] if self._jwt_callers is None else self._jwt_callers.people()
        for person in (*people, *self._sessions.people()):
            person.retain_environments(known)

    def end_expired(self) -> None:
        """End the sessions and JWTs that have expired."""
        self._sessions.end_expired()
        if self._jwt_callers is not None:
            self._jwt_callers.end_expired()

    def environments_of(self, caller: Caller, person: Person | None) -> list[Scope]:
        """The environments that a caller may select, the default one first."""
        known = (known.scope for known in self._tokens.environments() if not known.is_being_deleted)
        if person is None:
            selectable = [scope for scope in known if caller.is_platform_admin or scope == caller.environment]
        else:
            selectable = [scope for scope in known if role_in(person.roles, scope)]
        return sorted(selectable, key=lambda scope: (scope != DEFAULT_SCOPE, scope))

    def _session_caller(self, session: ConsoleSession, fields: HeaderFields) -> Caller:
        if session.person is not None:
            return self._person_caller(session.person, fields)
        assert session.token_id is not None
        caller = self._tokens.find_by_id(session.token_id)
        if caller is None:
            raise Unauthorized("The token of this session is revoked or expired. Log in with another one.")
        return self._in_selected_environment(caller, fields)

    def _person_caller(self, person: Person, fields: HeaderFields) -> Caller:
        """The person as a caller in the environment that the request selects, or else in their first one."""
        environment = _selected_environment(fields)
        if environment is None:
            environment = self._first_environment(person)
        # The same error in both cases: people do not learn which environments of others exist.
        if role_in(person.roles, environment) is None or not self._environment_exists(environment):
            raise _unknown_environment(format_environment(environment))
        return person.caller_in(environment)

    def _environment_exists(self, environment: Scope) -> bool:
        try:
            self._tokens.environment(environment)
        except UnknownEnvironment:
            return False
        return True

    def _first_environment(self, person: Person) -> Scope:
        if EVERY_ENVIRONMENT in person.roles or format_environment(DEFAULT_SCOPE) in person.roles:
            return DEFAULT_SCOPE
        environments = sorted(Scope(*name.split("/")) for name in person.roles)
        known = {known.scope for known in self._tokens.environments() if not known.is_being_deleted}
        return next((scope for scope in environments if scope in known), environments[0])

    def _in_selected_environment(self, caller: Caller, fields: HeaderFields) -> Caller:
        """The caller in the environment that the request selects, by default its own."""
        environment = _selected_environment(fields)
        if environment is None or environment == caller.environment:
            return caller
        if not caller.is_platform_admin:
            raise _unknown_environment(format_environment(environment))
        return self._tokens.caller_in(caller, environment)


def _names_stored_access(fields: HeaderFields) -> bool:
    """Whether a request has a token of ours or a session, or selects an environment."""
    secret = bearer_secret(fields.get(b"authorization", b""))
    return secret.startswith(SECRET_START) or ENVIRONMENT_HEADER in fields or bool(session_cookie(fields))


def _selected_environment(fields: HeaderFields) -> Scope | None:
    selected = fields.get(ENVIRONMENT_HEADER)
    if selected is None:
        return None
    name = selected.decode("latin-1").strip()
    names = name.split("/")
    if len(names) != 3:
        raise _unknown_environment(name)
    return Scope(*names)


def _unknown_environment(name: str) -> UnknownEnvironment:
    return UnknownEnvironment(
        f"Environment {name[:200]!r} does not exist. Send organization/project/environment of the "
        "token in X-Penstock-Environment, or leave the header out."
    )


def bearer_secret(authorization: bytes) -> str:
    """The secret in an Authorization header; empty if it has none."""
    scheme, _, secret = authorization.partition(b" ")
    return secret.strip().decode("latin-1") if scheme.lower() == b"bearer" else ""


def _looks_like_jwt(secret: str) -> bool:
    """Whether a bearer token has the form of a JWT: a JSON object in base64, and two more parts."""
    return secret.startswith("eyJ") and secret.count(".") == 2


def session_cookie(fields: HeaderFields) -> str:
    """The session cookie of a request; empty if it has none."""
    for pair in fields.get(b"cookie", b"").decode("latin-1").split(";"):
        name, _, value = pair.strip().partition("=")
        if name == SESSION_COOKIE:
            return value
    return ""
