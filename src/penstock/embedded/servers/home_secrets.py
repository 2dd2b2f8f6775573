"""The secrets of a home: the password of its servers and the key of encrypted queues.

The embedded servers listen on the loopback interface only, but every user of the machine can connect to it,
and so can any web page that is open in a browser.
"""

from __future__ import annotations

import base64
import os
import secrets
from pathlib import Path

from penstock.embedded.supervision.failures import explain_os_error
from penstock.errors import ComponentFailed
from penstock.private_directories import create_home

PASSWORD_FILE = "password"
ENCRYPTION_KEY_FILE = "encryption-key"


def ensure_password(home: Path) -> str:
    """Return the password of the embedded servers; create it on first use."""
    return _read_or_create(home / PASSWORD_FILE, secrets.token_urlsafe(24))


def ensure_encryption_keys(home: Path) -> str:
    """Return the key of encrypted queues, in the form of its setting; create it on first use.

    Without the file, everything that was encrypted with the key is lost.
    """
    key = base64.b64encode(secrets.token_bytes(32)).decode()
    return _read_or_create(home / ENCRYPTION_KEY_FILE, f"home:{key}")


def _read_or_create(path: Path, new_secret: str) -> str:
    """Return the content of `path`, which only its owner can read; without a file, write `new_secret`."""
    try:
        try:
            return path.read_text().strip()
        except FileNotFoundError:
            _create(path, new_secret)
            return path.read_text().strip()
    except OSError as error:
        raise ComponentFailed(explain_os_error(f"read the secret {path.name}", error, path)) from error


def _create(path: Path, text: str) -> None:
    """Write the file atomically. The first of several concurrent writers wins, and all read its secret."""
    create_home(path.parent)
    new_file = path.with_suffix(f".{secrets.token_hex(4)}")
    with os.fdopen(os.open(new_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    try:
        os.link(new_file, path)  # never replaces an existing file
    except FileExistsError:
        pass
    finally:
        new_file.unlink()
