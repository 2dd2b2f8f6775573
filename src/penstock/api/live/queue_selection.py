"""Select, sort and page the rows of the list of queues."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from penstock.api.live.environment_snapshot import EnvironmentSnapshot, MetricsState
from penstock.api.live.queue_rows import ListedKind, QueueRow
from penstock.caller import NamePatterns
from penstock.clock import iso, to_utc


class QueueSort(StrEnum):
    NAME = "name"
    KIND = "kind"
    DEPTH = "depth"
    WAIT = "wait"
    OLDEST = "oldest"
    RATE_IN = "rateIn"
    RATE_OUT = "rateOut"
    DEAD = "dead"
    GROWTH = "growth"


class SortOrder(StrEnum):
    ASCENDING = "asc"
    DESCENDING = "desc"


class QueueProblem(StrEnum):
    """Which queues to list: those that something limits, that have dead letters, or whose backlog grows."""

    ANY = "any"
    PAUSED = "paused"
    OWN_LIMIT = "own_limit"
    ENVIRONMENT_LIMIT = "environment_limit"
    NO_CONSUMERS = "no_consumers"
    BLOCKED_PARTITION = "blocked_partition"
    DEAD = "dead"
    GROWING = "growing"


@dataclass(frozen=True, slots=True)
class QueuePageRequest:
    """A page of the list of queues."""

    search: str | None = None
    kind: ListedKind | None = None
    problem: QueueProblem | None = None
    sort: QueueSort = QueueSort.NAME
    order: SortOrder | None = None
    page: int = 1
    page_size: int = 50


def list_page(
    snapshot: EnvironmentSnapshot, selection: QueuePageRequest, patterns: NamePatterns | None
) -> dict[str, object]:
    """Return a page of queues. `patterns` are the queues that the caller may see; None: all."""
    rows = snapshot.remember(
        (selection.search, selection.kind, selection.problem, selection.sort, selection.order, patterns),
        lambda: _sort(_select(_visible(snapshot, patterns), selection), selection),
    )
    first = (selection.page - 1) * selection.page_size
    return {
        **snapshot_fields(snapshot),
        "queues": [row_to_dict(row) for row in rows[first : first + selection.page_size]],
        "total": len(rows),
        "page": selection.page,
        "pageSize": selection.page_size,
        "pages": max(1, math.ceil(len(rows) / selection.page_size)),
        "counts": snapshot.remember(("counts", patterns), lambda: _count(_visible(snapshot, patterns))),
    }


def snapshot_fields(snapshot: EnvironmentSnapshot) -> dict[str, object]:
    """Return the fields that every response from a snapshot has."""
    return {
        "asOf": iso(to_utc(snapshot.read_at_s)),
        **metrics_fields(snapshot.metrics),
        "problems": [
            {"component": component, "detail": detail} for component, detail in snapshot.problems.items()
        ],
    }


def metrics_fields(metrics: MetricsState) -> dict[str, object]:
    """Return whether figures from ClickHouse are available, and if not, why."""
    return {
        "metricsAvailable": metrics.activity is not None,
        "metricsProblem": metrics.problem,
    }


def row_to_dict(row: QueueRow) -> dict[str, object]:
    """Return the JSON of a queue. Unknown figures are null."""
    activity = row.activity
    return {
        "name": row.name,
        "kind": row.kind.value,
        "known": row.is_known,
        "paused": row.paused,
        "depth": row.depth,
        "running": row.running,
        "delayed": row.delayed,
        "limit": row.limit,
        "consumerGroups": row.groups,
        "oldestAt": None if row.oldest_s is None else iso(to_utc(row.oldest_s)),
        "dead": row.dead,
        "deadLastHour": None if activity is None else activity.dead,
        "rateIn": None if activity is None else activity.enqueued_per_s,
        "rateOut": None if activity is None else activity.acked_per_s,
        "waitP95Ms": None if activity is None else activity.wait_p95_ms,
        "depthHistory": row.depth_history(),
        "growth": None
        if row.growth is None
        else {"messages": row.growth.messages, "since": iso(to_utc(row.growth.since_s))},
        "cappedBy": None if row.cap is None else row.cap.value,
        "capDetail": row.cap_detail,
    }


def has_problem(row: QueueRow, problem: QueueProblem) -> bool:
    """Return whether a queue has this problem."""
    match problem:
        case QueueProblem.ANY:
            return row.cap is not None or bool(row.dead) or row.growth is not None
        case QueueProblem.DEAD:
            return bool(row.dead)
        case QueueProblem.GROWING:
            return row.growth is not None
    return row.cap is not None and row.cap.value == problem.value


def _visible(snapshot: EnvironmentSnapshot, patterns: NamePatterns | None) -> Sequence[QueueRow]:
    if patterns is None:
        return snapshot.rows
    return [row for row in snapshot.rows if patterns.matches(row.name)]


def _select(rows: Sequence[QueueRow], selection: QueuePageRequest) -> list[QueueRow]:
    text = (selection.search or "").casefold()
    return [
        row
        for row in rows
        if (not text or text in row.name.casefold())
        and selection.kind in (None, row.kind)
        and (selection.problem is None or has_problem(row, selection.problem))
    ]


_SORT_VALUES: dict[QueueSort, Callable[[QueueRow], float | None]] = {
    QueueSort.DEPTH: lambda row: row.depth,
    QueueSort.WAIT: lambda row: None if row.activity is None else row.activity.wait_p95_ms,
    # The oldest has the highest age.
    QueueSort.OLDEST: lambda row: None if row.oldest_s is None else -row.oldest_s,
    QueueSort.RATE_IN: lambda row: None if row.activity is None else row.activity.enqueued_per_s,
    QueueSort.RATE_OUT: lambda row: None if row.activity is None else row.activity.acked_per_s,
    QueueSort.DEAD: lambda row: row.dead,
    QueueSort.GROWTH: lambda row: None if row.growth is None else row.growth.messages,
}


def _sort(rows: list[QueueRow], selection: QueuePageRequest) -> list[QueueRow]:
    """Sort rows; equal ones by name, and those without a value last."""
    rows.sort(key=lambda row: row.name)
    value_of = _SORT_VALUES.get(selection.sort)
    if value_of is None:
        if selection.sort is QueueSort.KIND:
            rows.sort(key=lambda row: row.kind.value)
        if selection.order is SortOrder.DESCENDING:
            rows.reverse()
        return rows
    sign = 1 if selection.order is SortOrder.ASCENDING else -1
    unknown = math.inf

    def key(row: QueueRow) -> float:
        value = value_of(row)
        return unknown if value is None else sign * value

    rows.sort(key=key)
    return rows


def _count(rows: Sequence[QueueRow]) -> dict[str, int]:
    """Count queues by kind and by problem."""
    counts = dict.fromkeys(
        (*(kind.value for kind in ListedKind), *(problem.value for problem in QueueProblem)), 0
    )
    for row in rows:
        counts[row.kind.value] += 1
        counts[QueueProblem.ANY] += has_problem(row, QueueProblem.ANY)
        counts[QueueProblem.DEAD] += bool(row.dead)
        counts[QueueProblem.GROWING] += row.growth is not None
        if row.cap is not None:
            counts[row.cap.value] += 1
    return counts
