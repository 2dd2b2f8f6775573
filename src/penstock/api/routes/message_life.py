"""The route that returns the life of one message."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from penstock.api.access import ReadAccess
from penstock.api.http.parameters import PartitionId, TransactionId
from penstock.api.http.response import json_response, payload_fields
from penstock.api.problems import problem_responses
from penstock.api.routes.message_admin import stored_message_to_dict
from penstock.api.services import Services, get_services
from penstock.broker.queues.message_lives import LifeEvent
from penstock.caller import Caller
from penstock.clock import iso
from penstock.errors import UnknownMessage, UnknownPartition

router = APIRouter(prefix="/api/v1/messages", tags=["messages"])

NOT_RECORDED = [
    "Deliveries that ended with a completed ack, or were returned with status retry, and when.",
    "Failures of a message after its twentieth.",
]


@router.get(
    "/life/{partition_id}/{transaction_id:path}",
    responses=problem_responses(UnknownPartition, UnknownMessage),
)
async def get_message_life(
    request: Request, caller: ReadAccess, partition_id: PartitionId, transaction_id: TransactionId
) -> Response:
    """Return one message with its payload, its status for each group, and its events in order of time.

    Failed deliveries, lost leases, requeues and traces are kept for PENSTOCK_TRACE_DAYS.
    """
    services = get_services(request)
    life = await services.broker.message_lives.get(caller.environment, partition_id, transaction_id)
    return json_response(
        {
            **stored_message_to_dict(life.message, transaction_id),
            **payload_fields(caller, services.broker.cipher.try_decrypt(life.message.row.payload)),
            "events": [_event_to_dict(services, caller, event) for event in life.events],
            "notRecorded": NOT_RECORDED,
        }
    )


def _event_to_dict(services: Services, caller: Caller, event: LifeEvent) -> dict[str, object]:
    """The fields that the event has."""
    fields: dict[str, object] = {"event": event.event, "at": iso(event.at)}
    if event.group is not None:
        fields["consumerGroup"] = event.group
    if event.event == "requeued_from":
        return fields | {"deaths": event.attempts, "firstTransactionId": event.first_transaction_id}
    if event.event in ("failed", "lease_lost", "dead"):
        fields |= {"attempts": event.attempts, "error": event.error}
    if event.lease_expires_at is not None:
        fields["leaseExpiresAt"] = iso(event.lease_expires_at)
    if event.message_id is not None:
        fields["messageId"] = event.message_id
    if event.trace is not None:
        opened = services.broker.cipher.try_decrypt(event.trace.data)
        fields |= {
            "traceEvent": event.trace.event,
            "traceNames": sorted(event.trace.names),
            **payload_fields(caller, opened),
        }
    return fields
