"""Single messages in an operator's hands: listed, looked at, deleted, retried, declared dead."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from penstock.api.http.parameters import Group, Limit, Offset, Partition, PartitionId, Queue, TransactionId
from penstock.api.http.request_parsing import check_name, read_json, request_body_schema
from penstock.api.http.response import iso_or_none, json_response, payload_fields
from penstock.api.routes.queues import unknown_queue
from penstock.api.schemas.dead_letter_views import dead_letter_to_dict
from penstock.api.services import Services, get_services
from penstock.broker.queues.message_actions import StoredMessage
from penstock.clock import iso
from penstock.durable.dead_letters.dead_letter_store import DeadLetterFilter
from penstock.durable.stored_messages import MessageQuery
from penstock.errors import InvalidRequest, UnknownGroup, UnknownPartition
from penstock.model import DEFAULT_SCOPE, QUEUE_MODE

router = APIRouter(prefix="/api/v1/messages", tags=["messages"])

Status = Literal["pending", "processing", "completed", "dead_letter"]


class GroupBody(msgspec.Struct, forbid_unknown_fields=True):
    consumerGroup: str | None = None


class BuryBody(msgspec.Struct, forbid_unknown_fields=True):
    consumerGroup: str | None = None
    error: str | None = None


_group_body = msgspec.json.Decoder(GroupBody)
_bury_body = msgspec.json.Decoder(BuryBody)


@router.get("")
async def list_messages(
    request: Request,
    queue: Queue,
    partition: Partition | None = None,
    group: Group | None = Query(None, alias="consumerGroup", description="whose status is told"),
    status: Status | None = None,
    cursor: str | None = Query(None, description="nextCursor of the page before", max_length=60),
    limit: Limit = 100,
    offset: Offset = 0,
) -> Response:
    """A page of a queue's messages: newest first within each partition."""
    listing = await message_page(
        get_services(request), queue, partition, group, status, cursor, limit, offset
    )
    return json_response(listing)


@router.get("/{partition_id}/{transaction_id:path}")
async def get_message(request: Request, partition_id: PartitionId, transaction_id: TransactionId) -> Response:
    """One message with its payload, and what it is to each group."""
    work = get_services(request).broker.message_actions
    record = await work.get(DEFAULT_SCOPE, partition_id, transaction_id)
    data = payload_fields(work.decrypt(record.row["payload"]))
    return json_response({**_record(record, transaction_id), **data, "payload": data["data"]})


@router.delete("/{partition_id}/{transaction_id:path}")
async def delete_message(
    request: Request, partition_id: PartitionId, transaction_id: TransactionId
) -> dict[str, Any]:
    """Take a message out: its payload is erased, and no group gets it any more."""
    await get_services(request).broker.message_actions.delete(DEFAULT_SCOPE, partition_id, transaction_id)
    return {
        "success": True,
        "deleted": True,
        "partitionId": str(partition_id),
        "transactionId": transaction_id,
    }


@router.post(
    "/{partition_id}/{transaction_id:path}/retry",
    openapi_extra=request_body_schema(GroupBody, required=False),
)
async def retry_message(
    request: Request, partition_id: PartitionId, transaction_id: TransactionId
) -> dict[str, Any]:
    """Push a dead message again, to the end of its partition."""
    body = await read_json(request, _group_body, GroupBody())
    place, message_id = await get_services(request).broker.message_actions.retry(
        DEFAULT_SCOPE, partition_id, transaction_id, _group(body.consumerGroup)
    )
    return {
        "success": True,
        "queue": place.queue,
        "partition": place.partition,
        "partitionId": str(partition_id),
        "transactionId": str(message_id),
        "messageId": str(message_id),
        "retryOf": transaction_id,
    }


@router.post(
    "/{partition_id}/{transaction_id:path}/dlq", openapi_extra=request_body_schema(BuryBody, required=False)
)
async def bury_message(
    request: Request, partition_id: PartitionId, transaction_id: TransactionId
) -> dict[str, Any]:
    """Declare a message dead for a group."""
    body = await read_json(request, _bury_body, BuryBody())
    error = (body.error or "").replace("\0", "") or "declared dead by an operator"
    group, outcome = await get_services(request).broker.message_actions.declare_dead(
        DEFAULT_SCOPE, partition_id, transaction_id, _group(body.consumerGroup), error
    )
    return {
        "success": True,
        "partitionId": str(partition_id),
        "transactionId": transaction_id,
        "consumerGroup": group,
        "outcome": outcome,
    }


async def message_page(
    services: Services,
    queue: str,
    partition: str | None,
    group: str | None,
    status: str | None,
    cursor: str | None,
    limit: int,
    offset: int,
) -> dict[str, Any]:
    found = await services.broker.store.catalog.find_queue(DEFAULT_SCOPE, queue)
    if found is None:
        raise unknown_queue(queue)
    known = {
        row.name: row.id for row in await services.broker.store.consumer_groups.ids_by_name(found.id)
    }
    if group is not None and group not in known:
        raise UnknownGroup(f"there is no consumer group {group!r} of queue {queue!r}", group=group)
    if status == "dead_letter":
        which = DeadLetterFilter(queue, group, partition)
        letters = await services.broker.store.dead_letters.read_page(
            DEFAULT_SCOPE, which, limit=limit, offset=offset
        )
        total = await services.broker.store.dead_letters.count(DEFAULT_SCOPE, which)
        listed = [{**dead_letter_to_dict(services, row), "status": "dead_letter"} for row in letters]
        return _listing(listed, total, None, limit, offset)
    partition_id = None
    if partition is not None:
        partition_id = await services.broker.store.messages.find_partition_id(found.id, partition)
        if partition_id is None:
            raise UnknownPartition(f"queue {queue!r} has no partition {partition!r}", partition=partition)
    group_id = known.get(group or QUEUE_MODE)
    page = MessageQuery(found.id, partition_id, group_id, status, _cursor(cursor), offset, limit)
    rows = await services.broker.store.messages.list_messages(page)
    after = f"{rows[-1].partition_id}:{rows[-1].message_offset}" if len(rows) == limit else None
    exact = None if status == "completed" or cursor is not None else rows[0].total if rows else 0
    listed = [_listed(services, queue, row) for row in rows if status in (None, row.status)]
    return _listing(listed, exact, after, limit, offset)


def _listing(
    listed: list[dict[str, Any]], total: int | None, after: str | None, limit: int, offset: int
) -> dict[str, Any]:
    return {
        "messages": listed,
        "total": total,
        "nextCursor": after,
        "pagination": {"limit": limit, "offset": offset},
    }


def _listed(services: Services, queue: str, row: Any) -> dict[str, Any]:
    return {
        "id": row["message_id"],
        "transactionId": row["transaction_id"],
        "partitionId": str(row["partition_id"]),
        "queue": queue,
        "partition": row["partition"],
        "offset": row["message_offset"],
        "traceId": row["trace_id"],
        "status": row["status"],
        "retryCount": row["attempts"],
        "createdAt": iso(row["created_at"]),
        "leaseExpiresAt": iso_or_none(row["lease_expires_at"]),
        **payload_fields(services.broker.message_actions.decrypt(row["payload"])),
    }


def _record(record: StoredMessage, transaction_id: str) -> dict[str, Any]:
    states = [
        {
            "name": state["group_name"],
            "status": state["status"],
            "retryCount": state["attempts"],
            "leaseExpiresAt": iso_or_none(state["lease_expires_at"]),
            "errorMessage": state["error"],
            "failedAt": iso_or_none(state["failed_at"]),
        }
        for state in record.states
    ] or [
        {
            "name": row["group_name"],
            "status": "dead_letter",
            "retryCount": row["attempts"],
            "leaseExpiresAt": None,
            "errorMessage": row["error"],
            "failedAt": iso(row["failed_at"]),
        }
        for row in record.dead_letters
    ]
    chosen = [state for state in states if state["name"] == QUEUE_MODE] or states
    told = chosen[0] if len(chosen) == 1 else {"status": None if chosen else "pending"}
    return {
        "id": record.row["message_id"],
        "transactionId": transaction_id,
        "partitionId": str(record.location.partition_id),
        "queue": record.location.queue,
        "partition": record.location.partition,
        "offset": record.offset,
        "traceId": record.row["trace_id"],
        "createdAt": iso(record.row["created_at"]),
        "status": told["status"],
        "retryCount": told.get("retryCount", 0),
        "errorMessage": told.get("errorMessage"),
        "leaseExpiresAt": told.get("leaseExpiresAt"),
        "consumerGroups": states,
    }


def _group(name: str | None) -> str | None:
    return None if name is None else check_name("consumerGroup", name)


def _cursor(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    partition, _, offset = text.partition(":")
    if not all(part.isascii() and part.isdigit() and len(part) < 19 for part in (partition, offset)):
        raise InvalidRequest(f"cursor {text!r} is not the nextCursor of a page", field="cursor")
    return int(partition), int(offset)
