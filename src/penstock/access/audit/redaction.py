"""Remove secrets and payloads from what the audit log stores.

Routes pass descriptions that have no secrets. This is the second line of defence: it goes by the names of
fields and by the form of credentials.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

REDACTED = "***"

_SECRET_PARTS = (
    *("secret", "password", "token", "authorization", "cookie", "credential"),
    *("apikey", "routingkey", "privatekey", "signature"),
)
"""A field is a secret if one of these is part of its name, in lower case and without separators."""
_SECRET_NAMES = frozenset({"url", "data", "payload"})
"""The URLs of alert channels are credentials, and payloads are for callers with read:payload."""
_HARMLESS_NAMES = frozenset({"secretfields", "tokenid"})
_CREDENTIAL = re.compile(
    r"\b(?P<kind>pk_|whsec_|xox[a-z]-|eyJ[\w-]+\.)[\w+/=.-]{8,}"  # tokens, webhook secrets, Slack, JWTs
    r"|(?<=://)[^/@\s]+(?=@)"  # user and password of a URL
)
_SEPARATORS = re.compile(r"[^a-z0-9]")


def redact(value: object) -> object:
    """Return a JSON value without secrets, and with the texts that PostgreSQL can store."""
    if isinstance(value, Mapping):
        return {
            clean_text(str(name)): _redact_secret(member) if _is_secret(str(name)) else redact(member)
            for name, member in value.items()
        }
    if isinstance(value, list | tuple):
        return [redact(member) for member in value]
    return clean_text(value) if isinstance(value, str) else value


def clean_text(text: str) -> str:
    """Return the text without credentials, NUL characters and lone surrogates."""
    text = text.replace("\0", "").encode("utf-8", "replace").decode()
    return _CREDENTIAL.sub(lambda match: f"{(match['kind'] or '')[:6]}{REDACTED}", text)


def _redact_secret(value: object) -> object:
    """Hide the value of a secret field. Descriptions of secrets, such as their prefixes, stay."""
    if isinstance(value, list) and all(isinstance(member, Mapping) for member in value):
        return redact(value)
    return REDACTED if value else value


def _is_secret(name: str) -> bool:
    plain = _SEPARATORS.sub("", name.lower())
    if plain in _HARMLESS_NAMES:
        return False
    return plain in _SECRET_NAMES or any(part in plain for part in _SECRET_PARTS)
