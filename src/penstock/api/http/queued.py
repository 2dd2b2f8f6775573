"""Answers that say: accepted, and carried out later."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.api.http.response import Answer
from penstock.api.schemas.message_bodies import encode
from penstock.broker.messages import DeferralReceipt


class Queued(msgspec.Struct):
    """The body of a 202. What concerns all of it is told of the operation that comes last."""

    status: str
    operationId: str
    queuePosition: int
    reason: str
    estimatedWait: float | None
    """Seconds; null if that is not known."""
    items: Sequence[msgspec.Struct]
    """What became of each item, in the order sent."""


def queued_answer(accepted: Sequence[DeferralReceipt | None], items: Sequence[msgspec.Struct]) -> Answer | None:
    """202 if anything was accepted for later; None if all of it is done."""
    if accepted.count(None) == len(accepted):
        return None
    last = max((one for one in accepted if one is not None), key=lambda one: one.place)
    body = Queued("queued", last.operation_id, last.place, last.reason, last.wait_s, items)
    return Answer(202, encode(body))
