"""`penstock report`: batch jobs over what was measured."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from datetime import date, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from penstock.cli.tables import plain_table
from penstock.clock import iso, to_utc
from penstock.config import load_settings
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.pipeline.capacity.result import Report

MOST_ROWS = 40
WIDE = 110
_COLOURS = {"at_limit": "red", "soon": "red", "behind": "red", "later": "yellow", "tight": "yellow"}

report = typer.Typer(help="Reports over what was measured.", no_args_is_help=True)


class Source(StrEnum):
    """Where measurements are read from."""

    TIERS = "tiers"
    ARCHIVE = "archive"


@report.callback()
def _reports() -> None:
    """Reports over what was measured."""


@report.command()
def capacity(
    period: Annotated[str, typer.Option(help="How far back: 48h, 30d, 12w.")] = "30d",
    start: Annotated[
        str | None, typer.Option("--from", help="A date or time in UTC; wins over --period.")
    ] = None,
    end: Annotated[str | None, typer.Option("--to", help="A date or time in UTC; now unless given.")] = None,
    queue: Annotated[list[str] | None, typer.Option(help="Only this queue; may be repeated.")] = None,
    source: Annotated[
        Source, typer.Option(help="The tiers in ClickHouse, or the Parquet archive.")
    ] = Source.TIERS,
    archive: Annotated[str | None, typer.Option(help="The archive's directory, if not the set one.")] = None,
    out: Annotated[Path | None, typer.Option(help="Directory for the page and the Parquet files.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """How loaded each queue is, how much room it has left, and when that runs out.

    Exit code 0 with a report, 1 when nothing was measured in the period, 2 when something failed.
    """
    from penstock.embedded.servers.java import find_java
    from penstock.embedded.supervision.platform import resolve_server_urls
    from penstock.pipeline.archive.event_archive import archive_root
    from penstock.pipeline.capacity.period import read_moment, read_period

    settings = load_settings()
    since, until = (None if text is None else read_moment(text) for text in (start, end))
    asked = read_period(period, since, until, now_s=time.time())
    place = None
    if archive is not None or source is Source.ARCHIVE:
        place = archive or archive_root(settings)
        if not place:
            raise ConfigError("there is no archive: set PENSTOCK_ARCHIVE, or say --archive DIR")
    else:
        settings = resolve_server_urls(settings, "clickhouse_url")
    os.environ["JAVA_HOME"] = str(find_java(settings.home).home)

    from penstock.pipeline.capacity.report_job import run
    from penstock.pipeline.capacity.result import NothingMeasured, Request

    chosen = Path(f"penstock-capacity-{time.strftime('%Y-%m-%d', time.gmtime())}") if out is None else out
    progress = Console(stderr=True, highlight=False, soft_wrap=True)
    try:
        made = run(
            settings,
            Request(asked, chosen, tuple(queue or ()), place),
            lambda words: progress.print(f"[dim]{escape(words)} …[/dim]"),
        )
    except NothingMeasured as nothing:
        progress.print(f"[yellow]{escape(nothing.detail)}[/yellow]")
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        progress.print("Ended before there was a report.")
        raise typer.Exit(130) from None
    missing = sorted(set(queue or ()) - set(made.subjects["queue"].to_pylist()))
    for name in missing:
        progress.print(f"[yellow]{escape(repr(name))} was not measured in the period[/yellow]")
    if as_json:
        print(json.dumps(_as_json(made), indent=2))
    else:
        console = Console(highlight=False)
        console.print(*_tables(made, wide=console.width >= WIDE), sep="\n")
    progress.print(f"The page: {escape(str(made.page.absolute()))}")


def _tables(made: Report, *, wide: bool) -> list[Table | Text]:
    rows = made.subjects.to_pylist()
    parts: list[Table | Text] = []
    for kind in ("queue", "environment"):
        listed = [row for row in rows if row["kind"] == kind]
        if not listed:
            continue
        parts.append(_table(kind, listed[:MOST_ROWS], wide=wide))
        if len(listed) > MOST_ROWS:
            parts.append(Text(f"… and {len(listed) - MOST_ROWS} more, on the page", style="dim"))
        parts.append(Text(""))
    return parts


def _table(kind: str, rows: list[dict[str, Any]], *, wide: bool) -> Table:
    """Without the room for all columns, those go that decide least."""
    from penstock.pipeline.capacity import sentences

    columns: dict[str, Callable[[dict[str, Any]], str]] = {
        "Running": lambda row: (
            sentences.number(row["peak_running"]) + (f"/{row['limit']}" if row["limit"] else "")
        ),
        "In/s": lambda row: sentences.number(row["peak_enqueued_per_s"]),
        "Out/s": lambda row: sentences.number(row["peak_dequeued_per_s"]),
        "Depth": lambda row: sentences.number(row["peak_depth"]),
        "p95 wait": lambda row: sentences.wait(row["wait_p95_ms"]),
        "Trend": lambda row: sentences.growth(row) or "–",
        "Full on": sentences.saturation,
    }
    if not wide:
        del columns["Out/s"], columns["Depth"]
    table = plain_table(kind.capitalize(), "Verdict", *columns)
    for column in table.columns[2:-1]:
        column.justify = "right"
    several = len({(row["organization"], row["project"], row["environment"]) for row in rows}) > 1
    for row in rows:
        name = Text(row[kind])
        if several or kind == "environment":
            name.append(f"\n{row['organization']}/{row['project']}/{row['environment']}", style="dim")
        verdict = Text(sentences.label(row), style=_COLOURS.get(row["verdict"], ""))
        table.add_row(name, verdict, *(Text(shown(row)) for shown in columns.values()))
    return table


def _as_json(made: Report) -> dict[str, Any]:
    period = made.request.period

    def plain(value: Any) -> Any:
        return value.isoformat() if isinstance(value, date | datetime) else value

    return {
        "from": iso(to_utc(period.start_s)),
        "to": iso(to_utc(period.end_s)),
        "source": "tiers" if made.request.archive is None else "archive",
        "peakWidthSeconds": made.request.width_s,
        "page": str(made.page.absolute()),
        "subjects": [
            {name: plain(value) for name, value in row.items()} for row in made.subjects.to_pylist()
        ],
    }
