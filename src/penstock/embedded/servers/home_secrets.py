"""What only the owner of a home knows: the password of its servers, and the key of encrypted queues.

The servers listen on the loopback alone, but so does every other user of the machine, and any web page
open in a browser can send a request there.
"""

from __future__ import annotations

import base64
import os
import secrets
from pathlib import Path

from penstock.embedded.supervision.failures import from_os_error
from penstock.errors import ComponentFailed

PASSWORD = "password"
ENCRYPTION_KEY = "encryption-key"


def ensure_password(home: Path) -> str:
    """The one password of the embedded servers, made on first use."""
    return _kept(home / PASSWORD, secrets.token_urlsafe(24))


def ensure_encryption_keys(home: Path) -> str:
    """The key of encrypted queues, in the form of its setting, made on first use.

    Whoever loses the file loses what was encrypted with it.
    """
    return _kept(home / ENCRYPTION_KEY, "home:" + base64.b64encode(secrets.token_bytes(32)).decode())


def _kept(path: Path, fresh: str) -> str:
    """What is kept at `path`: `fresh` if there is nothing yet. Readable by its owner only."""
    try:
        try:
            return path.read_text().strip()
        except FileNotFoundError:
            _make(path, fresh)
            return path.read_text().strip()
    except OSError as error:
        raise ComponentFailed(from_os_error(f"reading {path.name}", error, path)) from error


def _make(path: Path, text: str) -> None:
    """Write it in one step. Of several makers at once the first wins, and all read the same."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(f".{secrets.token_hex(4)}")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    try:
        os.link(fresh, path)  # never replaces
    except FileExistsError:
        pass
    finally:
        fresh.unlink()
