"""Wake waiting pops when their queue may have messages, so that they never poll the database.

A pop that finds no message parks here. These events wake as many parked pops as there may be work for: a
push, an ack that frees a partition, a notification from another broker, and the known end of a lease or a
delay. A woken pop that finds a message wakes one more pop, so work for many pops reaches many without waking
all of them at once. A pop of one partition wakes only for that partition, and it does not use up the wake-ups
of pops of any partition.

A pop of a queue or partition that does not exist waits for its name: the broker that creates it wakes that
pop, under a number that all brokers compute from the name.

A wake-up between a pop's read of the database and its parking is not lost: the pop holds a `PopWatch` from
before the read, and the watch records the wake-up.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

from penstock.caller import LOCAL_CALLER, Caller
from penstock.durable.log import PartitionName
from penstock.durable.notifications import NotificationBus
from penstock.errors import TooManyWaiting
from penstock.model import Scope

ALL_POPS = 100_000
"""More pops than can be parked anywhere, to wake every one of them."""


def name_id(scope: Scope, queue: str, partition: str | None = None) -> int:
    """Return the number under which pops wait until a queue, or one of its partitions, is created.

    It is negative, so it is never the id of a queue. Two names with one number only cause a needless wake-up.
    """
    names = (*scope, queue) if partition is None else (*scope, queue, partition)
    digest = hashlib.blake2b("\0".join(names).encode(), digest_size=7).digest()
    return -1 - int.from_bytes(digest)


class PopWatch:
    """One waiting pop. `signalled` records a wake-up that came while the pop was not parked."""

    __slots__ = ("caller", "future", "group", "partition_id", "queue_ids", "signalled")

    def __init__(
        self, queue_ids: tuple[int, ...], group: str, partition_id: int | None, caller: Caller
    ) -> None:
        self.queue_ids = queue_ids
        self.group = group
        self.partition_id = partition_id
        self.caller = caller
        self.signalled = False
        self.future: asyncio.Future[None] | None = None


WatchList = OrderedDict[PopWatch, None]
"""Pops that wait for the same queue, group and partition, the longest waiting first."""


class ParkedPops:
    """All waiting pops of this process, by queue, group and partition."""

    def __init__(self, max_parked: int | None = None) -> None:
        self._max_parked = max_parked
        # Partition None holds the pops of any partition.
        self.watch_lists: dict[int, dict[str, dict[int | None, WatchList]]] = {}
        self._timers: dict[tuple[int, str, int | None], asyncio.TimerHandle] = {}
        self._shutting_down = False
        self.count = 0

    @contextmanager
    def watch(
        self,
        queue_ids: Iterable[int],
        group: str,
        partition_id: int | None = None,
        caller: Caller = LOCAL_CALLER,
    ) -> Iterator[PopWatch]:
        """Record every wake-up of these queues, or of one partition, for this group from now on."""
        watch = PopWatch(tuple(queue_ids), group, partition_id, caller)
        for queue_id in watch.queue_ids:
            watch_lists = self.watch_lists.setdefault(queue_id, {}).setdefault(group, {})
            watch_lists.setdefault(partition_id, OrderedDict())[watch] = None
        try:
            yield watch
        finally:
            for queue_id in watch.queue_ids:
                self._remove(queue_id, watch)

    async def park(self, watch: PopWatch, timeout_s: float) -> bool:
        """Wait for a wake-up for at most `timeout_s`; return True if one came. Raises TooManyWaiting."""
        if not watch.signalled and not self._shutting_down:
            if self._max_parked is not None and self.count >= self._max_parked:
                raise TooManyWaiting("pops", self._max_parked)
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
        return not self._shutting_down

    def wake(self, queue_id: int, count: int = 1, partition_ids: Collection[int] | None = None) -> None:
        """Wake up to `count` pops of every group of the queue, for these partitions or for any (None)."""
        for watch_lists in self.watch_lists.get(queue_id, {}).values():
            keys = watch_lists if partition_ids is None else (None, *partition_ids)
            for partition_id in keys:
                if partition_id in watch_lists:
                    _signal(watch_lists[partition_id], count if partition_id is None else 1)

    def wake_next(self, watch: PopWatch) -> None:
        """Wake one more pop that waits for the same as this watch."""
        for queue_id in watch.queue_ids:
            self._wake_one(queue_id, watch.group, watch.partition_id)

    def wake_all(self) -> None:
        """Wake every pop, because notifications may have been missed."""
        for watch_list in self._all_lists():
            _signal(watch_list, len(watch_list))

    def wake_inactive(self) -> None:
        """Wake the pops whose caller is not active any more: they end."""
        for watch_list in self._all_lists():
            inactive = OrderedDict.fromkeys(watch for watch in watch_list if not watch.caller.active)
            _signal(inactive, len(inactive))

    def _all_lists(self) -> Iterator[WatchList]:
        for groups in self.watch_lists.values():
            for watch_lists in groups.values():
                yield from watch_lists.values()

    def wake_all_for_shutdown(self) -> None:
        """Wake every pop and let no pop park again: the broker is about to stop."""
        self._shutting_down = True
        self.wake_all()

    def wake_in(self, queue_id: int, group: str, delay_s: float, partition_id: int | None = None) -> None:
        """Wake one pop of the group after `delay_s`, when a message of the queue becomes ready."""
        loop = asyncio.get_running_loop()
        key = (queue_id, group, partition_id)
        wake_at = loop.time() + max(delay_s, 0.0)
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= wake_at:
                return
            timer.cancel()
        self._timers[key] = loop.call_at(wake_at, self._on_timer, key)

    def _on_timer(self, key: tuple[int, str, int | None]) -> None:
        self._timers.pop(key, None)
        self._wake_one(*key)

    def _wake_one(self, queue_id: int, group: str, partition_id: int | None) -> None:
        watch_list = self.watch_lists.get(queue_id, {}).get(group, {}).get(partition_id)
        if watch_list:
            _signal(watch_list, 1)

    def _remove(self, queue_id: int, watch: PopWatch) -> None:
        groups = self.watch_lists[queue_id]
        watch_lists = groups[watch.group]
        watch_list = watch_lists[watch.partition_id]
        watch_list.pop(watch, None)
        if watch_list:
            # The message that this watch was signalled for may still be there for another pop.
            if watch.signalled:
                _signal(watch_list, 1)
            return
        del watch_lists[watch.partition_id]
        if not watch_lists:
            del groups[watch.group]
        if not groups:
            del self.watch_lists[queue_id]
        timer = self._timers.pop((queue_id, watch.group, watch.partition_id), None)
        if timer is not None:
            timer.cancel()


def _signal(watch_list: WatchList, count: int) -> None:
    """Wake the `count` pops that have waited longest and move them to the end of the list."""
    for watch in tuple(watch_list):
        if watch.signalled:
            continue
        watch.signalled = True
        watch_list.move_to_end(watch)
        if watch.future is not None and not watch.future.done():
            watch.future.set_result(None)
        count -= 1
        if not count:
            return


class PopWakeups:
    """Wake parked pops of this broker and of all other brokers."""

    def __init__(self, parked_pops: ParkedPops, notifications: NotificationBus | None = None) -> None:
        self.parked_pops = parked_pops
        self._notifications = notifications

    def notify(self, queue_id: int, count: int = 1, partition_ids: Collection[int] | None = None) -> None:
        """Wake up to `count` pops of every group of the queue, for these partitions or for any (None)."""
        if self.parked_pops.watch_lists:
            self.parked_pops.wake(queue_id, count, partition_ids)
        if self._notifications is not None and self._notifications.has_peers:
            self._notifications.publish(queue_id, count, partition_ids)

    def notify_created(self, scope: Scope, names: Iterable[PartitionName]) -> None:
        """Wake the pops that wait until one of these partitions, or its queue, is created."""
        has_peers = self._notifications is not None and self._notifications.has_peers
        if not (self.parked_pops.watch_lists or has_peers):
            return
        name_ids: set[int] = set()
        for queue, partition in names:
            name_ids.update((name_id(scope, queue), name_id(scope, queue, partition)))
        for number in name_ids:
            self.notify(number, ALL_POPS)
