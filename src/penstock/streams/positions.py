"""How far a stream has been read, kept in Redis as a consumer group so that standard tools show the lag.

A position is an entry id and the number of entries ever added up to it. The group is moved after a batch is
in ClickHouse. It serves three readers: `XINFO GROUPS` and everything built on it (lag), the next batch (which
entries were trimmed unread), and a pipeline that lost its checkpoint (where to go on).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import MasterDownError, ReadOnlyError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

AWAY = (RedisConnectionError, RedisTimeoutError, ReadOnlyError, MasterDownError, OSError)
"""Errors that pass by themselves: nobody answers, or in a failover this one may not be written to yet."""

GROUP = "penstock"
BEGINNING = "0-0"
LAST_SEQUENCE = (1 << 64) - 1


class Position(NamedTuple):
    id: str
    entries: int | None
    """Entries ever added up to this id; None when that is not known."""


class StreamState(NamedTuple):
    last_id: str
    added: int
    """Entries ever added."""
    length: int

    @property
    def trimmed(self) -> int:
        """Entries removed from the old end. (An XDEL from the middle would be taken for a trim.)"""
        return self.added - self.length


def id_parts(entry_id: str) -> tuple[int, int]:
    milliseconds, _, sequence = entry_id.partition("-")
    return int(milliseconds), int(sequence or 0)


def stream_state(client: Redis, key: str) -> StreamState | None:
    """The stream as it is now, or None if there is none."""
    try:
        info: dict[str, Any] = client.xinfo_stream(key)
    except ResponseError as error:
        if "no such key" in str(error):
            return None
        raise
    return StreamState(_text(info["last-generated-id"]), int(info["entries-added"]), int(info["length"]))


def read_position(client: Redis, key: str) -> Position | None:
    """Where the pipeline stands on this stream, or None if it never finished a batch of it."""
    group = _group(client, key)
    if group is None:
        return None
    entries = group["entries-read"]
    return Position(_text(group["last-delivered-id"]), None if entries is None else int(entries))


def read_lag(client: Redis, key: str) -> int | None:
    """Entries after the position; all of them when there is none; None when Redis cannot tell."""
    group = _group(client, key)
    if group is None:
        return int(client.xlen(key))
    return None if group["lag"] is None else int(group["lag"])


def write_positions(
    client: Redis, positions: Mapping[str, Position], marks: Mapping[str, str] | None = None
) -> None:
    """Move the group of every stream named and set the keys in `marks`, all together."""
    missing = [key for key in positions if _group(client, key) is None]
    for key in missing:
        try:
            client.xgroup_create(key, GROUP, BEGINNING, mkstream=True)
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise
    with client.pipeline(transaction=True) as transaction:
        for key, position in positions.items():
            transaction.xgroup_setid(key, GROUP, position.id, entries_read=position.entries)
        for key, text in (marks or {}).items():
            transaction.set(key, text)
        transaction.execute()


def rewind(client: Redis, key: str) -> None:
    """Put the position before the oldest entry that the stream still holds; what is gone counts as read."""
    state = stream_state(client, key)
    oldest: Any = client.xrange(key, count=1) if state else None
    if state is None or not oldest:
        return
    milliseconds, sequence = id_parts(_text(oldest[0][0]))
    before = (milliseconds, sequence - 1) if sequence else (milliseconds - 1, LAST_SEQUENCE)
    write_positions(client, {key: Position(f"{before[0]}-{before[1]}", state.trimmed)})


def _group(client: Redis, key: str) -> dict[str, Any] | None:
    try:
        groups: list[dict[str, Any]] = client.xinfo_groups(key)
    except ResponseError as error:
        if "no such key" in str(error):
            return None
        raise
    return next((group for group in groups if _text(group["name"]) == GROUP), None)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
