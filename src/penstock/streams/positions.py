"""Positions of the pipeline on its streams, stored as consumer groups so that standard tools show the lag.

A position is an entry id and the number of entries ever added up to it. The pipeline moves the group after
a batch is in ClickHouse. Three readers use it: `XINFO GROUPS` and tools built on it (lag), the next batch
(which entries were trimmed before they were read), and a pipeline that lost its checkpoint (where to
resume).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from typing import NamedTuple, TypedDict, cast

from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.client import Pipeline
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import MasterDownError, ReadOnlyError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from penstock.redis_clients import is_cluster

TRANSIENT_REDIS_ERRORS = (
    RedisConnectionError,
    RedisTimeoutError,
    ReadOnlyError,
    MasterDownError,
    OSError,
)
"""Errors that pass by themselves: the server does not answer, or is read-only during a failover."""

CONSUMER_GROUP = "penstock"
START_ID = "0-0"
MAX_SEQUENCE = (1 << 64) - 1

_StreamInfo = TypedDict(
    "_StreamInfo", {"last-generated-id": bytes | str, "entries-added": int, "length": int}
)
_GroupInfo = TypedDict(
    "_GroupInfo",
    {
        "name": bytes | str,
        "last-delivered-id": bytes | str,
        "entries-read": int | None,
        "lag": int | None,
    },
)


class Position(NamedTuple):
    id: str
    entries: int | None
    """Entries ever added up to this id; None if unknown."""


class StreamState(NamedTuple):
    last_id: str
    added: int
    """Entries ever added."""
    length: int

    @property
    def trimmed(self) -> int:
        """Entries removed from the old end. (An XDEL in the middle counts as a trim.)"""
        return self.added - self.length


def parse_entry_id(entry_id: str) -> tuple[int, int]:
    milliseconds, _, sequence = entry_id.partition("-")
    return int(milliseconds), int(sequence or 0)


def read_stream_state(client: Redis, key: str) -> StreamState | None:
    """Return the current state of the stream, or None if it does not exist."""
    try:
        info = cast("_StreamInfo", client.xinfo_stream(key))
    except ResponseError as error:
        if "no such key" in str(error):
            return None
        raise
    return StreamState(
        decode_text(info["last-generated-id"]), int(info["entries-added"]), int(info["length"])
    )


def read_position(client: Redis, key: str) -> Position | None:
    """Return the pipeline's position on this stream, or None if it never finished a batch of it."""
    group = _read_group(client, key)
    if group is None:
        return None
    entries = group["entries-read"]
    return Position(decode_text(group["last-delivered-id"]), None if entries is None else int(entries))


def read_lag(client: Redis, key: str) -> int | None:
    """Return the entries after the position; all entries without a position; None if Redis does not know."""
    group = _read_group(client, key)
    return int(client.xlen(key)) if group is None else _group_lag(group)


async def read_lags_async(client: AsyncRedis, keys: Iterable[str]) -> dict[str, int | None]:
    """Return the same for several streams, in one round trip."""
    keys = list(keys)
    async with client.pipeline(transaction=False) as calls:
        for key in keys:
            calls.xinfo_groups(key)
            calls.xlen(key)
        replies = iter(await calls.execute(raise_on_error=False))
    lags: dict[str, int | None] = {}
    for key, groups, length in zip(keys, replies, replies, strict=True):
        if isinstance(length, Exception):
            raise length
        group = None if isinstance(groups, ResponseError) else _find_group(groups)
        lags[key] = int(length) if group is None else _group_lag(group)
    return lags


def write_positions(
    client: Redis, positions: Mapping[str, Position], marks: Mapping[str, str] | None = None
) -> None:
    """Move the consumer groups of these streams and set the keys in `marks`, in one transaction.

    On a cluster, they are in several slots and change one after the other, the marks last. A pipeline that
    dies in between repeats the batch, which changes nothing in ClickHouse, and writes all of them again.
    """
    for key in [key for key in positions if _read_group(client, key) is None]:
        try:
            client.xgroup_create(key, CONSUMER_GROUP, START_ID, mkstream=True)
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise
    # Without a transaction, a pipeline of a cluster would send the marks before all positions are written.
    with nullcontext(client) if is_cluster(client) else client.pipeline(transaction=True) as transaction:
        for key, position in positions.items():
            transaction.xgroup_setid(key, CONSUMER_GROUP, position.id, entries_read=position.entries)
        for key, text in (marks or {}).items():
            transaction.set(key, text)
        if isinstance(transaction, Pipeline):
            transaction.execute()


def rewind_position(client: Redis, key: str) -> None:
    """Move the position before the oldest entry of the stream; trimmed entries count as read."""
    state = read_stream_state(client, key)
    oldest = cast("list[tuple[bytes, object]]", client.xrange(key, count=1)) if state else None
    if state is None or not oldest:
        return
    milliseconds, sequence = parse_entry_id(decode_text(oldest[0][0]))
    previous = (milliseconds, sequence - 1) if sequence else (milliseconds - 1, MAX_SEQUENCE)
    write_positions(client, {key: Position(f"{previous[0]}-{previous[1]}", state.trimmed)})


def decode_text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _read_group(client: Redis, key: str) -> _GroupInfo | None:
    try:
        groups = cast("list[_GroupInfo]", client.xinfo_groups(key))
    except ResponseError as error:
        if "no such key" in str(error):
            return None
        raise
    return _find_group(groups)


def _find_group(groups: list[_GroupInfo]) -> _GroupInfo | None:
    return next((group for group in groups if decode_text(group["name"]) == CONSUMER_GROUP), None)


def _group_lag(group: _GroupInfo) -> int | None:
    return None if group["lag"] is None else int(group["lag"])
