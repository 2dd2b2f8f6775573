"""What the broker accepted to do later: the answer 202, and results that say so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, Literal, Protocol, TypeVar

from msgspec import Struct, field

Reason = Literal["maintaining_order", "system_busy", "database_down"] | str


class Result(Protocol):
    """Of a push or an ack."""

    @property
    def operation_id(self) -> str | None: ...


R = TypeVar("R", bound=Result)


class Queued(Struct, frozen=True, kw_only=True, rename="camel"):
    """An operation that waits: of several, the one that is expected to finish last."""

    operation_id: str
    queue_position: int | None = None
    """How many are before it and itself, in its partition."""
    reason: Reason | None = None
    """Others wait before it (maintaining_order), there is too much to do, or PostgreSQL is away."""
    estimated_wait_s: float | None = field(default=None, name="estimatedWait")
    """From how fast such operations were carried out lately; None if that is not known."""


class Accepted(Queued, Generic[R], frozen=True, kw_only=True):
    """The body of a 202: what is accepted, and one result per item."""

    items: list[R]


class Results(list[R]):
    """One result per item, in order; and whether some of it will only be done later."""

    def __init__(self, results: Iterable[R], queued: Queued | None = None) -> None:
        super().__init__(results)
        self.queued = queued
        """None: all of it is done."""

    @property
    def operation_ids(self) -> list[str]:
        """What is done later, each operation once."""
        return list(dict.fromkeys(r.operation_id for r in self if r.operation_id is not None))
