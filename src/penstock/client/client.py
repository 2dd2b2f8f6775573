"""The asynchronous client: one method per thing a producer or consumer wants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from penstock.client.buffer import Buffer
from penstock.client.consumer import Consumer, Handler, LeaseLostCallback
from penstock.client.deferred import Results
from penstock.client.errors import FlushFailed
from penstock.client.http.calls import Calls
from penstock.client.messages import (
    AckResult,
    Message,
    NewMessage,
    PushResult,
    Settlement,
    item_of,
    settlement_of,
)
from penstock.client.operations import Operations
from penstock.client.polling import finish_ack, finish_acks, finish_pushes
from penstock.client.pop_request import AnyQueue, Pop, Subscription
from penstock.client.settings import ClientSettings
from penstock.client.tasks import Tasks
from penstock.client.transaction import Transaction
from penstock.client.worker import Worker


class Client:
    """A connection to one broker, or to several that share a database: it stays with one while that answers.

    Use it with `async with`, or call `close()` at the end. It may be used by many tasks of one event loop at
    once. What it does about failures is in the settings and in the documentation of the client.
    """

    def __init__(self, urls: str | Sequence[str], settings: ClientSettings | None = None) -> None:
        self._calls = Calls(urls, settings or ClientSettings())
        self._buffers: list[Buffer] = []
        self._consumers: set[Consumer] = set()
        self._workers: set[Worker] = set()
        self.tasks = Tasks(self._calls, self._workers)
        """Run queues: enqueue, dequeue, workers, limits."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop consumers and workers in good order, push what is buffered, close the connections.

        May be called twice. Raises FlushFailed with what could not be pushed, of all buffers together.
        """
        failures: list[FlushFailed] = []
        try:
            consumers: list[Consumer | Worker] = [*self._consumers, *self._workers]
            for consumer in consumers:
                consumer.stop()
            for consumer in consumers:
                await consumer.ended.wait()
            for buffer in list(self._buffers):
                try:
                    await buffer.close()
                except FlushFailed as failure:
                    failures.append(failure)
        finally:
            self._calls.close()
        if len(failures) == 1:
            raise failures[0]
        if failures:
            unsent = [message for failure in failures for message in failure.unsent]
            raise FlushFailed(unsent, failures[0].reason, uncertain=any(f.uncertain for f in failures))

    # Pushing

    async def push(
        self,
        queue: str,
        payload: Any,
        *,
        partition: str | None = None,
        transaction_id: str | None = None,
        trace_id: UUID | str | None = None,
    ) -> PushResult:
        """Append a message. Once this returns, it is on the broker's disk: in its place, or, if the result
        has an `operation_id`, waiting to be put there in its order."""
        [result] = await self.push_many([NewMessage(queue, payload, partition, transaction_id, trace_id)])
        return result

    async def push_many(self, messages: Iterable[NewMessage]) -> Results[PushResult]:
        """Append messages with one request; one result each, in order. One that cannot be taken fails alone.

        Within a partition they stay together and in this order. Raises if none can be taken. A broker with
        too much to do may take them for later: `queued` tells, and so does the `operation_id` of each result.
        """
        items = [item_of(message) for message in messages]
        made = self._calls.identify(items)
        return await finish_pushes(self._calls, await self._calls.push(items, made), made)

    def buffered(self, queue: str, *, size: int = 100, interval_s: float = 0.5) -> Buffer:
        """Pushes to a queue that are sent together: `size` at a time, at the latest after `interval_s`."""
        buffer = Buffer(self._calls, queue, size, interval_s, self._buffers)
        self._buffers.append(buffer)
        return buffer

    # Consuming

    async def pop(
        self,
        queue: str | AnyQueue,
        *,
        batch: int = 1,
        partition: str | None = None,
        partitions: int = 1,
        group: str | None = None,
        wait: bool = False,
        timeout_s: float = 30.0,
        auto_ack: bool = False,
        subscription: Subscription | None = None,
    ) -> list[Message]:
        """Take the next messages, up to `batch` from up to `partitions` partitions; none if there is nothing.

        They are held under one lease until they are settled, or, with `auto_ack`, taken for good. With `wait`
        an empty queue is waited for, up to `timeout_s`.
        """
        wait_s = timeout_s if wait else 0.0
        return await self._calls.pop(
            Pop(
                source=queue,
                batch=batch,
                partition=partition,
                partitions=partitions,
                group=group,
                wait_s=wait_s,
                auto_ack=auto_ack,
                subscription=subscription,
            )
        )

    def consume(
        self,
        queue: str | AnyQueue,
        handler: Handler,
        *,
        concurrency: int = 1,
        batch: int = 1,
        partition: str | None = None,
        partitions: int = 1,
        group: str | None = None,
        subscription: Subscription | None = None,
        auto_renew: bool = True,
        ordered: bool = True,
        wait_s: float = 30.0,
        grace_s: float = 30.0,
        ack_interval_s: float = 1.0,
        on_lease_lost: LeaseLostCallback | None = None,
    ) -> Consumer:
        """A consumer that calls the handler with each message, or, wrapped in `Batches`, with each batch.

        Await it to run it. A message whose handler returns is acked; one whose handler raises has failed,
        with the error's text. What else it promises is told at `Consumer`.
        """
        asked = Pop(
            source=queue,
            batch=batch,
            partition=partition,
            partitions=partitions,
            group=group,
            wait_s=wait_s,
            auto_ack=False,
            subscription=subscription,
        )
        return Consumer(
            self._calls,
            asked,
            handler,
            siblings=self._consumers,
            concurrency=concurrency,
            auto_renew=auto_renew,
            ordered=ordered,
            grace_s=grace_s,
            ack_interval_s=ack_interval_s,
            on_lease_lost=on_lease_lost,
        )

    # Settling

    async def ack(self, message: Message) -> AckResult:
        """Finish a message. Raises LeaseLost if it is not held any more."""
        return await self._settle_one(settlement_of(message, "completed"))

    async def nack(self, message: Message, error: str = "") -> AckResult:
        """Count a failed attempt: it comes again after the queue's delay, or is dead past its limit."""
        return await self._settle_one(settlement_of(message, "failed", error))

    async def retry(self, message: Message) -> AckResult:
        """Give a message back as if it had not been popped: no attempt is counted."""
        return await self._settle_one(settlement_of(message, "retry"))

    async def dead_letter(self, message: Message, error: str = "") -> AckResult:
        """Declare a message dead now; no further attempt."""
        return await self._settle_one(settlement_of(message, "dlq", error))

    async def ack_many(self, messages: Iterable[Message]) -> Results[AckResult]:
        """Finish messages with one request; one result each, in order. What is refused changes nothing."""
        return await self._settle([settlement_of(message, "completed") for message in messages])

    async def nack_many(self, messages: Iterable[Message], error: str = "") -> Results[AckResult]:
        """`nack` of many messages with one request, as `ack_many`."""
        return await self._settle([settlement_of(message, "failed", error) for message in messages])

    async def retry_many(self, messages: Iterable[Message]) -> Results[AckResult]:
        """`retry` of many messages with one request, as `ack_many`."""
        return await self._settle([settlement_of(message, "retry") for message in messages])

    async def dead_letter_many(self, messages: Iterable[Message], error: str = "") -> Results[AckResult]:
        """`dead_letter` of many messages with one request, as `ack_many`."""
        return await self._settle([settlement_of(message, "dlq", error) for message in messages])

    async def _settle_one(self, settlement: Settlement) -> AckResult:
        return await finish_ack(self._calls, await self._calls.settle_one(settlement))

    async def _settle(self, settlements: Sequence[Settlement]) -> Results[AckResult]:
        return await finish_acks(self._calls, await self._calls.settle(settlements))

    async def extend(self, held: Message | str, seconds: float = 60) -> datetime:
        """Let a lease (a message's, or by its id) run for at least so long from now; returns its end.

        It covers every message popped with it. Raises LeaseLost if it is not in force any more.
        """
        lease = held if isinstance(held, str) else held.lease_id
        if lease is None:
            raise ValueError("the message was taken for good (auto_ack): there is no lease to extend")
        return await self._calls.extend(lease, seconds)

    def transaction(self) -> Transaction:
        """Pushes and acks that take effect together or not at all."""
        return Transaction(self._calls)

    @property
    def operations(self) -> Operations:
        """What the broker accepted to do later."""
        return self._calls.operations

    # Queues

    async def configure(
        self,
        queue: str,
        options: Mapping[str, Any] | None = None,
        *,
        namespace: str | None = None,
        task: str | None = None,
    ) -> dict[str, Any]:
        """Make a queue, or change its options (such as `leaseTime`); returns all that are in force."""
        asked = {"queue": queue, "namespace": namespace, "task": task, "options": options or {}}
        return await self._calls.configure(
            {name: value for name, value in asked.items() if value is not None}
        )

    async def options_of(self, queue: str) -> dict[str, Any]:
        """The options of a queue. Raises NotFound if there is none."""
        return await self._calls.options_of(queue)
