"""Bodies of the hot routes, read and written without building dictionaries."""

from __future__ import annotations

import uuid
from typing import Literal

import msgspec
from msgspec import Raw, Struct

Status = Literal["completed", "success", "failed", "retry", "dlq"]


class PushItem(Struct):
    queue: str
    payload: Raw
    partition: str | None = None
    transactionId: str | None = None
    traceId: uuid.UUID | None = None


class PushBody(Struct):
    items: list[PushItem]


class LoosePushBody(Struct):
    """A push whose items are looked at one by one, because one of them does not fit."""

    items: list[Raw]


class PushItemResult(Struct, omit_defaults=True):
    index: int
    status: Literal["queued", "duplicate", "failed"]
    transaction_id: str | None = None
    message_id: uuid.UUID | None = None
    partition_id: str | None = None
    trace_id: uuid.UUID | None = None
    queueName: str | None = None
    error: str | None = None


class PoppedMessage(Struct):
    id: uuid.UUID
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
    status: Status = "completed"
    error: str | None = None
    consumerGroup: str | None = None


class AckResult(Struct):
    index: int
    transactionId: str
    success: bool
    error: str | None
    queueName: str | None
    partitionName: str | None
    leaseReleased: bool
    dlq: bool


push_body = msgspec.json.Decoder(PushBody)
loose_push_body = msgspec.json.Decoder(LoosePushBody)
push_item = msgspec.json.Decoder(PushItem)
ack_body = msgspec.json.Decoder(AckBody)
encode = msgspec.json.Encoder().encode
