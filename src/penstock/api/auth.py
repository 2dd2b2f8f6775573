"""Access control of the dead-letter routes.

Tokens are settings. While none is set, only callers on this machine are admitted: that is local use, where
the rest of the API needs no token either. Secrets are compared in a time that does not depend on how many
of their characters match.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from ipaddress import ip_address

from starlette.requests import Request

from penstock.config import PREFIX, Settings
from penstock.errors import ConfigError, Forbidden, Unauthorized

CHANNEL_HEADER = "X-Broker-Channel-Token"
CONSUMER_HEADER = "X-Broker-Consumer-Token"
ANY_NAME = "*"


class Tokens:
    """Secrets by the name they are valid for: `name=secret[,name=secret]`. The name `*` stands for all."""

    def __init__(self, setting: str, text: str) -> None:
        self.setting = f"{PREFIX}{setting.upper()}"
        self._secrets: dict[str, list[bytes]] = {}
        for entry in filter(None, (entry.strip() for entry in text.split(","))):
            name, equals, secret = entry.partition("=")
            if not (name and equals and secret):
                raise ConfigError(
                    f"{self.setting} must be name=secret[,name=secret], without spaces around =."
                )
            self._secrets.setdefault(name, []).append(secret.encode())

    def __bool__(self) -> bool:
        return bool(self._secrets)

    def all_secrets(self) -> list[bytes]:
        return [secret for secrets in self._secrets.values() for secret in secrets]

    def secrets_for(self, name: str) -> list[bytes]:
        return self._secrets.get(name, []) + self._secrets.get(ANY_NAME, [])


class Guards:
    """Checks that routes call first. They raise Unauthorized without a token, Forbidden with a wrong one."""

    def __init__(self, settings: Settings) -> None:
        self._broker_tokens = Tokens("dlq_tokens", settings.dlq_tokens)
        self._channel_tokens = Tokens("dlq_channel_tokens", settings.dlq_channel_tokens)
        self._consumer_tokens = Tokens("dlq_consumer_tokens", settings.dlq_consumer_tokens)

    def check(self, request: Request, *, remote: bool = False) -> None:
        """Require a token of this broker as `Authorization: Bearer`.

        While no token is set, admit callers on this machine, and with `remote` all callers.
        """
        self.check_caller(_host(request), request.headers.get("authorization", ""), remote=remote)

    def check_caller(self, host: str | None, authorization: str, *, remote: bool = False) -> None:
        """The same check without a Request object. A caller over a Unix socket has no host."""
        if not self._broker_tokens:
            if not remote:
                _require_local(host, self._broker_tokens.setting)
            return
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Unauthorized(
                "The request has no token. Send a token of this broker as Authorization: Bearer …",
                challenge="Bearer",
            )
        if not _matches_any(token.strip(), self._broker_tokens.all_secrets()):
            raise Forbidden(f"The token is not one of those in {self._broker_tokens.setting}.")

    def check_consumer(self, request: Request, queue: str, group: str) -> None:
        """Require the token of the queue and the token of the group, each in its own header."""
        if not self._channel_tokens and not self._consumer_tokens:
            _require_local(
                _host(request), f"{self._channel_tokens.setting} and {self._consumer_tokens.setting}"
            )
            return
        for tokens, name, header in (
            (self._channel_tokens, queue, CHANNEL_HEADER),
            (self._consumer_tokens, group, CONSUMER_HEADER),
        ):
            token = request.headers.get(header)
            if not token:
                raise Unauthorized(
                    f"The request has no token of {name!r}. Send it in the header {header}.", challenge=header
                )
            if not _matches_any(token, tokens.secrets_for(name)):
                raise Forbidden(f"The token in {header} is not one of {name!r}. {tokens.setting} lists them.")


def get_guards(request: Request) -> Guards:
    guards: Guards = request.app.state.guards
    return guards


def _matches_any(token: str, secrets: Iterable[bytes]) -> bool:
    # All secrets are compared: the duration must not reveal which one matched.
    return sum(hmac.compare_digest(token.encode(), secret) for secret in secrets) > 0


def _host(request: Request) -> str | None:
    return request.client.host if request.client else None


def _require_local(host: str | None, setting: str) -> None:
    try:
        is_local = host is None or ip_address(host).is_loopback
    except ValueError:
        is_local = False
    if not is_local:
        raise Forbidden(
            f"Without tokens this route only serves callers on the broker's machine. Set {setting}."
        )
