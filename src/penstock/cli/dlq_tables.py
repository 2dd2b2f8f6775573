"""How dead letters look in the terminal."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from penstock.cli.tables import format_duration, plain_table

BARS = " ▁▂▃▄▅▆▇█"
STATES = {"done": "green", "running": "yellow", "waiting": "dim", "cancelled": "dim", "failed": "red"}


def status_table(body: dict[str, Any]) -> RenderableType:
    table = plain_table("Queue", "Group", "Dead", "Oldest died")
    for row in body["groups"]:
        name = escape(row["consumerGroup"]) if row["consumerGroup"] else "[dim]deleted[/dim]"
        if row["kind"] == "run":
            name = "[dim]run queue[/dim]"
        table.add_row(escape(row["queue"]), name, f"{row['deadLetters']:,}", ago(row["oldestFailedAt"]))
    if body["missing"] is None:
        return table
    return Group(table, Text(f"\nNot told: {body['missing']}.", style="yellow"))


def letters_table(letters: list[dict[str, Any]], body: dict[str, Any]) -> RenderableType:
    table = plain_table("Letter", "Queue", "Group", "Partition", "Died", "Attempts", "Error")
    for row in letters:
        error = one_line(row["errorMessage"] or "–")
        if (row["timesDead"] or 1) > 1:
            error = f"(dead {row['timesDead']} times) {error}"
        table.add_row(
            row["letterId"],
            escape(row["queue"]),
            escape(row["consumerGroup"] or "–"),
            escape(row["partition"] or "–"),
            ago(row["failedAt"]),
            str(row["totalAttempts"]),
            escape(error),
        )
    total = body["total"]
    if total is None or total <= len(letters):
        return table
    more = f"{len(letters):,} of {total:,}" + ("" if body["totalIsExact"] else " or more")
    return Group(table, Text(f"\n{more}; -n shows more of them.", style="dim"))


def letter_text(row: dict[str, Any]) -> RenderableType:
    table = plain_table("Dead letter", row["letterId"])
    times = row["timesDead"]
    lives = "once" if times == 1 else "–" if times is None else f"{times} times"
    partition = "–" if row["partition"] is None else f"{row['partition']}, offset {row['offset']}"
    for name, value in (
        ("Queue", row["queue"]),
        ("Partition", partition),
        ("Group", row["consumerGroup"] or "deleted"),
        ("Transaction id", row["transactionId"]),
        ("Trace id", row["traceId"] or "–"),
        ("First enqueued", f"{row['firstEnqueuedAt']} as {row['firstTransactionId']}"),
        ("Died", f"{row['failedAt']}, {ago(row['failedAt'])}"),
        ("Has died", lives),
        ("Attempts", f"{row['retryCount']} in this life, {row['totalAttempts']} in all"),
        ("Error", row["errorMessage"] or "–"),
        ("Error group", row["errorGroup"] or "–"),
    ):
        table.add_row(name, escape(str(value)))
    payload = row.get("dataProblem") or json.dumps(row["data"], indent=2, ensure_ascii=False)
    return Group(table, Text(""), Text(payload))


def groups_table(body: dict[str, Any]) -> RenderableType:
    table = plain_table("Dead", "Error", "Queues", "First", "Last", "Trend", "Error group")
    for row in body["groups"]:
        table.add_row(
            f"{row['deadLetters']:,}",
            escape(row["error"]),
            escape(", ".join(row["queues"])),
            ago(row["firstFailedAt"]),
            ago(row["lastFailedAt"]),
            sparkline(row["trend"]),
            f"[dim]{row['errorGroup']}[/dim]",
        )
    total = body["pagination"]["total"]
    if total <= len(body["groups"]):
        return table
    return Group(table, Text(f"\n{len(body['groups'])} of {total:,} groups; -n shows more.", style="dim"))


def jobs_table(jobs: list[dict[str, Any]]) -> Table:
    table = plain_table("Job", "What", "State", "Changed", "Of", "Made", "")
    for job in jobs:
        of = f"{job['total']:,}" if job["totalIsExact"] else f"{job['total']:,}+"
        table.add_row(
            job["id"],
            job["kind"],
            Text(job["state"], style=STATES[job["state"]]),
            f"{job['changed']:,}",
            of,
            ago(job["createdAt"]),
            escape(job["note"] or ""),
        )
    return table


def job_words(job: dict[str, Any]) -> str:
    """A job in one line."""
    done = {"requeue": "requeued", "purge": "deleted"}[job["kind"]]
    letters = f"{job['changed']:,} dead {'letter' if job['changed'] == 1 else 'letters'} {done}"
    match job["state"]:
        case "done":
            return f"Done: {letters}."
        case "cancelled":
            return f"Cancelled: {letters} before that."
        case "failed":
            return f"Failed after {letters}: {job['note']}"
    return f"Job {job['id']} is {job['state']}: {letters} so far. `penstock dlq jobs` shows how it goes on."


def sparkline(counts: list[int]) -> str:
    """A bar per hour, as high as its share of the busiest one; any letter at all shows."""
    most = max(counts, default=0)
    if most <= 0:
        return ""
    return "".join(BARS[-(-max(count, 0) * (len(BARS) - 1) // most)] for count in counts)


def one_line(text: str) -> str:
    return " ".join(text.split())[:120]


def ago(moment: str | None) -> str:
    if moment is None:
        return "–"
    seconds = (datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds()
    return f"{format_duration(max(0.0, seconds))} ago"
