"""Format dead letters, error groups and jobs for the terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from penstock.cli.listing import Listing, details, with_hint
from penstock.cli.tables import format_duration
from penstock.model import QUEUE_MODE, QUEUE_MODE_LABEL

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
GROUP_STATE_COLOURS = {
    "back_again": "red",
    "new": "yellow",
    "open": "",
    "ignored": "dim",
    "resolved": "green",
}
JOB_NOUNS = {
    "dead_letters": ("dead letter", "dead letters"),
    "messages": ("message", "messages"),
    "tasks": ("task", "tasks"),
}
JOB_RESULTS = {"requeue": "requeued", "purge": "deleted", "dead_letter": "moved to the dead letters"}


NO_DEAD_LETTERS = "There are no dead letters. `penstock queues ls` shows the messages that wait."


def format_group(group: str | None, kind: str = "durable") -> str:
    """Format a consumer group as `--group` takes it, with markup; run queues have none."""
    if kind == "run":
        return "[dim]run queue[/dim]"
    return escape(group.replace(QUEUE_MODE, QUEUE_MODE_LABEL)) if group else "[dim]deleted[/dim]"


def dead_letter_counts(status: DeadLetterStatusDocument) -> RenderableType:
    listing = Listing("Queue", "Group", "Dead letters", "Oldest")
    for row in status["groups"]:
        listing.add_row(
            escape(row["queue"]),
            format_group(row["consumerGroup"], row["kind"]),
            f"{row['deadLetters']:,}",
            format_age(row["oldestFailedAt"]),
        )
    counts: RenderableType = listing if status["groups"] else Text(NO_DEAD_LETTERS)
    if status["missing"] is None:
        return counts
    return with_hint(counts, f"These counts are incomplete: {status['missing']}", style="yellow")


def dead_letter_list(dead_letters: list[DeadLetterDocument], page: DeadLetterPageDocument) -> RenderableType:
    if not dead_letters:
        return Text("No dead letters match. `penstock dlq status` counts those of each queue.")
    listing = Listing("Id", "Queue", "Group", "Partition", "Died", "Attempts", "Error", folding=("Error",))
    for row in dead_letters:
        error = to_one_line(row["errorMessage"] or "–")
        if (row["timesDead"] or 1) > 1:
            error = f"(dead {row['timesDead']} times) {error}"
        listing.add_row(
            row["letterId"],
            escape(row["queue"]),
            format_group(row["consumerGroup"], row["kind"]),
            escape(row["partition"] or "–"),
            format_age(row["failedAt"]),
            str(row["totalAttempts"]),
            escape(error),
        )
    total = page["total"]
    if total is None or total <= len(dead_letters):
        return listing
    shown = f"{len(dead_letters):,} of {total:,}" + ("" if page["totalIsExact"] else " or more")
    return with_hint(listing, f"{shown} dead letters. Use -n to see more.")


def dead_letter_details(row: DeadLetterDocument) -> RenderableType:
    times = row["timesDead"]
    times_dead = "once" if times == 1 else "–" if times is None else f"{times} times"
    partition = "–" if row["partition"] is None else f"{row['partition']}, offset {row['offset']}"
    values = [
        ("Queue", row["queue"]),
        ("Partition", partition),
        ("Group", Text.from_markup(format_group(row["consumerGroup"], row["kind"])).plain),
        ("Transaction id", row["transactionId"]),
        ("Trace id", row["traceId"] or "–"),
        ("First enqueued", row["firstEnqueuedAt"]),
        ("First transaction id", row["firstTransactionId"]),
        ("Died", f"{row['failedAt']}, {format_age(row['failedAt'])}"),
        ("Times dead", times_dead),
        ("Attempts", f"{row['retryCount']} since the last requeue, {row['totalAttempts']} in all"),
        ("Error", row["errorMessage"] or "–"),
        ("Error group", row["errorGroup"] or "–"),
    ]
    problem = row.get("dataProblem")
    payload = str(problem) if problem else json.dumps(row["data"], indent=2, ensure_ascii=False)
    title = f"Dead letter {row['letterId']}"
    return Group(details(title, values, folding=("Error", "Attempts")), Text(""), Text(payload))


def error_group_list(page: ErrorGroupPageDocument) -> RenderableType:
    if not page["groups"]:
        return Text(NO_DEAD_LETTERS)
    listing = Listing(
        *("Error group", "State", "Dead letters", "Error", "Queues", "First", "Last", "Trend", "Owner"),
        folding=("Error",),
    )
    for row in page["groups"]:
        listing.add_row(
            row["errorGroup"],
            Text(row["state"].replace("_", " "), style=GROUP_STATE_COLOURS[row["state"]]),
            f"{row['deadLetters']:,}",
            escape(row["error"]),
            escape(", ".join(row["queues"])),
            format_age(row["firstFailedAt"]),
            format_age(row["lastFailedAt"]),
            draw_sparkline(row["trend"]),
            escape(row["owner"] or "–"),
        )
    total = page["pagination"]["total"]
    if total <= len(page["groups"]):
        return listing
    return with_hint(listing, f"{len(page['groups'])} of {total:,} error groups. Use -n to see more.")


def job_list(jobs: list[JobDocument]) -> RenderableType:
    if not jobs:
        return Text("There are no jobs. `penstock dlq requeue` and `penstock dlq purge` start one.")
    listing = Listing(
        *("Job", "Kind", "Subject", "State", "Changed", "Skipped", "Total", "Created", "Note"),
        folding=("Note",),
    )
    for job in jobs:
        listing.add_row(
            job["id"],
            job["kind"].replace("_", " "),
            JOB_NOUNS[job["subject"]][1],
            Text(job["state"], style=JOB_STATE_COLOURS[job["state"]]),
            f"{job['changed']:,}",
            f"{job['skipped']:,}",
            f"{job['total']:,}" + ("" if job["totalIsExact"] else "+"),
            format_age(job["createdAt"]),
            escape(job["note"] or ""),
        )
    return listing


def describe_job(job: JobDocument) -> str:
    """Describe a job in one line."""
    noun = JOB_NOUNS[job["subject"]][job["changed"] != 1]
    result = f"{job['changed']:,} {noun} {JOB_RESULTS[job['kind']]}"
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


def describe_ignored_until(conditions: Mapping[str, object]) -> str:
    """Describe what ends the ignoring of an error group: whichever of the conditions comes first."""
    texts = {
        "time": "until {}",
        "count": "until {} more dead letters",
        "ratePerHour": "until more than {} dead letters in one hour",
    }
    described = [texts[name].format(value) for name, value in conditions.items()]
    return ", or ".join(described) or "without an end"


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
