"""How things look in the terminal, and the same as JSON."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from penstock.broker.journal.push_journal import JournalDepth
from penstock.cli.platform_info import SettingRow
from penstock.embedded.supervision.state import ComponentState, PlatformState, State

if TYPE_CHECKING:
    from penstock.pipeline.archive.rebuild import DayPlan

_COLOURS = {
    State.UP: "green",
    State.STARTING: "yellow",
    State.WAITING: "dim",
    State.STOPPING: "yellow",
    State.STOPPED: "dim",
    State.SILENT: "red",
    State.DOWN: "red",
}


def plain_table(*columns: str) -> Table:
    """Columns without a frame; long words fold rather than disappear."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def state_text(row: ComponentState) -> Text:
    return Text(str(row.state), style=_COLOURS[row.state])


def address_text(row: ComponentState) -> Text:
    return Text(row.address).append("  yours" if row.yours else "", style="dim")


def parts_table(parts: Sequence[ComponentState]) -> Table:
    """The short table of `penstock up`."""
    table = plain_table("Component", "State", "Address")
    for row in parts:
        table.add_row(row.name, state_text(row), address_text(row))
    return table


def status_table(state: PlatformState) -> RenderableType:
    """The long table of `penstock status`, and what failed last."""
    table = plain_table("Component", "State", "PID", "Address", "Up for", "Restarts")
    for row in state.parts:
        pid = str(row.pid) if row.pid else "–"
        up_for = duration(time.time() - row.up_since) if row.up_since else "–"
        restarts = "" if row.yours else str(row.restarts)
        table.add_row(row.name, state_text(row), pid, address_text(row), up_for, restarts)
    failures = [
        Text(f"{row.name} failed {_ago(row.last_failure_at)}: {row.last_failure}", style="yellow")
        for row in state.parts
        if row.last_failure
    ]
    head = Text(f"Penstock at {state.url}, running for {duration(time.time() - state.started_at)}\n")
    return Group(head, table, *([Text("")] if failures else []), *failures)


def journal_text(depth: JournalDepth) -> Text:
    """What waits in the journal for PostgreSQL."""
    if not depth.records:
        return Text("The journal is empty: PostgreSQL has everything that was accepted.", style="dim")
    return Text(
        f"{depth.records:,} pushes ({depth.bytes / 1024:,.0f} KiB) wait in the journal until PostgreSQL is"
        f" back, the first for {duration(depth.oldest_age_s)}.",
        style="yellow",
    )


def status_json(state: PlatformState | None, home: Path, depth: JournalDepth) -> dict[str, Any]:
    """What `penstock status --json` prints; `running` is false when there is nothing else to say."""
    journal = {"records": depth.records, "bytes": depth.bytes, "oldestAgeSeconds": depth.oldest_age_s}
    if state is None:
        return {"running": False, "home": str(home), "parts": [], "journal": journal}
    now = time.time()
    return {
        "running": True,
        "journal": journal,
        "allUp": state.all_up,
        "home": state.home,
        "url": state.url,
        "supervisorPid": state.supervisor.pid,
        "uptimeSeconds": round(now - state.started_at, 1),
        "parts": [_part_json(row, now) for row in state.parts],
    }


def _part_json(row: ComponentState, now: float) -> dict[str, Any]:
    fields = asdict(row)
    return {
        "name": row.name,
        "state": str(row.state),
        "pid": row.pid,
        "address": row.address,
        "uptimeSeconds": round(now - row.up_since, 1) if row.up_since else None,
        "restarts": fields["restarts"],
        "lastFailure": row.last_failure,
        "lastFailureAt": row.last_failure_at,
        "yours": row.yours,
    }


def config_table(rows: Sequence[SettingRow]) -> Table:
    table = plain_table("Setting", "Value", "From", "Meaning")
    for row in rows:
        value = escape(str(row.value)) if row.value != "" else "[dim]–[/dim]"
        table.add_row(row.name, value, escape(row.source), f"[dim]{escape(row.help)}[/dim]")
    return table


def progress_table(progress: dict[str, Any]) -> Table:
    """The pipeline's report, one line per value."""
    table = plain_table("Pipeline", "")
    for name, value in progress.items():
        match name, value:
            case "metrics", _:
                continue  # the same again, metric by metric: for --json
            case "at" | "started_at" | "freshness", float() | int():
                shown = _ago(float(value))
            case _, dict():
                shown = ", ".join(f"{key} {number}" for key, number in value.items())
            case _:
                shown = "–" if value is None else str(value)
        table.add_row(name.replace("_", " "), escape(shown))
    return table


def rebuild_table(plans: Sequence[DayPlan], dry_run: bool) -> Table:
    """What a rebuild found and did, day by day."""
    table = plain_table("Metric", "Day", "In the archive", "In the tables", "Files", "Tiers", "")
    for plan in plans:
        if plan.rebuilt:
            said = f"[green]rebuilt[/green], pipeline held for {plan.held_s:.1f} s"
        elif not plan.tables:
            said = "[dim]no table keeps it any more[/dim]"
        else:
            said = "would be rebuilt" if dry_run else "not rebuilt"
        # Rollups have the same tiers again.
        shown = " ".join(dict.fromkeys(name.rpartition("_")[2] for name in plan.tables)) or "–"
        table.add_row(
            plan.metric, plan.day, f"{plan.archived:,}", f"{plan.counted:,}", f"{plan.files:,}", shown, said
        )
    return table


def duration(seconds: float) -> str:
    """`12 s`, `4 min`, `3 h 20 min`, `2 d 5 h`: as much as a person wants to know."""
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86400)
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min" if minutes else f"{max(0, int(seconds))} s"


def _ago(moment: float | None) -> str:
    return f"{duration(time.time() - moment)} ago" if moment else ""
