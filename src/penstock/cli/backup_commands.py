"""`penstock backup | restore`: the embedded platform in one file."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from penstock.cli.json_output import print_json
from penstock.cli.options import AsJson
from penstock.config import load_settings

if TYPE_CHECKING:
    from penstock.embedded.backup.backup_archive import Manifest, ReportProgress


def backup(
    file: Annotated[Path, typer.Argument(help="New file of the backup.")],
    as_json: AsJson = False,
) -> None:
    """Back up the embedded platform, running or stopped, into one file with its secrets.

    It has all messages, tasks and settings in the databases, but no charts. Keep it as safe as the home.
    """
    from penstock.embedded.backup.take_backup import take_backup

    started_at = time.monotonic()
    with _progress(as_json) as report:
        manifest = take_backup(load_settings(), file.expanduser().absolute(), report)
    size, seconds = file.expanduser().stat().st_size, time.monotonic() - started_at
    if as_json:
        print_json(_document(manifest, file, seconds) | {"bytes": size})
    else:
        print(f"Backed up to {file}: {size / 1e6:.1f} MB in {seconds:.1f} s. It has secrets; keep it safe.")


def restore(
    file: Annotated[Path, typer.Argument(help="A file that `penstock backup` wrote.")],
    as_json: AsJson = False,
) -> None:
    """Restore a backup into an empty PENSTOCK_HOME. Start it with `penstock up` afterwards."""
    from penstock.embedded.backup.restore_backup import restore_backup

    settings = load_settings()
    started_at = time.monotonic()
    with _progress(as_json) as report:
        manifest = restore_backup(settings.home, file.expanduser().absolute(), report)
    seconds = time.monotonic() - started_at
    if as_json:
        print_json(_document(manifest, file, seconds) | {"home": str(settings.home)})
    else:
        print(f"Restored the backup of {manifest.created_at} into {settings.home} in {seconds:.1f} s.")
        print("Start it with `penstock up`. Charts start again from here.")


def _document(manifest: Manifest, file: Path, seconds: float) -> dict[str, object]:
    fields: dict[str, object] = msgspec.to_builtins(manifest)
    return fields | {"file": str(file), "seconds": round(seconds, 1)}


@contextmanager
def _progress(as_json: bool) -> Iterator[ReportProgress]:
    """Show a bar on stderr, if it is a terminal and the output is for people."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    with Progress(
        *columns, console=console, transient=True, disable=as_json or not console.is_terminal
    ) as bar:
        task = bar.add_task("Starting", total=None)

        def report(step: str, done: int, total: int | None) -> None:
            bar.update(task, description=step, completed=done, total=total)

        yield report
