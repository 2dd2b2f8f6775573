"""Request and response bodies of the hot routes, decoded and encoded without dictionaries."""

from __future__ import annotations

import uuid
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

PATH_NAME_SCHEMA = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[^/]+$"}
"""The schema of names of queues and consumer groups, which are parts of paths. `check_name` checks them."""
QueueName = Annotated[
    str,
    Meta(description="1 to 255 printable characters without a slash", extra_json_schema=PATH_NAME_SCHEMA),
]
GroupName = QueueName
AckStatus = Literal["completed", "success", "failed", "retry", "dlq"]


_NULL = Raw(b"null")


class PushItem(Struct):
    queue: QueueName
    payload: Raw = msgspec.field(default_factory=lambda: _NULL)
    partition: str | None = None
    transactionId: str | None = None
    traceId: uuid.UUID | None = None
    traceparent: str | None = None
    """W3C Trace Context of the message; default: that of the request. An invalid one is ignored."""


class PushBody(Struct):
    items: list[PushItem]


class LenientPushBody(Struct):
    """A push whose items are decoded one by one, because at least one of them is invalid."""

    items: list[Raw]


class PushItemResult(Struct, omit_defaults=True):
    index: int
    status: str
    """queued, duplicate or failed"""
    transaction_id: str | None = None
    message_id: str | None = None
    partition_id: str | None = None
    trace_id: uuid.UUID | None = None
    queueName: str | None = None
    error: str | None = None
    operationId: str | None = None
    """Set if the item was deferred, as the fields below"""
    queuePosition: int | None = None
    """Position of the operation in the lane of its partition, from 1"""
    estimatedWait: float | None = None
    """Seconds until the operation is executed; left out if unknown"""
    reason: str | None = None
    """Why the item was deferred"""


class PoppedMessage(Struct):
    id: str
    transactionId: str
    traceId: uuid.UUID | None
    data: Raw
    producerSub: str | None
    createdAt: str
    partitionId: str
    partition: str
    leaseId: str | None
    consumerGroup: str
    retryCount: int
    traceparent: str | UnsetType = UNSET
    """The trace context in which the message was pushed, if it has one"""


class PopResponse(Struct):
    success: bool
    queue: str
    partition: str
    partitionId: str
    leaseId: str | None
    consumerGroup: str
    partitionsClaimed: int
    messages: list[PoppedMessage]


class AckBody(Struct):
    transactionId: str
    partitionId: str
    leaseId: str | None = None
    status: AckStatus = "completed"
    error: str | None = None
    consumerGroup: GroupName | None = None


class AckResult(Struct, omit_defaults=True):
    index: int
    transactionId: str
    success: bool
    error: str | None
    queueName: str | None
    partitionName: str | None
    leaseReleased: bool
    dlq: bool
    operationId: str | None = None
    """Set if the ack was deferred, as the fields below"""
    queuePosition: int | None = None
    estimatedWait: float | None = None
    reason: str | None = None


class AckBatchBody(Struct):
    acknowledgments: list[AckBody]
    consumerGroup: GroupName | None = None


class ExtendBody(Struct):
    seconds: int = 60


class ExtendResponse(Struct):
    success: bool
    leaseId: str
    newExpiresAt: str
    lease_expires_at: str


class PushOperation(Struct, tag_field="type", tag="push"):
    items: list[PushItem]


class AckOperation(AckBody, tag_field="type", tag="ack"):
    """An ack inside a transaction. Without a lease of its own, one of `requiredLeases` applies."""


class TransactionBody(Struct):
    operations: list[PushOperation | AckOperation]
    requiredLeases: list[str] = []


class TransactionStep(Struct):
    index: int
    type: str
    success: bool = False
    transactionId: str | None = None
    messageId: str | None = None
    partitionId: str | None = None
    queueName: str | None = None
    duplicate: bool = False
    error: str | None = None
    dlq: bool = False


class TransactionResponse(Struct):
    transactionId: str
    success: bool
    error: str | None
    results: list[TransactionStep]


push_decoder = msgspec.json.Decoder(PushBody)
lenient_push_decoder = msgspec.json.Decoder(LenientPushBody)
push_item_decoder = msgspec.json.Decoder(PushItem)
ack_decoder = msgspec.json.Decoder(AckBody)
ack_batch_decoder = msgspec.json.Decoder(AckBatchBody)
extend_decoder = msgspec.json.Decoder(ExtendBody)
transaction_decoder = msgspec.json.Decoder(TransactionBody)
encode = msgspec.json.Encoder().encode
