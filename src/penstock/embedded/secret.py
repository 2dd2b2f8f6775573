"""The one password of the embedded servers of a home, known to their owner only.

They listen on the loopback alone, but so does every other user of the machine, and any web page open in a
browser can send a request there.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from penstock.embedded.failures import from_os_error
from penstock.errors import PartFailed

FILE = "password"


def password_of(home: Path) -> str:
    """The password kept in `home`, made on first use. The file is readable by its owner only."""
    path = home / FILE
    try:
        try:
            return path.read_text().strip()
        except FileNotFoundError:
            _make(path)
            return path.read_text().strip()
    except OSError as error:
        raise PartFailed(
            from_os_error("reading the password of the embedded servers", error, path)
        ) from error


def _make(path: Path) -> None:
    """Write a password in one step. Of several makers at once the first wins, and all read the same."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(f".{secrets.token_hex(4)}")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secrets.token_urlsafe(24))
    try:
        os.link(fresh, path)  # never replaces
    except FileExistsError:
        pass
    finally:
        fresh.unlink()
