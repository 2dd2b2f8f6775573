"""Routes that list queues, partitions, namespaces and tasks, and pause, resume and delete queues."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta

from fastapi import APIRouter
from starlette.requests import Request

from penstock.api.access import ConfigureAccess, OperateAccess, ReadAccess
from penstock.api.annotated_change import annotate_change, annotate_pause
from penstock.api.audited_change import audit_change
from penstock.api.http.parameters import Limit, Offset, Queue, Search, Text
from penstock.api.http.response import iso_or_none
from penstock.api.minute_sums import read_environment_buckets
from penstock.api.problems import problem_responses
from penstock.api.routes.groups import group_to_dict
from penstock.api.schemas.time_window import ratio
from penstock.api.services import Services, get_services
from penstock.broker.durable_store import (
    LabelTotals,
    MessageTotals,
    PartitionSummary,
    QueueHoldings,
    QueueSummary,
    QueueWindow,
)
from penstock.broker.queues.queue_options import columns_to_options
from penstock.caller import Caller
from penstock.clock import iso, system_clock, to_utc
from penstock.errors import UnknownQueue
from penstock.model import Scope

router = APIRouter(prefix="/api/v1/resources", tags=["resources"])

MAX_GROUPS = 1_000
"""Consumer groups that the description of a queue lists."""


@router.get("/queues")
async def list_queues(
    request: Request, caller: ReadAccess, search: Search = None, limit: Limit = 100, offset: Offset = 0
) -> dict[str, object]:
    """List queues by name, with their depth."""
    catalog = get_services(request).broker.store.catalog
    queues = await catalog.list_queues(caller.environment, search=search, limit=limit, offset=offset)
    return {
        "queues": [_queue_to_dict(queue) for queue in queues],
        "total": queues[0].total if queues else 0,
        "limit": limit,
        "offset": offset,
    }


@router.get("/queues/{queue}", responses=problem_responses(UnknownQueue))
async def get_queue(
    request: Request, caller: ReadAccess, queue: Queue, limit: Limit = 100, offset: Offset = 0
) -> dict[str, object]:
    """Describe one queue: options, totals, its groups, and a page of its partitions by name."""
    return await describe_queue(get_services(request), caller, queue, limit, offset)


@router.delete("/queues/{queue}", responses=problem_responses(UnknownQueue))
async def delete_queue(request: Request, caller: ConfigureAccess, queue: Queue) -> dict[str, object]:
    """Delete a queue with its messages, groups, dead letters and traces."""
    services = get_services(request)
    before = await read_configuration(services, caller, queue)
    holdings = await services.broker.store.catalog.list_holdings(caller.environment, queue=queue)
    existed = await services.broker.queues.delete(caller.environment, queue)
    if before is not None and holdings:
        audit_change(request, before=before | {"messages": message_totals(holdings[0])})
    return {"deleted": True, "existed": existed, "queue": queue}


@router.post("/queues/{queue}/pause", responses=problem_responses(UnknownQueue))
async def pause_queue(request: Request, caller: OperateAccess, queue: Queue) -> dict[str, object]:
    """Stop handing out messages of the queue. Messages can be pushed, and leased ones acked.

    A pop of a paused queue gets nothing; with `wait=true` it waits until the queue is resumed.
    """
    return await _set_paused(request, caller, queue, get_services(request).broker.queues.pause)


@router.post("/queues/{queue}/resume", responses=problem_responses(UnknownQueue))
async def resume_queue(request: Request, caller: OperateAccess, queue: Queue) -> dict[str, object]:
    """Hand out messages of a paused queue again. Waiting pops get them at once."""
    return await _set_paused(request, caller, queue, get_services(request).broker.queues.resume)


@router.post("/queues/{queue}/purge", responses=problem_responses(UnknownQueue))
async def purge_queue(request: Request, caller: OperateAccess, queue: Queue) -> dict[str, object]:
    """Drop all messages of the queue for all consumer groups. Leases end; dead letters stay.

    `purged` counts the messages that some group had not finished, and `consumerGroups` those of each group.
    Metrics count them as expired.
    """
    services = get_services(request)
    purged = await services.broker.queues.purge(caller.environment, queue)
    if purged is None:
        raise unknown_queue(queue)
    messages, groups = purged
    audit_change(request, after={"purged": messages, "consumerGroups": groups})
    await annotate_change(request, caller, "purge", f"Purged: {messages:,} messages", queue=queue)
    return {"queue": queue, "purged": messages, "consumerGroups": groups}


@router.get("/namespaces")
async def list_namespaces(request: Request, caller: ReadAccess) -> dict[str, object]:
    """List the namespaces of queues, with the totals of their queues."""
    catalog = get_services(request).broker.store.catalog
    totals = await catalog.sum_by_label(caller.environment, "namespace")
    return {"namespaces": [_label_to_dict("namespace", row) for row in totals]}


@router.get("/tasks")
async def list_tasks(request: Request, caller: ReadAccess) -> dict[str, object]:
    """List the tasks of queues, with the totals of their queues."""
    totals = await get_services(request).broker.store.catalog.sum_by_label(caller.environment, "task")
    return {"tasks": [_label_to_dict("task", row) for row in totals]}


@router.get("/overview")
async def overview(
    request: Request, caller: ReadAccess, namespace: Text = None, task: Text = None
) -> dict[str, object]:
    """Count queues, partitions, groups and messages."""
    return await describe_totals(get_services(request), caller, namespace, task)


@router.get("/partitions", responses=problem_responses(UnknownQueue))
async def list_partitions(
    request: Request,
    caller: ReadAccess,
    queue: Queue | None = None,
    search: Search = None,
    limit: Limit = 100,
    offset: Offset = 0,
) -> dict[str, object]:
    """List partitions by queue and name."""
    catalog = get_services(request).broker.store.catalog
    partitions = await catalog.list_partitions(
        caller.environment, queue=queue, search=search, limit=limit, offset=offset
    )
    if (
        queue is not None
        and not partitions
        and not await catalog.list_holdings(caller.environment, queue=queue)
    ):
        raise unknown_queue(queue)
    return {
        "partitions": [
            {"queue": partition.queue, **_partition_to_dict(partition)} for partition in partitions
        ],
        "total": partitions[0].total if partitions else 0,
        "limit": limit,
        "offset": offset,
    }


async def _set_paused(
    request: Request, caller: Caller, queue: str, pause_or_resume: Callable[[Scope, str], Awaitable[bool]]
) -> dict[str, object]:
    """Return the queue as in the list of queues. Raises UnknownQueue."""
    catalog = get_services(request).broker.store.catalog
    before = await catalog.list_holdings(caller.environment, queue=queue)
    exists = await pause_or_resume(caller.environment, queue)
    after = await catalog.list_holdings(caller.environment, queue=queue) if exists else []
    if not after:
        raise unknown_queue(queue)
    was_paused = before[0].paused if before else None
    audit_change(request, before={"paused": was_paused}, after={"paused": after[0].paused})
    if was_paused != after[0].paused:
        await annotate_pause(request, caller, queue, after[0].paused)
    return _queue_to_dict(after[0])


async def read_configuration(services: Services, caller: Caller, queue: str) -> dict[str, object] | None:
    """Return the namespace, the task and the options of a queue; None if it does not exist."""
    record = await services.broker.store.catalog.find_queue(caller.environment, queue)
    return None if record is None else configuration_to_dict(services, record.columns)


def configuration_to_dict(
    services: Services, columns: Mapping[str, int | bool | str | list[str] | None]
) -> dict[str, object]:
    return {
        "namespace": columns["namespace"],
        "task": columns["task"],
        "options": columns_to_options(columns, services.settings.lease_ms),
    }


async def describe_queue(
    services: Services, caller: Caller, queue: str, limit: int, offset: int
) -> dict[str, object]:
    """Return the description of a queue. Raises UnknownQueue."""
    store = services.broker.store
    record = await store.catalog.find_queue(caller.environment, queue)
    holdings = await store.catalog.list_holdings(caller.environment, queue=queue)
    if record is None or not holdings:
        raise unknown_queue(queue)
    partitions = await store.catalog.list_partitions(
        caller.environment, queue=queue, limit=limit, offset=offset
    )
    groups = await store.consumer_groups.list_groups(caller.environment, queue=queue, limit=MAX_GROUPS)
    now_s = system_clock()
    return {
        "id": str(record.id),
        "name": queue,
        **configuration_to_dict(services, record.columns),
        "createdAt": iso(holdings[0].created_at),
        "depth": holdings[0].depth,
        "running": holdings[0].running,
        "paused": holdings[0].paused,
        "totals": message_totals(holdings[0]),
        "consumerGroups": [group_to_dict(group, now_s) for group in groups],
        "partitions": [_partition_to_dict(partition) for partition in partitions],
        "partitionCount": holdings[0].partitions,
        "limit": limit,
        "offset": offset,
        "asOf": iso(to_utc(now_s)),
    }


async def describe_totals(
    services: Services, caller: Caller, namespace: str | None, task: str | None
) -> dict[str, object]:
    """Return totals over all queues, or over those of a namespace and task. An empty name selects all."""
    totals = await services.broker.store.catalog.sum_environment(
        caller.environment, namespace=namespace or None, task=task or None
    )
    return {
        "queues": totals.queues,
        "partitions": totals.partitions,
        "namespaces": totals.namespaces,
        "tasks": totals.tasks,
        "consumerGroups": totals.groups,
        "messages": message_totals(totals),
        "throughput": await _describe_throughput(services, caller.environment),
        "asOf": iso(to_utc(system_clock())),
    }


async def _describe_throughput(services: Services, environment: Scope) -> dict[str, object]:
    """Return the rates of the environment over the last full minute and the current one so far."""
    now = to_utc(system_clock())
    minute = timedelta(minutes=1)
    window = QueueWindow(now - minute, now + minute, minute)
    buckets = await read_environment_buckets(services, environment, window)
    covered_s = sum(bucket.covered.covered_s for bucket in buckets)
    sums = [bucket.sums for bucket in buckets]
    return {
        "coveredSeconds": round(covered_s, 3),
        "pushPerSecond": ratio(sum(bucket.push_messages for bucket in sums), covered_s),
        "popPerSecond": ratio(sum(bucket.pop_messages for bucket in sums), covered_s),
        "ackPerSecond": ratio(sum(bucket.acked for bucket in sums), covered_s),
        "avgLagMs": ratio(
            sum(bucket.lag_sum_ms for bucket in sums), sum(bucket.lag_count for bucket in sums)
        ),
    }


def queue_fields(queue: QueueSummary | QueueHoldings) -> dict[str, object]:
    """Return the fields that every list of queues has."""
    return {
        "id": str(queue.id),
        "name": queue.name,
        "namespace": queue.namespace,
        "task": queue.task,
        "createdAt": iso(queue.created_at),
        "partitions": queue.partitions,
        "consumerGroups": queue.groups,
        "paused": queue.paused,
    }


def _queue_to_dict(queue: QueueSummary | QueueHoldings) -> dict[str, object]:
    depth, running = queue.depth or 0, queue.running or 0
    return {
        **queue_fields(queue),
        "depth": depth,
        "running": running,
        "messages": {"pending": depth, "processing": running},
    }


def message_totals(totals: MessageTotals) -> dict[str, int]:
    """Return the messages kept, ever pushed, waiting for the slowest group and leased, and the dead
    letters."""
    return {
        "total": totals.kept,
        "pushed": totals.pushed,
        "pending": totals.depth,
        "processing": totals.running,
        "deadLetter": totals.dead,
    }


def unknown_queue(queue: str) -> UnknownQueue:
    return UnknownQueue(f"Queue {queue!r} does not exist. The first push to a queue creates it.", queue=queue)


def _label_to_dict(name: str, totals: LabelTotals) -> dict[str, object]:
    return {
        name: totals.label,
        "queues": totals.queues,
        "partitions": totals.partitions,
        "messages": {"total": totals.kept, "pending": totals.depth, "processing": totals.running},
    }


def _partition_to_dict(partition: PartitionSummary) -> dict[str, object]:
    return {
        "id": str(partition.id),
        "name": partition.name,
        "createdAt": iso(partition.created_at),
        "lastPushAt": iso_or_none(partition.pushed_at),
        "firstOffset": partition.low_offset,
        "nextOffset": partition.next_offset,
        "messages": {
            "total": partition.next_offset - partition.low_offset,
            "pending": partition.pending,
            "processing": partition.running,
        },
    }
