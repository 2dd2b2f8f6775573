"""Create directories that other users of the machine cannot read.

They hold payloads, positions and secrets, so their permissions do not depend on the umask.
"""

from __future__ import annotations

import os
from pathlib import Path

PRIVATE_MODE = 0o700
PASSABLE_MODE = 0o711
"""Other users can pass through the directory but cannot list it."""


def create_home(home: Path) -> None:
    """Create the home unless it exists. As root, PostgreSQL's user must be able to pass through it."""
    if not home.exists():
        home.parent.mkdir(parents=True, exist_ok=True)
        home.mkdir(exist_ok=True)
        home.chmod(PASSABLE_MODE if os.geteuid() == 0 else PRIVATE_MODE)


def create_private_directory(directory: Path) -> None:
    """Create the directory and its missing parents, all private. An existing one is left as it is."""
    for path in (*reversed(directory.parents), directory):
        if not path.exists():
            path.mkdir(mode=PRIVATE_MODE, exist_ok=True)


def make_private(directory: Path) -> None:
    """Create the directory, or make it private if an earlier version created it open to others."""
    create_private_directory(directory)
    status = directory.stat()
    if status.st_uid == os.geteuid() and status.st_mode & 0o077:
        directory.chmod(PRIVATE_MODE)
