"""The emitter: sends metric events of this process to Redis Streams without delaying the caller.

`emit` puts an event into a bounded buffer and returns. A background task writes the buffered events, one
script call per batch. While Redis is unreachable the events wait; when the buffer is full, the oldest event
is dropped and counted. The next batch reports how many events were dropped and of which time, so that the
series of that time are marked as incomplete.

**A batch enters the streams once.** The script also stores the batch's number under this emitter's own key,
and does nothing if it finds the number there. So a batch whose response was lost can be sent again. On a
cluster, a batch is one such call per stream, and only the calls without a response are sent again.

**Emission can be switched off for all processes at once**: with 0 under the Redis key `ENABLED_KEY`, which
a background task reads every few seconds.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from hashlib import sha1
from importlib import resources
from itertools import count
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError

from penstock.background import cancel_and_wait
from penstock.config import mask_url
from penstock.definitions import ENABLED_KEY, MetricDefinition
from penstock.ids import new_id
from penstock.redis_clients import connect_redis_async, is_cluster
from penstock.streams.emit_batch import (
    MIN_EVENTS_TO_PACK,
    Counts,
    PendingEvent,
    ScriptCall,
    build_script_calls,
)
from penstock.streams.emitter_losses import EmitterLosses
from penstock.streams.packing import Fields

logger = logging.getLogger(__name__)

SWITCH_INTERVAL_S = 3.0

MAX_BATCH_EVENTS = 1_000
"""Events per call: enough to spread its cost, few enough not to block Redis or this process."""

LINGER_S = 0.02
"""How long the first event of a batch waits for others."""

MIN_BACKOFF_S, MAX_BACKOFF_S = 0.1, 5.0

EMIT_SCRIPT = resources.files("penstock.streams").joinpath("lua/emit.lua").read_text()
EMIT_DIGEST = sha1(EMIT_SCRIPT.encode(), usedforsecurity=False).hexdigest()


class Emitter:
    """Fire-and-forget writer of metric events; one per process, used from the thread of its event loop.

    `pending`, `emitted` and `dropped` count the events that wait, were written, and were dropped because
    the buffer was full or Redis refused them. `failures` counts failed attempts to write. `enabled` is the
    setting; `active` says whether events are accepted now.
    """

    def __init__(
        self,
        redis_url: str,
        *,
        buffer: int,
        enabled: bool = True,
        switch_interval_s: float = SWITCH_INTERVAL_S,
        min_events_to_pack: int = MIN_EVENTS_TO_PACK,
    ) -> None:
        self.enabled = enabled
        self.emitted = 0
        self.dropped = 0
        self.failures = 0
        self._is_switched_on = True
        self._url = redis_url
        self._buffer_size = buffer
        self._switch_interval_s = switch_interval_s
        self._min_events_to_pack = min_events_to_pack
        self._events: deque[PendingEvent] = deque()
        self._batch: list[PendingEvent] = []
        self._losses = EmitterLosses()
        self._loss_reports: list[PendingEvent] = []
        self._batch_number = 0
        self._id = str(new_id())
        self._calls: deque[ScriptCall] = deque()
        self._round_robin = count()
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None
        self._switch_reader: asyncio.Task[None] | None = None
        self._redis: Redis | None = None

    @property
    def active(self) -> bool:
        return self.enabled and self._is_switched_on

    @property
    def pending(self) -> int:
        return len(self._events) + sum(call.event_count for call in self._calls)

    def start(self) -> None:
        """Start to write; needs a running event loop. Redis need not be reachable yet."""
        if self.enabled and self._writer is None:
            self._stopping.clear()
            loop = asyncio.get_running_loop()
            self._writer = loop.create_task(self._run(), name="metric emitter")
            self._switch_reader = loop.create_task(self._read_switch(), name="metric emitter's switch")

    async def stop(self, timeout_s: float = 5.0) -> None:
        """Write the pending events for at most `timeout_s`, then drop the rest. May be called twice."""
        writer, self._writer = self._writer, None
        switch_reader, self._switch_reader = self._switch_reader, None
        self._stopping.set()
        self._wake.set()
        if switch_reader is not None:
            await cancel_and_wait(switch_reader)
        if writer is not None:
            await asyncio.wait({writer}, timeout=timeout_s)
            await cancel_and_wait(writer)
        self.dropped += self.pending
        self._events.clear()
        self._batch.clear()
        self._calls.clear()
        if self._redis is not None:
            redis, self._redis = self._redis, None
            await redis.aclose()

    def emit(
        self,
        definition: MetricDefinition,
        fields: Fields,
        shard_key: str | None = None,
        counts: Counts = (),
    ) -> None:
        """Buffer one event. Returns at once, whatever the state of Redis, and never raises.

        `fields` maps the definition's wire names to values; the caller must not change it afterwards. The
        event's time is now, unless `fields` has `t`. Events with the same `shard_key` keep their order. The
        script that writes the event adds `counts` to the emitted totals.
        """
        if not self.active:
            return
        if self._stopping.is_set():
            self.dropped += 1
            return
        if self.pending >= self._buffer_size:
            self.dropped += 1
            if not self._events:  # the batch in flight fills the buffer, and Redis may have executed it
                self._losses.add((definition, fields, shard_key, int(time.time() * 1000), counts))
                return
            self._losses.add(self._events.popleft())
        self._events.append((definition, fields, shard_key, int(time.time() * 1000), counts))
        self._wake.set()

    async def _run(self) -> None:
        backoff_s = MIN_BACKOFF_S
        while True:
            if not self.pending:
                if self._stopping.is_set():
                    return
                self._wake.clear()
                await self._wake.wait()
                continue
            if len(self._events) < MAX_BATCH_EVENTS and not self._stopping.is_set():
                await asyncio.sleep(LINGER_S)
            try:
                await self._flush()
            except (RedisError, OSError) as error:
                self.failures += 1
                if backoff_s == MIN_BACKOFF_S:
                    logger.warning("Metric events wait: Redis at %s: %s", mask_url(self._url), error)
                await self._pause(backoff_s)
                backoff_s = min(backoff_s * 2, MAX_BACKOFF_S)
            else:
                if backoff_s != MIN_BACKOFF_S:
                    logger.info(
                        "Metric events are written again: %d pending, %d dropped", self.pending, self.dropped
                    )
                backoff_s = MIN_BACKOFF_S

    async def _pause(self, duration_s: float) -> None:
        if self._stopping.is_set():
            await asyncio.sleep(MIN_BACKOFF_S)
            return
        try:
            await asyncio.wait_for(self._stopping.wait(), duration_s)
        except TimeoutError:
            return

    async def _flush(self) -> None:
        """Write one batch, or raise and keep the batch for another attempt."""
        redis = self.connect()
        if not self._calls:
            self._begin_batch(is_cluster(redis))
        while self._calls:
            refused_entries, first_error = await _run_script(redis, self._calls[0])
            call = self._calls.popleft()
            refused = 0
            if refused_entries:
                refused = self._restore_refused([call.entries[number - 1] for number in refused_entries])
                # For example, the key of the stream holds another type. A retry would fail too.
                logger.error(
                    "Redis refused %d metric events: %s", refused, first_error.decode("utf-8", "replace")
                )
            self.dropped += refused
            self.emitted += call.event_count - refused
        self._batch, self._loss_reports = [], []

    def _begin_batch(self, is_cluster: bool) -> None:
        self._batch = [self._events.popleft() for _ in range(min(MAX_BATCH_EVENTS, len(self._events)))]
        self._loss_reports = self._losses.take_reports()
        self._batch_number += 1
        try:
            self._calls.extend(
                build_script_calls(
                    self._id,
                    self._batch_number,
                    [*self._loss_reports, *self._batch],
                    lambda: next(self._round_robin),
                    self._min_events_to_pack,
                    is_cluster=is_cluster,
                )
            )
        except Exception:
            # A caller emitted an invalid event. A retry would fail too, and later events must be written.
            logger.exception("%d metric events could not be encoded and are dropped", len(self._batch))
            self.dropped += len(self._batch)
            for event in self._batch:
                self._losses.add(event)
            self._losses.restore(self._loss_reports)
            self._batch, self._loss_reports = [], []

    def _restore_refused(self, entries: list[tuple[MetricDefinition, int]]) -> int:
        """Record refused entries as lost; return how many events they hold. A report is not an event."""
        counts: Counter[str] = Counter()
        refused_reports = {definition.name for definition, events in entries if not events}
        for definition, events in entries:
            if events:
                counts[definition.name] += events
        self._losses.add_refused(self._batch, counts)
        self._losses.restore([event for event in self._loss_reports if event[0].name in refused_reports])
        return counts.total()

    async def _read_switch(self) -> None:
        # The client may turn a cancellation during connect into another error, so check `_stopping` too.
        while not self._stopping.is_set():
            try:
                is_switched_on = await self.connect().get(ENABLED_KEY) != b"0"
            except (RedisError, OSError):
                pass  # `_run` logs the same error; the switch keeps its last value
            else:
                if is_switched_on != self._is_switched_on:
                    logger.info(
                        "Metric events are switched %s by %s", "on" if is_switched_on else "off", ENABLED_KEY
                    )
                self._is_switched_on = is_switched_on
            await self._pause(self._switch_interval_s)

    def connect(self) -> Redis:
        """Return the client of this emitter; it connects with its first command."""
        if self._redis is None:
            # The client must not retry by itself: only this class knows when a retry is safe, and counts it.
            self._redis = connect_redis_async(
                self._url, protocol=2, socket_timeout=5, socket_connect_timeout=2, retry=Retry(NoBackoff(), 0)
            )
        return self._redis


async def _run_script(redis: Redis, call: ScriptCall) -> Any:
    keys_and_arguments = (*call.keys, *call.arguments)
    try:
        return await redis.evalsha(EMIT_DIGEST, len(call.keys), *keys_and_arguments)
    except NoScriptError:  # a new or restarted server, or a replica that became the primary
        return await redis.eval(EMIT_SCRIPT, len(call.keys), *keys_and_arguments)
