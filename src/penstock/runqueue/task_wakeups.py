"""Waking who waits for tasks: one subscription per process, no polling.

A script names a queue on a channel when the queue can hand out something and could not before. Each
process then wakes one of its waiters; one that got something wakes the next, since there may be more. So a
thousand waiters cost one call when one task comes.

A waiter registers before it looks, so no wake-up falls in between. Messages sent while the connection was
away are lost: when it is back every waiter looks.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from redis.asyncio import Redis
from redis.exceptions import RedisError

from penstock.config import mask_url
from penstock.runqueue.keys import WAKE_CHANNEL

logger = logging.getLogger(__name__)

ANY = "/"
"""What a waiter for all environments waits for. One for an environment waits for its name and `/`."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 2.0
PING_S = 15.0
GOING_S = 5.0


class Waiter:
    """One that waits. `woken` says whether it should look, `dismissed` that it should wait no longer."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.dismissed = False

    @property
    def woken(self) -> bool:
        return self._event.is_set()

    def wake(self) -> None:
        self._event.set()

    def rest(self) -> None:
        self._event.clear()

    async def wait(self, seconds: float) -> bool:
        """Whether it was woken within that time."""
        if seconds <= 0:
            return False
        # Unlike wait_for, this never loses a cancellation that comes together with the wake-up.
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return False
        return True


class Wakeups:
    """The process's waiters and its one subscription. `start` and `stop` may be called twice."""

    def __init__(self, url: str, client: Redis) -> None:
        self._url = url
        self._client = client
        self._waiters: dict[str, OrderedDict[Waiter, None]] = {}
        self._nobody = asyncio.Event()
        self._nobody.set()
        self._listener: asyncio.Task[None] | None = None
        self.stopping = False

    @contextmanager
    def waiting(self, name: str) -> Iterator[Waiter]:
        """A waiter for `name`: a queue, an environment and `/`, or ANY."""
        waiter = Waiter()
        self._waiters.setdefault(name, OrderedDict())[waiter] = None
        self._nobody.clear()
        try:
            yield waiter
        finally:
            waiters = self._waiters[name]
            waiters.pop(waiter, None)
            if not waiters:
                del self._waiters[name]
                if not self._waiters:
                    self._nobody.set()
            if waiter.woken:  # it was to look and did not; somebody else should
                self._wake_one(name)

    def told(self, name: str) -> None:
        """A queue (or an environment and `/`) can hand out something."""
        environment = name[: name.rindex("/") + 1]
        self._wake_one(ANY)
        self._wake_one(environment)
        if name != environment:
            self._wake_one(name)
        else:
            for other in [other for other in self._waiters if other.startswith(environment)]:
                self._wake_one(other)

    def wake_all(self) -> None:
        for waiters in self._waiters.values():
            for waiter in waiters:
                waiter.wake()

    def dismiss_all(self) -> None:
        for waiters in self._waiters.values():
            for waiter in waiters:
                waiter.dismissed = True
                waiter.wake()

    @property
    def number(self) -> int:
        return sum(map(len, self._waiters.values()))

    def start(self) -> None:
        self.stopping = False
        if self._listener is None:
            self._listener = asyncio.get_running_loop().create_task(self._listen(), name="run queue wake-ups")

    async def stop(self) -> None:
        """Dismiss everybody and return when they have gone; one that Redis keeps waiting is left behind."""
        self.stopping = True
        self.dismiss_all()
        with suppress(TimeoutError):
            async with asyncio.timeout(GOING_S):
                await self._nobody.wait()
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.cancel()
            await asyncio.gather(listener, return_exceptions=True)

    def _wake_one(self, name: str) -> None:
        for waiter in self._waiters.get(name, ()):
            if not waiter.woken:
                waiter.wake()
                return

    async def _listen(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self.stopping:
            try:
                async with self._client.pubsub(ignore_subscribe_messages=True) as subscription:
                    await subscription.subscribe(WAKE_CHANNEL)
                    self.wake_all()
                    pause_s = FIRST_PAUSE_S
                    while not self.stopping:
                        message = await subscription.get_message(timeout=PING_S)
                        if message is None:
                            # Nothing for a while: this notices a connection that died without a word.
                            await subscription.ping()
                        elif message["type"] == "message":
                            self.told(message["data"].decode())
            except (RedisError, OSError) as error:
                if pause_s == FIRST_PAUSE_S:
                    logger.warning(
                        "waiting dequeues hear nothing: Redis at %s: %s", mask_url(self._url), error
                    )
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
