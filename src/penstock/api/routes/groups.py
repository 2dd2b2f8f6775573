"""Consumer groups: who consumes what, how far behind, and moving or deleting them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from penstock.api.http.parameters import Group, Limit, Offset, Partition, Queue, parse_time
from penstock.api.http.request_parsing import read_json, request_body_schema
from penstock.api.http.response import iso_or_none, json_response
from penstock.api.services import get_services
from penstock.clock import iso, system_clock, to_utc
from penstock.durable.consumer_groups import ConsumerGroups, SeekResult
from penstock.errors import InvalidRequest, UnknownGroup
from penstock.model import DEFAULT_SCOPE

router = APIRouter(prefix="/api/v1/consumer-groups", tags=["consumer groups"])


class SeekBody(msgspec.Struct, forbid_unknown_fields=True):
    toEnd: bool = False
    timestamp: str | None = None


class SubscriptionBody(msgspec.Struct, forbid_unknown_fields=True):
    subscriptionTimestamp: str


_seek_body = msgspec.json.Decoder(SeekBody)
_subscription_body = msgspec.json.Decoder(SubscriptionBody)


@router.get("")
async def list_groups(
    request: Request, queue: Queue | None = None, limit: Limit = 100, offset: Offset = 0
) -> Response:
    """A page of groups by name and queue; how many there are is in the header Total-Count."""
    rows = await get_services(request).broker.store.consumer_groups.list_groups(
        DEFAULT_SCOPE, queue=queue, limit=limit, offset=offset
    )
    now_s = system_clock()
    return json_response([summary(row, now_s) for row in rows], _total(rows))


@router.get("/lagging")
async def list_lagging(
    request: Request,
    min_lag_s: float = Query(60, alias="minLagSeconds", ge=0, le=10**9),
    limit: Limit = 100,
    offset: Offset = 0,
) -> Response:
    """The partitions in which a group has something unfinished that old, the oldest first."""
    now_s = system_clock()
    rows = await get_services(request).broker.store.consumer_groups.list_lagging(
        DEFAULT_SCOPE, to_utc(now_s - min_lag_s), limit=limit, offset=offset
    )
    found = []
    for row in rows:
        lag_s = _age_s(row.oldest_at, now_s)
        found.append(
            {
                "consumer_group": row.group_name,
                "queue_name": row.queue,
                "partition_name": row.partition,
                "partition_id": str(row.partition_id),
                "offset_lag": row.unfinished,
                "time_lag_seconds": lag_s,
                "lag_hours": round(lag_s / 3600, 2),
                "oldest_unconsumed_at": iso(row.oldest_at),
                "last_consumed_at": iso_or_none(row.leased_at),
            }
        )
    return json_response(found, _total(rows))


@router.get("/{group}")
async def get_group(
    request: Request, group: Group, queue: Queue | None = None, limit: Limit = 100, offset: Offset = 0
) -> dict[str, Any]:
    """The queues a group consumes, each with a page of the partitions by name."""
    database = get_services(request).database
    rows = await ConsumerGroups(database).list_groups(DEFAULT_SCOPE, group=group, queue=queue, limit=1_000)
    if not rows:
        raise UnknownGroup(f"there is no consumer group {group!r}; it is made by its first pop", group=group)
    now_s = system_clock()
    answer = {}
    for row in rows:
        positions = await ConsumerGroups(database).list_positions(row.id, limit=limit, offset=offset)
        answer[row.queue] = {
            **summary(row, now_s),
            "partitionCount": positions[0].total if positions else 0,
            "partitions": [_position(position, now_s) for position in positions],
        }
    return answer


@router.delete("/{group}")
async def delete_group(
    request: Request, group: Group, delete_metadata: bool = Query(True, alias="deleteMetadata")
) -> dict[str, Any]:
    """Delete a group in every queue; without its metadata it only starts over."""
    return await _delete(request, group, None, delete_metadata)


@router.delete("/{group}/queues/{queue}")
async def delete_group_of_queue(
    request: Request, group: Group, queue: Queue, delete_metadata: bool = Query(True, alias="deleteMetadata")
) -> dict[str, Any]:
    """Delete a group in one queue; without its metadata it only starts over."""
    return await _delete(request, group, queue, delete_metadata)


@router.post("/{group}/subscription", openapi_extra=request_body_schema(SubscriptionBody))
async def subscribe(request: Request, group: Group) -> dict[str, Any]:
    """Let a group start at a parse_time, in every queue it consumes."""
    body = await read_json(request, _subscription_body)
    start = parse_time("subscriptionTimestamp", body.subscriptionTimestamp)
    queues = await get_services(request).broker.groups.subscribe(DEFAULT_SCOPE, group, start)
    return {
        "success": True,
        "consumerGroup": group,
        "newTimestamp": iso(start),
        "queues": queues,
        "rowsUpdated": len(queues),
    }


@router.post("/{group}/queues/{queue}/seek", openapi_extra=request_body_schema(SeekBody))
async def seek(request: Request, group: Group, queue: Queue) -> dict[str, Any]:
    """Move a group behind the last message of every partition of a queue, or to a moment."""
    body = await read_json(request, _seek_body, SeekBody())
    target = _target(body)
    moved = await get_services(request).broker.groups.seek(DEFAULT_SCOPE, group, queue, target)
    return _sought(group, queue, body, moved)


@router.post(
    "/{group}/queues/{queue}/partitions/{partition:path}/seek",
    openapi_extra=request_body_schema(SeekBody, required=False),
)
async def seek_partition(
    request: Request, group: Group, queue: Queue, partition: Partition
) -> dict[str, Any]:
    """The same in one partition; without a body, behind its last message."""
    body = await read_json(request, _seek_body, SeekBody(toEnd=True))
    target = _target(body)
    moved = await get_services(request).broker.groups.seek(DEFAULT_SCOPE, group, queue, target, partition)
    return _sought(group, queue, body, moved) | {"partitionName": partition, "updated": moved.moved > 0}


def summary(row: Any, now_s: float) -> dict[str, Any]:
    """A group in one queue, from a row of `groups_v1`."""
    unfinished = row["depth"] + row["running"]
    state = "consuming" if row["leases"] else "waiting" if row["behind"] else "idle"
    dated = row["subscription"] not in ("all", "new")
    return {
        "name": row["name"],
        "queueName": row["queue"],
        "topics": [row["queue"]],
        "state": state,
        "totalLag": unfinished,
        "pending": row["depth"],
        "processing": row["running"],
        "activeLeases": row["leases"],
        "partitionsWithLag": row["behind"],
        "maxTimeLag": _age_s(row["oldest_at"], now_s) if row["oldest_at"] else 0,
        "oldestMessageAt": iso_or_none(row["oldest_at"]),
        "deadLetter": row["dead"],
        "subscriptionMode": "timestamp" if dated else row["subscription"],
        "subscriptionTimestamp": row["subscription"] if dated else None,
        "subscriptionCreatedAt": iso(row["created_at"]),
    }


async def _delete(request: Request, group: str, queue: str | None, delete_metadata: bool) -> dict[str, Any]:
    work = get_services(request).broker.groups
    forget = work.delete if delete_metadata else work.reset
    partitions = await forget(DEFAULT_SCOPE, group, queue)
    return {
        "success": True,
        "consumerGroup": group,
        **({"queueName": queue} if queue is not None else {}),
        "deletedPartitions": partitions,
        "metadataDeleted": delete_metadata,
    }


def _target(body: SeekBody) -> str:
    if body.toEnd == (body.timestamp is not None):
        raise InvalidRequest('say either "toEnd": true or a "timestamp" in ISO 8601', field="timestamp")
    return "new" if body.toEnd else parse_time("timestamp", body.timestamp).isoformat()


def _sought(group: str, queue: str, body: SeekBody, moved: SeekResult) -> dict[str, Any]:
    return {
        "success": True,
        "consumerGroup": group,
        "queueName": queue,
        "seekToEnd": body.toEnd,
        "targetTimestamp": body.timestamp,
        "partitionsUpdated": moved.moved,
        "messagesSkipped": moved.forward,
        "messagesReplayed": moved.back,
    }


def _position(row: Any, now_s: float) -> dict[str, Any]:
    return {
        "partition": row["partition"],
        "partitionId": str(row["partition_id"]),
        "nextUnfinishedOffset": row["cursor"],
        "nextOffset": row["next_offset"],
        "offsetLag": row["unfinished"],
        "timeLagSeconds": _age_s(row["oldest_at"], now_s) if row["oldest_at"] else 0,
        "oldestMessageAt": iso_or_none(row["oldest_at"]),
        "leaseActive": row["lease_expires_at"] is not None,
        "leasedAt": iso_or_none(row["leased_at"]),
        "leaseExpiresAt": iso_or_none(row["lease_expires_at"]),
    }


def _age_s(pushed_at: datetime, now_s: float) -> float:
    return round(max(0.0, now_s - pushed_at.timestamp()), 3)


def _total(rows: list[Any]) -> dict[str, str]:
    return {"Total-Count": str(rows[0]["total"] if rows else 0)}
