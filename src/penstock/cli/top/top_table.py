"""Texts of `penstock top`, for the screen and for the plain table: queues, and what needs attention."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from penstock.cli.listing import Listing, with_hint
from penstock.cli.tables import format_duration
from penstock.cli.top.top_reader import TopSnapshot, TopSort

UNKNOWN = "–"
SEVERITY_STYLES = {"ok": "green", "info": "cyan", "warning": "yellow", "critical": "bold red"}
CAP_TEXTS = {
    "paused": "paused",
    "own_limit": "its limit",
    "environment_limit": "environment's limit",
    "no_consumers": "no consumers",
    "blocked_partition": "blocked partition",
}
COLUMNS: tuple[tuple[str, TopSort | None], ...] = (
    ("Queue", TopSort.NAME),
    ("Waiting", TopSort.DEPTH),
    ("Running", None),
    ("In/s", TopSort.RATE_IN),
    ("Out/s", TopSort.RATE_OUT),
    ("Wait p95", TopSort.WAIT),
    ("Oldest", TopSort.OLDEST),
    ("Dead", TopSort.DEAD),
    ("Held back by", None),
)
"""The heading of each column, and the order that it shows."""

LOOP_LAG_WARNING_MS = 100.0
MEBIBYTE = 2**20


def queue_cells(queue: dict[str, Any], now: datetime) -> list[Text]:
    """Return the cells of a row, in the order of COLUMNS."""
    running = _count(queue["running"])
    if queue["limit"] is not None:
        running += f"/{queue['limit']:,}"
    growth = " ↑" if queue["growth"] else ""
    cap = queue["cappedBy"]
    return [
        Text(queue["name"]),
        _figure(_count(queue["depth"]) + growth, "yellow" if growth else ""),
        _figure(running),
        _figure(_rate(queue["rateIn"])),
        _figure(_rate(queue["rateOut"])),
        _figure(_milliseconds(queue["waitP95Ms"])),
        _figure(_age(queue["oldestAt"], now)),
        _figure(_count(queue["dead"]), "red" if queue["dead"] else ""),
        Text(CAP_TEXTS.get(cap, str(cap)) if cap else "", style="yellow"),
    ]


def summary_lines(snapshot: TopSnapshot) -> Iterator[Text]:
    """Yield the state of the environment: totals, broker processes, and what needs attention."""
    overview, totals = snapshot.overview, snapshot.overview["totals"]
    now = parse_time(snapshot.page["asOf"])
    status = overview["status"]
    yield Text.assemble(
        (status.upper(), SEVERITY_STYLES.get(status, "")),
        f"  {_count(totals['queues'])} queues, {_count(totals['depth'])} waiting, "
        f"{_count(totals['running'])} running, {_count(totals['dead'])} dead",
    )
    yield Text(
        f"    {_rate(totals['rateIn'])}/s in, {_rate(totals['rateOut'])}/s out, "
        f"wait p95 {_milliseconds(totals['waitP95Ms'])}, oldest {_age(totals['oldestAt'], now)}, "
        f"{_count(totals['workers'])} worker{'' if totals['workers'] == 1 else 's'}"
    )
    yield from map(_worker_line, snapshot.workers or ())
    for section in overview["attention"]:
        for item in section["items"]:
            yield _attention_line(item, now)
    if not snapshot.page["metricsAvailable"]:
        yield Text(f"    No rates and waits: {snapshot.page['metricsProblem']}", style="yellow")


def plain_table(snapshot: TopSnapshot) -> RenderableType:
    """Build the output for a pipe, a file, or `--once`."""
    page = snapshot.page
    now = parse_time(page["asOf"])
    parts: list[RenderableType] = [*summary_lines(snapshot), Text("")]
    if not page["queues"]:
        return Group(*parts, Text("No queue matches." if page["total"] == 0 else "There are no queues."))
    listing = Listing(*(heading for heading, _ in COLUMNS), folding=("Held back by",))
    for queue in page["queues"]:
        listing.add_row(*queue_cells(queue, now))
    shown = len(page["queues"])
    if page["total"] > shown:
        return Group(
            *parts, with_hint(listing, f"{shown:,} of {page['total']:,} queues. Use --search or --limit.")
        )
    return Group(*parts, listing)


def parse_time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def _worker_line(worker: dict[str, Any]) -> Text:
    recent = worker["recent"]
    lag_ms, cpu = _last(recent["eventLoopLateMs"]), _last(recent["cpuPercent"])
    line = Text(f"    worker {worker['hostname']}/{worker['worker']}: ")
    line.append(
        f"CPU {UNKNOWN if cpu is None else f'{cpu:.0f} %'}, {worker['residentBytes'] / MEBIBYTE:,.0f} MiB, "
    )
    late = lag_ms is not None and lag_ms > LOOP_LAG_WARNING_MS
    line.append(f"loop {_milliseconds(lag_ms)} late", style="yellow" if late else "")
    return line


def _attention_line(item: dict[str, Any], now: datetime) -> Text:
    style = SEVERITY_STYLES.get(item["severity"], "")
    where = f"{item['where']}: " if item["where"] else ""
    since = f" (for {_age(item['since'], now)})" if item["since"] else ""
    parts = ((f"  ! {where}", style), f"{item['what']}{since}")
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def _figure(text: str, style: str = "") -> Text:
    return Text(text, style=style, justify="right")


def _last(values: list[float | None]) -> float | None:
    return next((value for value in reversed(values) if value is not None), None)


def _count(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value:,}"


def _rate(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if value >= 100 or value == 0 else f"{value:,.1f}"


def _milliseconds(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return f"{value:,.0f} ms" if value < 1000 else format_duration(value / 1000)


def _age(text: str | None, now: datetime) -> str:
    if text is None:
        return UNKNOWN
    # What began after the snapshot was taken has no age yet.
    return format_duration(max(0.0, (now - parse_time(text)).total_seconds()))
