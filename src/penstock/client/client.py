"""The asynchronous client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Unpack

from penstock.client.buffer import Buffer
from penstock.client.consumer import Consumer, Handler, LeaseLostCallback
from penstock.client.deferred import Results, finish_ack, finish_acks, finish_pushes
from penstock.client.errors import FlushFailed
from penstock.client.http.broker_api import BrokerApi
from penstock.client.lifecycle import AsyncClosable
from penstock.client.messages import (
    AckItem,
    AckResult,
    Message,
    MessageOptions,
    NewMessage,
    PushResult,
    ack_item,
    push_item,
)
from penstock.client.operations import Operations
from penstock.client.pop_request import AnyQueue, PopOptions, PopRequest
from penstock.client.settings import ClientSettings
from penstock.client.tasks import Tasks
from penstock.client.transaction import Transaction
from penstock.client.worker import Worker


class Client(AsyncClosable):
    """A client of one broker, or of several that share a database: it uses one until that fails.

    Use it with `async with`, or call `close()` at the end. Many tasks of one event loop may share it. The
    settings and the client guide describe how it handles failures. `token` is the secret of a token, which
    every request carries; without it, the one in PENSTOCK_TOKEN, if that is set.
    """

    def __init__(
        self, urls: str | Sequence[str], settings: ClientSettings | None = None, *, token: str | None = None
    ) -> None:
        self._api = BrokerApi(urls, settings or ClientSettings(), token)
        self._buffers: list[Buffer] = []
        self._consumers: set[Consumer] = set()
        self._workers: set[Worker] = set()
        self.tasks = Tasks(self._api.transport, self._workers)
        """Run queues: enqueue, dequeue, workers, limits."""

    async def close(self) -> None:
        """Stop consumers and workers gracefully, push buffered messages, close the connections.

        May be called twice. Raises FlushFailed with the messages of all buffers that could not be pushed.
        """
        failures: list[FlushFailed] = []
        try:
            runners: list[Consumer | Worker] = [*self._consumers, *self._workers]
            for runner in runners:
                runner.stop()
            for runner in runners:
                await runner.ended.wait()
            for buffer in list(self._buffers):
                try:
                    await buffer.close()
                except FlushFailed as failure:
                    failures.append(failure)
        finally:
            self._api.close()
        if len(failures) == 1:
            raise failures[0]
        if failures:
            unsent = [message for failure in failures for message in failure.unsent]
            raise FlushFailed(unsent, failures[0].reason, uncertain=any(f.uncertain for f in failures))

    # Push

    async def push(self, queue: str, payload: object, **options: Unpack[MessageOptions]) -> PushResult:
        """Append a message, which is durable when this returns.

        It is stored, or, if the result has an `operation_id`, deferred and stored later in order.
        """
        [result] = await self.push_many([NewMessage(queue, payload, **options)])
        return result

    async def push_many(self, messages: Iterable[NewMessage]) -> Results[PushResult]:
        """Append messages with one request; one result each, in order. An invalid message fails alone.

        Within a partition they stay together and in this order. Raises if all of them fail. An overloaded
        broker may defer them: see `queued` and the `operation_id` of each result.
        """
        items = [push_item(message) for message in messages]
        generated = self._api.assign_transaction_ids(items)
        return await finish_pushes(self._api, await self._api.push(items, generated), generated)

    def buffered(self, queue: str, *, size: int = 100, interval_s: float = 0.5) -> Buffer:
        """Return a buffer that pushes `size` messages at a time, and after `interval_s` at the latest."""
        buffer = Buffer(self._api, queue, size, interval_s, self._buffers)
        self._buffers.append(buffer)
        return buffer

    # Pop and consume

    async def pop(
        self,
        queue: str | AnyQueue,
        *,
        wait: bool = False,
        timeout_s: float = 30.0,
        auto_ack: bool = False,
        **options: Unpack[PopOptions],
    ) -> list[Message]:
        """Pop up to `batch` messages from up to `partitions` partitions; an empty list if there are none.

        They are held under one lease until they are acked, or finished at once with `auto_ack`. With `wait`
        the call waits up to `timeout_s` for the first message.
        """
        wait_s = timeout_s if wait else 0.0
        return await self._api.pop(PopRequest(queue, wait_s=wait_s, auto_ack=auto_ack, **options))

    def consume(
        self,
        queue: str | AnyQueue,
        handler: Handler,
        *,
        concurrency: int = 1,
        auto_renew: bool = True,
        ordered: bool = True,
        wait_s: float = 30.0,
        grace_s: float = 30.0,
        ack_interval_s: float = 1.0,
        on_lease_lost: LeaseLostCallback | None = None,
        **options: Unpack[PopOptions],
    ) -> Consumer:
        """Return a consumer that calls the handler with each message, or with each batch (`Batches`).

        Await it to run it. A message is acked when its handler returns, and failed with the error's text when
        it raises. `Consumer` describes the guarantees.
        """
        return Consumer(
            self._api,
            PopRequest(queue, wait_s=wait_s, **options),
            handler,
            registry=self._consumers,
            concurrency=concurrency,
            auto_renew=auto_renew,
            ordered=ordered,
            grace_s=grace_s,
            ack_interval_s=ack_interval_s,
            on_lease_lost=on_lease_lost,
        )

    # Ack

    async def ack(self, message: Message) -> AckResult:
        """Mark a message as completed. Raises LeaseLost if its lease is lost."""
        return await self._ack_one(ack_item(message, "completed"))

    async def nack(self, message: Message, error: str = "") -> AckResult:
        """Count a failed attempt: the message is retried after the queue's delay, or dead past its limit."""
        return await self._ack_one(ack_item(message, "failed", error))

    async def retry(self, message: Message) -> AckResult:
        """Return a message without counting an attempt."""
        return await self._ack_one(ack_item(message, "retry"))

    async def dead_letter(self, message: Message, error: str = "") -> AckResult:
        """Declare a message dead, without further attempts."""
        return await self._ack_one(ack_item(message, "dlq", error))

    async def ack_many(self, messages: Iterable[Message]) -> Results[AckResult]:
        """Ack messages with one request; one result each, in order. A refused ack changes nothing."""
        return await self._ack_many([ack_item(message, "completed") for message in messages])

    async def nack_many(self, messages: Iterable[Message], error: str = "") -> Results[AckResult]:
        """Nack messages with one request, like `ack_many`."""
        return await self._ack_many([ack_item(message, "failed", error) for message in messages])

    async def retry_many(self, messages: Iterable[Message]) -> Results[AckResult]:
        """Return messages without counting an attempt, with one request, like `ack_many`."""
        return await self._ack_many([ack_item(message, "retry") for message in messages])

    async def dead_letter_many(self, messages: Iterable[Message], error: str = "") -> Results[AckResult]:
        """Declare messages dead with one request, like `ack_many`."""
        return await self._ack_many([ack_item(message, "dlq", error) for message in messages])

    async def _ack_one(self, item: AckItem) -> AckResult:
        return await finish_ack(self._api, await self._api.ack_one(item))

    async def _ack_many(self, items: Sequence[AckItem]) -> Results[AckResult]:
        return await finish_acks(self._api, await self._api.ack_many(items))

    async def extend(self, lease: Message | str, seconds: float = 60) -> datetime:
        """Extend a lease (of a message, or by id) to at least `seconds` from now; return its expiry time.

        It covers every message of the same pop. Raises LeaseLost if the lease is lost.
        """
        lease_id = lease if isinstance(lease, str) else lease.lease_id
        if lease_id is None:
            raise ValueError("The message was popped with auto_ack: it has no lease to extend.")
        return await self._api.extend(lease_id, seconds)

    def transaction(self) -> Transaction:
        """Return a transaction: pushes and acks that take effect together or not at all."""
        return Transaction(self._api)

    @property
    def operations(self) -> Operations:
        """Deferred operations."""
        return self._api.operations

    # Queues

    async def configure(
        self,
        queue: str,
        options: Mapping[str, object] | None = None,
        *,
        namespace: str | None = None,
        task: str | None = None,
    ) -> dict[str, Any]:
        """Create a queue or change its options (such as `leaseTime`); return all options."""
        body = {"queue": queue, "namespace": namespace, "task": task, "options": options or {}}
        return await self._api.configure({name: value for name, value in body.items() if value is not None})

    async def options_of(self, queue: str) -> dict[str, Any]:
        """Return the options of a queue. Raises NotFound if it does not exist."""
        return await self._api.options_of(queue)
