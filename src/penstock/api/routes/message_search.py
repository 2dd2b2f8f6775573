"""The route that searches messages, in steps that the caller repeats."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import Response

from penstock.api.access import ReadAccess, check_access
from penstock.api.http.disconnect import unless_disconnected
from penstock.api.http.parameters import (
    Group,
    Partition,
    Queue,
    Text,
    Timestamp,
    TransactionId,
    refuse_unknown_parameters,
)
from penstock.api.http.response import json_response
from penstock.api.problems import problem_responses
from penstock.api.routes.message_admin import (
    MessageStatus,
    find_partition,
    find_queues,
    listed_message_to_dict,
)
from penstock.api.services import Services, get_services
from penstock.broker.durable_store import SearchFilter
from penstock.broker.queues.log_search import SearchCursor, payload_texts
from penstock.caller import AccessScope, Caller
from penstock.clock import iso
from penstock.errors import (
    InvalidRequest,
    Overloaded,
    UnknownGroup,
    UnknownPartition,
    UnknownQueue,
    WrongState,
)

router = APIRouter(
    prefix="/api/v1/messages", tags=["messages"], dependencies=[Depends(refuse_unknown_parameters)]
)

SearchLimit = Annotated[int, Query(ge=1, le=500, description="messages that end a step")]
ContainedText = Annotated[
    Text, Query(min_length=1, max_length=255, description="text in the payload's JSON; a to z in either case")
]
IndexKey = Annotated[
    Text, Query(max_length=200, description="an index key of the queue; needs queue and value")
]
IndexedValue = Annotated[str | None, Query(max_length=10_000, description="the value under the key")]


@router.get(
    "/search",
    responses=problem_responses(UnknownQueue, UnknownGroup, UnknownPartition, WrongState, Overloaded),
)
async def search_messages(
    request: Request,
    caller: ReadAccess,
    queue: Queue | None = Query(None, description="one queue; all queues if left out"),
    partition: Partition | None = Query(None, description="one partition of the queue"),
    group: Group | None = Query(None, alias="consumerGroup", description="the group whose status counts"),
    status: MessageStatus | None = None,
    start: Timestamp | None = Query(None, alias="from", description="pushed at or after this time"),
    end: Timestamp | None = Query(None, alias="to", description="pushed before this time"),
    message_id: uuid.UUID | None = Query(None, alias="id", description="message id"),
    transaction_id: TransactionId | None = Query(None, alias="transactionId"),
    text: ContainedText = None,
    key: IndexKey = None,
    value: IndexedValue = None,
    cursor: str | None = Query(None, description="nextCursor of the previous step", max_length=300),
    limit: SearchLimit = 100,
) -> Response:
    """Search messages, one step per call: repeat it with `nextCursor` until that is null.

    A step reads on for about half a second. A search ends when the caller does not call again; a client that
    disconnects cancels the running step.
    """
    services = get_services(request)
    if text is not None or key is not None:
        check_access(caller, AccessScope.READ_PAYLOAD)
    queues = await find_queues(services, caller, queue, group)
    indexed_since = await _find_indexed_since(services, caller, queue, key, value)
    search = SearchFilter(
        {row.queue_id: row.group_id for row in queues},
        await find_partition(services, queue, partition, queues),
        status,
        start,
        end,
        message_id,
        transaction_id,
        None if text is None else payload_texts(text),
        key,
        value,
    )
    step = await unless_disconnected(
        request,
        services.broker.message_search.step(
            search, None if cursor is None else SearchCursor.parse(cursor), limit
        ),
    )
    if step is None:
        return Response(status_code=204)  # nothing reads it
    names = {row.queue_id: row.queue for row in queues}
    return json_response(
        {
            "messages": [
                listed_message_to_dict(services, caller, names[match.queue_id], match)
                for match in step.matches
            ],
            "nextCursor": None if step.next_cursor is None else step.next_cursor.to_text(),
            "progress": _progress_to_dict(step.progress),
            "indexedSince": None if indexed_since is None else iso(indexed_since),
        }
    )


def _progress_to_dict(progress: SearchCursor) -> dict[str, object]:
    """How many messages were looked at, of how many; the total is null in a search by index key."""
    return {
        "examined": progress.examined,
        "total": None if progress.total < 0 else progress.total,
        "totalIsExact": progress.total >= 0 and bool(progress.is_exact),
    }


async def _find_indexed_since(
    services: Services, caller: Caller, queue: str | None, key: str | None, value: str | None
) -> datetime | None:
    """Return since when the queue has the index key; None without a key.

    Raises InvalidRequest if key, value and queue do not come together, and WrongState for an unknown key.
    """
    if key is None and value is None:
        return None
    if key is None or value is None or queue is None:
        raise InvalidRequest("key, value and queue belong together: send all three.", field="key")
    if "\0" in value:
        raise InvalidRequest("value contains a NUL character. Remove it.", field="value")
    record = await services.broker.store.catalog.find_queue(caller.environment, queue)
    keys = record.columns["index_keys"] if record is not None else None
    since = record.columns["indexed_since"] if record is not None else None
    if not isinstance(keys, list) or not isinstance(since, list) or key not in keys:
        declared = ", ".join(keys) if isinstance(keys, list) else "none"
        raise WrongState(
            f"Queue {queue!r} has no index key {key!r} (it has: {declared}). Declare it with the option "
            "indexKeys of POST /api/v1/configure, or search with text.",
            field="key",
        )
    return datetime.fromisoformat(since[keys.index(key)])
