"""A place in the streams to get to: everything that is in them at one moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Self

from redis import Redis

from penstock.streams.positions import BEGINNING, StreamState, id_parts, read_lag, read_position, stream_state


class Goal:
    """All entries that the streams hold when it is made. Raises redis.RedisError, in every method."""

    def __init__(self, streams: Mapping[str, StreamState]) -> None:
        self._streams = dict(streams)

    @classmethod
    def of(cls, client: Redis, keys: Iterable[str]) -> Self:
        states = {key: stream_state(client, key) for key in keys}
        return cls({key: state for key, state in states.items() if state is not None})

    def only(self, keys: Iterable[str]) -> Goal:
        """The same moment, for some of the streams."""
        return Goal({key: self._streams[key] for key in keys if key in self._streams})

    def is_reached(self, client: Redis) -> bool:
        """Whether all of them are counted."""
        for key, then in self._streams.items():
            position = read_position(client, key)
            reached = position.id if position else BEGINNING
            if id_parts(reached) < id_parts(then.last_id):
                return False
        return True

    def left(self, client: Redis) -> int:
        """How many of them are not counted yet; too few when Redis has lost count."""
        left = 0
        for key, then in self._streams.items():
            now = stream_state(client, key)
            lag = read_lag(client, key) or 0
            left += max(0, lag - (now.added - then.added if now else 0))
        return left
