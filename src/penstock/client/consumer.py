"""Consumers: pop, call the handler, settle, again; and how they stop."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from concurrent.futures import ThreadPoolExecutor

from penstock.client.delivery import Batches, Delivery, Handler, LeaseLostCallback, Work, cancelled
from penstock.client.errors import ApiError, ClientError
from penstock.client.http.calls import Calls
from penstock.client.http.connections import Parting
from penstock.client.http.transport import delay_before
from penstock.client.lifecycle import Runner
from penstock.client.messages import Message
from penstock.client.pop_request import Pop
from penstock.client.stopping import leave, passes

__all__ = ["Batches", "Consumer", "Handler", "LeaseLostCallback"]

logger = logging.getLogger("penstock.client")

LEASE_TIME_KEPT_S = 60.0
"""How long the lease time of a queue is believed before it is asked for again."""

SHORTEST_EXTENSION_S = 1.0
"""A lease is extended by whole seconds."""

UNKNOWN_LEASE_S = 3.0
"""What is taken for the lease time of a queue that cannot be asked. Renewing never makes a lease shorter."""

RELEASE_S = 10.0
"""How long giving back may take when a consumer has no time left."""


class Consumer(Runner):
    """Calls a handler with messages until it is stopped.

    - `concurrency` handlers run at once. Messages of one partition are never handled at the same time, and in
      their order: the broker gives a partition to one consumer of a group at a time.
    - A message that fails is settled as failed, and the rest of its partition is given back, so that nothing
      overtakes it; it comes first the next time. With `ordered=False` the rest is handled at once.
    - A handler that is no coroutine function runs in a thread of its own.
    - The lease is renewed for as long as the handler takes. When it is lost all the same (the broker was
      away for too long, somebody moved the group), that is logged and told to `on_lease_lost`, what was not
      begun is left to whoever has it now, and the consumer goes on.
    - While brokers or their database are away it waits and tries again, for as long as it takes.

    `await consumer` (or `run()`) returns after `stop()`: handlers that run get `grace_s` to end, then they
    are cancelled, and what was not finished is given back without counting an attempt. Cancelling `run()`
    does the same with no grace. A thread cannot be cancelled: what it works on is left to its lease.
    Whatever happens, a message that was not acked comes again.
    """

    def __init__(
        self,
        calls: Calls,
        asked: Pop,
        handler: Handler,
        *,
        siblings: set[Consumer],
        concurrency: int,
        auto_renew: bool,
        ordered: bool,
        grace_s: float,
        ack_interval_s: float,
        on_lease_lost: LeaseLostCallback | None,
    ) -> None:
        if concurrency < 1:
            raise ValueError(f"concurrency must be 1 or more, not {concurrency}")
        asked.path  # noqa: B018 - says at once what does not fit
        super().__init__(siblings)
        self._calls = calls
        self._asked = asked
        self._concurrency = concurrency
        self._auto_renew = auto_renew
        self._grace_s = grace_s
        self._work = Work(handler, ordered, ack_interval_s, on_lease_lost, lambda: self.stopping)
        self._stop_event = asyncio.Event()
        self._waiting: dict[asyncio.Task[list[Message]], Parting] = {}
        self._lease_times: dict[str, tuple[float, float]] = {}

    async def _run(self) -> None:
        threads = self._work.threads = ThreadPoolExecutor(self._concurrency, "penstock-handler")
        workers = [asyncio.create_task(self._consume()) for _ in range(self._concurrency)]
        try:
            await self._until_stopped(workers)
        finally:
            for worker in workers:
                worker.cancel()
            results = await asyncio.gather(*workers, return_exceptions=True)
            threads.shutdown(wait=False)
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _until_stopped(self, workers: list[asyncio.Task[None]]) -> None:
        """Return once stopping was asked for, or a worker failed, and the grace is over or not needed."""
        stopping = asyncio.create_task(self._stop_event.wait())
        try:
            await asyncio.wait({*workers, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            self._begin_to_stop()
        await asyncio.wait(workers, timeout=self._grace_s)

    def _begin_to_stop(self) -> None:
        self._stop_asked = True
        self._stop_event.set()
        for pop in self._waiting:
            leave(pop, self._waiting[pop])

    async def _consume(self) -> None:
        while not self._stop_asked:
            messages = await self._next()
            if messages:
                await self._deliver(messages)

    async def _next(self) -> list[Message]:
        """The next messages; none if there were none in time, or if it is time to stop."""
        parting = Parting()
        pop = asyncio.create_task(self._pop(parting))
        self._waiting[pop] = parting
        try:
            await asyncio.wait({pop})
            return [] if pop.cancelled() else pop.result()
        except asyncio.CancelledError:
            leave(pop, self._waiting[pop])
            await asyncio.wait({pop})
            if not pop.cancelled() and pop.exception() is None and pop.result():
                await self._release(Delivery(self._calls, self._work, pop.result()))
            raise
        finally:
            del self._waiting[pop]

    async def _pop(self, parting: Parting) -> list[Message]:
        attempt = 1
        while True:
            try:
                return await self._calls.pop(self._asked, parting)
            except ClientError as error:
                if parting.last:
                    return []
                if not passes(error):
                    raise
                attempt += 1
                asked_s = error.retry_after_s if isinstance(error, ApiError) else None
                delay = delay_before(attempt, self._calls.settings, asked_s, random.random())
                logger.warning("nothing can be popped: %s; again in %.1f s", error, delay)
                await asyncio.sleep(delay)

    async def _deliver(self, messages: list[Message]) -> None:
        delivery = Delivery(self._calls, self._work, messages)
        renewing = asyncio.create_task(self._renew(delivery)) if self._auto_renew else None
        try:
            await delivery.handle()
        finally:
            try:
                await self._release(delivery)
            finally:
                if renewing is not None:
                    renewing.cancel()

    async def _release(self, delivery: Delivery) -> None:
        try:
            async with asyncio.timeout(RELEASE_S if cancelled() else None):
                await delivery.release()
        except TimeoutError:
            delivery.abandon()
            logger.warning("could not give back %d messages in time", len(delivery.open))

    async def _renew(self, delivery: Delivery) -> None:
        first = delivery.messages[0]
        assert first.lease_id is not None
        held_s = await self._lease_time_s(first.queue)
        while not delivery.lost:
            await asyncio.sleep(held_s / 3)
            held_s = max(await self._lease_time_s(first.queue), SHORTEST_EXTENSION_S)
            try:
                await self._calls.extend(first.lease_id, held_s)
            except ClientError as error:
                delivery.renewal_failed(error)

    async def _lease_time_s(self, queue: str) -> float:
        known = self._lease_times.get(queue)
        if known is not None and time.monotonic() < known[1]:
            return known[0]
        try:
            lease_s = float((await self._calls.options_of(queue))["leaseTime"])
        except ClientError as error:
            logger.warning("the lease time of %s is not known: %s", queue, error)
            lease_s = known[0] if known is not None else UNKNOWN_LEASE_S
        self._lease_times[queue] = (lease_s, time.monotonic() + LEASE_TIME_KEPT_S)
        return lease_s
