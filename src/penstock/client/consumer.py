"""Consumers: pop messages, call the handler, ack, and shut down gracefully."""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from penstock.client.delivery import Batches, Delivery, DeliveryOptions, Handler, LeaseLostCallback
from penstock.client.errors import ClientError
from penstock.client.handlers import is_being_cancelled
from penstock.client.http.broker_api import BrokerApi
from penstock.client.lifecycle import Runner
from penstock.client.messages import Message
from penstock.client.pop_request import PopRequest
from penstock.client.work_fetcher import WorkFetcher

__all__ = ["Batches", "Consumer", "Handler", "LeaseLostCallback"]

logger = logging.getLogger("penstock.client")

LEASE_TIME_CACHE_S = 60.0
"""How long the lease time of a queue is cached."""

MIN_EXTENSION_S = 1.0
"""Leases are extended by whole seconds."""

FALLBACK_LEASE_S = 3.0
"""The assumed lease time if the broker does not answer. Extending never shortens a lease."""

RELEASE_TIMEOUT_S = 10.0
"""Timeout of returning messages when a consumer is cancelled."""


class Consumer(Runner):
    """Call a handler with messages until stopped.

    - `concurrency` handlers run at once. Messages of one partition are handled one after the other, in order:
      the broker gives a partition to one consumer of a group at a time.
    - A message whose handler raises is failed, and the rest of its partition is returned, so that no message
      overtakes it; it is delivered first the next time. With `ordered=False` the rest is handled at once.
    - A handler that is not a coroutine function runs in a thread.
    - The consumer renews the lease while the handler runs. If the lease is lost nevertheless (the broker was
      unreachable for too long, an operator moved the group), it logs that, calls `on_lease_lost`, skips the
      messages that it has not started, and continues.
    - While brokers or their database are unavailable it waits and retries without end.

    `await consumer` (or `run()`) returns after `stop()`: running handlers get `grace_s` to end, then they are
    cancelled, and unfinished messages are returned without counting an attempt. Cancelling `run()` does the
    same without grace. A thread cannot be cancelled: its message returns when its lease expires. A message
    that was not acked is always delivered again.
    """

    def __init__(
        self,
        api: BrokerApi,
        pop_request: PopRequest,
        handler: Handler,
        *,
        registry: set[Consumer],
        concurrency: int,
        auto_renew: bool,
        ordered: bool,
        grace_s: float,
        ack_interval_s: float,
        on_lease_lost: LeaseLostCallback | None,
    ) -> None:
        if concurrency < 1:
            raise ValueError(f"concurrency must be 1 or more, not {concurrency}")
        pop_request.path  # noqa: B018 - raises for invalid parameters
        super().__init__(registry)
        self._api = api
        self._pop_request = pop_request
        self._concurrency = concurrency
        self._auto_renew = auto_renew
        self._grace_s = grace_s
        self._options = DeliveryOptions(
            handler, ordered, ack_interval_s, on_lease_lost, lambda: self.stopping
        )
        self._stop_event = asyncio.Event()
        self._pops = WorkFetcher[Message]("pop", api.settings, self._return_messages)
        self._lease_times: dict[str, tuple[float, float]] = {}

    async def _run(self) -> None:
        threads = self._options.threads = ThreadPoolExecutor(self._concurrency, "penstock-handler")
        workers = [asyncio.create_task(self._consume()) for _ in range(self._concurrency)]
        try:
            await self._wait_until_stopped(workers)
        finally:
            for worker in workers:
                worker.cancel()
            results = await asyncio.gather(*workers, return_exceptions=True)
            threads.shutdown(wait=False)
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _wait_until_stopped(self, workers: list[asyncio.Task[None]]) -> None:
        """Return after a stop request or a failed worker, when the grace period is over or not needed."""
        stopping = asyncio.create_task(self._stop_event.wait())
        try:
            await asyncio.wait({*workers, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            self._start_stopping()
        await asyncio.wait(workers, timeout=self._grace_s)

    def _start_stopping(self) -> None:
        self._stop_requested = True
        self._stop_event.set()
        self._pops.stop()

    async def _consume(self) -> None:
        while not self._stop_requested:
            messages = await self._pops.fetch(partial(self._api.pop, self._pop_request))
            if messages:
                await self._deliver(messages)

    async def _return_messages(self, messages: list[Message]) -> None:
        await self._release(Delivery(self._api, self._options, messages))

    async def _deliver(self, messages: list[Message]) -> None:
        delivery = Delivery(self._api, self._options, messages)
        renewal = asyncio.create_task(self._renew(delivery)) if self._auto_renew else None
        try:
            await delivery.handle()
        finally:
            try:
                await self._release(delivery)
            finally:
                if renewal is not None:
                    renewal.cancel()

    async def _release(self, delivery: Delivery) -> None:
        try:
            async with asyncio.timeout(RELEASE_TIMEOUT_S if is_being_cancelled() else None):
                await delivery.release()
        except TimeoutError:
            delivery.abandon()
            logger.warning("Could not return %d messages in time.", len(delivery.unacked))

    async def _renew(self, delivery: Delivery) -> None:
        first = delivery.messages[0]
        assert first.lease_id is not None
        lease_s = await self._lease_time_s(first.queue)
        while not delivery.lease_lost:
            await asyncio.sleep(lease_s / 3)
            lease_s = max(await self._lease_time_s(first.queue), MIN_EXTENSION_S)
            try:
                await self._api.extend(first.lease_id, lease_s)
            except ClientError as error:
                delivery.on_renewal_failed(error)

    async def _lease_time_s(self, queue: str) -> float:
        cached = self._lease_times.get(queue)
        if cached is not None and time.monotonic() < cached[1]:
            return cached[0]
        try:
            lease_s = float((await self._api.options_of(queue))["leaseTime"])
        except ClientError as error:
            logger.warning("Cannot read the lease time of %s: %s", queue, error)
            lease_s = cached[0] if cached is not None else FALLBACK_LEASE_S
        self._lease_times[queue] = (lease_s, time.monotonic() + LEASE_TIME_CACHE_S)
        return lease_s
