"""Who may look at dead letters and act on them.

Tokens are settings. While none is set, only callers on this machine are let in: that is local use, where
nothing else of the API asks for a token either. Secrets are compared in a time that does not tell how much of
one was right.
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
EVERY = "*"


class Tokens:
    """Secrets by what they are for: `name=secret[,name=secret]`. The name `*` stands for every name."""

    def __init__(self, setting: str, text: str) -> None:
        self.setting = f"{PREFIX}{setting.upper()}"
        self._secrets: dict[str, list[bytes]] = {}
        for entry in filter(None, (part.strip() for part in text.split(","))):
            name, equals, secret = entry.partition("=")
            if not (name and equals and secret):
                raise ConfigError(
                    f"{self.setting} must be name=secret[,name=secret], without spaces around ="
                )
            self._secrets.setdefault(name, []).append(secret.encode())

    def __bool__(self) -> bool:
        return bool(self._secrets)

    def all(self) -> list[bytes]:
        return [secret for secrets in self._secrets.values() for secret in secrets]

    def of(self, name: str) -> list[bytes]:
        return self._secrets.get(name, []) + self._secrets.get(EVERY, [])


class Guards:
    """Asked by routes before they do anything: Unauthorized without a token, Forbidden with a wrong one."""

    def __init__(self, settings: Settings) -> None:
        self._ours = Tokens("dlq_tokens", settings.dlq_tokens)
        self._channels = Tokens("dlq_channel_tokens", settings.dlq_channel_tokens)
        self._consumers = Tokens("dlq_consumer_tokens", settings.dlq_consumer_tokens)

    def check(self, request: Request, *, remote: bool = False) -> None:
        """One of our tokens, as `Authorization: Bearer`. `remote`: without any set, all may come."""
        self.check_caller(_host(request), request.headers.get("authorization", ""), remote=remote)

    def check_caller(self, host: str | None, authorization: str, *, remote: bool = False) -> None:
        """The same, of a request that was not made into one yet. A socket of this machine has no host."""
        if not self._ours:
            if not remote:
                _require_local(host, self._ours.setting)
            return
        kind, _, given = authorization.partition(" ")
        if kind.lower() != "bearer" or not given.strip():
            raise Unauthorized("send a token of this broker as Authorization: Bearer …", challenge="Bearer")
        if not _matches(given.strip(), self._ours.all()):
            raise Forbidden(f"this token is none of those in {self._ours.setting}")

    def check_consumer(self, request: Request, queue: str, group: str) -> None:
        """The token of the queue and the token of the group, each in its header."""
        if not self._channels and not self._consumers:
            _require_local(_host(request), f"{self._channels.setting} and {self._consumers.setting}")
            return
        for tokens, name, header in (
            (self._channels, queue, CHANNEL_HEADER),
            (self._consumers, group, CONSUMER_HEADER),
        ):
            given = request.headers.get(header)
            if not given:
                raise Unauthorized(f"send the token of {name!r} in the header {header}", challenge=header)
            if not _matches(given, tokens.of(name)):
                raise Forbidden(f"the token in {header} is not one of {name!r}; {tokens.setting} lists them")


def guards(request: Request) -> Guards:
    found: Guards = request.app.state.guards
    return found


def _matches(given: str, secrets: Iterable[bytes]) -> bool:
    # Every one is compared: how long it takes must not tell which one came close.
    return sum(hmac.compare_digest(given.encode(), secret) for secret in secrets) > 0


def _host(request: Request) -> str | None:
    return request.client.host if request.client else None


def _require_local(host: str | None, setting: str) -> None:
    try:
        local = host is None or ip_address(host).is_loopback
    except ValueError:
        local = False
    if not local:
        raise Forbidden(f"without tokens this is for callers on the broker's machine only: set {setting}")
