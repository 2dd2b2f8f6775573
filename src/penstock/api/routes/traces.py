"""What consumers note about messages while they work on them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
from fastapi import APIRouter, Query
from msgspec import UNSET, Raw, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from penstock.api.http.parameters import (
    MAX_ID,
    Label,
    Limit,
    Offset,
    PartitionId,
    Text,
    Timestamp,
    TransactionId,
)
from penstock.api.http.request_parsing import check_name, read_json
from penstock.api.http.response import json_response, payload_fields
from penstock.api.services import Services, get_services
from penstock.clock import iso
from penstock.durable.trace_log import COUNT_UP_TO, Trace
from penstock.errors import InvalidRequest, PayloadTooLarge
from penstock.model import DEFAULT_SCOPE, QUEUE_MODE

router = APIRouter(prefix="/api/v1/traces", tags=["traces"])

MOST_NAMES = 20
MOST_BYTES = 64 * 1024


class TraceBody(msgspec.Struct):
    transactionId: str
    partitionId: str
    data: Raw | UnsetType = UNSET
    traceNames: list[str] | str | None = None
    eventType: str | None = None
    consumerGroup: str | None = None


_trace_body = msgspec.json.Decoder(TraceBody)

DESCRIPTION = {
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
                        "data": {"description": f"any JSON of at most {MOST_BYTES} bytes"},
                        "traceNames": {
                            "type": "array",
                            "items": {"type": "string"},
                            "maxItems": MOST_NAMES,
                        },
                        "eventType": {"type": "string", "default": "info"},
                        "consumerGroup": {"type": "string", "default": QUEUE_MODE},
                    },
                }
            }
        },
    }
}


@router.post("", status_code=201, openapi_extra=DESCRIPTION)
async def record_trace(request: Request) -> dict[str, Any]:
    """Note something about a message: any JSON, found again by the message or by the names services."""
    services = get_services(request)
    trace = _trace(await read_json(request, _trace_body))
    place = await services.broker.message_actions.locate_partition(DEFAULT_SCOPE, trace.partition_id)
    if place.encrypted:
        trace = replace(trace, data=services.broker.cipher.encrypt(trace.data))
    trace_id = await services.broker.store.traces.record(DEFAULT_SCOPE, trace)
    return {"success": True, "traceId": str(trace_id)}


@router.get("/names")
async def list_names(
    request: Request,
    search: Text = None,
    limit: Limit = 50,
    offset: Offset = 0,
) -> dict[str, Any]:
    """A page of the names that traces have, those that begin with `search`, with the latest trace of each."""
    rows = await get_services(request).broker.store.traces.list_names(
        DEFAULT_SCOPE, search or "", limit=limit + 1, offset=offset
    )
    return {
        "trace_names": [
            {
                "trace_name": row.name,
                "trace_count": row.traces,
                "trace_count_is_exact": row.traces < COUNT_UP_TO,
                "last_seen": iso(row.last_at),
            }
            for row in rows[:limit]
        ],
        "more": len(rows) > limit,
        "pagination": {"limit": limit, "offset": offset},
    }


@router.get("/by-name/{name:path}")
async def list_by_name(
    request: Request,
    name: Label,
    start: Timestamp | None = Query(None, alias="from"),
    end: Timestamp | None = Query(None, alias="to"),
    limit: Limit = 100,
    offset: Offset = 0,
) -> Response:
    """A page of the traces of a name, the latest first."""
    services = get_services(request)
    rows = await services.broker.store.traces.list_by_name(
        DEFAULT_SCOPE, name, start=start, end=end, limit=limit + 1, offset=offset
    )
    found = [
        {
            **_told(services, row),
            "transaction_id": row.transaction_id,
            "partition_id": str(row.partition_id),
            "queue_name": row.queue,
            "partition_name": row.partition,
        }
        for row in rows[:limit]
    ]
    return _page(found, len(rows) > limit, limit, offset)


@router.get("/{partition_id}/{transaction_id:path}")
async def list_of_message(
    request: Request,
    partition_id: PartitionId,
    transaction_id: TransactionId,
    limit: Limit = 100,
    offset: Offset = 0,
) -> Response:
    """A page of a message's traces, the first one first."""
    services = get_services(request)
    await services.broker.message_actions.locate_partition(DEFAULT_SCOPE, partition_id)
    rows = await services.broker.store.traces.list_of_message(
        partition_id, transaction_id, limit=limit + 1, offset=offset
    )
    return _page([_told(services, row) for row in rows[:limit]], len(rows) > limit, limit, offset)


def _trace(body: TraceBody) -> Trace:
    check_name("transactionId", body.transactionId)
    if not (body.partitionId.isascii() and body.partitionId.isdigit() and int(body.partitionId) <= MAX_ID):
        raise InvalidRequest(f"partitionId {body.partitionId!r} is not one a pop gave", field="partitionId")
    if isinstance(body.data, UnsetType):
        raise InvalidRequest("data is missing: send any JSON", field="data")
    if len(body.data) > MOST_BYTES:
        raise PayloadTooLarge(f"data has {len(body.data)} bytes; {MOST_BYTES} are allowed", field="data")
    names = [body.traceNames] if isinstance(body.traceNames, str) else body.traceNames or []
    if len(names) > MOST_NAMES:
        raise InvalidRequest(
            f"traceNames has {len(names)} names; {MOST_NAMES} are allowed", field="traceNames"
        )
    for name in names:
        check_name("traceNames", name)
    return Trace(
        int(body.partitionId),
        body.transactionId,
        check_name("consumerGroup", body.consumerGroup or QUEUE_MODE),
        check_name("eventType", body.eventType or "info"),
        list(dict.fromkeys(names)),
        bytes(body.data),
    )


def _told(services: Services, row: Any) -> dict[str, Any]:
    return {
        "id": str(row["id"]),
        "event_type": row["event"],
        "consumer_group": row["group_name"],
        "trace_names": sorted(row["names"]),
        "created_at": iso(row["created_at"]),
        **payload_fields(services.broker.message_actions.decrypt(row["data"])),
    }


def _page(found: list[dict[str, Any]], more: bool, limit: int, offset: int) -> Response:
    return json_response({"traces": found, "more": more, "pagination": {"limit": limit, "offset": offset}})
