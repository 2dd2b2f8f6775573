"""The topics of live streams: which document each of them repeats.

A topic is a function of the services, the caller and the request. It returns the document of now, and raises
a PenstockError if the caller may not see it or it does not exist. Documents should come from a shared read,
because every stream calls it every two seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum

from penstock.api.access import check_queue
from penstock.api.live.overview_document import Document
from penstock.api.live.queue_selection import QueuePageRequest, list_page, row_to_dict, snapshot_fields
from penstock.api.services import Services
from penstock.caller import Caller
from penstock.errors import InvalidRequest, UnknownQueue


class LiveTopic(StrEnum):
    OVERVIEW = "overview"
    QUEUES = "queues"
    QUEUE = "queue"


@dataclass(frozen=True, slots=True)
class LiveRequest:
    """What a live stream shows."""

    topic: LiveTopic
    name: str | None = None
    """The queue of the topic `queue`."""
    selection: QueuePageRequest = field(default_factory=QueuePageRequest)
    """The page of the topic `queues`."""


TopicReader = Callable[[Services, Caller, LiveRequest], Awaitable[Document]]


async def read_overview(services: Services, caller: Caller, request: LiveRequest) -> Document:
    """The overview of the environment, for callers that may see all queues."""
    check_queue(caller, None)
    return await services.overviews.get(caller.environment)


async def read_queue_page(services: Services, caller: Caller, request: LiveRequest) -> Document:
    """A page of the queues that the caller may see."""
    snapshot = await services.snapshots.get(caller.environment)
    return await asyncio.to_thread(list_page, snapshot, request.selection, caller.queues)


async def read_queue(services: Services, caller: Caller, request: LiveRequest) -> Document:
    """One queue as in the list of queues."""
    if request.name is None:
        raise InvalidRequest("The topic queue needs the parameter name: the name of a queue.", field="name")
    check_queue(caller, request.name)
    snapshot = await services.snapshots.get(caller.environment)
    row = snapshot.find(request.name)
    if row is None and await _exists(services, caller, request.name):  # created since the snapshot was read
        snapshot = await services.snapshots.get_newer(caller.environment)
        row = snapshot.find(request.name)
    if row is None:
        raise UnknownQueue.of_any_kind(request.name)
    return {**snapshot_fields(snapshot), "queue": row_to_dict(row)}


async def _exists(services: Services, caller: Caller, queue: str) -> bool:
    """Ask the servers for one queue, so that names that do not exist cause no reads of all queues."""
    if await services.broker.store.catalog.list_holdings(caller.environment, queue=queue):
        return True
    return await services.run_queues.has_queue(caller.environment, queue)


TOPICS: dict[LiveTopic, TopicReader] = {
    LiveTopic.OVERVIEW: read_overview,
    LiveTopic.QUEUES: read_queue_page,
    LiveTopic.QUEUE: read_queue,
}


async def read_topic(services: Services, caller: Caller, request: LiveRequest) -> Document:
    """Return the document of a topic now."""
    return await TOPICS[request.topic](services, caller, request)
