"""Channels as users write them: one struct per kind, with settings and secrets.

The fields in `secret_fields` are stored encrypted and never returned. No representation of a channel shows
them, and no error quotes them. The URL of a webhook counts as a secret: Slack's and Teams' URLs are
credentials, and other URLs often carry a token.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Annotated, ClassVar, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec

from penstock.body_error_text import EMAIL_PATTERN, HOST_PATTERN, NAME_PATTERN

MAX_NAME_LENGTH = 100
MAX_RECIPIENTS = 50
MAX_SIGNING_SECRETS = 5
SIGNING_SECRET_PREFIX = "whsec_"
SIGNING_SECRET_BYTES = (24, 64)
PAGERDUTY_URL = "https://events.pagerduty.com/v2/enqueue"

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=2_000)]
Email = Annotated[str, msgspec.Meta(max_length=254, pattern=EMAIL_PATTERN)]
ChannelName = Annotated[str, msgspec.Meta(max_length=MAX_NAME_LENGTH, pattern=NAME_PATTERN)]


class AlertChannel(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, tag_field="kind"
):
    """A receiver of notices."""

    secret_fields: ClassVar[tuple[str, ...]] = ()
    """Names of the fields, as in JSON."""

    name: ChannelName
    enabled: bool = True

    @property
    def kind(self) -> str:
        return str(self.__struct_config__.tag)

    @property
    def target(self) -> str:
        """Where notices go, without secrets."""
        return ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("name", self.name)]


class SecretUrlChannel(AlertChannel, frozen=True, kw_only=True):
    """A channel whose URL is a secret."""

    secret_fields: ClassVar[tuple[str, ...]] = ("url",)

    url: Text

    def __post_init__(self) -> None:
        _check_url(self.url)

    @property
    def target(self) -> str:
        return _origin(self.url)


class WebhookChannel(SecretUrlChannel, frozen=True, kw_only=True, tag="webhook"):
    """POST to a URL, signed as Standard Webhooks describes."""

    secret_fields: ClassVar[tuple[str, ...]] = ("url", "signingSecrets")

    signing_secrets: Annotated[tuple[Text, ...], msgspec.Meta(max_length=MAX_SIGNING_SECRETS)] = ()
    """Each signs every notice. To replace one, set both until receivers know the new one."""

    def __post_init__(self) -> None:
        _check_url(self.url)
        for secret in self.signing_secrets:
            _check_signing_secret(secret)


class SlackChannel(SecretUrlChannel, frozen=True, kw_only=True, tag="slack"):
    """An incoming webhook of Slack."""


class TeamsChannel(SecretUrlChannel, frozen=True, kw_only=True, tag="teams"):
    """A workflow of Microsoft Teams that posts a card when it receives a webhook request."""


class EmailChannel(AlertChannel, frozen=True, kw_only=True, tag="email"):
    """Mail through an SMTP server."""

    secret_fields: ClassVar[tuple[str, ...]] = ("password",)

    host: Annotated[str, msgspec.Meta(max_length=255, pattern=HOST_PATTERN)]
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] | None = None
    """None: 587 with STARTTLS, 465 with TLS, 25 without."""
    security: Literal["starttls", "tls", "none"] = "starttls"
    username: Text | None = None
    password: Text | None = None
    sender: Email = msgspec.field(name="from")
    recipients: Annotated[tuple[Email, ...], msgspec.Meta(min_length=1, max_length=MAX_RECIPIENTS)] = (
        msgspec.field(name="to")
    )

    def __post_init__(self) -> None:
        if (self.username is None) != (self.password is None):
            raise ValueError("Set username and password together, or neither")
        if self.username is not None and self.security == "none":
            raise ValueError("A login needs encryption. Set security to starttls or tls")

    @property
    def smtp_port(self) -> int:
        return self.port or {"starttls": 587, "tls": 465, "none": 25}[self.security]

    @property
    def target(self) -> str:
        return ", ".join(self.recipients)


class PagerDutyChannel(AlertChannel, frozen=True, kw_only=True, tag="pagerduty"):
    """A service of PagerDuty with an Events API v2 integration."""

    secret_fields: ClassVar[tuple[str, ...]] = ("routingKey",)

    routing_key: Text
    url: Text = PAGERDUTY_URL
    """https://events.eu.pagerduty.com/v2/enqueue for accounts in the EU region."""

    def __post_init__(self) -> None:
        _check_url(self.url)

    @property
    def target(self) -> str:
        return _origin(self.url)


class AlertmanagerChannel(AlertChannel, frozen=True, kw_only=True, tag="alertmanager"):
    """The API v2 of Prometheus Alertmanager."""

    secret_fields: ClassVar[tuple[str, ...]] = ("password",)

    url: Text
    """Without /api/v2/alerts."""
    username: Text | None = None
    password: Text | None = None

    def __post_init__(self) -> None:
        _check_url(self.url)
        if urlsplit(self.url).query:
            raise ValueError("The url must not have a query")
        if (self.username is None) != (self.password is None):
            raise ValueError("Set username and password together, or neither")

    @property
    def target(self) -> str:
        return self.url


AnyChannel: TypeAlias = (
    WebhookChannel | SlackChannel | EmailChannel | PagerDutyChannel | TeamsChannel | AlertmanagerChannel
)


def split_secrets(channel: AnyChannel) -> tuple[dict[str, object], dict[str, object]]:
    """Return the settings and the secrets of a channel, without its name, kind and `enabled`."""
    fields: dict[str, object] = msgspec.to_builtins(channel)
    for name in ("name", "kind", "enabled"):
        fields.pop(name, None)
    secrets = {name: fields.pop(name) for name in channel.secret_fields}
    return fields, {name: value for name, value in secrets.items() if value}


def list_secret_texts(channel: AnyChannel) -> list[str]:
    """Return every text that must not appear in an error, the longest first."""
    texts: list[str] = []
    for value in split_secrets(channel)[1].values():
        for text in value if isinstance(value, list) else [value]:
            texts.append(str(text))
            if "://" in str(text):
                parts = urlsplit(str(text))
                texts += [text for text in (parts.path, parts.query) if len(text) > 1]
    return sorted(texts, key=len, reverse=True)


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")


def _check_url(url: str) -> None:
    """Raise ValueError, without the URL, unless it is an absolute HTTP URL."""
    problem = (
        "The url must be http://… or https://… with a host, and without a user, a password and a fragment"
    )
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise ValueError(problem) from None
    if not is_valid or "@" in parts.netloc or parts.fragment or re.search(r"[\s\x00-\x1f\x7f\\]", url):
        raise ValueError(problem)


def _check_signing_secret(secret: str) -> None:
    low, high = SIGNING_SECRET_BYTES
    try:
        key = base64.b64decode(secret.removeprefix(SIGNING_SECRET_PREFIX), validate=True)
    except binascii.Error:
        key = b""
    if not secret.startswith(SIGNING_SECRET_PREFIX) or not low <= len(key) <= high:
        raise ValueError(
            f"A signing secret must be {SIGNING_SECRET_PREFIX} and {low} to {high} bytes in base64. "
            "`penstock alerts channels create` creates one"
        )
