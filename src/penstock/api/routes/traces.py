"""Routes for traces: notes that consumers attach to messages while they process them."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from fastapi import APIRouter, Query
from msgspec import UNSET, Raw, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from penstock.api.access import LeaseAccess, ReadAccess, check_queue
from penstock.api.http.parameters import (
    Label,
    Limit,
    Offset,
    PartitionId,
    Text,
    Timestamp,
    TransactionId,
)
from penstock.api.http.request_parsing import check_name, check_payload, is_decimal, read_json
from penstock.api.http.response import json_response, payload_fields
from penstock.api.problems import problem_responses
from penstock.api.services import Services, get_services
from penstock.broker.durable_store import MAX_TRACE_COUNT, MessageTrace, NamedTrace, Trace
from penstock.caller import Caller
from penstock.clock import iso
from penstock.errors import InvalidRequest, PayloadTooLarge, UnknownMessage, UnknownPartition
from penstock.model import QUEUE_MODE
from penstock.validation_text import shorten

router = APIRouter(prefix="/api/v1/traces", tags=["traces"])

MAX_NAMES = 20
MAX_DATA_BYTES = 64 * 1024


class TraceBody(msgspec.Struct):
    transactionId: str
    partitionId: str
    data: Raw | UnsetType = UNSET
    traceNames: list[str] | str | None = None
    eventType: str | None = None
    consumerGroup: str | None = None


_trace_decoder = msgspec.json.Decoder(TraceBody)

REQUEST_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["transactionId", "partitionId", "data"],
                    "properties": {
                        "transactionId": {"type": "string"},
                        "partitionId": {"type": "string"},
                        "data": {"description": f"any JSON of at most {MAX_DATA_BYTES} bytes"},
                        "traceNames": {
                            "type": "array",
                            "items": {"type": "string"},
                            "maxItems": MAX_NAMES,
                        },
                        "eventType": {"type": "string", "default": "info"},
                        "consumerGroup": {"type": "string", "default": QUEUE_MODE},
                    },
                }
            }
        },
    }
}


@router.post(
    "",
    responses=problem_responses(UnknownPartition, UnknownMessage),
    status_code=201,
    openapi_extra=REQUEST_BODY,
)
async def record_trace(request: Request, caller: LeaseAccess) -> dict[str, object]:
    """Attach any JSON to a message. It is found by the message or by its names."""
    broker = get_services(request).broker
    trace = _parse_trace(await read_json(request, _trace_decoder))
    partition = await broker.message_actions.locate_partition(caller.environment, trace.partition_id)
    check_queue(caller, partition.queue)
    if partition.encrypted:
        trace = replace(trace, data=broker.cipher.encrypt(trace.data))
    trace_id = await broker.store.traces.record(caller.environment, trace)
    return {"success": True, "traceId": str(trace_id)}


@router.get("/names")
async def list_names(
    request: Request,
    caller: ReadAccess,
    search: Text = None,
    limit: Limit = 50,
    offset: Offset = 0,
) -> dict[str, object]:
    """List the trace names that begin with `search`, with the latest trace of each."""
    names = await get_services(request).broker.store.traces.list_names(
        caller.environment, search or "", limit=limit + 1, offset=offset
    )
    return {
        "trace_names": [
            {
                "trace_name": name.name,
                "trace_count": name.traces,
                "trace_count_is_exact": name.traces < MAX_TRACE_COUNT,
                "last_seen": iso(name.last_at),
            }
            for name in names[:limit]
        ],
        "more": len(names) > limit,
        "pagination": {"limit": limit, "offset": offset},
    }


@router.get("/by-name/{name:path}")
async def list_by_name(
    request: Request,
    caller: ReadAccess,
    name: Label,
    start: Timestamp | None = Query(None, alias="from"),
    end: Timestamp | None = Query(None, alias="to"),
    limit: Limit = 100,
    offset: Offset = 0,
) -> Response:
    """List the traces of a name, the latest first."""
    services = get_services(request)
    traces = await services.broker.store.traces.list_by_name(
        caller.environment, name, start=start, end=end, limit=limit + 1, offset=offset
    )
    shown = [
        {
            **_trace_to_dict(services, caller, trace),
            "transaction_id": trace.transaction_id,
            "partition_id": str(trace.partition_id),
            "queue_name": trace.queue,
            "partition_name": trace.partition,
        }
        for trace in traces[:limit]
    ]
    return _page_response(shown, len(traces) > limit, limit, offset)


@router.get(
    "/{partition_id}/{transaction_id:path}", responses=problem_responses(UnknownPartition, UnknownMessage)
)
async def list_of_message(
    request: Request,
    caller: ReadAccess,
    partition_id: PartitionId,
    transaction_id: TransactionId,
    limit: Limit = 100,
    offset: Offset = 0,
) -> Response:
    """List a message's traces, the first one first."""
    services = get_services(request)
    await services.broker.message_actions.locate_partition(caller.environment, partition_id)
    traces = await services.broker.store.traces.list_of_message(
        partition_id, transaction_id, limit=limit + 1, offset=offset
    )
    shown = [_trace_to_dict(services, caller, trace) for trace in traces[:limit]]
    return _page_response(shown, len(traces) > limit, limit, offset)


def _parse_trace(body: TraceBody) -> Trace:
    """Check the body and return the trace to record."""
    check_name("transactionId", body.transactionId)
    if not is_decimal(body.partitionId):
        raise InvalidRequest(
            f"partitionId {shorten(body.partitionId)!r} is not valid. "
            "Use the partitionId of a popped message.",
            field="partitionId",
        )
    if isinstance(body.data, UnsetType):
        raise InvalidRequest("data is missing. Send any JSON.", field="data")
    if len(body.data) > MAX_DATA_BYTES:
        raise PayloadTooLarge(
            f"data has {len(body.data)} bytes, but at most {MAX_DATA_BYTES} are allowed.", field="data"
        )
    names = [body.traceNames] if isinstance(body.traceNames, str) else body.traceNames or []
    if len(names) > MAX_NAMES:
        raise InvalidRequest(
            f"traceNames has {len(names)} names, but at most {MAX_NAMES} are allowed.", field="traceNames"
        )
    for name in names:
        check_name("traceNames", name)
    return Trace(
        int(body.partitionId),
        body.transactionId,
        check_name("consumerGroup", body.consumerGroup or QUEUE_MODE),
        check_name("eventType", body.eventType or "info"),
        list(dict.fromkeys(names)),
        check_payload(bytes(body.data)),
    )


def _trace_to_dict(services: Services, caller: Caller, trace: MessageTrace | NamedTrace) -> dict[str, object]:
    return {
        "id": str(trace.id),
        "event_type": trace.event,
        "consumer_group": trace.group_name,
        "trace_names": sorted(trace.names),
        "created_at": iso(trace.created_at),
        **payload_fields(caller, services.broker.cipher.try_decrypt(trace.data)),
    }


def _page_response(traces: list[dict[str, object]], has_more: bool, limit: int, offset: int) -> Response:
    return json_response(
        {"traces": traces, "more": has_more, "pagination": {"limit": limit, "offset": offset}}
    )
