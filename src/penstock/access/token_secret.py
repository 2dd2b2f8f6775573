"""Secrets of tokens: how they are made, recognised and hashed."""

from __future__ import annotations

import secrets
from hashlib import sha256

SECRET_START = "pk_"
"""Every secret starts so: secret scanners recognise it, and so does the broker among other bearer tokens."""

RANDOM_BYTES = 32
PREFIX_LENGTH = 10
"""Characters that are stored and shown. 7 of them are random: 214 of the 256 bits stay secret."""


def new_secret() -> str:
    """Return a new secret: `pk_` and 43 characters with 256 random bits."""
    return SECRET_START + secrets.token_urlsafe(RANDOM_BYTES)


def hash_secret(secret: str) -> bytes:
    """Return the SHA-256 of a secret. 256 random bits cannot be guessed, so there is no salt."""
    return sha256(secret.encode()).digest()


def secret_prefix(secret: str) -> str:
    """Return the characters that people recognise a secret by."""
    return secret[:PREFIX_LENGTH]


def is_token_secret(text: str) -> bool:
    """Whether a bearer token claims to be a secret of ours."""
    return text.startswith(SECRET_START)
