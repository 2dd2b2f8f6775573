"""What there is: queues, partitions, namespaces, tasks."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request

from penstock.api.http.parameters import Limit, Offset, Queue, Search, Text
from penstock.api.http.response import iso_or_none
from penstock.api.routes.groups import summary
from penstock.api.schemas.time_window import ratio
from penstock.api.services import Services, get_services
from penstock.broker.queues.queue_options import columns_to_options
from penstock.clock import iso, system_clock, to_utc
from penstock.errors import UnknownQueue
from penstock.model import DEFAULT_SCOPE

router = APIRouter(prefix="/api/v1/resources", tags=["resources"])


@router.get("/queues")
async def list_queues(
    request: Request, search: Search = None, limit: Limit = 100, offset: Offset = 0
) -> dict[str, Any]:
    """A page of the queues by name, with their depth."""
    rows = await get_services(request).broker.store.catalog.list_queues(
        DEFAULT_SCOPE, search=search, limit=limit, offset=offset
    )
    return {
        "queues": [
            {
                "id": str(row.id),
                "name": row.name,
                "namespace": row.namespace,
                "task": row.task,
                "partitions": row.partitions,
                "consumerGroups": row.groups,
                "depth": row.depth or 0,
                "running": row.running or 0,
                "messages": {"pending": row.depth or 0, "processing": row.running or 0},
                "createdAt": iso(row.created_at),
            }
            for row in rows
        ],
        "total": rows[0].total if rows else 0,
        "limit": limit,
        "offset": offset,
    }


@router.get("/queues/{queue}")
async def get_queue(request: Request, queue: Queue, limit: Limit = 100, offset: Offset = 0) -> dict[str, Any]:
    """One queue: options, totals, its groups, and a page of its partitions by name."""
    return await queue_detail(get_services(request), queue, limit, offset)


@router.delete("/queues/{queue}")
async def delete_queue(request: Request, queue: Queue) -> dict[str, Any]:
    """Delete a queue with its messages, groups, dead letters and traces."""
    existed = await get_services(request).broker.queues.delete(DEFAULT_SCOPE, queue)
    return {"deleted": True, "existed": existed, "queue": queue}


@router.get("/namespaces")
async def list_namespaces(request: Request) -> dict[str, Any]:
    """The namespaces of queues, with what their queues hold together."""
    rows = await get_services(request).broker.store.catalog.sum_by_label(DEFAULT_SCOPE, "namespace")
    return {"namespaces": [_label("namespace", row) for row in rows]}


@router.get("/tasks")
async def list_tasks(request: Request) -> dict[str, Any]:
    """The tasks of queues, with what their queues hold together."""
    rows = await get_services(request).broker.store.catalog.sum_by_label(DEFAULT_SCOPE, "task")
    return {"tasks": [_label("task", row) for row in rows]}


@router.get("/overview")
async def overview(request: Request, namespace: Text = None, task: Text = None) -> dict[str, Any]:
    """How many queues, partitions, groups and messages there are."""
    return await totals(get_services(request), namespace, task)


@router.get("/partitions")
async def list_partitions(
    request: Request,
    queue: Queue | None = None,
    search: Search = None,
    limit: Limit = 100,
    offset: Offset = 0,
) -> dict[str, Any]:
    """A page of partitions by queue and name."""
    rows = await get_services(request).broker.store.catalog.list_partitions(
        DEFAULT_SCOPE, queue=queue, search=search, limit=limit, offset=offset
    )
    return {
        "partitions": [{"queue": row.queue, **_partition(row)} for row in rows],
        "total": rows[0].total if rows else 0,
        "limit": limit,
        "offset": offset,
    }


async def queue_detail(services: Services, queue: str, limit: int, offset: int) -> dict[str, Any]:
    """All there is to tell of a queue; UnknownQueue if there is none."""
    found = await services.broker.store.catalog.find_queue(DEFAULT_SCOPE, queue)
    rows = await services.broker.store.catalog.list_holdings(DEFAULT_SCOPE, queue=queue)
    if found is None or not rows:
        raise unknown_queue(queue)
    parts = await services.broker.store.catalog.list_partitions(
        DEFAULT_SCOPE, queue=queue, limit=limit, offset=offset
    )
    members = await services.broker.store.consumer_groups.list_groups(DEFAULT_SCOPE, queue=queue, limit=1_000)
    now_s = system_clock()
    return {
        "id": str(found.id),
        "name": queue,
        "namespace": found.row["namespace"],
        "task": found.row["task"],
        "createdAt": iso(rows[0].created_at),
        "options": columns_to_options(found.row, services.settings.lease_ms),
        "depth": rows[0].depth,
        "running": rows[0].running,
        "totals": message_totals(rows[0]),
        "consumerGroups": [summary(row, now_s) for row in members],
        "partitions": [_partition(row) for row in parts],
        "partitionCount": rows[0].partitions,
        "limit": limit,
        "offset": offset,
        "asOf": iso(to_utc(now_s)),
    }


async def totals(services: Services, namespace: str | None, task: str | None) -> dict[str, Any]:
    """Totals over all queues, or those of a namespace and task; an empty name counts as none."""
    row = await services.broker.store.catalog.sum_environment(
        DEFAULT_SCOPE, namespace=namespace or None, task=task or None
    )
    return {
        "queues": row.queues,
        "partitions": row.partitions,
        "namespaces": row.namespaces,
        "tasks": row.tasks,
        "consumerGroups": row.groups,
        "messages": message_totals(row),
        "throughput": await _throughput(services),
        "asOf": iso(to_utc(system_clock())),
    }


async def _throughput(services: Services) -> dict[str, Any]:
    """What all brokers do, over the last whole minute and what there is of the running one."""
    now = to_utc(system_clock())
    rows = await services.broker.store.worker_minutes.read_throughput(
        now - timedelta(minutes=1), now + timedelta(minutes=1), timedelta(minutes=1)
    )
    covered_s = sum(row.covered_s for row in rows)
    return {
        "coveredSeconds": round(covered_s, 3),
        "pushPerSecond": ratio(sum(row.push_messages for row in rows), covered_s),
        "popPerSecond": ratio(sum(row.pop_messages for row in rows), covered_s),
        "ackPerSecond": ratio(sum(row.ack_messages for row in rows), covered_s),
        "avgLagMs": ratio(sum(row.lag_sum_ms for row in rows), sum(row.lag_count for row in rows)),
    }


def message_totals(row: Any) -> dict[str, int]:
    """Messages kept, ever pushed, waiting for the slowest group, under leases, and dead letters."""
    return {
        "total": row["kept"],
        "pushed": row["pushed"],
        "pending": row["depth"],
        "processing": row["running"],
        "deadLetter": row["dead"],
    }


def unknown_queue(queue: str) -> UnknownQueue:
    return UnknownQueue(f"there is no queue {queue!r}; it is made by the first push to it", queue=queue)


def _label(name: str, row: Any) -> dict[str, Any]:
    return {
        name: row["label"],
        "queues": row["queues"],
        "partitions": row["partitions"],
        "messages": {"total": row["kept"], "pending": row["depth"], "processing": row["running"]},
    }


def _partition(row: Any) -> dict[str, Any]:
    kept = row["next_offset"] - row["low_offset"]
    return {
        "id": str(row["id"]),
        "name": row["name"],
        "createdAt": iso(row["created_at"]),
        "lastPushAt": iso_or_none(row["pushed_at"]),
        "firstOffset": row["low_offset"],
        "nextOffset": row["next_offset"],
        "messages": {"total": kept, "pending": row["pending"], "processing": row["running"]},
    }
