"""Format dead letters, error groups and jobs for the terminal."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from penstock.cli.tables import format_duration, plain_table

if TYPE_CHECKING:
    from penstock.cli.broker_client import (
        DeadLetterDocument,
        DeadLetterPageDocument,
        DeadLetterStatusDocument,
        DryRunResultDocument,
        ErrorGroupPageDocument,
        JobDocument,
    )

BARS = " ▁▂▃▄▅▆▇█"
MAX_ERROR_LENGTH = 120
JOB_STATE_COLOURS = {
    "done": "green",
    "running": "yellow",
    "waiting": "dim",
    "cancelled": "dim",
    "failed": "red",
}


def dead_letter_count_table(status: DeadLetterStatusDocument) -> RenderableType:
    if not status["groups"] and status["missing"] is None:
        return Text("There are no dead letters.")
    table = plain_table("Queue", "Group", "Dead letters", "Oldest")
    for row in status["groups"]:
        group = escape(row["consumerGroup"]) if row["consumerGroup"] else "[dim]deleted[/dim]"
        if row["kind"] == "run":
            group = "[dim]run queue[/dim]"
        table.add_row(
            escape(row["queue"]), group, f"{row['deadLetters']:,}", format_age(row["oldestFailedAt"])
        )
    if status["missing"] is None:
        return table
    return Group(table, Text(f"\nThese counts are incomplete: {status['missing']}", style="yellow"))


def dead_letter_table(dead_letters: list[DeadLetterDocument], page: DeadLetterPageDocument) -> RenderableType:
    if not dead_letters:
        return Text("No dead letters match.")
    table = plain_table("Id", "Queue", "Group", "Partition", "Died", "Attempts", "Error")
    for row in dead_letters:
        error = to_one_line(row["errorMessage"] or "–")
        if (row["timesDead"] or 1) > 1:
            error = f"(dead {row['timesDead']} times) {error}"
        table.add_row(
            row["letterId"],
            escape(row["queue"]),
            escape(row["consumerGroup"] or "–"),
            escape(row["partition"] or "–"),
            format_age(row["failedAt"]),
            str(row["totalAttempts"]),
            escape(error),
        )
    total = page["total"]
    if total is None or total <= len(dead_letters):
        return table
    shown = f"{len(dead_letters):,} of {total:,}" + ("" if page["totalIsExact"] else " or more")
    return Group(table, Text(f"\n{shown} dead letters. Use -n to see more.", style="dim"))


def dead_letter_details(row: DeadLetterDocument) -> RenderableType:
    table = plain_table("Dead letter", row["letterId"])
    times = row["timesDead"]
    times_dead = "once" if times == 1 else "–" if times is None else f"{times} times"
    partition = "–" if row["partition"] is None else f"{row['partition']}, offset {row['offset']}"
    for name, value in (
        ("Queue", row["queue"]),
        ("Partition", partition),
        ("Group", row["consumerGroup"] or "deleted"),
        ("Transaction id", row["transactionId"]),
        ("Trace id", row["traceId"] or "–"),
        ("First enqueued", f"{row['firstEnqueuedAt']} as {row['firstTransactionId']}"),
        ("Died", f"{row['failedAt']}, {format_age(row['failedAt'])}"),
        ("Times dead", times_dead),
        ("Attempts", f"{row['retryCount']} since the last requeue, {row['totalAttempts']} in all"),
        ("Error", row["errorMessage"] or "–"),
        ("Error group", row["errorGroup"] or "–"),
    ):
        table.add_row(name, escape(value))
    problem = row.get("dataProblem")
    payload = str(problem) if problem else json.dumps(row["data"], indent=2, ensure_ascii=False)
    return Group(table, Text(""), Text(payload))


def error_group_table(page: ErrorGroupPageDocument) -> RenderableType:
    if not page["groups"]:
        return Text("There are no dead letters.")
    table = plain_table("Dead letters", "Error", "Queues", "First", "Last", "Trend", "Error group")
    for row in page["groups"]:
        table.add_row(
            f"{row['deadLetters']:,}",
            escape(row["error"]),
            escape(", ".join(row["queues"])),
            format_age(row["firstFailedAt"]),
            format_age(row["lastFailedAt"]),
            draw_sparkline(row["trend"]),
            f"[dim]{row['errorGroup']}[/dim]",
        )
    total = page["pagination"]["total"]
    if total <= len(page["groups"]):
        return table
    hint = f"\n{len(page['groups'])} of {total:,} error groups. Use -n to see more."
    return Group(table, Text(hint, style="dim"))


def job_table(jobs: list[JobDocument]) -> RenderableType:
    if not jobs:
        return Text("There are no jobs.")
    table = plain_table("Job", "Kind", "State", "Changed", "Total", "Created", "Note")
    for job in jobs:
        table.add_row(
            job["id"],
            job["kind"],
            Text(job["state"], style=JOB_STATE_COLOURS[job["state"]]),
            f"{job['changed']:,}",
            f"{job['total']:,}" + ("" if job["totalIsExact"] else "+"),
            format_age(job["createdAt"]),
            escape(job["note"] or ""),
        )
    return table


def describe_job(job: JobDocument) -> str:
    """Describe a job in one line."""
    action = {"requeue": "requeued", "purge": "deleted"}[job["kind"]]
    result = f"{_count_dead_letters(job['changed'])} {action}"
    match job["state"]:
        case "done":
            return f"Done: {result}."
        case "cancelled":
            return f"Cancelled: {result} before that."
        case "failed":
            return f"Failed after {result}: {job['note']}"
    return f"Job {job['id']} is {job['state']}: {result} so far. `penstock dlq jobs` shows its progress."


def describe_dry_run(kind: str, result: DryRunResultDocument) -> str:
    action = {"requeue": "be requeued", "purge": "be deleted permanently"}[kind]
    at_least = "" if result["totalIsExact"] else "At least "
    return f"{at_least}{_count_dead_letters(result['total'])} would {action}."


def _count_dead_letters(count: int) -> str:
    return f"{count:,} dead {'letter' if count == 1 else 'letters'}"


def draw_sparkline(counts: list[int]) -> str:
    """Draw one bar per hour, scaled to the busiest hour; every nonzero count is visible."""
    max_count = max(counts, default=0)
    if max_count <= 0:
        return ""
    return "".join(BARS[-(-max(count, 0) * (len(BARS) - 1) // max_count)] for count in counts)


def to_one_line(text: str) -> str:
    return " ".join(text.split())[:MAX_ERROR_LENGTH]


def format_age(timestamp: str | None) -> str:
    """Format an ISO 8601 timestamp as an age, such as `4 min ago`."""
    if timestamp is None:
        return "–"
    seconds = (datetime.now(UTC) - datetime.fromisoformat(timestamp)).total_seconds()
    return f"{format_duration(max(0.0, seconds))} ago"
