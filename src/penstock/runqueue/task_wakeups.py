"""Wake waiting dequeues: one subscription per process instead of polling.

A script publishes the name of a queue when the queue can start a task and could not before. Each process
then wakes one of its waiters. A waiter that received a task wakes the next one, because there may be more.
So one new task costs one call, even with a thousand waiters.

A waiter registers before it calls dequeue, so no wake-up is missed in between. Messages that are published
while the connection is down are lost, so every waiter retries after a reconnect.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from contextlib import suppress

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from penstock.background import BackgroundTask
from penstock.caller import Caller
from penstock.config import mask_url
from penstock.redis_clients import AsyncClusterClient
from penstock.runqueue.keys import WAKE_CHANNEL

logger = logging.getLogger(__name__)

ANY_ENVIRONMENT = "/"
"""Name that a waiter for all environments registers.

A waiter for one environment registers its name and `/`.
"""

MIN_RECONNECT_S, MAX_RECONNECT_S = 0.1, 2.0
PING_INTERVAL_S = 5.0
"""A connection is pinged after as long without a message, and replaced if the reply takes as long."""
STOP_TIMEOUT_S = 5.0


class TaskWaiter:
    """A dequeue that waits for tasks of `name`: a queue, an environment and `/`, or ANY_ENVIRONMENT.

    `is_woken`: it should try again. `is_released`: it should stop waiting.
    """

    def __init__(self, name: str, caller: Caller) -> None:
        self.name = name
        self.caller = caller
        self.is_woken = False
        self.is_released = False

    def wake(self) -> None:
        self.is_woken = True

    def end(self) -> None:
        """Stop waiting."""
        self.is_released = True
        self.wake()


class TaskWakeups(BackgroundTask):
    """The waiters of this process and its subscription."""

    task_name = "run queue wake-ups"

    def __init__(
        self,
        url: str,
        client: Redis,
        max_parked: int | None = None,
        ping_interval_s: float = PING_INTERVAL_S,
    ) -> None:
        self.max_parked = max_parked
        self._ping_interval_s = ping_interval_s
        self.parked = 0
        """Waiters that neither have a result nor try to get one."""
        self._url = url
        self._client = client
        self._waiters: dict[str, OrderedDict[TaskWaiter, None]] = {}
        self._no_waiters = asyncio.Event()
        self._no_waiters.set()

    def add(self, waiter: TaskWaiter) -> None:
        self._waiters.setdefault(waiter.name, OrderedDict())[waiter] = None
        self._no_waiters.clear()

    def remove(self, waiter: TaskWaiter) -> None:
        """Remove a waiter. If it was woken and has not tried again, another waiter must."""
        waiters = self._waiters[waiter.name]
        waiters.pop(waiter, None)
        if not waiters:
            del self._waiters[waiter.name]
            if not self._waiters:
                self._no_waiters.set()
        if waiter.is_woken:
            self._wake_one(waiter.name)

    def notify(self, name: str) -> None:
        """Wake waiters: a queue (or an environment and `/`) can start a task."""
        environment = name[: name.rindex("/") + 1]
        self._wake_one(ANY_ENVIRONMENT)
        self._wake_one(environment)
        if name != environment:
            self._wake_one(name)
        else:
            for queue in [other for other in self._waiters if other.startswith(environment)]:
                self._wake_one(queue)

    def wake_all(self) -> None:
        for waiters in self._waiters.values():
            for waiter in waiters:
                waiter.wake()

    def release_all(self) -> None:
        """Make every waiter stop waiting."""
        for waiters in self._waiters.values():
            for waiter in waiters:
                waiter.end()

    def end_inactive(self) -> None:
        """End the waiters whose access token has ended."""
        all_waiters = [waiter for waiters in self._waiters.values() for waiter in waiters]
        for waiter in all_waiters:
            if not waiter.caller.active:
                waiter.end()

    @property
    def waiter_count(self) -> int:
        return sum(map(len, self._waiters.values()))

    async def stop(self) -> None:
        """Release all waiters and wait until they have returned, at most STOP_TIMEOUT_S."""
        self.release_all()
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self._no_waiters.wait()
        await super().stop()

    def _wake_one(self, name: str) -> None:
        for waiter in self._waiters.get(name, ()):
            if not waiter.is_woken:
                waiter.wake()
                return

    async def _run(self) -> None:
        pause_s = MIN_RECONNECT_S
        while not self._is_stopping:
            try:
                if isinstance(self._client, AsyncClusterClient):
                    # A message reaches the subscribers of all nodes, so any node that lives will do.
                    await self._client.read_topology()
                async with self._client.pubsub(ignore_subscribe_messages=True) as subscription:
                    await subscription.subscribe(WAKE_CHANNEL)
                    self.wake_all()
                    pause_s = MIN_RECONNECT_S
                    await self._receive(subscription)
            except (RedisError, OSError) as error:
                if pause_s == MIN_RECONNECT_S:
                    logger.warning(
                        "Waiting dequeues receive no wake-ups: Redis at %s: %s", mask_url(self._url), error
                    )
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, MAX_RECONNECT_S)

    async def _receive(self, subscription: PubSub) -> None:
        """Wake waiters until `stop`. Raises RedisConnectionError when Redis does not answer."""
        is_pinged = False
        while not self._is_stopping:
            message = await subscription.get_message(timeout=self._ping_interval_s)
            if message is not None:
                is_pinged = False
                if message["type"] == "message":
                    self.notify(message["data"].decode())
            elif is_pinged:
                # The host of this process may have been cut off: the connection fails, but without an error.
                raise RedisConnectionError(f"no answer for {2 * self._ping_interval_s:g} s")
            else:
                await subscription.ping()
                is_pinged = True
