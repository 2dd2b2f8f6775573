"""Requests and results of the broker, independent of HTTP. An ack and its receipt are those of the log.

Single messages are msgspec's structs, which are created in half of the time of dataclasses.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import uuid_utils
from msgspec import Struct

from penstock.caller import environment_prefix
from penstock.durable.log import Ack, AckReceipt
from penstock.model import DeferralReceipt, Scope

__all__ = [
    "Ack",
    "AckReceipt",
    "DeferralReceipt",
    "Message",
    "MessageLease",
    "NewMessage",
    "PopResult",
    "PushResult",
]


class NewMessage(Struct):
    """One message to push."""

    queue: str
    partition: str
    payload: bytes
    transaction_id: str | None = None
    trace_id: uuid.UUID | None = None


class PushResult(Struct):
    """The result of one pushed message."""

    status: str
    """queued, duplicate or failed"""
    transaction_id: str | None
    message_id: str | None
    partition_id: int | None
    error: str | None = None
    deferral: DeferralReceipt | None = None
    """Set if the push was deferred."""


class Message(Struct):
    """A message delivered to a consumer."""

    message_id: str
    transaction_id: str
    trace_id: uuid.UUID | None
    payload: bytes
    created_at: float
    """Seconds since the epoch."""
    partition_id: int
    partition: str
    attempts: int
    traceparent: str | None = None
    """The trace context in which the message was pushed."""


@dataclass(slots=True)
class PopResult:
    """The result of a pop. `lease` is empty if nothing was leased."""

    queue: str
    lease: str
    group: str
    messages: list[Message]
    partition_count: int


class MessageLease(NamedTuple):
    """A lease as consumers send it, `group.uuid` on the wire: the id of the group and of the lease itself."""

    group_id: int
    lease_id: str

    def __str__(self) -> str:
        return f"{self.group_id}.{self.lease_id}"

    def is_of(self, environment: Scope) -> bool:
        """Whether a caller of this environment got the lease. The id tells it, so there is no query."""
        return self.lease_id.startswith(environment_prefix(environment))

    @staticmethod
    @lru_cache(maxsize=100)
    def parse(text: str) -> MessageLease | None:
        """Parse the lease a client sent; None if the text is not a lease."""
        group, _, lease = text.partition(".")
        if not (group.isascii() and group.isdigit() and len(group) < 19):
            return None
        try:
            return MessageLease(int(group), str(uuid_utils.UUID(lease)))
        except ValueError:
            return None
