"""Messages, results and request items of durable queues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypedDict, TypeVar
from uuid import UUID

import msgspec
from msgspec import Struct, field

T = TypeVar("T")

AckStatus = Literal["completed", "failed", "retry", "dlq"]


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to push. The payload is anything that msgspec can encode as JSON, such as a dataclass."""

    queue: str
    payload: Any
    partition: str | None = None
    transaction_id: str | None = None
    trace_id: UUID | str | None = None
    traceparent: str | None = None


class MessageOptions(TypedDict, total=False):
    """The optional fields of a message, as keyword arguments of `push`."""

    partition: str | None
    """Messages of one partition are delivered in order. Default: the partition `Default`."""
    transaction_id: str | None
    """A second message with this id in the partition is a duplicate. Default: the client generates one."""
    trace_id: UUID | str | None
    traceparent: str | None
    """The trace context of the message (W3C Trace Context). Default: that of the push."""


class PushResult(Struct, frozen=True, kw_only=True):
    """The result of one pushed message."""

    index: int
    status: Literal["queued", "duplicate", "failed"]
    """`duplicate`: the partition already has this transaction id; `message_id` is the original's."""
    transaction_id: str | None = None
    message_id: str | None = None
    partition_id: str | None = None
    trace_id: UUID | None = None
    queue: str | None = field(default=None, name="queueName")
    error: str | None = None
    """The reason of a failure."""
    operation_id: str | None = field(default=None, name="operationId")
    """The deferred operation that stores the message later, in order. None: it is stored."""
    queue_position: int | None = field(default=None, name="queuePosition")
    """The position of the operation in the lane of its partition, from 1."""
    estimated_wait_s: float | None = field(default=None, name="estimatedWait")
    reason: str | None = None
    """The reason of the deferral."""


class Message(Struct, frozen=True, kw_only=True, eq=False, rename="camel"):
    """A popped message. Two are equal only if they are the same delivery."""

    id: str
    queue: str = ""
    partition: str
    partition_id: str
    transaction_id: str
    trace_id: UUID | None
    data: Any
    created_at: datetime
    lease_id: str | None
    """The lease until the message is acked; None with `auto_ack`."""
    group: str = field(name="consumerGroup")
    retry_count: int
    """Number of failed attempts."""
    traceparent: str | None = None
    """The trace context in which the message was pushed."""

    def into(self, kind: type[T]) -> T:
        """Convert the payload to a dataclass, Struct or other type. Raises msgspec.ValidationError."""
        return msgspec.convert(self.data, kind)


class PopResponse(Struct):
    queue: str = ""
    messages: list[Message] = []


class AckResult(Struct, frozen=True, kw_only=True):
    """The result of one ack."""

    transaction_id: str = field(name="transactionId")
    success: bool
    error: str | None = None
    queue: str | None = field(default=None, name="queueName")
    partition: str | None = field(default=None, name="partitionName")
    lease_released: bool = field(default=False, name="leaseReleased")
    """All messages of the lease in this partition are acked."""
    dead: bool = field(default=False, name="dlq")
    """The message became a dead letter."""
    operation_id: str | None = field(default=None, name="operationId")
    """The deferred operation that executes the ack later. None: it is executed."""
    queue_position: int | None = field(default=None, name="queuePosition")
    """The position of the operation in the lane of its partition, from 1."""
    estimated_wait_s: float | None = field(default=None, name="estimatedWait")
    reason: str | None = None
    """The reason of the deferral."""
    uncertain: bool = False
    """The ack was refused, but an earlier attempt whose response was lost may have succeeded."""


class TransactionStep(Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of one push or ack of a transaction."""

    index: int
    type: Literal["push", "ack"]
    success: bool = False
    transaction_id: str | None = None
    message_id: str | None = None
    partition_id: str | None = None
    queue: str | None = field(default=None, name="queueName")
    duplicate: bool = False
    error: str | None = None
    dead: bool = field(default=False, name="dlq")


class TransactionResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """A committed transaction, with one step per call, in order."""

    transaction_id: str
    success: bool
    error: str | None = None
    results: Sequence[TransactionStep] = ()


class ExtendResponse(Struct):
    newExpiresAt: datetime


class QueueDescription(Struct):
    """The fields of a queue that the client reads."""

    options: dict[str, Any]


class PushItem(Struct, omit_defaults=True, rename="camel"):
    """A message in a push request."""

    queue: str
    payload: msgspec.Raw
    partition: str | None = None
    transaction_id: str | None = None
    trace_id: str | None = None
    traceparent: str | None = None


class AckItem(Struct, omit_defaults=True, rename="camel"):
    """An ack in a request."""

    transaction_id: str
    partition_id: str
    lease_id: str
    status: AckStatus
    error: str | None = None
    type: Literal["ack"] | None = None
    """Set in transactions only."""


def push_item(message: NewMessage) -> PushItem:
    """Convert a message to a request item. Raises TypeError if the payload cannot be encoded as JSON."""
    payload = msgspec.Raw(msgspec.json.encode(message.payload))
    trace_id = None if message.trace_id is None else str(message.trace_id)
    return PushItem(
        message.queue, payload, message.partition, message.transaction_id, trace_id, message.traceparent
    )


def ack_item(message: Message, status: AckStatus, error: str | None = None) -> AckItem:
    """Build a request item. Raises ValueError for a message without a lease."""
    if message.lease_id is None:
        raise ValueError("The message was popped with auto_ack: it has no lease to ack.")
    return AckItem(message.transaction_id, message.partition_id, message.lease_id, status, error)
