"""One delivery: handle the messages of a pop and ack them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from penstock.client.errors import ClientError, LeaseLost, PartlyFailed, error_text
from penstock.client.handlers import call_handler
from penstock.client.http.broker_api import BrokerApi
from penstock.client.messages import AckItem, AckResult, AckStatus, Message, ack_item
from penstock.client.work_fetcher import is_temporary, wait_before_retry

logger = logging.getLogger("penstock.client")


@dataclass(frozen=True, slots=True)
class Batches:
    """A handler that takes all messages of a pop at once: `consume(queue, Batches(store), batch=100)`.

    When it returns, all are acked. When it raises, all are failed, unless it raises PartlyFailed.
    """

    handler: Callable[[list[Message]], object]


Handler = Callable[[Message], object] | Batches
"""Called with each message, or with each batch: a plain function, or one that returns an awaitable."""

LeaseLostCallback = Callable[[Sequence[Message]], None]


@dataclass(slots=True)
class DeliveryOptions:
    """How a consumer handles its deliveries."""

    handler: Handler
    ordered: bool
    ack_interval_s: float
    on_lease_lost: LeaseLostCallback | None
    is_stopping: Callable[[], bool]
    threads: Executor | None = None


@dataclass(slots=True)
class Delivery:
    """The messages of one pop, until each is acked or returned."""

    api: BrokerApi
    options: DeliveryOptions
    messages: list[Message]
    lease_lost: bool = False
    unacked: list[Message] = field(default_factory=list)
    """Leased messages without an ack."""
    _outcomes: list[tuple[Message, AckItem]] = field(default_factory=list)
    _last_sent_time: float = 0.0
    _acks_in_flight: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        self.unacked = list(self.messages)
        self._last_sent_time = time.monotonic()

    async def handle(self) -> None:
        """Call the handler with all messages, until the lease is lost or the consumer stops."""
        for messages in self._handler_batches():
            if self.options.is_stopping() or self.lease_lost:
                return
            await self._handle_messages(messages)
        await self._send_pending_acks()

    async def release(self) -> None:
        """Send the remaining acks and return the messages that were not handled."""
        if self._acks_in_flight is not None:
            await self._send_pending_acks()
        handled = {id(message) for message, _ in self._outcomes}
        for message in self.unacked:
            if id(message) not in handled:
                self._set_outcome(message, "retry")
        await self._send_pending_acks()

    def abandon(self) -> None:
        """Stop waiting for acks in flight."""
        if self._acks_in_flight is not None:
            self._acks_in_flight.cancel()

    def on_renewal_failed(self, error: ClientError) -> None:
        """Log the error, or report the lease as lost if that is the reason."""
        if not isinstance(error, LeaseLost):
            logger.warning("Cannot renew the lease of %s: %s", self.messages[0].queue, error)
        elif self.unacked and self._acks_in_flight is None:
            self._on_lease_lost(self.unacked)

    def _handler_batches(self) -> list[list[Message]]:
        """Group messages that are handled together: the whole batch, or the messages of each partition."""
        if isinstance(self.options.handler, Batches):
            return [self.messages]
        by_partition: dict[str, list[Message]] = {}
        for message in self.messages:
            by_partition.setdefault(message.partition_id, []).append(message)
        return list(by_partition.values())

    async def _handle_messages(self, messages: list[Message]) -> None:
        handler = self.options.handler
        if isinstance(handler, Batches):
            await self._handle_batch(handler, messages)
            return
        for index, message in enumerate(messages):
            if self.options.is_stopping() or self.lease_lost:
                return
            try:
                await self._call_handler(handler, message, [message])
            except Exception as error:  # noqa: BLE001 - any error of a handler fails its message
                self._fail_message(message, error)
                if self.options.ordered:
                    # Later messages must not overtake it: they are returned in the same request.
                    for later_message in messages[index + 1 :]:
                        self._set_outcome(later_message, "retry")
                    return
            else:
                self._set_outcome(message, "completed")
            if time.monotonic() - self._last_sent_time >= self.options.ack_interval_s:
                await self._send_pending_acks()

    async def _handle_batch(self, batches: Batches, messages: list[Message]) -> None:
        try:
            await self._call_handler(batches.handler, list(messages), messages)
        except PartlyFailed as failure:
            failed = {id(message): error for message, error in failure.failures}
            for message in messages:
                if id(message) in failed:
                    self._set_outcome(message, "failed", failed[id(message)])
                else:
                    self._set_outcome(message, "completed")
        except Exception as error:  # noqa: BLE001 - any error of a handler fails its batch
            for message in messages:
                self._fail_message(message, error)
        else:
            for message in messages:
                self._set_outcome(message, "completed")

    async def _call_handler(
        self, handler: Callable[[Any], object], argument: object, messages: list[Message]
    ) -> None:
        def leave_to_lease() -> None:
            logger.warning(
                "A handler of %s did not end in time. Its thread continues, and its lease will expire.",
                messages[0].queue,
            )
            self.unacked = [message for message in self.unacked if message not in messages]

        threads, tracing = self.options.threads, self.api.tracing
        assert threads is not None
        if tracing is None:
            await call_handler(handler, argument, threads, leave_to_lease)
            return
        with tracing.processing(messages, is_batch=isinstance(self.options.handler, Batches)):
            await call_handler(tracing.bind(handler), argument, threads, leave_to_lease)

    def _fail_message(self, message: Message, error: Exception) -> None:
        logger.warning(
            "Handling of %s from %s/%s failed: %s",
            *(message.transaction_id, message.queue, message.partition, error_text(error)),
            exc_info=error,
        )
        self._set_outcome(message, "failed", error_text(error))

    def _set_outcome(self, message: Message, status: AckStatus, error: str | None = None) -> None:
        self._outcomes.append((message, ack_item(message, status, error)))

    async def _send_pending_acks(self) -> None:
        """Ack the handled messages in one request.

        Cancelling the caller does not interrupt the request: the next call waits for its result.
        """
        if self._acks_in_flight is None:
            if not self._outcomes:
                return
            outcomes, self._outcomes = self._outcomes, []
            self._acks_in_flight = asyncio.create_task(self._send_acks(outcomes))
        await asyncio.shield(self._acks_in_flight)
        self._acks_in_flight = None
        self._last_sent_time = time.monotonic()

    async def _send_acks(self, outcomes: list[tuple[Message, AckItem]]) -> None:
        """Send acks to the broker. Messages whose acks fail are delivered again after the lease."""
        results: Sequence[AckResult] = ()
        try:
            results = await self._ack_traced(outcomes)
        except ClientError as error:
            logger.error("Could not ack %d messages; they may be delivered again: %s", len(outcomes), error)
        acked = {id(message) for message, _ in outcomes}
        self.unacked = [message for message in self.unacked if id(message) not in acked]
        self._check_results(outcomes, results)

    async def _ack_traced(self, outcomes: list[tuple[Message, AckItem]]) -> Sequence[AckResult]:
        items = [item for _, item in outcomes]
        if self.api.tracing is None:
            return await self._ack_with_retries(items)
        with self.api.tracing.acking([message for message, _ in outcomes]):
            return await self._ack_with_retries(items)

    async def _ack_with_retries(self, items: list[AckItem]) -> Sequence[AckResult]:
        """Ack, and retry until the consumer stops or the lease is lost.

        There is no other limit: a busy broker is no reason to handle messages again.
        """
        attempt, uncertain = 1, False
        while True:
            try:
                results = await self.api.ack_many(items)
            except ClientError as error:
                if not is_temporary(error) or self.lease_lost or self.options.is_stopping():
                    raise
                attempt, uncertain = attempt + 1, uncertain or error.uncertain
                await wait_before_retry("ack", error, attempt, self.api.settings)
            else:
                if not uncertain:
                    return results
                return [replace(result, uncertain=not result.success) for result in results]

    def _check_results(self, outcomes: list[tuple[Message, AckItem]], results: Sequence[AckResult]) -> None:
        refused = []
        for (message, _), result in zip(outcomes, results, strict=False):
            if result.uncertain:
                logger.warning(
                    "The response to an ack was lost: %s of %s is acked, or will be delivered again.",
                    *(message.transaction_id, message.queue),
                )
            elif not result.success:
                refused.append(message)
        if refused and not self.lease_lost:
            self._on_lease_lost(refused)

    def _on_lease_lost(self, messages: Sequence[Message]) -> None:
        """Record and report a lost lease, and return the messages that were not started, if possible.

        Other partitions of the pop may still be leased, but the consumer is too slow for them.
        """
        self.lease_lost = True
        first = messages[0]
        logger.warning(
            "Lost the lease of %d messages of %s, the first being %s. They are delivered again.",
            *(len(messages), first.queue, first.transaction_id),
        )
        if self.options.on_lease_lost is not None:
            try:
                self.options.on_lease_lost(list(messages))
            except Exception:
                logger.exception("The callback on_lease_lost failed.")
