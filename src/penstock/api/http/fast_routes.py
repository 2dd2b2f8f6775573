"""Map the URLs of hot requests to their handlers.

Push, pop and ack are most of the traffic, and the framework's routing costs more than these requests do
themselves. The same holds for the dead-letter counts, which monitors poll all the time. A request line
therefore leads straight to its handler here. The application has the same handlers behind its own routes:
unusual requests go there, and both ways give the same responses.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple
from urllib.parse import parse_qsl

from penstock.api.http import request_parsing
from penstock.api.http.reply import Handler
from penstock.api.routes import ack_and_transaction, push_pop, tasks, webhook_broker
from penstock.api.routes.push_pop import PopHandler
from penstock.api.routes.run_queue_tasks import DequeueHandler, EnqueueHandler
from penstock.caller import AccessScope

POP_PREFIX = b"/api/v1/pop/queue/"
STATUS_PATH = b"/dlq-status"
RUN_QUEUE_PREFIX = b"/api/v1/run-queues/"
DEQUEUE_OF_ANY_QUEUE = RUN_QUEUE_PREFIX + b"dequeue"
TASK_PREFIX = b"/api/v1/tasks/"
MAX_URL_LENGTH = 500


class HotRoute(NamedTuple):
    """The handler of a hot request, and the access that its caller needs."""

    handler: Handler
    access: AccessScope
    queue: str | None = None
    """The queue in the URL. Bodies name the others."""
    group: str | None = None
    covers_all_queues: bool = False
    """Whether the request is for all queues of the environment."""


POST_ROUTES: dict[bytes, HotRoute] = {
    b"/api/v1/push": HotRoute(push_pop.push, AccessScope.PRODUCE),
    b"/api/v1/ack": HotRoute(ack_and_transaction.ack, AccessScope.CONSUME),
    b"/api/v1/ack/batch": HotRoute(ack_and_transaction.ack_batch, AccessScope.CONSUME),
    **{
        TASK_PREFIX + verb.encode(): HotRoute(handler, AccessScope.CONSUME)
        for verb, handler in tasks.MANY.items()
    },
}


@lru_cache(maxsize=5_000)
def pop_route(url: bytes) -> HotRoute | None:
    """The route of a pop's URL; None if it is not a pop, or an unusual one. Consumers repeat their URLs.

    Raises InvalidRequest if a parameter is invalid.
    """
    path, _, query = url.partition(b"?")
    queue = path.removeprefix(POP_PREFIX)
    if not queue or len(url) > MAX_URL_LENGTH or b"/" in queue or b"%" in queue or not url.isascii():
        return None
    name = request_parsing.check_name("queue", queue.decode())
    parameters = dict(parse_qsl(query.decode(), keep_blank_values=True))
    handler = PopHandler(name, *push_pop.pop_options(parameters))
    return HotRoute(handler, AccessScope.CONSUME, name, handler.group)


@lru_cache(maxsize=1_000)
def dlq_status_route(url: bytes) -> HotRoute | None:
    """The route of the dead-letter counts; None if the URL is another one, or an unusual one."""
    path, _, query = url.partition(b"?")
    if path != STATUS_PATH or len(url) > MAX_URL_LENGTH or not url.isascii():
        return None
    parameters = dict(parse_qsl(query.decode(), keep_blank_values=True))
    if parameters.keys() - {"limit", "offset"}:
        return None
    limit = request_parsing.parse_integer(parameters, "limit", 1_000, 1, 1_000)
    offset = request_parsing.parse_integer(parameters, "offset", 0, 0, 10_000_000)
    return HotRoute(
        lambda services, caller, body, reply: webhook_broker.status(services, caller, limit, offset),
        AccessScope.READ,
        covers_all_queues=True,
    )


def is_cacheable(url: bytes, handler: Handler) -> bool:
    """Whether clients repeat such a request."""
    return url in POST_ROUTES or isinstance(handler, PopHandler | EnqueueHandler | DequeueHandler)


def post_route(url: bytes) -> HotRoute | None:
    """The route of a POST; None if it is not hot."""
    route = POST_ROUTES.get(url)
    if route is None and url.startswith(RUN_QUEUE_PREFIX):
        return _run_queue_route(url)
    if route is None and url.startswith(TASK_PREFIX):
        task_id, _, verb = url[len(TASK_PREFIX) :].decode("latin-1").partition("/")
        if verb in tasks.SINGLE and "%" not in task_id:
            return HotRoute(tasks.single_handler(verb, task_id), AccessScope.CONSUME)
    return route


@lru_cache(maxsize=5_000)
def _run_queue_route(url: bytes) -> HotRoute | None:
    """Raises InvalidRequest if the queue's name is invalid."""
    if url == DEQUEUE_OF_ANY_QUEUE:
        return HotRoute(DequeueHandler(None), AccessScope.CONSUME, covers_all_queues=True)
    queue, _, verb = url.removeprefix(RUN_QUEUE_PREFIX).partition(b"/")
    if len(url) > MAX_URL_LENGTH or b"%" in queue or not queue or not url.isascii():
        return None
    name = request_parsing.check_name("queue", queue.decode())
    if verb == b"dequeue":
        return HotRoute(DequeueHandler(name), AccessScope.CONSUME, name)
    if verb == b"tasks":
        return HotRoute(EnqueueHandler(name), AccessScope.PRODUCE, name)
    return None
