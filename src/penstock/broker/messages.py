"""What goes in and out of the broker, independent of HTTP."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import uuid_utils


@dataclass(slots=True)
class NewMessage:
    """One item of a push."""

    queue: str
    partition: str
    payload: bytes
    transaction_id: str | None = None
    trace_id: uuid.UUID | None = None


@dataclass(frozen=True, slots=True)
class DeferralReceipt:
    """An operation that will be carried out: its place in its lane, why it was not carried out at once, and
    how long it may take, if that is known."""

    operation_id: str
    place: int
    reason: str
    wait_s: float | None


@dataclass(slots=True)
class PushResult:
    """What became of one item of a push."""

    status: str
    """queued, duplicate or failed"""
    transaction_id: str | None
    message_id: str | None
    partition_id: int | None
    error: str | None = None
    accepted: DeferralReceipt | None = None
    """Of what is stored later."""


@dataclass(slots=True)
class Message:
    """A message handed to a consumer."""

    message_id: str
    transaction_id: str
    trace_id: uuid.UUID | None
    payload: bytes
    created_at: float
    """Seconds since the epoch."""
    partition_id: int
    partition: str
    attempts: int


@dataclass(slots=True)
class PopResult:
    """The answer to a pop. `lease` is empty when nothing was leased."""

    queue: str
    lease: str
    group: str
    messages: list[Message]
    partitions: int


class Lease(NamedTuple):
    """A lease as consumers hold it: the group's id and the lease's own, as `group.uuid` on the wire."""

    group_id: int
    lease_id: str

    def __str__(self) -> str:
        return f"{self.group_id}.{self.lease_id}"

    @staticmethod
    @lru_cache(maxsize=100)
    def parse(text: str) -> Lease | None:
        """The lease a client sent back, or None if the text is none."""
        group, _, lease = text.partition(".")
        if not (group.isascii() and group.isdigit() and len(group) < 19):
            return None
        try:
            return Lease(int(group), str(uuid_utils.UUID(lease)))
        except ValueError:
            return None


@dataclass(slots=True)
class AckRequest:
    """One ack: what a consumer says about one message."""

    partition_id: int
    transaction_id: str
    lease: Lease
    status: str
    error: str | None = None


@dataclass(slots=True)
class AckOutcome:
    outcome: str
    queue: str | None
    partition: str | None
    lease_released: bool
    accepted: DeferralReceipt | None = None
    """Of what is settled later."""

    @property
    def success(self) -> bool:
        return self.outcome not in ("lease_lost", "not_leased")
