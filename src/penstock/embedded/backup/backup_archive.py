"""The file of a backup: a ZIP archive with a manifest, whose checksums show damage.

It has the secrets of the home, so only its owner can read it. It appears under its name when it is complete.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import msgspec

from penstock.errors import PenstockError

FORMAT = 1
MANIFEST = "manifest.json"
COPY_BYTES = 1 << 20
FAST_COMPRESSION = 1

ReportProgress = Callable[[str, int, int | None], None]
"""Called with a step, the bytes that are done, and the bytes of the whole step if they are known."""


class BackupUnusable(PenstockError):
    """The file is no backup, is damaged, or comes from another version."""

    code = "backup_unusable"
    title = "Backup unusable"


class BackupRefused(PenstockError):
    """The backup or the restore cannot start: something is in its way. Nothing was changed."""

    code = "backup_refused"
    title = "Backup refused"


class Manifest(msgspec.Struct, frozen=True, rename="camel"):
    """What a backup was made of."""

    format: int
    penstock_version: str
    postgres_version: str
    created_at: str
    files: dict[str, int]
    """Sizes of the files by their names in the archive."""


def write_archive(path: Path, manifest: Manifest, files: dict[str, Path], report: ReportProgress) -> None:
    """Write the files into a new archive. A failure leaves no file behind."""
    partial = path.with_name(f"{path.name}.partial")
    total, done = sum(manifest.files.values()), 0
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=FAST_COMPRESSION) as archive:
                archive.writestr(MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)))
                for name, source in files.items():
                    with source.open("rb") as content, archive.open(name, "w", force_zip64=True) as member:
                        for count in _copy(content, member):
                            done += count
                            report("Writing the archive", done, total)
            file.flush()
            os.fsync(file.fileno())
        os.link(partial, path)  # never replaces an existing file
    except FileExistsError:
        raise BackupRefused(f"{path} exists. Name another file, or move it away.") from None
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def open_archive(path: Path) -> Iterator[tuple[zipfile.ZipFile, Manifest]]:
    """Open a backup of this format. Raises BackupUnusable."""
    try:
        with zipfile.ZipFile(path) as archive:
            manifest = msgspec.json.decode(archive.read(MANIFEST), type=Manifest)
            if manifest.format != FORMAT:
                raise BackupUnusable(
                    f"{path} has format {manifest.format} of Penstock {manifest.penstock_version}, and this "
                    f"version reads format {FORMAT}. Restore it with that version."
                )
            yield archive, manifest
    except (zipfile.BadZipFile, KeyError, msgspec.DecodeError, EOFError) as error:
        raise BackupUnusable(f"{path} is no backup, or it is damaged ({error}). Use another one.") from error
    except OSError as error:
        raise BackupRefused(f"{path} cannot be read ({error.strerror or error}).") from error


def verify_archive(archive: zipfile.ZipFile, manifest: Manifest, report: ReportProgress) -> None:
    """Read all files and compare their checksums. Raises BadZipFile, or BackupUnusable for missing files."""
    total, done = sum(manifest.files.values()), 0
    for name in manifest.files:
        with archive.open(name) as member:
            while chunk := member.read(COPY_BYTES):
                done += len(chunk)
                report("Checking the archive", done, total)
    if done != total:
        raise BackupUnusable(f"The archive has {done} of {total} bytes. Use another one.")


def extract_file(archive: zipfile.ZipFile, name: str, target: Path) -> None:
    """Extract one file, which only its owner can read."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file, archive.open(name) as member:
        for _ in _copy(member, file):
            pass


def _copy(source: IO[bytes], target: IO[bytes]) -> Iterator[int]:
    while chunk := source.read(COPY_BYTES):
        target.write(chunk)
        yield len(chunk)
