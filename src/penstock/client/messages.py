"""What goes to the broker and comes back, as types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeVar
from uuid import UUID

import msgspec
from msgspec import Struct, field

T = TypeVar("T")

Status = Literal["completed", "failed", "retry", "dlq"]


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to push. The payload is anything msgspec can write as JSON, dataclasses included."""

    queue: str
    payload: Any
    partition: str | None = None
    transaction_id: str | None = None
    trace_id: UUID | str | None = None


class PushResult(Struct, frozen=True, kw_only=True):
    """What became of one pushed message."""

    index: int
    status: Literal["queued", "duplicate", "failed"]
    """`duplicate`: the partition has this transaction id already; `message_id` is that of the first one."""
    transaction_id: str | None = None
    message_id: str | None = None
    partition_id: str | None = None
    trace_id: UUID | None = None
    queue: str | None = field(default=None, name="queueName")
    error: str | None = None
    """Why it failed."""
    operation_id: str | None = field(default=None, name="operationId")
    """Accepted for good, and stored later, in its order, by this operation. None: it is stored."""
    reason: str | None = None
    """Why later."""


class Message(Struct, frozen=True, kw_only=True, eq=False, rename="camel"):
    """A popped message. Two are the same only if they are the same delivery."""

    id: str
    queue: str = ""
    partition: str
    partition_id: str
    transaction_id: str
    trace_id: UUID | None
    data: Any
    created_at: datetime
    lease_id: str | None
    """What it is held under until it is settled; None if it was taken for good."""
    group: str = field(name="consumerGroup")
    retry_count: int
    """How many attempts at it have failed."""

    def into(self, kind: type[T]) -> T:
        """The payload as a dataclass, Struct or any other type; msgspec.ValidationError if it is none."""
        return msgspec.convert(self.data, kind)


class Popped(Struct):
    queue: str = ""
    messages: list[Message] = []


class AckResult(Struct, frozen=True, kw_only=True):
    """What became of one settled message."""

    transaction_id: str = field(name="transactionId")
    success: bool
    error: str | None = None
    queue: str | None = field(default=None, name="queueName")
    partition: str | None = field(default=None, name="partitionName")
    lease_released: bool = field(default=False, name="leaseReleased")
    """Whether nothing of the lease is left in this partition."""
    dead: bool = field(default=False, name="dlq")
    """Whether it became a dead letter."""
    operation_id: str | None = field(default=None, name="operationId")
    """Accepted in time, and carried out later by this operation. None: it is done."""
    reason: str | None = None
    """Why later."""
    uncertain: bool = False
    """It was refused, but an earlier attempt whose answer was lost may have settled it."""


class TransactionStep(Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of one push or ack of a transaction."""

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
    """A transaction that was carried out, with one step per call, in order."""

    transaction_id: str
    success: bool
    error: str | None = None
    results: Sequence[TransactionStep] = ()


class Extended(Struct):
    newExpiresAt: datetime


class Described(Struct):
    """A queue, as far as it is of interest here."""

    options: dict[str, Any]


class PushItem(Struct, omit_defaults=True, rename="camel"):
    """A message as it is sent."""

    queue: str
    payload: msgspec.Raw
    partition: str | None = None
    transaction_id: str | None = None
    trace_id: str | None = None


class Settlement(Struct, omit_defaults=True, rename="camel"):
    """An ack as it is sent."""

    transaction_id: str
    partition_id: str
    lease_id: str
    status: Status
    error: str | None = None
    type: Literal["ack"] | None = None
    """Set inside transactions."""


def item_of(message: NewMessage) -> PushItem:
    """The message as it is sent. Raises TypeError where the payload cannot be written as JSON."""
    payload = msgspec.Raw(msgspec.json.encode(message.payload))
    trace_id = None if message.trace_id is None else str(message.trace_id)
    return PushItem(message.queue, payload, message.partition, message.transaction_id, trace_id)


def settlement_of(message: Message, status: Status, error: str | None = None) -> Settlement:
    """The ack as it is sent. Raises ValueError for a message that is not held under a lease."""
    if message.lease_id is None:
        raise ValueError("the message was taken for good (auto_ack): there is nothing to settle")
    return Settlement(message.transaction_id, message.partition_id, message.lease_id, status, error)
