"""The emitter: metric events from this process to Redis Streams, without ever being in the way.

`emit` puts the event in a bounded buffer and returns. A background task writes what has gathered, one script
call per batch. When Redis is away the events wait; when the buffer is full the oldest goes, counted.

**A batch enters the streams once.** The script also writes the batch's number under this emitter's own key,
and does nothing if it finds the number there. So a batch whose answer was lost can be sent again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from itertools import count
from typing import NamedTuple

from msgspec import msgpack
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.commands.core import AsyncScript
from redis.exceptions import RedisError

from penstock.config import mask_url
from penstock.definitions import TIME_WIRE, MetricDefinition
from penstock.ids import new_id
from penstock.streams.shards import shard_of

log = logging.getLogger(__name__)

BATCH = 250
"""Events per call: enough to spread its cost, few enough not to hold Redis up."""

LINGER_S = 0.02
"""How long the first event of a batch waits for others."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
MARK_LIFE_S = 24 * 3600

_SCRIPT = resources.files("penstock.streams").joinpath("lua/emit.lua").read_text()
_shard_of = lru_cache(maxsize=20_000)(shard_of)


class _Event(NamedTuple):
    definition: MetricDefinition
    fields: Mapping[str, str | int]
    shard_key: str | None
    at_ms: int


class Emitter:
    """Fire-and-forget writer of metric events; one per process, used from its event loop's thread.

    `pending`, `emitted`, `dropped` and `failures` say what became of the events: waiting, written, given up
    for want of room (or because Redis refused that one event), and how many attempts to write failed.
    """

    def __init__(self, redis_url: str, *, buffer: int, enabled: bool = True) -> None:
        self.enabled = enabled
        self.emitted = 0
        self.dropped = 0
        self.failures = 0
        self._url = redis_url
        self._buffer = buffer
        self._events: deque[_Event] = deque()
        self._batch: list[_Event] = []
        self._batch_number = 0
        self._mark_key = f"penstock:emitter:{new_id()}"
        self._round_robin = count()
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._redis: Redis | None = None
        self._script: AsyncScript

    @property
    def pending(self) -> int:
        return len(self._events) + len(self._batch)

    def start(self) -> None:
        """Begin writing; needs a running event loop. Redis need not be there yet."""
        if self.enabled and self._task is None:
            self._stopping.clear()
            self._task = asyncio.get_running_loop().create_task(self._run(), name="metric emitter")

    async def stop(self, timeout_s: float = 5.0) -> None:
        """Write what is left, for at most `timeout_s`; what then remains is dropped. May be called twice."""
        task, self._task = self._task, None
        self._stopping.set()
        self._wake.set()
        if task is not None:
            await asyncio.wait({task}, timeout=timeout_s)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self.dropped += self.pending
        self._events.clear()
        self._batch.clear()
        if self._redis is not None:
            redis, self._redis = self._redis, None
            await redis.aclose()

    def emit(
        self, definition: MetricDefinition, fields: Mapping[str, str | int], shard_key: str | None = None
    ) -> None:
        """Hand over one event. Returns at once, whatever the state of Redis, and never raises.

        `fields` maps the definition's wire names to values and must not be changed afterwards. The event's
        time is now, unless `fields` has `t`. Events with one `shard_key` keep their order.
        """
        if not self.enabled:
            return
        if self._stopping.is_set():
            self.dropped += 1
            return
        if self.pending >= self._buffer:
            self.dropped += 1
            if not self._events:  # all room is taken by a batch on its way, which may have arrived
                return
            self._events.popleft()
        self._events.append(_Event(definition, fields, shard_key, int(time.time() * 1000)))
        self._wake.set()

    async def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            if not self.pending:
                if self._stopping.is_set():
                    return
                self._wake.clear()
                await self._wake.wait()
                continue
            if len(self._events) < BATCH and not self._stopping.is_set():
                await asyncio.sleep(LINGER_S)
            try:
                await self._flush()
            except (RedisError, OSError) as error:
                self.failures += 1
                if pause_s == FIRST_PAUSE_S:
                    log.warning("metric events wait: Redis at %s: %s", mask_url(self._url), error)
                await self._pause(pause_s)
                pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
            else:
                if pause_s != FIRST_PAUSE_S:
                    log.info("metric events flow again, %d waiting, %d dropped", self.pending, self.dropped)
                pause_s = FIRST_PAUSE_S

    async def _pause(self, seconds: float) -> None:
        if self._stopping.is_set():
            await asyncio.sleep(FIRST_PAUSE_S)
            return
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return

    async def _flush(self) -> None:
        """Write one batch, or raise with the batch kept for another attempt."""
        script = self._connected()
        if not self._batch:
            self._batch = [self._events.popleft() for _ in range(min(BATCH, len(self._events)))]
            self._batch_number += 1
        keys, arguments = self._command()
        refused, why = await script(keys=keys, args=arguments)
        if refused:
            # Such as a key that holds something else. Sending these again would change nothing.
            log.error("Redis refused %d metric events: %s", refused, why.decode("utf-8", "replace"))
        self.dropped += refused
        self.emitted += len(self._batch) - refused
        self._batch = []

    def _command(self) -> tuple[list[str], list[bytes | int]]:
        """The batch in the form of emit.lua's KEYS and ARGV."""
        places: dict[str, int] = {}
        lengths: list[int] = []
        events = []
        for definition, fields, shard_key, at_ms in self._batch:
            if shard_key is None:
                shard = next(self._round_robin) % definition.shards
            else:
                shard = _shard_of(shard_key, definition.shards)
            key = definition.stream_keys[shard]
            place = places.get(key)
            if place is None:
                place = places[key] = len(places) + 1
                lengths.append(definition.max_stream_length)
            words: list[str | int] = [place]
            for pair in fields.items():
                words += pair
            if TIME_WIRE not in fields:
                words += (TIME_WIRE, at_ms)
            events.append(words)
        return [self._mark_key, *places], [self._batch_number, MARK_LIFE_S, _packed(events), *lengths]

    def _connected(self) -> AsyncScript:
        if self._redis is None:
            # The client must not retry on its own: this class knows when that is safe, and counts.
            self._redis = Redis.from_url(
                self._url, protocol=2, socket_timeout=5, socket_connect_timeout=2, retry=Retry(NoBackoff(), 0)
            )
            self._script = self._redis.register_script(_SCRIPT)
        return self._script


def _packed(events: list[list[str | int]]) -> bytes:
    try:
        return msgpack.encode(events)
    except UnicodeEncodeError:
        # Text that is not valid Unicode must not fail the whole batch.
        return msgpack.encode([[_valid(word) for word in words] for words in events])


def _valid(word: str | int) -> str | int:
    return word.encode("utf-8", "replace").decode() if isinstance(word, str) else word
