"""Routes for operators that list, read, delete, retry and dead-letter single messages."""

from __future__ import annotations

from itertools import accumulate
from typing import Literal, NamedTuple

import msgspec
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from penstock.api.access import OperateAccess, ReadAccess
from penstock.api.annotated_change import annotate_single_requeue
from penstock.api.audited_change import audit_change, state_before
from penstock.api.http.parameters import Group, Limit, Offset, Partition, PartitionId, Queue, TransactionId
from penstock.api.http.request_parsing import check_name, is_decimal, read_json, request_body_schema
from penstock.api.http.response import iso_or_none, json_response, payload_fields
from penstock.api.problems import problem_responses
from penstock.api.routes.queues import unknown_queue
from penstock.api.schemas.dead_letter_views import dead_letter_to_dict
from penstock.api.services import Services, get_services
from penstock.broker.dead_letters.dead_letter_source import PageRequest
from penstock.broker.durable_store import (
    DeadLetterFilter,
    ListedMessage,
    MessageQuery,
    QueueWithGroup,
)
from penstock.broker.queues.message_actions import MessageActions, StoredMessage
from penstock.caller import Caller
from penstock.clock import iso
from penstock.errors import (
    InvalidRequest,
    Overloaded,
    QueueFull,
    UnknownGroup,
    UnknownMessage,
    UnknownPartition,
    UnknownQueue,
    WrongState,
)
from penstock.model import QUEUE_MODE

router = APIRouter(prefix="/api/v1/messages", tags=["messages"])

MessageStatus = Literal["pending", "processing", "completed", "dead_letter"]
DEFAULT_ERROR = "declared dead by an operator"


class GroupBody(msgspec.Struct, forbid_unknown_fields=True):
    consumerGroup: str | None = None


class DeclareDeadBody(msgspec.Struct, forbid_unknown_fields=True):
    consumerGroup: str | None = None
    error: str | None = None


_group_decoder = msgspec.json.Decoder(GroupBody)
_declare_dead_decoder = msgspec.json.Decoder(DeclareDeadBody)


class MessageSelection(NamedTuple):
    """Which messages a page lists, of one queue or of all, and where it starts."""

    queue: str | None
    partition: str | None
    group: str | None
    status: MessageStatus | None
    cursor: str | None
    limit: int
    offset: int


@router.get("", responses=problem_responses(UnknownQueue, UnknownGroup, UnknownPartition))
async def list_messages(
    request: Request,
    caller: ReadAccess,
    queue: Queue | None = Query(None, description="one queue; all queues if left out"),
    partition: Partition | None = Query(None, description="one partition of the queue"),
    group: Group | None = Query(None, alias="consumerGroup", description="the group whose status is shown"),
    status: MessageStatus | None = None,
    cursor: str | None = Query(None, description="nextCursor of the previous page", max_length=60),
    limit: Limit = 100,
    offset: Offset = 0,
) -> Response:
    """List the messages of a queue or of all queues, newest first within each partition."""
    selection = MessageSelection(queue, partition, group, status, cursor, limit, offset)
    return json_response(await read_message_page(get_services(request), caller, selection))


@router.get(
    "/{partition_id}/{transaction_id:path}", responses=problem_responses(UnknownPartition, UnknownMessage)
)
async def get_message(
    request: Request, caller: ReadAccess, partition_id: PartitionId, transaction_id: TransactionId
) -> Response:
    """Return one message with its payload and its status for each group."""
    broker = get_services(request).broker
    message = await broker.message_actions.get(caller.environment, partition_id, transaction_id)
    data = payload_fields(caller, broker.cipher.try_decrypt(message.row.payload))
    return json_response({**stored_message_to_dict(message, transaction_id), **data, "payload": data["data"]})


@router.delete(
    "/{partition_id}/{transaction_id:path}", responses=problem_responses(UnknownPartition, UnknownMessage)
)
async def delete_message(
    request: Request, caller: OperateAccess, partition_id: PartitionId, transaction_id: TransactionId
) -> dict[str, object]:
    """Delete a message: its payload is erased, and no group receives it any more."""
    actions = get_services(request).broker.message_actions
    before = await _read_state(actions, caller, partition_id, transaction_id)
    await actions.delete(caller.environment, partition_id, transaction_id)
    audit_change(request, before=before)
    return {
        "success": True,
        "deleted": True,
        "partitionId": str(partition_id),
        "transactionId": transaction_id,
    }


@router.post(
    "/{partition_id}/{transaction_id:path}/retry",
    responses=problem_responses(
        UnknownPartition, UnknownMessage, UnknownGroup, WrongState, QueueFull, Overloaded
    ),
    openapi_extra=request_body_schema(GroupBody, required=False),
)
async def retry_message(
    request: Request, caller: OperateAccess, partition_id: PartitionId, transaction_id: TransactionId
) -> dict[str, object]:
    """Push a dead message again, to the end of its partition."""
    body = await read_json(request, _group_decoder, GroupBody())
    actions = get_services(request).broker.message_actions
    group = _check_group(body.consumerGroup)
    before = await _read_state(actions, caller, partition_id, transaction_id)
    partition, message_id = await actions.retry(caller.environment, partition_id, transaction_id, group)
    after: dict[str, object] = {
        "queue": partition.queue,
        "partition": partition.partition,
        "partitionId": str(partition_id),
        "transactionId": str(message_id),
        "messageId": str(message_id),
        "retryOf": transaction_id,
    }
    audit_change(request, before=before, after=after)
    await annotate_single_requeue(request, caller, partition.queue)
    return {"success": True, **after}


@router.post(
    "/{partition_id}/{transaction_id:path}/dlq",
    responses=problem_responses(UnknownPartition, UnknownMessage, UnknownGroup, WrongState),
    openapi_extra=request_body_schema(DeclareDeadBody, required=False),
)
async def declare_dead(
    request: Request, caller: OperateAccess, partition_id: PartitionId, transaction_id: TransactionId
) -> dict[str, object]:
    """Move a message to the dead letters of a group."""
    body = await read_json(request, _declare_dead_decoder, DeclareDeadBody())
    error = (body.error or "").replace("\0", "") or DEFAULT_ERROR
    actions = get_services(request).broker.message_actions
    before = await _read_state(actions, caller, partition_id, transaction_id)
    group, outcome = await actions.declare_dead(
        caller.environment, partition_id, transaction_id, _check_group(body.consumerGroup), error
    )
    audit_change(
        request,
        before=before,
        after={"consumerGroup": group, "outcome": outcome, "error": error},
    )
    return {
        "success": True,
        "partitionId": str(partition_id),
        "transactionId": transaction_id,
        "consumerGroup": group,
        "outcome": outcome,
    }


async def _read_state(
    actions: MessageActions, caller: Caller, partition_id: int, transaction_id: str
) -> object:
    """Return a message without its payload, for the audit log."""
    return await state_before(
        actions.get(caller.environment, partition_id, transaction_id),
        lambda message: stored_message_to_dict(message, transaction_id),
    )


async def read_message_page(
    services: Services, caller: Caller, selection: MessageSelection
) -> dict[str, object]:
    """Return the JSON of a page of messages. Raises UnknownQueue, UnknownGroup or UnknownPartition."""
    _, _, _, status, cursor, limit, offset = selection
    queues = await find_queues(services, caller, selection.queue, selection.group)
    partition_id = await find_partition(services, selection.queue, selection.partition, queues)
    if status == "dead_letter":
        return await _read_dead_letter_page(services, caller, selection)
    max_bytes = services.settings.max_response_bytes
    query = MessageQuery(
        {queue.queue_id: queue.group_id for queue in queues},
        partition_id,
        status,
        _parse_cursor(cursor),
        offset,
        limit,
        max_bytes,
    )
    names = {queue.queue_id: queue.queue for queue in queues}
    messages = _within_bytes(await services.broker.store.messages.list_messages(query), max_bytes)
    next_cursor = None
    if messages and offset + len(messages) < messages[0].total:
        next_cursor = f"{messages[-1].partition_id}:{messages[-1].message_offset}"
    total = None
    if status != "completed" and cursor is None:
        total = messages[0].total if messages else 0
    # A page of the completed messages has dead ones among them.
    shown = [
        listed_message_to_dict(services, caller, names[message.queue_id], message)
        for message in messages
        if status in (None, message.status)
    ]
    return _page_to_dict(shown, total, next_cursor, limit, offset)


async def find_queues(
    services: Services, caller: Caller, name: str | None, group: str | None
) -> list[QueueWithGroup]:
    """Return the queue, or all queues without one, and the group. Raises UnknownQueue, UnknownGroup."""
    groups = services.broker.store.consumer_groups
    if name is None:
        queues = await groups.list_queues(caller.environment, group or QUEUE_MODE)
        if group is not None and all(queue.group_id is None for queue in queues):
            raise UnknownGroup(f"No queue has a consumer group {group!r}.", group=group)
        return queues
    record = await services.broker.store.catalog.find_queue(caller.environment, name)
    if record is None:
        raise unknown_queue(name)
    group_ids = await groups.ids_by_name(record.id)
    if group is not None and group not in group_ids:
        raise UnknownGroup(f"Queue {name!r} has no consumer group {group!r}.", group=group)
    return [QueueWithGroup(record.id, name, group_ids.get(group or QUEUE_MODE))]


async def find_partition(
    services: Services, queue: str | None, partition: str | None, queues: list[QueueWithGroup]
) -> int | None:
    """Return the id of the partition, or None without one. Raises UnknownPartition."""
    if partition is None:
        return None
    if queue is None:
        raise InvalidRequest("partition needs queue: send the queue of the partition.", field="queue")
    partition_id = await services.broker.store.messages.find_partition_id(queues[0].queue_id, partition)
    if partition_id is None:
        raise UnknownPartition(f"Queue {queue!r} has no partition {partition!r}.", partition=partition)
    return partition_id


def _within_bytes(messages: list[ListedMessage], max_bytes: int) -> list[ListedMessage]:
    """Return the first messages whose payloads have at most that many bytes together; at least one."""
    sizes = accumulate(len(message.payload) for message in messages)
    return messages[: max(1, sum(size <= max_bytes for size in sizes))]


async def _read_dead_letter_page(
    services: Services, caller: Caller, selection: MessageSelection
) -> dict[str, object]:
    page = await services.broker.dead_letters.messages.list_page(
        caller.environment,
        DeadLetterFilter(selection.queue, selection.group, selection.partition),
        PageRequest(selection.limit, selection.offset),
    )
    shown = [
        {**dead_letter_to_dict(caller, dead_letter), "status": "dead_letter"}
        for dead_letter in page.dead_letters
    ]
    return _page_to_dict(shown, page.total, None, selection.limit, selection.offset)


def _page_to_dict(
    messages: list[dict[str, object]], total: int | None, next_cursor: str | None, limit: int, offset: int
) -> dict[str, object]:
    return {
        "messages": messages,
        "total": total,
        "nextCursor": next_cursor,
        "pagination": {"limit": limit, "offset": offset},
    }


def listed_message_to_dict(
    services: Services, caller: Caller, queue: str, message: ListedMessage
) -> dict[str, object]:
    return {
        "id": message.message_id,
        "transactionId": message.transaction_id,
        "partitionId": str(message.partition_id),
        "queue": queue,
        "partition": message.partition,
        "offset": message.message_offset,
        "traceId": message.trace_id,
        "status": message.status,
        "retryCount": message.attempts,
        "createdAt": iso(message.created_at),
        "leaseExpiresAt": iso_or_none(message.lease_expires_at),
        **payload_fields(caller, services.broker.cipher.try_decrypt(message.payload)),
    }


def stored_message_to_dict(message: StoredMessage, transaction_id: str) -> dict[str, object]:
    """Return the JSON of a message. Its own status is that of queue mode, or of its only group."""
    states = _group_states_to_list(message)
    relevant = [state for state in states if state["name"] == QUEUE_MODE] or states
    state: dict[str, object] = {"status": None if relevant else "pending"}
    if len(relevant) == 1:
        state = relevant[0]
    return {
        "id": message.row.message_id,
        "transactionId": transaction_id,
        "partitionId": str(message.location.partition_id),
        "queue": message.location.queue,
        "partition": message.location.partition,
        "offset": message.offset,
        "traceId": message.row.trace_id,
        "createdAt": iso(message.row.created_at),
        "status": state["status"],
        "retryCount": state.get("retryCount", 0),
        "errorMessage": state.get("errorMessage"),
        "leaseExpiresAt": state.get("leaseExpiresAt"),
        "consumerGroups": states,
    }


def _group_states_to_list(message: StoredMessage) -> list[dict[str, object]]:
    """Return the state for each group; of a message that retention dropped, its dead letters."""
    states: list[dict[str, object]] = [
        {
            "name": state.group_name,
            "status": state.status,
            "retryCount": state.attempts,
            "leaseExpiresAt": iso_or_none(state.lease_expires_at),
            "errorMessage": state.error,
            "failedAt": iso_or_none(state.failed_at),
        }
        for state in message.states
    ]
    return states or [
        {
            "name": dead_letter.group_name,
            "status": "dead_letter",
            "retryCount": dead_letter.attempts,
            "leaseExpiresAt": None,
            "errorMessage": dead_letter.error,
            "failedAt": iso(dead_letter.failed_at),
        }
        for dead_letter in message.dead_letters
    ]


def _check_group(name: str | None) -> str | None:
    return None if name is None else check_name("consumerGroup", name)


def _parse_cursor(text: str | None) -> tuple[int, int] | None:
    """Return the partition id and the offset of a nextCursor."""
    if text is None:
        return None
    partition_id, _, offset = text.partition(":")
    if not (is_decimal(partition_id) and is_decimal(offset)):
        raise InvalidRequest(f"cursor {text!r} is not valid. Use the nextCursor of a page.", field="cursor")
    return int(partition_id), int(offset)
