"""Build responses: plain bytes for hot routes, framework responses for the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec
from starlette.responses import Response

from penstock.api.schemas.message_bodies import encode
from penstock.broker.encryption import DecryptedPayload
from penstock.broker.messages import DeferralReceipt
from penstock.clock import iso


class HotResponse(NamedTuple):
    """The response of a hot route: a status and a JSON body, without a framework object."""

    status: int
    body: bytes
    """JSON; empty with 204."""

    def to_response(self) -> Response:
        return Response(self.body, self.status, media_type="application/json" if self.body else None)


NO_CONTENT = HotResponse(204, b"")


class DeferredBody(msgspec.Struct):
    """The body of a 202. Its own fields describe the operation that is executed last."""

    status: str
    operationId: str
    queuePosition: int
    reason: str
    estimatedWait: float | None
    """Seconds; null if unknown."""
    items: Sequence[msgspec.Struct]
    """One result per item, in the order of the request."""


def deferred_response(deferrals: Sequence[DeferralReceipt], items: Sequence[msgspec.Struct]) -> HotResponse:
    """Return a 202, for a request of which the broker deferred at least one item."""
    last = max(deferrals, key=lambda deferral: deferral.lane_position)
    body = DeferredBody(
        "queued", last.operation_id, last.lane_position, last.reason, last.estimated_wait_s, items
    )
    return HotResponse(202, encode(body))


def json_response(content: object, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON response of a cold route. Payloads of type `msgspec.Raw` are written unchanged."""
    return Response(encode(content), headers=headers, media_type="application/json")


def iso_or_none(time: datetime | None) -> str | None:
    return None if time is None else iso(time)


def payload_fields(opened: DecryptedPayload) -> dict[str, object]:
    """The fields of a payload: `data` as it was pushed, or null and the reason in `dataProblem`."""
    if opened.payload is None:
        return {"data": None, "dataProblem": opened.problem}
    return {"data": msgspec.Raw(opened.payload)}
