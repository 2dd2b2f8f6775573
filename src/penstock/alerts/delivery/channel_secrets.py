"""Encrypt the secrets of channels at rest.

The keys are those of PENSTOCK_ENCRYPTION_KEYS. Without them, a key file in the home directory is created when
the first secret is stored: enough for a platform on one machine. Processes on several machines need the
setting, because they do not share the home. A key file that exists still decrypts after the setting is made.
"""

from __future__ import annotations

import base64
import os
import secrets as random_secrets
import tempfile
from pathlib import Path

import msgspec

from penstock.encryption import KEY_BYTES, KeyMissing, PayloadCipher
from penstock.private_directories import create_private_directory


class SecretsUnreadable(KeyMissing):
    """The secrets of a channel cannot be decrypted with the keys of this process."""

    code = "channel_secrets_unreadable"
    status = 409
    title = "Channel secrets unreadable"


class ChannelSecrets:
    """Encrypts and decrypts the secret fields of channels."""

    def __init__(self, encryption_keys: str, home: Path) -> None:
        self._encryption_keys = encryption_keys
        self.key_file = home / "secrets" / "alert_key"

    def encrypt(self, secrets: dict[str, object]) -> bytes:
        """Return the secrets as they are stored. No secrets need no key."""
        if not secrets:
            return b""
        if not self._encryption_keys and not self.key_file.exists():
            create_key_file(self.key_file)
        return self._cipher().encrypt(msgspec.json.encode(secrets))

    def decrypt(self, stored: bytes) -> dict[str, object]:
        """Return the secret fields by name. Raises SecretsUnreadable without their key."""
        if not stored:
            return {}
        try:
            return msgspec.json.decode(self._cipher().decrypt(stored), type=dict[str, object])
        except KeyMissing as error:
            raise SecretsUnreadable(
                f"The channel's secrets cannot be decrypted: {error.detail} On several machines, set the "
                "same PENSTOCK_ENCRYPTION_KEYS for all processes and save the channel again."
            ) from None

    def _cipher(self) -> PayloadCipher:
        file_key = self.key_file.read_text().strip() if self.key_file.exists() else ""
        return PayloadCipher(",".join(filter(None, (self._encryption_keys, file_key))))


def create_key_file(path: Path) -> None:
    """Create a key that only this user can read, unless another process creates one at the same time."""
    create_private_directory(path.parent)
    key = base64.b64encode(os.urandom(KEY_BYTES)).decode()
    # The file appears complete: a process that starts at the same time reads either all of it or nothing.
    descriptor, draft = tempfile.mkstemp(dir=path.parent)  # mode 0600
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(f"home-{random_secrets.token_hex(4)}:{key}\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)
        except FileExistsError:
            return
    finally:
        Path(draft).unlink()
