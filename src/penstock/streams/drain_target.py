"""The entries that the streams hold at one time, as a target for the pipeline to reach."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Self

from redis import Redis

from penstock.streams.positions import (
    START_ID,
    StreamState,
    parse_entry_id,
    read_lag,
    read_position,
    read_stream_state,
)


class DrainTarget:
    """All entries that the streams hold when it is captured. Every method raises redis.RedisError."""

    def __init__(self, streams: Mapping[str, StreamState]) -> None:
        self._streams = dict(streams)

    @classmethod
    def capture(cls, client: Redis, keys: Iterable[str]) -> Self:
        states = {key: read_stream_state(client, key) for key in keys}
        return cls({key: state for key, state in states.items() if state is not None})

    def restrict_to(self, keys: Iterable[str]) -> DrainTarget:
        """Return the same target for these streams only."""
        return DrainTarget({key: self._streams[key] for key in keys if key in self._streams})

    def is_reached(self, client: Redis) -> bool:
        """Return whether all entries of the target are counted."""
        for key, captured in self._streams.items():
            position = read_position(client, key)
            counted_id = position.id if position else START_ID
            if parse_entry_id(counted_id) < parse_entry_id(captured.last_id):
                return False
        return True

    def count_remaining(self, client: Redis) -> int:
        """Return how many entries of the target are not counted yet; too few where Redis does not know the
        lag.
        """
        remaining = 0
        for key, captured in self._streams.items():
            current = read_stream_state(client, key)
            lag = read_lag(client, key) or 0
            remaining += max(0, lag - (current.added - captured.added if current else 0))
        return remaining
