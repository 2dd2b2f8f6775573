"""Format platform state, settings and progress for the terminal, and as JSON."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from penstock.cli.listing import Details, Listing, details
from penstock.embedded.supervision.state import ComponentState, PlatformState, RunState

if TYPE_CHECKING:
    from penstock.broker.journal.push_journal import JournalDepth
    from penstock.cli.platform_info import HealthSummary
    from penstock.pipeline.archive.rebuild import DayPlan

JsonObject = dict[str, object]

_STATE_COLOURS = {
    RunState.UP: "green",
    RunState.STARTING: "yellow",
    RunState.WAITING: "dim",
    RunState.STOPPING: "yellow",
    RunState.STOPPED: "dim",
    RunState.UNRESPONSIVE: "red",
    RunState.DOWN: "red",
}


def format_state(component: ComponentState) -> Text:
    return Text(str(component.state), style=_STATE_COLOURS[component.state])


def _format_state_and_restarts(component: ComponentState) -> Text:
    """Format the state; a component that was restarted says how often."""
    state = format_state(component)
    if component.restarts:
        state.append(
            f", {component.restarts} restart{'' if component.restarts == 1 else 's'}", style="yellow"
        )
    return state


def format_address(component: ComponentState) -> Text:
    return Text(component.address).append("  external" if component.is_external else "", style="dim")


def component_list(components: Sequence[ComponentState]) -> Listing:
    """Build the short table of `penstock up`."""
    listing = Listing("Component", "State", "Address")
    for component in components:
        listing.add_row(component.name, format_state(component), format_address(component))
    return listing


def platform_list(state: PlatformState) -> RenderableType:
    """Build the long table of `penstock status`, followed by the last failure of each component."""
    listing = Listing("Component", "State", "PID", "Address", "Up for")
    for component in state.components:
        listing.add_row(
            component.name,
            _format_state_and_restarts(component),
            str(component.pid) if component.pid else "–",
            format_address(component),
            format_duration(time.time() - component.up_since) if component.up_since else "–",
        )
    failures = [
        Text(
            f"Last failure of {component.name} ({_format_age(component.last_failure_at)}): "
            f"{component.last_failure}",
            style="yellow",
        )
        for component in state.components
        if component.last_failure
    ]
    uptime = format_duration(time.time() - state.started_at)
    heading = Text(f"Penstock at {state.url}, running for {uptime}\n")
    return Group(heading, listing, *([Text("")] if failures else []), *failures)


def format_health(health: HealthSummary | None) -> list[Text]:
    """Describe what does not work, one line per reason; nothing if the broker does not respond."""
    return [Text(reason, style="yellow") for reason in health["reasons"]] if health else []


def format_journal(depth: JournalDepth) -> Text:
    """Describe the pushes in the journal that PostgreSQL does not have yet."""
    if not depth.records:
        return Text("The journal is empty: PostgreSQL holds every accepted push.", style="dim")
    return Text(
        f"The journal holds {depth.records:,} pushes ({depth.bytes / 1024:,.0f} KiB) until PostgreSQL is "
        f"reachable again, the oldest for {format_duration(depth.oldest_age_s)}.",
        style="yellow",
    )


def platform_json(state: PlatformState | None, home: Path, depth: JournalDepth) -> JsonObject:
    """Build the document of `penstock status --json`; `running` is false when no platform runs."""
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
        "parts": [_component_json(component, now) for component in state.components],
    }


def _component_json(component: ComponentState, now: float) -> JsonObject:
    return {
        "name": component.name,
        "state": str(component.state),
        "pid": component.pid,
        "address": component.address,
        "uptimeSeconds": round(now - component.up_since, 1) if component.up_since else None,
        "restarts": component.restarts,
        "lastFailure": component.last_failure,
        "lastFailureAt": component.last_failure_at,
        "yours": component.is_external,
    }


def progress_details(progress: Mapping[str, object]) -> Details:
    """List the values of the pipeline's progress."""
    values: list[tuple[str, str]] = []
    for name, value in progress.items():
        match name, value:
            case "metrics", _:
                continue  # the same values per metric; --json prints them
            case "at" | "started_at" | "freshness", float() | int():
                text = _format_age(float(value))
            case _, dict():
                text = ", ".join(f"{key} {number}" for key, number in value.items())
            case _:
                text = "–" if value is None else str(value)
        label = {"at": "reported", "started_at": "started"}.get(name, name.replace("_", " "))
        values.append((label, text))
    return details("Pipeline", values, folding=("lag",))


def loss_list(losses: Sequence[Mapping[str, Any]]) -> RenderableType:
    """List events that are not counted, and why."""
    if not losses:
        return Text("All events of the last 31 days are counted.")
    listing = Listing("Metric", "Reason", "Events", "First", "Last", folding=("Reason",))
    for loss in losses:
        first, last = (str(loss[name])[:19].replace("T", " ") for name in ("first", "last"))
        listing.add_row(loss["metric"], Text(str(loss["reason"])), f"{loss['events']:,}", first, last)
    return listing


def rebuild_list(plans: Sequence[DayPlan], dry_run: bool) -> Listing:
    """List the days of a rebuild: their events, and what happened to them."""
    columns = ("Metric", "Day", "In the archive", "In the tables", "Files", "Tiers", "Result")
    listing = Listing(*columns, folding=("Tiers", "Result"))
    for plan in plans:
        if plan.rebuilt:
            result = f"[green]rebuilt[/green], pipeline paused for {plan.held_s:.1f} s"
        elif not plan.tables:
            result = "[dim]older than every table's retention[/dim]"
        else:
            result = "would be rebuilt" if dry_run else "not rebuilt"
        # A rollup has the same tiers as its metric, so each tier shows once.
        tiers = " ".join(dict.fromkeys(name.rpartition("_")[2] for name in plan.tables)) or "–"
        listing.add_row(
            plan.metric,
            plan.day,
            f"{plan.archived:,}",
            f"{plan.counted:,}",
            f"{plan.files:,}",
            tiers,
            result,
        )
    return listing


def format_duration(seconds: float) -> str:
    """Format seconds as `12 s`, `4 min`, `3 h 20 min` or `2 d 5 h`."""
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86400)
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min" if minutes else f"{max(0, int(seconds))} s"


def _format_age(timestamp: float | None) -> str:
    return f"{format_duration(time.time() - timestamp)} ago" if timestamp else ""
