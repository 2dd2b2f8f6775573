"""Take a backup of the embedded platform, while it runs or while it is stopped.

PostgreSQL's part is a base backup: the state at its end, complete with the log that makes it consistent. The
journal is copied before it. A record that is replayed meanwhile is in both, and the restored database knows
that it has it. Valkey's part is a snapshot, taken last. ClickHouse and the checkpoint are left out: after a
restore the pipeline counts what the streams hold beyond the position of its consumer group, into new tables.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote, urlsplit

from redis import Redis

from penstock import __version__
from penstock.config import Settings
from penstock.embedded.backup.backup_archive import (
    FORMAT,
    BackupRefused,
    Manifest,
    ReportProgress,
    write_archive,
)
from penstock.embedded.servers.data_directory import locate_postgres
from penstock.embedded.servers.home_secrets import ENCRYPTION_KEY_FILE, PASSWORD_FILE
from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.servers.postgres import Postgres
from penstock.embedded.servers.valkey import Valkey
from penstock.embedded.supervision.component import running
from penstock.embedded.supervision.failures import last_line
from penstock.embedded.supervision.platform import resolve_server_urls
from penstock.embedded.supervision.state import read_state
from penstock.embedded.supervision.supervisor import HomeLock, stop_orphans
from penstock.errors import ComponentFailed

SNAPSHOT_TIMEOUT_S = 3600.0
SNAPSHOT_POLL_S = 0.05


def take_backup(settings: Settings, path: Path, report: ReportProgress) -> Manifest:
    """Write a backup of the home of these settings to a new file. Raises BackupRefused, ComponentFailed."""
    home = settings.home
    if path.exists():
        raise BackupRefused(f"{path} exists. Name another file, or move it away.")
    if not (home / "postgres").exists():
        raise BackupRefused(
            f"{home} has no embedded PostgreSQL to back up. Set PENSTOCK_HOME to a home of `penstock up`; an "
            "external server has backups of its own."
        )
    with ExitStack() as stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            staging = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        except OSError as error:
            raise BackupRefused(f"{path.parent} cannot be written ({error.strerror}).") from error
        stack.callback(shutil.rmtree, staging)
        postgres_url, redis_url = stack.enter_context(_servers(settings))
        files = _copy_home_files(home, staging)
        report("Copying PostgreSQL", 0, None)
        files |= _copy_postgres(home, postgres_url, staging)
        if redis_url:
            report("Copying Valkey", 0, None)
            files["valkey/dump.rdb"] = _snapshot_valkey(home, redis_url, staging)
        manifest = Manifest(
            format=FORMAT,
            penstock_version=__version__,
            postgres_version=(home / "postgres" / "PG_VERSION").read_text().strip(),
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            files={name: file.stat().st_size for name, file in files.items()},
        )
        write_archive(path, manifest, files, report)
        return manifest


@contextmanager
def _servers(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield the URLs of PostgreSQL and Valkey of the home; start them if the platform is stopped."""
    uses_valkey = not settings.redis_url and (settings.home / "valkey").is_dir()
    if read_state(settings.home) is not None:
        names = ("postgres_url", "redis_url") if uses_valkey else ("postgres_url",)
        resolved = resolve_server_urls(settings.model_copy(update={"postgres_url": ""}), *names)
        yield resolved.postgres_url, resolved.redis_url if uses_valkey else ""
        return
    lock = HomeLock(settings.home)
    try:
        stop_orphans(settings.home)
        with ExitStack() as stack:
            postgres = Postgres(settings.home, any_free_port())
            stack.enter_context(running(postgres))
            valkey = Valkey(settings.home, any_free_port())
            if uses_valkey:
                stack.enter_context(running(valkey))
            yield postgres.url, valkey.url if uses_valkey else ""
    finally:
        lock.close()


def _copy_home_files(home: Path, staging: Path) -> dict[str, Path]:
    """Copy the secrets and the journal: a journal that grows meanwhile must not change under the archive."""
    files = {}
    sources = [home / PASSWORD_FILE, home / ENCRYPTION_KEY_FILE, *sorted((home / "journal").rglob("*"))]
    for source in sources:
        if source.is_file():
            name = str(source.relative_to(home))
            files[name] = staging / "home" / name
            files[name].parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, files[name])
    return files


def _copy_postgres(home: Path, url: str, staging: Path) -> dict[str, Path]:
    layout, server = locate_postgres(home), urlsplit(url)
    directory = staging / "postgres"
    result = subprocess.run(
        [
            *(str(layout.programs / "pg_basebackup"), "--pgdata", str(directory), "--format=tar"),
            *("--wal-method=stream", "--checkpoint=fast", "--no-password"),
            *("--host", str(server.hostname), "--port", str(server.port), "--username", str(server.username)),
        ],
        cwd="/",
        env={**os.environ, "PGPASSWORD": unquote(server.password or "")},
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        raise ComponentFailed(f"PostgreSQL's backup failed: {last_line(result.stderr)}")
    return {f"postgres/{file.name}": file for file in sorted(directory.iterdir())}


def _snapshot_valkey(home: Path, url: str, staging: Path) -> Path:
    """Let Valkey write a snapshot and move it into the staging directory."""
    deadline = time.monotonic() + SNAPSHOT_TIMEOUT_S
    with Redis.from_url(url) as client:
        saves = client.info("persistence")["rdb_saves"]
        client.execute_command("BGSAVE SCHEDULE")
        while (state := client.info("persistence"))["rdb_saves"] == saves or state["rdb_bgsave_in_progress"]:
            if state["rdb_last_bgsave_status"] != "ok" or time.monotonic() > deadline:
                raise ComponentFailed("Valkey did not write its snapshot. `penstock logs valkey` says why.")
            time.sleep(SNAPSHOT_POLL_S)
    target = staging / "dump.rdb"
    shutil.move(home / "valkey" / "dump.rdb", target)
    return target
