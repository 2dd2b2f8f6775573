"""A login that is under way: what the callback is checked against, in an encrypted cookie of the browser.

The callback can arrive at another broker than the one that started the login, so every broker derives the
same key from the client secret.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from penstock.clock import Clock, system_clock
from penstock.errors import LoginFailed

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

MAX_AGE_S = 600
"""Time to log in at the provider."""
MAX_PATH_LENGTH = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginAttempt:
    """The secrets of one login."""

    state: str = field(repr=False)
    """Comes back in the callback, and proves that this browser started the login."""
    nonce: str = field(repr=False)
    """Comes back in the ID token, and proves that it was issued for this login."""
    verifier: str = field(repr=False)
    """Proves to the provider that the code is redeemed by the broker that requested it (PKCE)."""
    next_path: str
    """Where the browser goes after the login."""

    @property
    def challenge(self) -> str:
        digest = hashlib.sha256(self.verifier.encode()).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def new_attempt(next_path: str) -> LoginAttempt:
    return LoginAttempt(
        state=secrets.token_urlsafe(32),
        nonce=secrets.token_urlsafe(32),
        verifier=secrets.token_urlsafe(48),
        next_path=local_path(next_path),
    )


def local_path(path: str) -> str:
    """Return the path if it leads to a page of this broker, otherwise `/`.

    Browsers read a backslash as a slash and drop control characters, so `/\\evil` would be another host.
    """
    parts = urlsplit(path)
    is_local = (
        path.startswith("/")
        and not path.startswith("//")
        and not (parts.scheme or parts.netloc)
        and len(path) <= MAX_PATH_LENGTH
        and path.isascii()
        and path.isprintable()
        and "\\" not in path
    )
    return path if is_local and not path.startswith("/auth/") else "/"


class LoginCookie:
    """Encrypts login attempts for the cookie."""

    def __init__(self, client_secret: str, clock: Clock = system_clock) -> None:
        self._client_secret = client_secret
        self._clock = clock
        self._cipher: Fernet | None = None

    def encode(self, attempt: LoginAttempt) -> str:
        text = json.dumps(asdict(attempt)).encode()
        return self._get_cipher().encrypt_at_time(text, int(self._clock())).decode()

    def decode(self, cookie: str) -> LoginAttempt:
        """Return the attempt. Raises LoginFailed if the cookie is not ours or too old."""
        from cryptography.fernet import InvalidToken

        try:
            text = self._get_cipher().decrypt_at_time(cookie.encode(), MAX_AGE_S, int(self._clock()))
        except InvalidToken:
            raise LoginFailed(
                "The login took longer than ten minutes, or another browser started it. Log in again."
            ) from None
        return LoginAttempt(**json.loads(text))

    def _get_cipher(self) -> Fernet:
        if self._cipher is None:
            from cryptography.fernet import Fernet
            from cryptography.hazmat.primitives.hashes import SHA256
            from cryptography.hazmat.primitives.kdf.hkdf import HKDF

            derivation = HKDF(SHA256(), 32, salt=None, info=b"penstock login cookie")
            self._cipher = Fernet(base64.urlsafe_b64encode(derivation.derive(self._client_secret.encode())))
        return self._cipher
