"""Where the journal lies: one per database, so that nothing is replayed into another one."""

from __future__ import annotations

import hashlib
from pathlib import Path
from urllib.parse import urlsplit

from penstock.config import Settings


def journal_directory(settings: Settings) -> Path:
    """The directory for this database; every broker process of this machine has the same."""
    parts = urlsplit(settings.postgres_url)
    database = f"{parts.hostname}:{parts.port or 5432}{parts.path}"
    base = Path(settings.journal_dir) if settings.journal_dir else settings.home / "journal"
    return base / hashlib.sha256(database.encode()).hexdigest()[:12]
