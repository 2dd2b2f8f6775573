"""The options of a queue: what clients call them, what they may be, and where they are kept."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.durable.faults import unless_deleted
from penstock.durable.pool import Database
from penstock.errors import InvalidRequest
from penstock.model import Scope

DAY_S = 86_400
TEN_YEARS_S = 3_650 * DAY_S


@dataclass(frozen=True, slots=True)
class Option:
    """An option as clients know it. `column` holds it, times `scale`; None stands for a yes or no."""

    column: str
    low: float | None = None
    high: float | None = None
    scale: int | None = None

    def stored(self, name: str, value: object) -> int | bool:
        """The value as the column takes it; InvalidRequest if it does not fit."""
        if self.low is None or self.high is None:
            if not isinstance(value, bool):
                raise _unfit(name, "must be true or false", value)
            return value
        whole = self.scale is None
        kind = "a whole number" if whole else "a number of seconds"
        allowed = f"must be {kind} from {self.low} to {self.high}"
        if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
            raise _unfit(name, allowed, value)
        if not self.low <= value <= self.high:
            raise _unfit(name, allowed, value)
        return round(value * (self.scale or 1))

    def shown(self, value: int | bool | None) -> int | float | bool | None:
        """The column's value as clients know it."""
        if self.scale is None or value is None:
            return value
        return value // self.scale if value % self.scale == 0 else value / self.scale


def _seconds(column: str, low: float, high: float) -> Option:
    return Option(column, low, high, 1_000)


OPTIONS: Mapping[str, Option] = {
    "leaseTime": _seconds("lease_ms", 0.1, DAY_S),
    "retryLimit": Option("retry_limit", 0, 1_000_000),
    "retryDelay": Option("retry_delay_ms", 0, DAY_S * 1_000),
    "dlqAfterMaxRetries": Option("dead_after_limit"),
    "deadLetterQueue": Option("keep_dead"),
    "priority": Option("priority", -1_000_000, 1_000_000),
    "delayedProcessing": _seconds("delay_ms", 0, 365 * DAY_S),
    "windowBuffer": _seconds("window_ms", 0, DAY_S),
    "ttl": _seconds("ttl_ms", 0, TEN_YEARS_S),
    "maxWaitTimeSeconds": _seconds("max_wait_ms", 0, TEN_YEARS_S),
    "maxSize": Option("max_size", 0, 10**15),
    "maxPartitions": Option("max_partitions", 0, 10**9),
    "retentionEnabled": Option("retention_enabled"),
    "retentionSeconds": _seconds("retention_ms", 0, TEN_YEARS_S),
    "completedRetentionSeconds": _seconds("completed_retention_ms", 0, TEN_YEARS_S),
    "encryptionEnabled": Option("encrypted"),
}


def columns(options: Mapping[str, object]) -> dict[str, int | bool]:
    """The options as columns. One that is null counts as left out.

    Raises InvalidRequest for an option nobody knows, with the nearest known one, and for a value that does
    not fit.
    """
    found = {}
    for name, value in options.items():
        option = OPTIONS.get(name)
        if option is None:
            raise InvalidRequest(f"unknown option {name!r}{nearest(name, OPTIONS)}", field=f"options.{name}")
        if value is not None:
            found[option.column] = option.stored(name, value)
    return found


def nearest(name: str, known: Mapping[str, object] | list[str]) -> str:
    """A hint at the name that was probably meant."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f": did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"


def described(row: Mapping[str, Any], default_lease_ms: int) -> dict[str, Any]:
    """A queue's row as options; a queue without a lease time has the broker's."""
    values = {name: option.shown(row[option.column]) for name, option in OPTIONS.items()}
    if values["leaseTime"] is None:
        values["leaseTime"] = OPTIONS["leaseTime"].shown(default_lease_ms)
    return values


@dataclass(frozen=True, slots=True)
class Configured:
    queue_id: int
    partition_id: int | None
    row: dict[str, Any]


async def configure(
    database: Database, scope: Scope, queue: str, changes: Mapping[str, int | bool | str]
) -> Configured:
    """Set columns of a queue's row, all or none. A missing queue is made, with a Default partition."""
    row = await unless_deleted(
        lambda: database.fetchrow(
            "SELECT * FROM configure_queue_v1($1, $2, $3, $4, $5)",
            scope.organization,
            scope.project,
            scope.environment,
            queue,
            json.dumps(changes),
        )
    )
    assert row is not None
    return Configured(row["queue_id"], row["partition_id"], json.loads(row["queue"]))


def _unfit(name: str, allowed: str, value: object) -> InvalidRequest:
    shown = repr(value)
    if len(shown) > 40:
        shown = shown[:40] + "…"
    return InvalidRequest(f"{name} {allowed}, not {shown}", field=f"options.{name}")
