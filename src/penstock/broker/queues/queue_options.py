"""The options of a queue: their public names, their allowed values, and the columns that hold them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.errors import InvalidRequest

DAY_S = 86_400
TEN_YEARS_S = 3_650 * DAY_S

MAX_INDEX_KEYS = 8
MAX_INDEX_KEY_LENGTH = 200
_INDEX_KEY = re.compile(r"\$(\.[A-Za-z_][A-Za-z0-9_]*|\[(\d{1,6}|\*)\]|\.\"[^\"\\\x00-\x1f]+\")+", re.ASCII)

OptionValue = int | float | bool | list[str] | None


@dataclass(frozen=True, slots=True)
class QueueOption:
    """One option. The column holds the public value times `scale`; without limits it is a boolean."""

    column: str
    low: float | None = None
    high: float | None = None
    scale: int | None = None

    def to_column(self, name: str, value: object) -> int | bool:
        """Convert a public value for the column; raises InvalidRequest if it is not allowed."""
        if self.low is None or self.high is None:
            if not isinstance(value, bool):
                raise _invalid_value(name, "must be true or false", value)
            return value
        is_integer = self.scale is None
        kind = "a whole number" if is_integer else "a number of seconds"
        rule = f"must be {kind} from {self.low} to {self.high}"
        if isinstance(value, bool) or not isinstance(value, int if is_integer else (int, float)):
            raise _invalid_value(name, rule, value)
        if not self.low <= value <= self.high:
            raise _invalid_value(name, rule, value)
        return round(value * (self.scale or 1))

    def to_public(self, value: OptionValue) -> OptionValue:
        """Convert the column's value for clients."""
        if self.scale is None or value is None:
            return value
        assert not isinstance(value, list)
        return value // self.scale if value % self.scale == 0 else value / self.scale


@dataclass(frozen=True, slots=True)
class IndexKeysOption:
    """The JSON paths whose values a search finds at once. The column is NULL if there is none."""

    column: str

    def to_column(self, name: str, value: object) -> list[str]:
        """Check the paths; raises InvalidRequest if one is not allowed."""
        if not isinstance(value, list) or len(value) > MAX_INDEX_KEYS:
            raise _invalid_value(name, f"must be a list of at most {MAX_INDEX_KEYS} JSON paths", value)
        for path in value:
            if (
                not isinstance(path, str)
                or len(path) > MAX_INDEX_KEY_LENGTH
                or not _INDEX_KEY.fullmatch(path)
            ):
                rule = "has JSON paths such as $.orderId, $.customer.id, $.items[0].sku or $.items[*].sku"
                raise _invalid_value(name, rule, path)
        return list(dict.fromkeys(value))

    def to_public(self, value: OptionValue) -> OptionValue:
        """Convert the column's value for clients."""
        return value or []


def _seconds(column: str, low: float, high: float) -> QueueOption:
    return QueueOption(column, low, high, 1_000)


OPTIONS: Mapping[str, QueueOption | IndexKeysOption] = {
    "leaseTime": _seconds("lease_ms", 0.1, DAY_S),
    "retryLimit": QueueOption("retry_limit", 0, 1_000_000),
    "retryDelay": QueueOption("retry_delay_ms", 0, DAY_S * 1_000),
    "dlqAfterMaxRetries": QueueOption("dead_after_limit"),
    "deadLetterQueue": QueueOption("keep_dead"),
    "priority": QueueOption("priority", -1_000_000, 1_000_000),
    "delayedProcessing": _seconds("delay_ms", 0, 365 * DAY_S),
    "windowBuffer": _seconds("window_ms", 0, DAY_S),
    "ttl": _seconds("ttl_ms", 0, TEN_YEARS_S),
    "maxWaitTimeSeconds": _seconds("max_wait_ms", 0, TEN_YEARS_S),
    "maxSize": QueueOption("max_size", 0, 10**15),
    "maxPartitions": QueueOption("max_partitions", 0, 10**9),
    "retentionEnabled": QueueOption("retention_enabled"),
    "retentionSeconds": _seconds("retention_ms", 0, TEN_YEARS_S),
    "completedRetentionSeconds": _seconds("completed_retention_ms", 0, TEN_YEARS_S),
    "encryptionEnabled": QueueOption("encrypted"),
    "indexKeys": IndexKeysOption("index_keys"),
}


def options_to_columns(options: Mapping[str, object]) -> dict[str, int | bool | list[str]]:
    """Convert options to columns. A null option counts as left out.

    Raises InvalidRequest for an unknown option, with the nearest known name, and for a value that is not
    allowed.
    """
    columns: dict[str, int | bool | list[str]] = {}
    for name, value in options.items():
        option = OPTIONS.get(name)
        if option is None:
            raise InvalidRequest(
                f"Unknown option {name!r}{suggest_name(name, OPTIONS)}", field=f"options.{name}"
            )
        if value is not None:
            columns[option.column] = option.to_column(name, value)
    return columns


def columns_to_options(
    columns: Mapping[str, int | bool | str | list[str] | None], default_lease_ms: int
) -> dict[str, OptionValue]:
    """Convert a queue's columns to options; a queue without a lease time has the broker's default."""
    values: dict[str, OptionValue] = {}
    for name, option in OPTIONS.items():
        value = columns[option.column]
        assert not isinstance(value, str)
        values[name] = option.to_public(value)
    if values["leaseTime"] is None:
        values["leaseTime"] = OPTIONS["leaseTime"].to_public(default_lease_ms)
    return values


def suggest_name(name: str, known_names: Iterable[str]) -> str:
    """Return the end of an error message: the known name that is most similar, or all known names."""
    known_names = list(known_names)
    similar = difflib.get_close_matches(name, known_names, n=1)
    return f": did you mean {similar[0]}?" if similar else f". Known names: {', '.join(known_names)}."


def _invalid_value(name: str, rule: str, value: object) -> InvalidRequest:
    shown = repr(value)
    if len(shown) > 40:
        shown = shown[:40] + "…"
    return InvalidRequest(f"{name} {rule}, not {shown}", field=f"options.{name}")
