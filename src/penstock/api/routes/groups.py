"""Routes that list consumer groups with their lag, and move or delete them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

import msgspec
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from penstock.api.access import OperateAccess, ReadAccess
from penstock.api.annotated_change import annotate_change
from penstock.api.audited_change import audit_change
from penstock.api.http.parameters import Group, Limit, Offset, Partition, Queue
from penstock.api.http.request_parsing import parse_time, read_json, request_body_schema
from penstock.api.http.response import iso_or_none, json_response
from penstock.api.problems import problem_responses
from penstock.api.services import get_services
from penstock.broker.durable_store import GroupPosition, GroupSummary, LaggingPosition, SeekResult
from penstock.caller import Caller
from penstock.clock import iso, system_clock, to_utc
from penstock.errors import InvalidRequest, UnknownGroup, UnknownPartition, WrongState
from penstock.model import QUEUE_MODE

router = APIRouter(prefix="/api/v1/consumer-groups", tags=["consumer groups"])

MAX_QUEUES = 1_000
"""Queues that the description of a group lists."""


class SeekBody(msgspec.Struct, forbid_unknown_fields=True):
    toEnd: bool = False
    timestamp: str | None = None


class SubscriptionBody(msgspec.Struct, forbid_unknown_fields=True):
    subscriptionTimestamp: str


_seek_decoder = msgspec.json.Decoder(SeekBody)
_subscription_decoder = msgspec.json.Decoder(SubscriptionBody)


@router.get("")
async def list_groups(
    request: Request, caller: ReadAccess, queue: Queue | None = None, limit: Limit = 100, offset: Offset = 0
) -> Response:
    """List groups by name and queue. The header Total-Count holds their number."""
    groups = await get_services(request).broker.store.consumer_groups.list_groups(
        caller.environment, queue=queue, limit=limit, offset=offset
    )
    now_s = system_clock()
    return json_response([group_to_dict(group, now_s) for group in groups], _total_header(groups))


@router.get("/lagging")
async def list_lagging(
    request: Request,
    caller: ReadAccess,
    queue: Queue | None = None,
    min_lag_s: float = Query(60, alias="minLagSeconds", ge=0, le=10**9),
    sort: Literal["age", "lag"] = Query("age", description="the oldest first, or those with most messages"),
    limit: Limit = 100,
    offset: Offset = 0,
) -> Response:
    """List the partitions in which a group has an unfinished message of at least that age."""
    now_s = system_clock()
    positions = await get_services(request).broker.store.consumer_groups.list_lagging(
        caller.environment,
        to_utc(now_s - min_lag_s),
        queue=queue,
        by_lag=sort == "lag",
        limit=limit,
        offset=offset,
    )
    return json_response(
        [_lagging_position_to_dict(position, now_s) for position in positions], _total_header(positions)
    )


@router.get("/{group}", responses=problem_responses(UnknownGroup))
async def get_group(
    request: Request,
    caller: ReadAccess,
    group: Group,
    queue: Queue | None = None,
    limit: Limit = 100,
    offset: Offset = 0,
) -> dict[str, object]:
    """Describe the queues that a group consumes, each with a page of its partitions by name."""
    reader = get_services(request).broker.store.consumer_groups
    groups = await reader.list_groups(caller.environment, group=group, queue=queue, limit=MAX_QUEUES)
    if not groups:
        raise UnknownGroup(
            f"Consumer group {group!r} does not exist. The first pop of a group creates it.", group=group
        )
    now_s = system_clock()
    queues: dict[str, object] = {}
    for summary in groups:
        positions = await reader.list_positions(summary.id, limit=limit, offset=offset)
        queues[summary.queue] = {
            **group_to_dict(summary, now_s),
            "partitionCount": positions[0].total if positions else 0,
            "partitions": [_position_to_dict(position, now_s) for position in positions],
        }
    return queues


@router.delete("/{group}", responses=problem_responses(UnknownGroup))
async def delete_group(
    request: Request,
    caller: OperateAccess,
    group: Group,
    delete_metadata: bool = Query(True, alias="deleteMetadata"),
) -> dict[str, object]:
    """Delete a group in every queue. With deleteMetadata=false it only starts over."""
    return await _delete(request, caller, group, None, delete_metadata)


@router.delete("/{group}/queues/{queue}", responses=problem_responses(UnknownGroup))
async def delete_group_of_queue(
    request: Request,
    caller: OperateAccess,
    group: Group,
    queue: Queue,
    delete_metadata: bool = Query(True, alias="deleteMetadata"),
) -> dict[str, object]:
    """Delete a group in one queue. With deleteMetadata=false it only starts over."""
    return await _delete(request, caller, group, queue, delete_metadata)


@router.post(
    "/{group}/subscription",
    responses=problem_responses(UnknownGroup),
    openapi_extra=request_body_schema(SubscriptionBody),
)
async def subscribe(request: Request, caller: OperateAccess, group: Group) -> dict[str, object]:
    """Move a group to a time in every queue it consumes."""
    body = await read_json(request, _subscription_decoder)
    start = parse_time("subscriptionTimestamp", body.subscriptionTimestamp)
    before = await _read_positions(request, caller, group)
    queues = await get_services(request).broker.groups.subscribe(caller.environment, group, start)
    audit_change(request, before=before, after=await _read_positions(request, caller, group))
    for queue in queues:
        await _annotate_seek(request, caller, group, queue, f"to {iso(start)}")
    return {
        "success": True,
        "consumerGroup": group,
        "newTimestamp": iso(start),
        "queues": queues,
        "rowsUpdated": len(queues),
    }


@router.post(
    "/{group}/queues/{queue}/seek",
    responses=problem_responses(UnknownGroup, WrongState),
    openapi_extra=request_body_schema(SeekBody),
)
async def seek(request: Request, caller: OperateAccess, group: Group, queue: Queue) -> dict[str, object]:
    """Move a group past the last message of every partition of a queue, or to a time."""
    body = await read_json(request, _seek_decoder, SeekBody())
    result = await _seek(request, caller, group, queue, _seek_target(body))
    return _seek_to_dict(group, queue, body, result)


@router.post(
    "/{group}/queues/{queue}/partitions/{partition:path}/seek",
    responses=problem_responses(UnknownGroup, UnknownPartition, WrongState),
    openapi_extra=request_body_schema(SeekBody, required=False),
)
async def seek_partition(
    request: Request, caller: OperateAccess, group: Group, queue: Queue, partition: Partition
) -> dict[str, object]:
    """Move a group in one partition; without a body, past its last message."""
    body = await read_json(request, _seek_decoder, SeekBody(toEnd=True))
    result = await _seek(request, caller, group, queue, _seek_target(body), partition)
    return _seek_to_dict(group, queue, body, result) | {
        "partitionName": partition,
        "updated": result.moved > 0,
    }


def group_to_dict(group: GroupSummary, now_s: float) -> dict[str, object]:
    """Return the JSON of a group in one queue."""
    state = "consuming" if group.leases else "waiting" if group.behind else "idle"
    has_start_time = group.subscription not in ("all", "new")
    return {
        "name": group.name,
        "queueName": group.queue,
        "topics": [group.queue],
        "state": state,
        "totalLag": group.depth + group.running,
        "pending": group.depth,
        "processing": group.running,
        "activeLeases": group.leases,
        "partitionsWithLag": group.behind,
        "maxTimeLag": _age_s(group.oldest_at, now_s),
        "oldestMessageAt": iso_or_none(group.oldest_at),
        "deadLetter": group.dead,
        "subscriptionMode": "timestamp" if has_start_time else group.subscription,
        "subscriptionTimestamp": group.subscription if has_start_time else None,
        "subscriptionCreatedAt": iso(group.created_at),
    }


async def _delete(
    request: Request, caller: Caller, group: str, queue: str | None, delete_metadata: bool
) -> dict[str, object]:
    groups = get_services(request).broker.groups
    delete_or_reset = groups.delete if delete_metadata else groups.reset
    before = await _read_positions(request, caller, group, queue)
    partitions = await delete_or_reset(caller.environment, group, queue)
    after = None if delete_metadata else await _read_positions(request, caller, group, queue)
    audit_change(request, before=before, after=after)
    for position in before if not delete_metadata else ():
        await _annotate_seek(request, caller, group, str(position["queue"]), "to its start")
    return {
        "success": True,
        "consumerGroup": group,
        **({"queueName": queue} if queue is not None else {}),
        "deletedPartitions": partitions,
        "metadataDeleted": delete_metadata,
    }


async def _seek(
    request: Request, caller: Caller, group: str, queue: str, target: str, partition: str | None = None
) -> SeekResult:
    before = await _read_positions(request, caller, group, queue)
    result = await get_services(request).broker.groups.seek(
        caller.environment, group, queue, target, partition
    )
    after = await _read_positions(request, caller, group, queue)
    audit_change(request, before=before, after=after, target=target)
    where = "to the end" if target == "new" else f"to {target}"
    await _annotate_seek(
        request, caller, group, queue, where if partition is None else f"{where} in partition {partition}"
    )
    return result


async def _annotate_seek(request: Request, caller: Caller, group: str, queue: str, where: str) -> None:
    name = "Queue mode" if group == QUEUE_MODE else f"Group {group}"
    await annotate_change(request, caller, "seek", f"{name} moved {where}", queue=queue)


async def _read_positions(
    request: Request, caller: Caller, group: str, queue: str | None = None
) -> list[dict[str, object]]:
    """Return where a group is in its queues, for the audit log."""
    groups = await get_services(request).broker.store.consumer_groups.list_groups(
        caller.environment, group=group, queue=queue, limit=MAX_QUEUES
    )
    return [
        {
            "queue": summary.queue,
            "subscription": summary.subscription,
            "pending": summary.depth,
            "processing": summary.running,
        }
        for summary in groups
    ]


def _seek_target(body: SeekBody) -> str:
    if body.toEnd == (body.timestamp is not None):
        raise InvalidRequest('Send either "toEnd": true or a "timestamp" in ISO 8601.', field="timestamp")
    return "new" if body.toEnd else parse_time("timestamp", body.timestamp).isoformat()


def _seek_to_dict(group: str, queue: str, body: SeekBody, result: SeekResult) -> dict[str, object]:
    return {
        "success": True,
        "consumerGroup": group,
        "queueName": queue,
        "seekToEnd": body.toEnd,
        "targetTimestamp": body.timestamp,
        "partitionsUpdated": result.moved,
        "messagesSkipped": result.forward,
        "messagesReplayed": result.back,
    }


def _lagging_position_to_dict(position: LaggingPosition, now_s: float) -> dict[str, object]:
    lag_s = _age_s(position.oldest_at, now_s)
    return {
        "consumer_group": position.group_name,
        "queue_name": position.queue,
        "partition_name": position.partition,
        "partition_id": str(position.partition_id),
        "offset_lag": position.unfinished,
        "time_lag_seconds": lag_s,
        "lag_hours": round(lag_s / 3600, 2),
        "oldest_unconsumed_at": iso(position.oldest_at),
        "last_consumed_at": iso_or_none(position.leased_at),
    }


def _position_to_dict(position: GroupPosition, now_s: float) -> dict[str, object]:
    return {
        "partition": position.partition,
        "partitionId": str(position.partition_id),
        "nextUnfinishedOffset": position.cursor,
        "nextOffset": position.next_offset,
        "offsetLag": position.unfinished,
        "timeLagSeconds": _age_s(position.oldest_at, now_s),
        "oldestMessageAt": iso_or_none(position.oldest_at),
        "leaseActive": position.lease_expires_at is not None,
        "leasedAt": iso_or_none(position.leased_at),
        "leaseExpiresAt": iso_or_none(position.lease_expires_at),
    }


def _age_s(pushed_at: datetime | None, now_s: float) -> float:
    return 0 if pushed_at is None else round(max(0.0, now_s - pushed_at.timestamp()), 3)


def _total_header(rows: Sequence[GroupSummary] | Sequence[LaggingPosition]) -> dict[str, str]:
    return {"Total-Count": str(rows[0].total if rows else 0)}
