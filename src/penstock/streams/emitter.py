"""The emitter: metric events from this process to Redis Streams, without ever being in the way.

`emit` puts the event in a bounded buffer and returns. A background task writes what has gathered, one script
call per batch. When Redis is away the events wait; when the buffer is full the oldest goes, counted.

**A batch enters the streams once.** The script also writes the batch's number under this emitter's own key,
and does nothing if it finds the number there. So a batch whose answer was lost can be sent again.

**Emission can be switched off for all processes at once**: with 0 under the Redis key `ENABLED_KEY`, which is
looked at every few seconds in the background.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from importlib import resources
from itertools import count

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.commands.core import AsyncScript
from redis.exceptions import RedisError

from penstock.config import mask_url
from penstock.definitions import ENABLED_KEY, MetricDefinition
from penstock.ids import new_id
from penstock.streams.emit_batch import Emission, script_call
from penstock.streams.packing import Fields

log = logging.getLogger(__name__)

LOOK_EVERY_S = 3.0

BATCH = 1_000
"""Events per call: enough to spread its cost, few enough not to hold Redis or this process up."""

LINGER_S = 0.02
"""How long the first event of a batch waits for others."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0

_SCRIPT = resources.files("penstock.streams").joinpath("lua/emit.lua").read_text()


class Emitter:
    """Fire-and-forget writer of metric events; one per process, used from its event loop's thread.

    `pending`, `emitted`, `dropped` and `failures` say what became of the events: waiting, written, given up
    for want of room (or because Redis refused them), and how many attempts to write failed. `enabled` is the
    setting, `active` whether events are taken right now.
    """

    def __init__(self, redis_url: str, *, buffer: int, enabled: bool = True) -> None:
        self.enabled = enabled
        self.emitted = 0
        self.dropped = 0
        self.failures = 0
        self._switched_on = True
        self._url = redis_url
        self._buffer = buffer
        self._events: deque[Emission] = deque()
        self._batch: list[Emission] = []
        self._batch_number = 0
        self._mark_key = f"penstock:emitter:{new_id()}"
        self._round_robin = count()
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._look_out: asyncio.Task[None] | None = None
        self._redis: Redis | None = None
        self._script: AsyncScript

    @property
    def active(self) -> bool:
        return self.enabled and self._switched_on

    @property
    def pending(self) -> int:
        return len(self._events) + len(self._batch)

    def start(self) -> None:
        """Begin writing; needs a running event loop. Redis need not be there yet."""
        if self.enabled and self._task is None:
            self._stopping.clear()
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._run(), name="metric emitter")
            self._look_out = loop.create_task(self._watch_switch(), name="metric emitter's switch")

    async def stop(self, timeout_s: float = 5.0) -> None:
        """Write what is left, for at most `timeout_s`; what then remains is dropped. May be called twice."""
        task, self._task = self._task, None
        look_out, self._look_out = self._look_out, None
        self._stopping.set()
        self._wake.set()
        if look_out is not None:
            look_out.cancel()
            await asyncio.gather(look_out, return_exceptions=True)
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

    def emit(self, definition: MetricDefinition, fields: Fields, shard_key: str | None = None) -> None:
        """Hand over one event. Returns at once, whatever the state of Redis, and never raises.

        `fields` maps the definition's wire names to values and must not be changed afterwards. The event's
        time is now, unless `fields` has `t`. Events with one `shard_key` keep their order.
        """
        if not self.active:
            return
        if self._stopping.is_set():
            self.dropped += 1
            return
        if self.pending >= self._buffer:
            self.dropped += 1
            if not self._events:  # all room is taken by a batch on its way, which may have arrived
                return
            self._events.popleft()
        self._events.append((definition, fields, shard_key, int(time.time() * 1000)))
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
        self._connect()
        if not self._batch:
            self._batch = [self._events.popleft() for _ in range(min(BATCH, len(self._events)))]
            self._batch_number += 1
        try:
            call = script_call(
                self._mark_key, self._batch_number, self._batch, lambda: next(self._round_robin)
            )
        except Exception:
            # A mistake of whoever emitted it. Trying again would change nothing, and others must go on.
            log.exception("%d metric events could not be written", len(self._batch))
            self.dropped += len(self._batch)
            self._batch = []
            return
        places, why = await self._script(keys=call.keys, args=call.arguments)
        refused = sum(call.sizes[place - 1] for place in places)
        if refused:
            # Such as a key that holds something else. Sending these again would change nothing.
            log.error("Redis refused %d metric events: %s", refused, why.decode("utf-8", "replace"))
        self.dropped += refused
        self.emitted += len(self._batch) - refused
        self._batch = []

    async def _watch_switch(self) -> None:
        # The client may turn a cancellation while it connects into an error of its own: so this also looks.
        while not self._stopping.is_set():
            try:
                switched_on = await self._connect().get(ENABLED_KEY) != b"0"
            except (RedisError, OSError):
                pass  # `_run` meets the same trouble and says so; until it is over things stay as they are
            else:
                if switched_on != self._switched_on:
                    log.info(
                        "metric events are switched %s by %s", "on" if switched_on else "off", ENABLED_KEY
                    )
                self._switched_on = switched_on
            await self._pause(LOOK_EVERY_S)

    def _connect(self) -> Redis:
        if self._redis is None:
            # The client must not retry on its own: this class knows when that is safe, and counts.
            self._redis = Redis.from_url(
                self._url, protocol=2, socket_timeout=5, socket_connect_timeout=2, retry=Retry(NoBackoff(), 0)
            )
            self._script = self._redis.register_script(_SCRIPT)
        return self._redis
