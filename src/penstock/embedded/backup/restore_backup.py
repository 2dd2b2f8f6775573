"""Restore a backup into an empty home. The platform that starts there recovers PostgreSQL from its log."""

from __future__ import annotations

import os
import shutil
import tarfile
import zipfile
from pathlib import Path
from typing import Any

from penstock.embedded.backup.backup_archive import (
    BackupRefused,
    BackupUnusable,
    Manifest,
    ReportProgress,
    extract_file,
    open_archive,
    verify_archive,
)
from penstock.embedded.servers.data_directory import PostgresLayout, locate_postgres, open_to_all
from penstock.embedded.servers.postgres import major_version
from penstock.private_directories import create_home

BASE, WAL = "postgres/base.tar", "postgres/pg_wal.tar"
AOF_BASE = "appendonly.aof.1.base.rdb"
AOF_MANIFEST = f"file {AOF_BASE} seq 1 type b\n"
"""Valkey ignores a snapshot next to its append-only files, so the snapshot becomes the first of them."""

EXTRACTION: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""Python before 3.11.4 has no filters."""


def restore_backup(home: Path, path: Path, report: ReportProgress) -> Manifest:
    """Restore a backup into a home that does not exist or is empty. A failure leaves it empty.

    Raises BackupRefused if the home is in use, BackupUnusable if the file or its version does not fit.
    """
    if home.exists() and (not home.is_dir() or any(home.iterdir())):
        raise BackupRefused(
            f"{home} is not empty, and a restore overwrites nothing. Set PENSTOCK_HOME to a new directory, "
            "or move this one away."
        )
    with open_archive(path) as (archive, manifest):
        verify_archive(archive, manifest, report)
        create_home(home)
        layout = locate_postgres(home)
        try:
            _check_postgres_version(layout, manifest)
            _restore_files(archive, manifest, home, layout, report)
        except BaseException:
            for entry in home.iterdir():
                shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
            shutil.rmtree(layout.data, ignore_errors=True)
            raise
        return manifest


def _check_postgres_version(layout: PostgresLayout, manifest: Manifest) -> None:
    here = str(major_version(layout))
    if manifest.postgres_version != here:
        raise BackupUnusable(
            f"The backup is of PostgreSQL {manifest.postgres_version}, and PostgreSQL {here} is installed. "
            f"Restore it with Penstock {manifest.penstock_version}, then upgrade."
        )


def _restore_files(
    archive: zipfile.ZipFile, manifest: Manifest, home: Path, layout: PostgresLayout, report: ReportProgress
) -> None:
    report("Restoring PostgreSQL", 0, None)
    layout.data.mkdir(mode=0o700, parents=True)
    for name, target in ((BASE, layout.data), (WAL, layout.data / "pg_wal")):
        with archive.open(name) as member, tarfile.open(fileobj=member, mode="r|") as content:
            content.extractall(target, **EXTRACTION)
    if layout.account:
        if layout.data.parent != home:
            open_to_all(layout.data.parent, layout.data.parent.parent)
            (home / "postgres").symlink_to(layout.data)
        for file in (layout.data, *layout.data.rglob("*")):
            os.chown(file, layout.account.uid, layout.account.gid, follow_symlinks=False)
    layout.data.chmod(0o700)
    report("Restoring the other files", 0, None)
    for name in manifest.files:
        if name == "valkey/dump.rdb":
            directory = home / "valkey" / "appendonlydir"
            extract_file(archive, name, directory / AOF_BASE)
            (directory / "appendonly.aof.manifest").write_text(AOF_MANIFEST)
        elif not name.startswith("postgres/"):
            extract_file(archive, name, home / name)
