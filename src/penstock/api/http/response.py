"""Build responses: plain bytes for hot routes, framework responses for the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec
from starlette.responses import Response

from penstock.api.schemas.message_bodies import AckResult, PushItemResult, encode
from penstock.broker.messages import DeferralReceipt
from penstock.caller import AccessScope, Caller
from penstock.clock import iso
from penstock.encryption import DecryptedPayload


class HotResponse(NamedTuple):
    """The response of a hot route: a status and a JSON body, without a framework object."""

    status: int
    body: bytes
    """JSON; empty with 204."""
    headers: Mapping[str, str] | None = None
    """Headers besides those of the body."""

    def to_response(self) -> Response:
        media_type = "application/json" if self.body else None
        return Response(self.body, self.status, self.headers, media_type)


NO_CONTENT = HotResponse(204, b"")
PAYLOAD_WITHHELD = "Payloads are shown to callers with the scope read:payload."


def set_deferral(result: PushItemResult | AckResult, deferral: DeferralReceipt) -> None:
    """Describe the operation that a deferred item is part of."""
    result.operationId = deferral.operation_id
    result.queuePosition = deferral.lane_position
    result.estimatedWait = deferral.estimated_wait_s
    result.reason = deferral.reason


def deferred_response(deferrals: Sequence[DeferralReceipt], items: Sequence[msgspec.Struct]) -> HotResponse:
    """Return a 202, for a request of which the broker deferred at least one item.

    The body has one result per item, as that of an executed request. The headers describe the operation that
    is executed last.
    """
    last = max(deferrals, key=lambda deferral: deferral.lane_position)
    headers = {"Penstock-Operation-Id": last.operation_id, "Penstock-Queue-Position": str(last.lane_position)}
    if last.estimated_wait_s is not None:
        headers["Penstock-Estimated-Wait"] = str(last.estimated_wait_s)
    return HotResponse(202, encode(items), headers)


def json_response(content: object, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON response of a cold route. Payloads of type `msgspec.Raw` are written unchanged."""
    return Response(encode(content), headers=headers, media_type="application/json")


def iso_or_none(time: datetime | None) -> str | None:
    return None if time is None else iso(time)


def payload_fields(caller: Caller, opened: DecryptedPayload) -> dict[str, object]:
    """The fields of a payload: `data` as it was pushed, or null and the reason in `dataProblem`."""
    if not caller.may(AccessScope.READ_PAYLOAD):
        return {"data": None, "dataProblem": PAYLOAD_WITHHELD}
    if opened.payload is None:
        return {"data": None, "dataProblem": opened.problem}
    trace = {} if opened.traceparent is None else {"traceparent": opened.traceparent}
    return {"data": msgspec.Raw(opened.payload), **trace}
