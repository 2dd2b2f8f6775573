"""Parked pops: woken by what makes a queue ready, never by asking the database.

A pop that finds nothing parks here. A push, an ack that frees a partition, another broker's word, or the
moment at which a lease or delay is known to end wakes as many as there may be work for. A pop that was
woken and found something wakes one more, so work for many reaches many without waking all at once.

Waking between a pop's look at the database and its parking is not lost: the pop holds a `Watch` from
before it looks, and the watch remembers.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class Watch:
    """One waiting pop. `signalled` remembers a wake-up that came while it was not parked."""

    __slots__ = ("future", "group", "queue_ids", "signalled")

    def __init__(self, queue_ids: tuple[int, ...], group: str) -> None:
        self.queue_ids = queue_ids
        self.group = group
        self.signalled = False
        self.future: asyncio.Future[None] | None = None


class Waiters:
    """All pops of one process that wait, by queue and group."""

    def __init__(self) -> None:
        self._watches: dict[tuple[int, str], OrderedDict[Watch, None]] = {}
        self._groups: dict[int, set[str]] = {}
        self._timers: dict[tuple[int, str], asyncio.TimerHandle] = {}
        self.parked = 0

    @contextmanager
    def watch(self, queue_ids: Iterable[int], group: str) -> Iterator[Watch]:
        """Notice everything that makes these queues ready for this group, from now on."""
        watch = Watch(tuple(queue_ids), group)
        for queue_id in watch.queue_ids:
            self._watches.setdefault((queue_id, group), OrderedDict())[watch] = None
            self._groups.setdefault(queue_id, set()).add(group)
        try:
            yield watch
        finally:
            for queue_id in watch.queue_ids:
                self._forget(queue_id, watch)

    async def park(self, watch: Watch, timeout_s: float) -> bool:
        """Wait until woken, or for `timeout_s`; whether it was woken."""
        if not watch.signalled:
            watch.future = asyncio.get_running_loop().create_future()
            self.parked += 1
            try:
                # Not wait_for: it would swallow a cancellation that comes together with the wake-up.
                async with asyncio.timeout(timeout_s):
                    await watch.future
            except TimeoutError:
                return False
            finally:
                self.parked -= 1
                watch.future = None
        watch.signalled = False
        return True

    def wake(self, queue_id: int, count: int = 1) -> None:
        """The queue may have work for `count` pops of every group."""
        for group in tuple(self._groups.get(queue_id, ())):
            self.wake_group(queue_id, group, count)

    def wake_group(self, queue_id: int, group: str, count: int = 1) -> None:
        """The queue may have work for `count` pops of this group: those that wait longest get it."""
        watches = self._watches.get((queue_id, group))
        if not watches:
            return
        for watch in tuple(watches):
            if watch.signalled:
                continue
            watch.signalled = True
            watches.move_to_end(watch)
            if watch.future is not None and not watch.future.done():
                watch.future.set_result(None)
            count -= 1
            if not count:
                return

    def wake_all(self) -> None:
        """Anything may have happened: every pop looks again."""
        for key, watches in tuple(self._watches.items()):
            self.wake_group(*key, count=len(watches))

    def wake_in(self, queue_id: int, group: str, delay_s: float) -> None:
        """Something of this queue becomes ready for this group after `delay_s`."""
        loop = asyncio.get_running_loop()
        key = (queue_id, group)
        at = loop.time() + max(delay_s, 0.0)
        known = self._timers.get(key)
        if known is not None:
            if known.when() <= at:
                return
            known.cancel()
        self._timers[key] = loop.call_at(at, self._ring, key)

    def _ring(self, key: tuple[int, str]) -> None:
        self._timers.pop(key, None)
        self.wake_group(*key)

    def _forget(self, queue_id: int, watch: Watch) -> None:
        key = (queue_id, watch.group)
        watches = self._watches[key]
        watches.pop(watch, None)
        if watches:
            # What this one was woken for may be left for another.
            if watch.signalled:
                self.wake_group(queue_id, watch.group)
            return
        del self._watches[key]
        groups = self._groups[queue_id]
        groups.discard(watch.group)
        if not groups:
            del self._groups[queue_id]
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
