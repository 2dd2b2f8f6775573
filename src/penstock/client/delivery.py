"""One delivery: the messages of a pop, from the handler's hands to the last ack."""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from penstock.client.errors import ApiError, ClientError, LeaseLost, PartlyFailed, text_of
from penstock.client.http.calls import Calls
from penstock.client.http.transport import delay_before
from penstock.client.messages import AckResult, Message, Settlement, Status, settlement_of
from penstock.client.stopping import passes

logger = logging.getLogger("penstock.client")


@dataclass(frozen=True, slots=True)
class Batches:
    """A handler that takes all messages of a pop at once: `consume(queue, Batches(store), batch=100)`.

    When it returns, all are acked. When it raises, all have failed, unless it raises PartlyFailed.
    """

    handler: Callable[[list[Message]], object]


Handler = Callable[[Message], object] | Batches
"""Called with each message, or with each batch. A plain function, or one that returns something to await."""

LeaseLostCallback = Callable[[Sequence[Message]], None]


@dataclass(slots=True)
class Work:
    """What is to be done with deliveries."""

    handler: Handler
    ordered: bool
    ack_interval_s: float
    on_lease_lost: LeaseLostCallback | None
    stopping: Callable[[], bool]
    threads: Executor | None = None


@dataclass(slots=True)
class Delivery:
    calls: Calls
    work: Work
    messages: list[Message]
    lost: bool = False
    open: list[Message] = field(default_factory=list)
    """What is held and was not settled."""
    _verdicts: list[tuple[Message, Settlement]] = field(default_factory=list)
    _last_sent: float = 0.0
    _sending: asyncio.Task[None] | None = None
    """Verdicts on their way."""

    def __post_init__(self) -> None:
        self.open = list(self.messages)
        self._last_sent = time.monotonic()

    async def handle(self) -> None:
        """Call the handler with everything, as long as the lease holds and nobody asks to stop."""
        for messages in self._shares():
            if self.work.stopping() or self.lost:
                return
            await self._handle_share(messages)
        await self._send_verdicts()

    async def release(self) -> None:
        """Send the verdicts that are left, and give back whatever was not handled."""
        if self._sending is not None:
            await self._send_verdicts()
        judged = {id(message) for message, _ in self._verdicts}
        for message in self.open:
            if id(message) not in judged:
                self._judge(message, "retry")
        await self._send_verdicts()

    def abandon(self) -> None:
        """Wait for nothing any more."""
        if self._sending is not None:
            self._sending.cancel()

    def renewal_failed(self, error: ClientError) -> None:
        if not isinstance(error, LeaseLost):
            logger.warning("the lease of %s could not be renewed: %s", self.messages[0].queue, error)
        elif self.open and self._sending is None:
            self._lose(self.open)

    def _shares(self) -> list[list[Message]]:
        """What is handled together: the whole batch, or the messages of a partition one after the other."""
        if isinstance(self.work.handler, Batches):
            return [self.messages]
        shares: dict[str, list[Message]] = {}
        for message in self.messages:
            shares.setdefault(message.partition_id, []).append(message)
        return list(shares.values())

    async def _handle_share(self, messages: list[Message]) -> None:
        handler = self.work.handler
        if isinstance(handler, Batches):
            await self._handle_batch(handler, messages)
            return
        for place, message in enumerate(messages):
            if self.work.stopping() or self.lost:
                return
            try:
                await self._call(handler, message, [message])
            except Exception as error:  # noqa: BLE001 - whatever a handler raises is the message's failure
                self._failed(message, error)
                if self.work.ordered:
                    # What follows must not overtake it: given back together with the failure, in one step.
                    for later in messages[place + 1 :]:
                        self._judge(later, "retry")
                    return
            else:
                self._judge(message, "completed")
            if time.monotonic() - self._last_sent >= self.work.ack_interval_s:
                await self._send_verdicts()

    async def _handle_batch(self, batches: Batches, messages: list[Message]) -> None:
        try:
            await self._call(batches.handler, list(messages), messages)
        except PartlyFailed as partly:
            failed = {id(message): error for message, error in partly.failures}
            for message in messages:
                if id(message) in failed:
                    self._judge(message, "failed", failed[id(message)])
                else:
                    self._judge(message, "completed")
        except Exception as error:  # noqa: BLE001 - whatever a handler raises is the batch's failure
            for message in messages:
                self._failed(message, error)
        else:
            for message in messages:
                self._judge(message, "completed")

    async def _call(self, handler: Callable[[Any], object], given: Any, messages: list[Message]) -> None:
        try:
            if is_async(handler):
                result = handler(given)
            else:
                assert self.work.threads is not None
                running = self.work.threads.submit(handler, given)
                result = await self._of_thread(running, messages)
            if inspect.isawaitable(result):
                await result
        except asyncio.CancelledError:
            if cancelled():
                raise
            raise RuntimeError("the handler was cancelled from inside") from None

    async def _of_thread(self, running: Future[object], messages: list[Message]) -> object:
        try:
            return await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            if not running.cancel() and not running.done():
                logger.warning(
                    "a handler of %s did not end in time: its thread goes on, its lease will run out",
                    messages[0].queue,
                )
                self.open = [message for message in self.open if message not in messages]
            raise

    def _failed(self, message: Message, error: Exception) -> None:
        logger.warning(
            "handling %s of %s/%s failed: %s",
            *(message.transaction_id, message.queue, message.partition, text_of(error)),
            exc_info=error,
        )
        self._judge(message, "failed", text_of(error))

    def _judge(self, message: Message, status: Status, error: str | None = None) -> None:
        self._verdicts.append((message, settlement_of(message, status, error)))

    async def _send_verdicts(self) -> None:
        """Settle what was judged, in one request. Whoever is cancelled meanwhile does not interrupt it: the
        next call hears how it ended."""
        if self._sending is None:
            if not self._verdicts:
                return
            judged, self._verdicts = self._verdicts, []
            self._sending = asyncio.create_task(self._settle(judged))
        await asyncio.shield(self._sending)
        self._sending = None
        self._last_sent = time.monotonic()

    async def _settle(self, judged: list[tuple[Message, Settlement]]) -> None:
        """Tell the broker. What cannot be told comes again after the lease."""
        results: Sequence[AckResult] = ()
        try:
            results = await self._told([settlement for _, settlement in judged])
        except ClientError as error:
            logger.error("%d messages could not be settled and may come again: %s", len(judged), error)
        gone = {id(message) for message, _ in judged}
        self.open = [message for message in self.open if id(message) not in gone]
        self._hear(judged, results)

    async def _told(self, settlements: list[Settlement]) -> Sequence[AckResult]:
        """What the broker says, for as long as it takes: what a handler has done is not to be done again only
        because brokers were busy. When it is time to stop, or the lease is gone, there is an end to it."""
        attempt, uncertain = 1, False
        while True:
            try:
                results = await self.calls.settle(settlements)
            except ClientError as error:
                if not passes(error) or self.lost or self.work.stopping():
                    raise
                attempt, uncertain = attempt + 1, uncertain or error.uncertain
                asked_s = error.retry_after_s if isinstance(error, ApiError) else None
                delay = delay_before(attempt, self.calls.settings, asked_s, random.random())
                logger.warning("nothing can be settled: %s; again in %.1f s", error, delay)
                await asyncio.sleep(delay)
            else:
                if not uncertain:
                    return results
                return [replace(result, uncertain=not result.success) for result in results]

    def _hear(self, judged: list[tuple[Message, Settlement]], results: Sequence[AckResult]) -> None:
        refused = []
        for (message, _), result in zip(judged, results, strict=False):
            if result.uncertain:
                logger.warning(
                    "an answer was lost: %s of %s is settled, or will come again",
                    *(message.transaction_id, message.queue),
                )
            elif not result.success:
                refused.append(message)
        if refused and not self.lost:
            self._lose(refused)

    def _lose(self, messages: Sequence[Message]) -> None:
        """The lease is gone. Losing it in one partition need not be the end of the others, but says that this
        consumer is too slow: what it has not begun is given back, if it still can be."""
        self.lost = True
        first = messages[0]
        logger.warning(
            "the lease of %d messages of %s was lost, the first being %s: they come again",
            *(len(messages), first.queue, first.transaction_id),
        )
        if self.work.on_lease_lost is not None:
            try:
                self.work.on_lease_lost(list(messages))
            except Exception:
                logger.exception("on_lease_lost failed")


def cancelled() -> bool:
    """Whether this task itself is being cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def is_async(handler: Callable[..., object]) -> bool:
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004 - an object may have an asynchronous __call__
    )
