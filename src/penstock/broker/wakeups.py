"""Parked pops: woken by what makes a queue ready, never by asking the database.

A pop that finds nothing parks here. A push, an ack that frees a partition, another broker's word, or the
moment at which a lease or delay is known to end wakes as many as there may be work for. A pop that was
woken and found something wakes one more, so work for many reaches many without waking all at once. A pop of
one partition is woken for that partition only, and takes no wake-up from those who would take any.

Waking between a pop's look at the database and its parking is not lost: the pop holds a `Watch` from
before it looks, and the watch remembers.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager


class Watch:
    """One waiting pop. `signalled` remembers a wake-up that came while it was not parked."""

    __slots__ = ("future", "group", "partition_id", "queue_ids", "signalled")

    def __init__(self, queue_ids: tuple[int, ...], group: str, partition_id: int | None) -> None:
        self.queue_ids = queue_ids
        self.group = group
        self.partition_id = partition_id
        self.signalled = False
        self.future: asyncio.Future[None] | None = None


Line = OrderedDict[Watch, None]
"""Those who wait for the same, longest first."""


class ParkedPops:
    """All pops of one process that wait, by queue, group and partition."""

    def __init__(self) -> None:
        self._lines: dict[int, dict[str, dict[int | None, Line]]] = {}  # partition None: any
        self._timers: dict[tuple[int, str, int | None], asyncio.TimerHandle] = {}
        self._letting_go = False
        self.count = 0

    @contextmanager
    def watch(self, queue_ids: Iterable[int], group: str, partition_id: int | None = None) -> Iterator[Watch]:
        """Notice everything that makes these queues, or one partition, ready for this group, from now on."""
        watch = Watch(tuple(queue_ids), group, partition_id)
        for queue_id in watch.queue_ids:
            lines = self._lines.setdefault(queue_id, {}).setdefault(group, {})
            lines.setdefault(partition_id, OrderedDict())[watch] = None
        try:
            yield watch
        finally:
            for queue_id in watch.queue_ids:
                self._forget(queue_id, watch)

    async def park(self, watch: Watch, timeout_s: float) -> bool:
        """Wait until woken, or for `timeout_s`; whether it was woken."""
        if not watch.signalled and not self._letting_go:
            watch.future = asyncio.get_running_loop().create_future()
            self.count += 1
            try:
                # Not wait_for: it would swallow a cancellation that comes together with the wake-up.
                async with asyncio.timeout(timeout_s):
                    await watch.future
            except TimeoutError:
                return False
            finally:
                self.count -= 1
                watch.future = None
        watch.signalled = False
        return not self._letting_go

    def wake(self, queue_id: int, count: int = 1, partition_ids: Collection[int] | None = None) -> None:
        """The queue may have work for `count` pops of every group, in these partitions; None: in any."""
        for lines in self._lines.get(queue_id, {}).values():
            wanted = lines if partition_ids is None else (None, *partition_ids)
            for partition_id in wanted:
                if partition_id in lines:
                    _call(lines[partition_id], count if partition_id is None else 1)

    def wake_like(self, watch: Watch) -> None:
        """There may be something for another pop that waits for the same."""
        for queue_id in watch.queue_ids:
            self._wake_line(queue_id, watch.group, watch.partition_id)

    def wake_all(self) -> None:
        """Anything may have happened: every pop looks again."""
        for groups in self._lines.values():
            for lines in groups.values():
                for line in lines.values():
                    _call(line, len(line))

    def wake_all_for_shutdown(self) -> None:
        """Nobody waits any more, now or later: the broker is about to stop."""
        self._letting_go = True
        self.wake_all()

    def wake_in(self, queue_id: int, group: str, delay_s: float, partition_id: int | None = None) -> None:
        """Something of this queue or partition becomes ready for this group after `delay_s`."""
        loop = asyncio.get_running_loop()
        key = (queue_id, group, partition_id)
        at = loop.time() + max(delay_s, 0.0)
        known = self._timers.get(key)
        if known is not None:
            if known.when() <= at:
                return
            known.cancel()
        self._timers[key] = loop.call_at(at, self._ring, key)

    def _ring(self, key: tuple[int, str, int | None]) -> None:
        self._timers.pop(key, None)
        self._wake_line(*key)

    def _wake_line(self, queue_id: int, group: str, partition_id: int | None) -> None:
        line = self._lines.get(queue_id, {}).get(group, {}).get(partition_id)
        if line:
            _call(line, 1)

    def _forget(self, queue_id: int, watch: Watch) -> None:
        groups = self._lines[queue_id]
        lines = groups[watch.group]
        line = lines[watch.partition_id]
        line.pop(watch, None)
        if line:
            # What this one was woken for may be left for another.
            if watch.signalled:
                _call(line, 1)
            return
        del lines[watch.partition_id]
        if not lines:
            del groups[watch.group]
        if not groups:
            del self._lines[queue_id]
        timer = self._timers.pop((queue_id, watch.group, watch.partition_id), None)
        if timer is not None:
            timer.cancel()


def _call(line: Line, count: int) -> None:
    """Wake those `count` that wait longest; they go to the end of the line."""
    for watch in tuple(line):
        if watch.signalled:
            continue
        watch.signalled = True
        line.move_to_end(watch)
        if watch.future is not None and not watch.future.done():
            watch.future.set_result(None)
        count -= 1
        if not count:
            return
