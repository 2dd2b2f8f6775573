"""Encrypt the secrets of channels at rest, with the keys of PENSTOCK_ENCRYPTION_KEYS."""

from __future__ import annotations

import msgspec

from penstock.encryption import KeyMissing, PayloadCipher


class ChannelKeyMissing(KeyMissing):
    """The secrets of a channel cannot be encrypted or decrypted with the keys of this process."""

    code = "channel_key_missing"
    status = 409
    title = "Channel key missing"


class ChannelSecrets:
    """Encrypts and decrypts the secret fields of channels."""

    def __init__(self, encryption_keys: str) -> None:
        self._cipher = PayloadCipher(encryption_keys)

    def encrypt(self, secrets: dict[str, object]) -> bytes:
        """Return the secrets as they are stored. No secrets need no key. Raises ChannelKeyMissing."""
        if not secrets:
            return b""
        if not self._cipher.can_encrypt:
            raise ChannelKeyMissing(
                "The channel has secrets and the broker has no key to encrypt them with. Set "
                "PENSTOCK_ENCRYPTION_KEYS, the same for all brokers and alert processes."
            )
        return self._cipher.encrypt(msgspec.json.encode(secrets))

    def decrypt(self, stored: bytes) -> dict[str, object]:
        """Return the secret fields by name. Raises ChannelKeyMissing without their key."""
        if not stored:
            return {}
        decrypted = self._cipher.try_decrypt(stored)
        if decrypted.payload is None:
            raise ChannelKeyMissing(
                f"The channel's secrets cannot be decrypted: {decrypted.problem} Or save the channel again, "
                "with its secrets."
            )
        return msgspec.json.decode(decrypted.payload, type=dict[str, object])
