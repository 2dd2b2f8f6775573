"""`penstock report`: batch jobs over the measured metrics."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from datetime import date, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from penstock.cli.listing import Listing, print_output
from penstock.cli.options import AsJson
from penstock.clock import iso, to_utc
from penstock.config import load_settings
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.pipeline.capacity.result import CapacityReport
    from penstock.pipeline.capacity.sentences import Row as ReportRow

MAX_ROWS = 40
WIDE_CONSOLE_COLUMNS = 110
_VERDICT_COLOURS = {"at_limit": "red", "soon": "red", "behind": "red", "later": "yellow", "tight": "yellow"}

report = typer.Typer(help="Create reports from measured metrics.", no_args_is_help=True)


class MetricSource(StrEnum):
    """Where the report reads metrics from."""

    TIERS = "tiers"
    ARCHIVE = "archive"


@report.callback()
def _report_group() -> None:
    """Create reports from measured metrics."""  # the callback keeps `capacity` a subcommand


@report.command()
def capacity(
    period: Annotated[str, typer.Option(help="Length of the period, such as 48h, 30d or 12w.")] = "30d",
    start: Annotated[
        str | None, typer.Option("--from", help="Start date or time in UTC; overrides --period.")
    ] = None,
    end: Annotated[str | None, typer.Option("--to", help="End date or time in UTC. Default: now.")] = None,
    queue: Annotated[list[str] | None, typer.Option(help="Only this queue; can be repeated.")] = None,
    source: Annotated[
        MetricSource, typer.Option(help="Read the tier tables in ClickHouse, or the Parquet archive.")
    ] = MetricSource.TIERS,
    archive: Annotated[
        str | None, typer.Option(help="Directory or URL of the archive. Default: PENSTOCK_ARCHIVE.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Directory for the HTML page and the Parquet files. Default: penstock-capacity-<date>."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Report the load of each queue, its remaining capacity, and when that runs out.

    Exit code 0 with a report, 1 when the period has no measurements, 2 when an error occurred.
    """
    from penstock.embedded.servers.java import find_java
    from penstock.embedded.supervision.platform import resolve_server_urls
    from penstock.pipeline.archive.event_archive import archive_root
    from penstock.pipeline.capacity.period import parse_period, parse_time

    settings = load_settings()
    since, until = (None if text is None else parse_time(text) for text in (start, end))
    report_period = parse_period(period, since, until, now_s=time.time())
    archive_path = None
    if archive is not None or source is MetricSource.ARCHIVE:
        archive_path = archive or archive_root(settings)
        if not archive_path:
            raise ConfigError("There is no archive. Set PENSTOCK_ARCHIVE, or give its path with --archive.")
    else:
        settings = resolve_server_urls(settings, "clickhouse_url")
    os.environ["JAVA_HOME"] = str(find_java(settings.home).home)

    from penstock.pipeline.capacity.report_job import run
    from penstock.pipeline.capacity.result import NothingMeasured, ReportRequest

    directory = Path(f"penstock-capacity-{time.strftime('%Y-%m-%d', time.gmtime())}") if out is None else out
    progress = Console(stderr=True, highlight=False, soft_wrap=True)
    try:
        result = run(
            settings,
            ReportRequest(report_period, directory, tuple(queue or ()), archive_path),
            lambda step: progress.print(f"[dim]{escape(step)} …[/dim]"),
        )
    except NothingMeasured as error:
        progress.print(f"[yellow]{escape(error.detail)}[/yellow]")
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        progress.print("Interrupted: no report was written.")
        raise typer.Exit(130) from None
    missing = sorted(set(queue or ()) - set(result.subjects["queue"].to_pylist()))
    for name in missing:
        progress.print(f"[yellow]{escape(repr(name))} has no measurements in the period[/yellow]")
    if as_json:
        print(json.dumps(_report_json(result), indent=2))
    else:
        console = Console(highlight=False)
        print_output(*_build_tables(result, is_wide=console.width >= WIDE_CONSOLE_COLUMNS))
    progress.print(f"Report page: {escape(str(result.page.absolute()))}")


def _build_tables(report: CapacityReport, *, is_wide: bool) -> list[Listing | Text]:
    rows = report.subjects.to_pylist()
    renderables: list[Listing | Text] = []
    for kind in ("queue", "environment"):
        rows_of_kind = [row for row in rows if row["kind"] == kind]
        if not rows_of_kind:
            continue
        renderables.append(_build_table(kind, rows_of_kind[:MAX_ROWS], is_wide=is_wide))
        if len(rows_of_kind) > MAX_ROWS:
            hidden = len(rows_of_kind) - MAX_ROWS
            renderables.append(Text(f"… and {hidden} more on the report page", style="dim"))
        renderables.append(Text(""))
    return renderables


def _build_table(kind: str, rows: list[ReportRow], *, is_wide: bool) -> Listing:
    """Build the table of queues or environments; a narrow console omits the least important columns."""
    from penstock.pipeline.capacity import sentences

    columns: dict[str, Callable[[ReportRow], str]] = {
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
    if not is_wide:
        del columns["Out/s"], columns["Depth"]
    if kind == "queue" and len({_environment_path(row) for row in rows}) > 1:
        columns["Environment"] = _environment_path
    listing = Listing(kind.capitalize(), "Verdict", *columns)
    for row in rows:
        name = Text(row["queue"] if kind == "queue" else _environment_path(row))
        verdict = Text(sentences.label(row), style=_VERDICT_COLOURS.get(row["verdict"], ""))
        listing.add_row(name, verdict, *(Text(format_cell(row)) for format_cell in columns.values()))
    return listing


def _environment_path(row: ReportRow) -> str:
    return f"{row['organization']}/{row['project']}/{row['environment']}"


def _report_json(report: CapacityReport) -> dict[str, object]:
    period = report.request.period
    return {
        "from": iso(to_utc(period.start_s)),
        "to": iso(to_utc(period.end_s)),
        "source": "tiers" if report.request.archive is None else "archive",
        "peakWidthSeconds": report.request.width_s,
        "page": str(report.page.absolute()),
        "subjects": [
            {name: _to_json_value(value) for name, value in row.items()}
            for row in report.subjects.to_pylist()
        ],
    }


def _to_json_value(value: object) -> object:
    return value.isoformat() if isinstance(value, date | datetime) else value
