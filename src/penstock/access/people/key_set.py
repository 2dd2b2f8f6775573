"""The public keys of an identity provider: a JWKS document at a URL or in a file.

The keys are read when they are first needed, again every few minutes, and at once when a JWT names a key that
is not among them. While the provider is unreachable, the last keys stay in use.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.access.people.provider_http import fetch_json
from penstock.background import cancel_and_wait
from penstock.errors import ConfigError, PenstockError, ProviderUnavailable

if TYPE_CHECKING:
    from joserfc.jwk import Key

logger = logging.getLogger(__name__)

REFRESH_S = 300.0
"""Age at which the keys are read again."""
MIN_INTERVAL_S = 30.0
"""Minimum time between two attempts to read the keys, however many JWTs name unknown ones."""
FIRST_READ_INTERVAL_S = 2.0
"""The same while the keys could not be read at all."""
KEY_TYPES = ("RSA", "EC", "OKP")
"""Kinds of public keys. A shared secret (`oct`) is none."""

ReadDocument = Callable[[], Awaitable[dict[str, Any]]]


class KeySet:
    """The keys of one JWKS document by their id (`kid`)."""

    def __init__(
        self, read_document: ReadDocument, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._read_document = read_document
        self._monotonic = monotonic
        self._keys: list[Key] = []
        self._document: dict[str, Any] = {}
        self._attempted_at = float("-inf")
        self._read_at = float("-inf")
        self._refresh: asyncio.Task[None] | None = None
        self.version = 0
        """Raised by every change of the keys: what was verified before may not be valid any more."""

    async def find(self, key_id: str | None) -> Key | None:
        """Return the key with this id. Without an id, return the only key.

        Raises ProviderUnavailable if the keys could never be read.
        """
        self.refresh_if_due()
        key = self._lookup(key_id)
        min_interval_s = MIN_INTERVAL_S if self._document else FIRST_READ_INTERVAL_S
        if key is None and self._monotonic() - self._attempted_at >= min_interval_s:
            await asyncio.shield(self._start_refresh())
            key = self._lookup(key_id)
        elif key is None and self._refresh is not None:
            await asyncio.shield(self._refresh)
            key = self._lookup(key_id)
        if key is None and not self._document:
            raise ProviderUnavailable("The keys of the identity provider cannot be read. Retry later.")
        return key

    def refresh_if_due(self) -> None:
        """Start to read old keys again in the background. It is cheap: call it for every request."""
        now = self._monotonic()
        if self._document and now - self._read_at >= REFRESH_S and now - self._attempted_at >= MIN_INTERVAL_S:
            self._start_refresh()

    async def stop(self) -> None:
        if self._refresh is not None:
            await cancel_and_wait(self._refresh)

    def _lookup(self, key_id: str | None) -> Key | None:
        if key_id is None:
            return self._keys[0] if len(self._keys) == 1 else None
        return next((key for key in self._keys if key.kid == key_id), None)

    def _start_refresh(self) -> asyncio.Task[None]:
        if self._refresh is None or self._refresh.done():
            self._attempted_at = self._monotonic()
            self._refresh = asyncio.create_task(self._read(), name="JWKS")
        return self._refresh

    async def _read(self) -> None:
        try:
            document = await self._read_document()
            keys = await asyncio.to_thread(import_keys, document)  # the first call imports a large library
        except PenstockError as error:
            logger.warning(
                "The keys that sign JWTs could not be read; the last ones stay in use. %s", error.detail
            )
            return
        self._read_at = self._monotonic()
        if document != self._document:
            self._document, self._keys = document, keys
            self.version += 1


def import_keys(document: dict[str, Any]) -> list[Key]:
    """Return the public keys for signatures in a JWKS document; others are left out."""
    from joserfc.errors import JoseError
    from joserfc.jwk import JWKRegistry

    entries = document.get("keys")
    if not isinstance(entries, list):
        raise ProviderUnavailable("The JWKS document has no list `keys`.")
    keys = []
    for entry in entries:
        if isinstance(entry, dict) and entry.get("kty") in KEY_TYPES and entry.get("use", "sig") == "sig":
            try:
                keys.append(JWKRegistry.import_key(entry))
            except (JoseError, ValueError, KeyError, TypeError) as error:
                logger.warning("A key of the JWKS document is invalid and left out: %s", error)
    return keys


def reader_of(location: str) -> ReadDocument:
    """Return the function that reads a JWKS document from a URL or a file."""
    if "://" in location:
        return lambda: fetch_json(location)

    async def read() -> dict[str, Any]:
        return await asyncio.to_thread(read_key_file, Path(location))

    return read


def read_key_file(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"The JWKS file {path} cannot be read: {error}.") from None
    if not isinstance(document, dict):
        raise ConfigError(f"The JWKS file {path} must have a JSON object with a list `keys`.")
    return document
