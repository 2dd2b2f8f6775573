"""The secrets of a home: created once, private, and the same for all readers."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from penstock.embedded.servers.home_secrets import ensure_password


def test_the_password_is_created_once_and_kept_private(tmp_path: Path) -> None:
    password = ensure_password(tmp_path / "home")
    assert len(password) >= 24
    assert ensure_password(tmp_path / "home") == password
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["password"]
    assert stat.S_IMODE((tmp_path / "home" / "password").stat().st_mode) == 0o600


def test_concurrent_readers_get_the_same_password(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        for attempt in range(20):
            assert len(set(pool.map(ensure_password, [tmp_path / str(attempt)] * 16))) == 1
