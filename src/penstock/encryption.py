"""Encrypt payloads at rest with AES-256-GCM. Every encrypted payload names its key, so keys can rotate.

An encrypted payload starts with the byte 1. No JSON text does, so encrypted and plain payloads can share a
queue, and the queue's option can change at any time. Layout: 1, length of the key id, key id, 12 bytes of
nonce, ciphertext with tag.
"""

from __future__ import annotations

import base64
import binascii
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import ConfigError, PenstockError
from penstock.trace_context import split_context

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

ENCRYPTED_MARK = 1
NONCE_BYTES = 12
KEY_BYTES = 32
MAX_KEY_ID_BYTES = 100


class KeyMissing(PenstockError):
    """A payload cannot be encrypted or decrypted with the configured keys."""

    code = "encryption_key_missing"
    status = 500
    title = "Encryption key missing"


@dataclass(frozen=True, slots=True)
class DecryptedPayload:
    """A payload as it was pushed, or the problem that prevents its decryption."""

    payload: bytes | None
    problem: str | None = None
    traceparent: str | None = None


class PayloadCipher:
    """Encrypt with the first key, decrypt with any. Without keys, only plain payloads pass through."""

    def __init__(self, keys: str = "") -> None:
        """Parse `keys`: `id:base64[,id:base64…]` with 32 bytes each, the newest key first."""
        parsed = [_parse_key(entry) for entry in keys.split(",") if entry]
        self._keys = dict(parsed)
        if len(self._keys) < len(parsed):
            raise ConfigError(
                "PENSTOCK_ENCRYPTION_KEYS uses a key id twice. Give every base64 key its own id."
            )
        self._current_key_id = next(iter(self._keys), None)
        self._decryption_errors: tuple[type[Exception], ...] = (ValueError,)
        if parsed:
            from cryptography.exceptions import InvalidTag

            self._decryption_errors = (InvalidTag, ValueError)

    @property
    def can_encrypt(self) -> bool:
        return self._current_key_id is not None

    def encrypt(self, payload: bytes) -> bytes:
        if self._current_key_id is None:
            raise KeyMissing(
                "The queue is encrypted and this broker has no key. Set PENSTOCK_ENCRYPTION_KEYS."
            )
        key_id = self._current_key_id.encode()
        nonce = os.urandom(NONCE_BYTES)
        head = bytes((ENCRYPTED_MARK, len(key_id))) + key_id
        return head + nonce + self._keys[self._current_key_id].encrypt(nonce, payload, head)

    def decrypt(self, stored: bytes) -> bytes:
        """Return what `encrypt` got, whether it is encrypted or plain: a payload and its trace context."""
        if not stored or stored[0] != ENCRYPTED_MARK:
            return stored
        head_end = 2 + int.from_bytes(stored[1:2])
        key_id = stored[2:head_end].decode(errors="replace")
        key = self._keys.get(key_id)
        if key is None:
            raise KeyMissing(
                f"A payload is encrypted with key {key_id!r}, which this broker does not have. "
                "Add it to PENSTOCK_ENCRYPTION_KEYS."
            )
        nonce = stored[head_end : head_end + NONCE_BYTES]
        try:
            return key.decrypt(nonce, stored[head_end + NONCE_BYTES :], stored[:head_end])
        except self._decryption_errors:
            raise KeyMissing(
                f"Key {key_id!r} does not decrypt a payload that names it: the key or the payload has "
                "changed. Check PENSTOCK_ENCRYPTION_KEYS."
            ) from None

    def try_decrypt(self, stored: bytes) -> DecryptedPayload:
        """Decrypt a payload. It returns a failure instead of raising, so one payload cannot hide a page."""
        try:
            payload, traceparent = split_context(self.decrypt(stored))
            return DecryptedPayload(payload, traceparent=traceparent)
        except KeyMissing as error:
            return DecryptedPayload(None, error.detail)


def _parse_key(entry: str) -> tuple[str, AESGCM]:
    key_id, colon, text = entry.strip().partition(":")
    try:
        key = base64.b64decode(text, validate=True)
    except binascii.Error:
        key = b""
    if not colon or not key_id or len(key_id.encode()) > MAX_KEY_ID_BYTES or len(key) != KEY_BYTES:
        raise ConfigError(
            "PENSTOCK_ENCRYPTION_KEYS must be id:key[,id:key…] with keys of 32 bytes in base64. Create a key "
            "with: python3 -c 'import os,base64; print(base64.b64encode(os.urandom(32)).decode())'"
        )
    # Most brokers have no keys and do without the 7 MB that the library takes.
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return key_id, AESGCM(key)
