"""Find the caller of a request from its headers."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.access.token_index import TokenIndex
from penstock.access.token_secret import SECRET_START
from penstock.caller import LOCAL_CALLER, Caller
from penstock.errors import Unauthorized, UnknownEnvironment
from penstock.model import Scope

ENVIRONMENT_HEADER = b"x-penstock-environment"


class Authentication:
    """Checks credentials. Those that are not in memory are checked by `authenticate` alone."""

    def __init__(self, tokens: TokenIndex, *, is_required: bool) -> None:
        self._tokens = tokens
        self._is_required = is_required

    def find_caller(self, fields: Mapping[bytes, bytes]) -> Caller | None:
        """The caller, if that can be told from memory; None: call `authenticate`. Raises Unauthorized."""
        secret = bearer_secret(fields.get(b"authorization", b""))
        if secret.startswith(SECRET_START):
            caller = self.find_token(secret)
        elif self._is_required:
            raise Unauthorized(
                "The request has no token. Send one as Authorization: Bearer pk_…; penstock tokens create "
                "makes one."
            )
        else:
            caller = LOCAL_CALLER
        return self._in_selected_environment(caller, fields)

    async def authenticate(self, fields: Mapping[bytes, bytes]) -> Caller:
        """The caller. Raises Unauthorized."""
        caller = self.find_caller(fields)
        assert caller is not None
        return caller

    def find_token(self, secret: str) -> Caller:
        """The caller that has this token. Raises Unauthorized unless the token is valid."""
        caller = self._tokens.find(secret)
        if caller is None:
            raise Unauthorized(
                "The token is unknown, expired or revoked. Use another one: penstock tokens create makes one."
            )
        return caller

    def _in_selected_environment(self, caller: Caller, fields: Mapping[bytes, bytes]) -> Caller:
        """The caller in the environment that the request selects, by default its own."""
        selected = fields.get(ENVIRONMENT_HEADER)
        if selected is None:
            return caller
        name = selected.decode("latin-1").strip()
        names = name.split("/")
        environment = Scope(*names) if len(names) == 3 else None
        if environment == caller.environment:
            return caller
        if environment is None or not caller.is_platform_admin:
            raise UnknownEnvironment(
                f"Environment {name[:200]!r} does not exist. Send organization/project/environment of the "
                "token in X-Penstock-Environment, or leave the header out."
            )
        return self._tokens.caller_in(caller, environment)


def bearer_secret(authorization: bytes) -> str:
    """The secret in an Authorization header; empty if it has none."""
    scheme, _, secret = authorization.partition(b" ")
    return secret.strip().decode("latin-1") if scheme.lower() == b"bearer" else ""
