"""Where the journal lies: one per database, so that nothing is replayed into another one."""

from __future__ import annotations

import hashlib
from pathlib import Path
from urllib.parse import urlsplit

from penstock.broker.journal.push_journal import Journal, JournalDepth
from penstock.config import Settings


def journal_directory(settings: Settings) -> Path:
    """The directory that every broker process of this machine uses for this database.

    The embedded database has the same wherever it listens, so that a journal is found after a restart.
    """
    if settings.journal_dir:
        return Path(settings.journal_dir).expanduser()
    parts = urlsplit(settings.postgres_url)
    address = f"{parts.hostname}:{parts.port or 5432}{parts.path}"
    name = hashlib.sha256(address.encode()).hexdigest()[:12] if settings.postgres_url else "embedded"
    return settings.home / "journal" / name


def read_depth(settings: Settings) -> JournalDepth:
    """What the journal holds, for somebody who is not a broker; nothing is made where there is none."""
    directory = journal_directory(settings)
    return Journal(directory, 0).depth() if directory.is_dir() else JournalDepth(0, 0, 0.0)
