"""A dequeue from its start to its result, without a task of its own, even while it waits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from penstock.batching import Batcher, Receiver
from penstock.caller import Caller, token_ended
from penstock.errors import TooManyWaiting
from penstock.runqueue.keys import queue_name
from penstock.runqueue.limits import MAX_REPLY_BYTES
from penstock.runqueue.task_model import RunningTask
from penstock.runqueue.task_wakeups import TaskWaiter, TaskWakeups

DequeueArguments = tuple[str, str, int, int, str, int]
"""Environment, queue, maximum number of tasks, visibility in ms, worker, number of the access token or 0. An
empty name means any."""


class PendingDequeue(TaskWaiter):
    """A dequeue that is in a batch, or parked until it is woken or its wait time has passed.

    It receives the result of every batch that it joins. `receiver` gets the first result that has tasks, or
    an empty one at the end of the wait, or Unauthorized if the caller's token ends before that. It is a
    waiter from its start, so it misses no wake-up in between.
    """

    def __init__(
        self,
        batcher: Batcher[DequeueArguments, list[RunningTask]],
        wakeups: TaskWakeups,
        shards: Iterable[int],
        arguments: DequeueArguments,
        wait_s: float,
        receiver: Receiver[list[RunningTask]],
        caller: Caller,
    ) -> None:
        environment, queue, *_ = arguments
        super().__init__(queue or environment + "/", caller)
        self._batcher = batcher
        self._wakeups = wakeups
        self._shards = shards
        self._shards_to_try: Iterator[int]
        self._shard: int
        self._arguments = arguments
        self._receiver = receiver
        self._loop = asyncio.get_running_loop()
        self._wait_until = self._loop.time() + wait_s
        self._timer: asyncio.TimerHandle | None = None
        """Runs while the dequeue is parked."""
        self._is_finished = False

    def start(self) -> None:
        self._wakeups.add(self)
        self._try_all_shards()

    def wake(self) -> None:
        super().wake()
        if self._timer is not None:
            self._unpark()
            self._try_all_shards()

    def cancel(self) -> None:
        """Stop: the caller is gone. Tasks that a batch has leased or will lease for it are released."""
        if not self._is_finished:
            self._leave()

    def abandon(self, tasks: list[RunningTask]) -> None:
        """Release the tasks of a result that the caller did not get."""
        self._batcher.abandon(self._shard, self._arguments, tasks)

    def done(self) -> bool:
        return self._is_finished or self._receiver.done()

    def set_result(self, tasks: list[RunningTask], /) -> None:
        if tasks:
            self._finish(tasks)
        elif (shard := next(self._shards_to_try, None)) is not None:
            self._try_shard(shard)
        elif self.is_released or self._loop.time() >= self._wait_until:
            self._finish(tasks)
        elif self.is_woken:
            self._try_all_shards()
        else:
            self._park()

    def set_exception(self, exception: Exception, /) -> None:
        self._leave()
        self._receiver.set_exception(exception)

    def _try_all_shards(self) -> None:
        self.is_woken = False
        self._shards_to_try = iter(self._shards)
        self._try_shard(next(self._shards_to_try))

    def _try_shard(self, shard: int) -> None:
        self._shard = shard
        self._batcher.put(shard, self._arguments, self, items=self._arguments[2])

    def _finish(self, tasks: list[RunningTask]) -> None:
        self._leave()
        if not self.caller.active:
            self.abandon(tasks)
            self._receiver.set_exception(token_ended())
            return
        limit = self._arguments[2]
        if len(tasks) == limit or sum(len(task.payload) for task in tasks) > MAX_REPLY_BYTES // 2:
            # The queue may have more tasks for another waiter.
            self._wakeups.notify(queue_name(tasks[-1].scope, tasks[-1].queue))
        self._receiver.set_result(tasks)

    def _leave(self) -> None:
        self._is_finished = True
        self._unpark()
        self._wakeups.remove(self)

    def _park(self) -> None:
        max_parked = self._wakeups.max_parked
        if max_parked is not None and self._wakeups.parked >= max_parked:
            self.set_exception(TooManyWaiting("dequeues", max_parked))
            return
        self._wakeups.parked += 1
        self._timer = self._loop.call_at(self._wait_until, self._finish, [])

    def _unpark(self) -> None:
        if self._timer is not None:
            self._wakeups.parked -= 1
            self._timer.cancel()
            self._timer = None
