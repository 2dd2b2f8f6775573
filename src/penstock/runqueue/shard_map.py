"""Map environments to shards: recorded in Redis at the first use of an environment, then cached for ever.

An environment gets the shard that the number of shards gives it at its first use. Processes that use it
first at the same time agree, because the first record wins. So the number can be raised while processes with
the old number run: it decides about new environments only, and a process reads it together with their
records.

A record that is missing (an environment older than the records, or data that Redis lost) must not move an
environment, so its shard is first searched by what it has there. Records are kept when an environment is
deleted, because processes that have cached them may use it again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from importlib import resources
from itertools import count
from typing import NamedTuple

from msgspec import msgpack
from redis.asyncio import Redis

from penstock.batching import Batcher
from penstock.model import Scope
from penstock.runqueue.keys import (
    ENVIRONMENTS_KEY,
    SHARD_RECORDS_KEY,
    SHARDS_KEY,
    environment_name,
    possible_shards,
    shard_of_environment,
    shard_prefix,
)
from penstock.runqueue.script_errors import translate_redis_errors

NO_SHARD = -1
ENVIRONMENTS_PER_CALL = 500
"""A larger call would block Redis for other clients."""

_ASSIGN = resources.files("penstock.runqueue").joinpath("lua/assign_shards.lua").read_text()

logger = logging.getLogger(__name__)


class _Records(NamedTuple):
    """What Redis has. `first_count`: the number of shards when these records began, at `created_us`."""

    shard_count: int
    created_us: int
    first_count: int
    shards: dict[Scope, int | None]


class ShardMap:
    """The number of shards, and the shards of the environments that this process uses.

    `on_raised` is called when another process has raised the number.
    """

    def __init__(self, client: Redis, configured_count: int, on_raised: Callable[[], None]) -> None:
        self._client = client
        self._configured_count = configured_count
        self._on_raised = on_raised
        self._count: int | None = None
        self._created_us: int | None = None
        self.known: dict[Scope, int] = {}
        """Environments that this process has used, with their shards."""
        self.lookups: Batcher[Scope, int] = Batcher(self._look_up, isolates_failures=False)
        """First uses of environments. Concurrent ones of an environment share a lookup."""

    @property
    def known_count(self) -> int | None:
        """The number of shards; None before the first call of another method."""
        return self._count

    async def count(self) -> int:
        """Return the number of shards, which another process may have raised a few seconds ago."""
        if self._count is None:
            await self.refresh()
        assert self._count is not None
        return self._count

    async def shard_of(self, scope: Scope) -> int:
        shard = self.known.get(scope)
        if shard is None:
            shard = self.known[scope] = await self.lookups.submit(scope, scope)
        return shard

    async def refresh(self) -> None:
        """Read the number of shards. If Redis has lost the records, record those that this process knows."""
        created_us = (await self._call({})).created_us
        if self._created_us not in (None, created_us):
            logger.error(
                "Redis has lost the shards of environments; %d of them are recorded again", len(self.known)
            )
            await self._record_known()
        self._created_us = created_us

    async def _look_up(self, key: Hashable, scopes: Sequence[Scope]) -> list[int]:
        """Return the shard of an environment once per caller, and record one if it has none."""
        scope = scopes[0]  # all of a batch are the same
        records = await self._call({scope: None})
        if records.shards[scope] is None:
            records = await self._call({scope: await self._choose(scope, records)})
        return [_recorded(records, scope)] * len(scopes)

    async def _choose(self, scope: Scope, records: _Records) -> int:
        """Return the shard that has something of the environment, or else the one that it gets now."""
        name = environment_name(scope)
        # An environment that is older than the records has its tasks in the first of these.
        for shard in possible_shards(scope, records.first_count, records.shard_count):
            with translate_redis_errors():
                if await self._client.sismember(
                    shard_prefix(shard) + ENVIRONMENTS_KEY["environments_key"], name
                ):
                    return shard
        return shard_of_environment(scope, records.shard_count)

    async def _record_known(self) -> None:
        known = list(self.known.items())
        for start in range(0, len(known), ENVIRONMENTS_PER_CALL):
            chunk = dict(known[start : start + ENVIRONMENTS_PER_CALL])
            records = await self._call(chunk)
            for scope, shard in chunk.items():
                recorded = self.known[scope] = _recorded(records, scope)
                if recorded != shard:
                    logger.error(
                        "The run queues of %s are now in shard %d, not %d: Redis lost its data",
                        environment_name(scope),
                        recorded,
                        shard,
                    )

    async def _call(self, proposals: Mapping[Scope, int | None]) -> _Records:
        arguments = [
            (environment_name(scope), NO_SHARD if shard is None else shard)
            for scope, shard in proposals.items()
        ]
        least = self._configured_count if self._count is None else self._count
        with translate_redis_errors():
            # EVAL sends the text each time, which is rare enough and needs no second call on a new server.
            shard_count, created_us, first_count, *shards = await self._client.eval(
                _ASSIGN, 2, SHARDS_KEY, SHARD_RECORDS_KEY, least, msgpack.encode(arguments)
            )
        self._learn_count(shard_count)
        recorded = [None if shard == NO_SHARD else shard for shard in shards]
        return _Records(shard_count, created_us, first_count, dict(zip(proposals, recorded, strict=True)))

    def _learn_count(self, shard_count: int) -> None:
        previous = self._count
        if previous is None:
            self._count = shard_count
            if shard_count > self._configured_count:
                logger.error(
                    "run_queue_shards is %d, but the run queues in this Redis have %d shards; %d is used. "
                    "Set it to %d. To lower the number, let the run queues drain, stop all brokers, delete "
                    "the keys %s and %s, and start the brokers with the new setting.",
                    self._configured_count,
                    *[shard_count] * 3,
                    SHARDS_KEY,
                    SHARD_RECORDS_KEY,
                )
        elif shard_count > previous:
            self._count = shard_count
            logger.info("The number of run-queue shards was raised from %d to %d", previous, shard_count)
            self._on_raised()


class AllShards:
    """The shards that a dequeue from any environment tries, each first in turn.

    It reads their number for each try: a dequeue may wait while the number is raised.
    """

    def __init__(self, shards: ShardMap) -> None:
        self._shards = shards
        self._next_shard = count()

    def __iter__(self) -> Iterator[int]:
        shard_count = self._shards.known_count
        assert shard_count is not None, "await ShardMap.count first"
        first = next(self._next_shard)
        return iter([(first + offset) % shard_count for offset in range(shard_count)])


def _recorded(records: _Records, scope: Scope) -> int:
    shard = records.shards[scope]
    assert shard is not None
    return shard
