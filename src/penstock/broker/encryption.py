"""Payloads at rest: AES-256-GCM, with the key's id in every sealed payload so that keys can rotate.

A sealed payload starts with the byte 1, which no JSON text does, so sealed and plain payloads live side by
side and a queue's option can change at any time. Layout: 1, length of the key id, key id, 12 bytes of
nonce, ciphertext with tag.
"""

from __future__ import annotations

import base64
import binascii
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from penstock.errors import ConfigError, PenstockError

MARK = 1
NONCE_BYTES = 12
KEY_BYTES = 32


class KeyMissing(PenstockError):
    code = "encryption_key_missing"
    status = 500
    title = "A payload cannot be decrypted"


class PayloadCipher:
    """Seals with the first key, opens with any. Without keys it can only pass plain payloads through."""

    def __init__(self, keys: str = "") -> None:
        """`keys` is `id:base64[,id:base64…]`: 32 bytes each, the newest first."""
        parsed = [_parse(entry) for entry in keys.split(",") if entry]
        self._keys = dict(parsed)
        if len(self._keys) < len(parsed):
            raise ConfigError("PENSTOCK_ENCRYPTION_KEYS names a key twice: give every base64 key its own id")
        self._current = next(iter(self._keys), None)

    @property
    def can_encrypt(self) -> bool:
        return self._current is not None

    def encrypt(self, payload: bytes) -> bytes:
        if self._current is None:
            raise KeyMissing("the queue is encrypted and there is no key; set PENSTOCK_ENCRYPTION_KEYS")
        key_id = self._current.encode()
        nonce = os.urandom(NONCE_BYTES)
        head = bytes((MARK, len(key_id))) + key_id
        return head + nonce + self._keys[self._current].encrypt(nonce, payload, head)

    def decrypt(self, stored: bytes) -> bytes:
        """The payload as it was pushed, whether it was sealed or not."""
        if not stored or stored[0] != MARK:
            return stored
        end = 2 + int.from_bytes(stored[1:2])
        key_id = stored[2:end].decode(errors="replace")
        key = self._keys.get(key_id)
        if key is None:
            raise KeyMissing(f"a payload was sealed with key {key_id!r}; add it to PENSTOCK_ENCRYPTION_KEYS")
        nonce = stored[end : end + NONCE_BYTES]
        try:
            return key.decrypt(nonce, stored[end + NONCE_BYTES :], stored[:end])
        except (InvalidTag, ValueError):
            raise KeyMissing(
                f"key {key_id!r} is not the one a payload was sealed with, or the payload was changed"
            ) from None


def _parse(entry: str) -> tuple[str, AESGCM]:
    key_id, colon, text = entry.strip().partition(":")
    try:
        key = base64.b64decode(text, validate=True)
    except binascii.Error:
        key = b""
    if not colon or not key_id or len(key_id.encode()) > 100 or len(key) != KEY_BYTES:
        raise ConfigError(
            "PENSTOCK_ENCRYPTION_KEYS must be id:key[,id:key…], each key 32 bytes in base64; "
            "make one with: python3 -c 'import os,base64; print(base64.b64encode(os.urandom(32)).decode())'"
        )
    return key_id, AESGCM(key)
