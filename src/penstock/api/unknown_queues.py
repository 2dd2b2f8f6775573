"""Answer a request that names an unknown queue, with the existing queue whose name is most similar.

Only such requests pay for it, and they compare a bounded number of names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from difflib import get_close_matches

from starlette.requests import Request
from starlette.responses import Response

from penstock.api.problems import from_penstock_error
from penstock.api.services import get_services
from penstock.caller import Caller
from penstock.errors import PenstockError, UnknownQueue

MAX_NAMES = 100
"""Names of each kind that are compared, on each side of the unknown name in the order of names."""

TIMEOUT_S = 1.0


async def handle_unknown_queue(request: Request, error: Exception) -> Response:
    """The response to UnknownQueue, with `kind` if a queue of the other kind has this name.

    Otherwise `didYouMean` names the most similar queue, if there is one.
    """
    assert isinstance(error, UnknownQueue)
    queue = error.fields.get("queue")
    if not isinstance(queue, str):
        return from_penstock_error(error)
    services = get_services(request)
    caller: Caller = request.state.caller
    durable_names, run_names = await asyncio.gather(
        _names_in_time(
            services.broker.store.catalog.nearest_queue_names(caller.environment, queue, MAX_NAMES)
        ),
        _names_in_time(services.run_queues.nearest_queue_names(caller.environment, queue, MAX_NAMES)),
    )
    fields = dict(error.fields)
    if queue in durable_names or queue in run_names:
        fields["kind"] = "durable" if queue in durable_names else "run"
        detail = f"{error.detail} {queue!r} is a {fields['kind']} queue."
        return from_penstock_error(UnknownQueue(detail, **fields))
    # In a thread: comparing long names takes tens of milliseconds, in which other requests would wait.
    similar_names = await asyncio.to_thread(get_close_matches, queue, {*durable_names, *run_names}, 1)
    if not similar_names:
        return from_penstock_error(error)
    fields["didYouMean"] = similar_names[0]
    return from_penstock_error(UnknownQueue(f"{error.detail} Did you mean {similar_names[0]!r}?", **fields))


async def _names_in_time(names: Awaitable[list[str]]) -> list[str]:
    """The names; none if their server is unreachable or slow: the response does not depend on them."""
    try:
        return await asyncio.wait_for(names, TIMEOUT_S)
    except (TimeoutError, PenstockError):
        return []
