"""Which requests are hot, and what answers them.

Push, pop and ack are most of the traffic, and a framework's way to them costs more than they do themselves;
so it does to the counts of dead letters, which monitors ask for all the time.
Here a request line leads straight to its handler. The application has the same handlers behind its own
routes: whatever is unusual about a request goes that way, and both answer alike.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import lru_cache
from urllib.parse import parse_qsl

from penstock.api.http import request_parsing
from penstock.api.http.reply import Reply, Start
from penstock.api.http.response import Answer
from penstock.api.routes import ack_and_transaction, push_pop, run_queues, tasks, webhook_broker
from penstock.api.services import Services
from penstock.broker.queues.pop import PopOptions

POP_PREFIX = b"/api/v1/pop/queue/"
STATUS_PATH = b"/dlq-status"
RUN_QUEUE_PREFIX = b"/api/v1/run-queues/"
TASK_PREFIX = b"/api/v1/tasks/"
LONGEST_URL = 500


def _awaited(handler: Callable[[Services, bytes], Awaitable[Answer]]) -> Start:
    return lambda given, body, reply: handler(given, body)


POSTS: dict[bytes, Start] = {
    b"/api/v1/push": push_pop.start_push,
    b"/api/v1/ack": ack_and_transaction.start_ack,
    b"/api/v1/ack/batch": ack_and_transaction.start_ack_batch,
    **{TASK_PREFIX + verb.encode(): _awaited(handler) for verb, handler in tasks.MANY.items()},
}


class Pop:
    """A pop as its URL asks for it."""

    __slots__ = ("group", "options", "queue")

    def __init__(self, queue: str, group: str, options: PopOptions) -> None:
        self.queue = queue
        self.group = group
        self.options = options

    def __call__(self, given: Services, body: bytes, reply: Reply) -> Awaitable[Answer] | None:
        return push_pop.start_pop(given, self.queue, self.group, self.options, reply)


@lru_cache(maxsize=5_000)
def pop_of(url: bytes) -> Pop | None:
    """What a pop's URL asks for; None if it is none, or an unusual one. Consumers repeat theirs for hours.

    Raises InvalidRequest where a parameter does not fit.
    """
    path, _, query = url.partition(b"?")
    queue = path.removeprefix(POP_PREFIX)
    if not queue or len(url) > LONGEST_URL or b"/" in queue or b"%" in queue or not url.isascii():
        return None
    name = request_parsing.check_name("queue", queue.decode())
    return Pop(name, *push_pop.pop_options(dict(parse_qsl(query.decode(), keep_blank_values=True))))


@lru_cache(maxsize=1_000)
def status_of(url: bytes) -> Start | None:
    """What answers a question for the counts of dead letters; None if it is none, or an unusual one."""
    path, _, query = url.partition(b"?")
    if path != STATUS_PATH or len(url) > LONGEST_URL or not url.isascii():
        return None
    given = dict(parse_qsl(query.decode(), keep_blank_values=True))
    if given.keys() - {"limit", "offset"}:
        return None
    limit = request_parsing.integer(given, "limit", 1_000, 1, 1_000)
    offset = request_parsing.integer(given, "offset", 0, 0, 10_000_000)
    return lambda given, body, reply: webhook_broker.status(given, limit, offset)


class Dequeue:
    """A dequeue as its URL asks for it; the rest is in its body."""

    __slots__ = ("queue",)

    def __init__(self, queue: str) -> None:
        self.queue = queue

    def __call__(self, given: Services, body: bytes, reply: Reply) -> Awaitable[Answer]:
        return run_queues.dequeue(given, self.queue, body, reply.has_left)


def may_be_remembered(url: bytes, start: Start) -> bool:
    """Whether the same request may come again, and nothing in its head has to be looked at every time."""
    return url in POSTS or isinstance(start, Pop | Dequeue)


def post_of(url: bytes) -> Start | None:
    """What answers a post, if it is hot."""
    handler = POSTS.get(url)
    if handler is None and url.startswith(RUN_QUEUE_PREFIX):
        return _run_queue_post(url)
    if handler is None and url.startswith(TASK_PREFIX):
        task_id, _, verb = url[len(TASK_PREFIX) :].decode("latin-1").partition("/")
        settling = tasks.SINGLE.get(verb)
        if settling is not None and "%" not in task_id:
            return lambda given, body, reply: settling(given, task_id, body)
    return handler


@lru_cache(maxsize=5_000)
def _run_queue_post(url: bytes) -> Start | None:
    """Raises InvalidRequest where the queue's name is none."""
    queue, _, verb = url.removeprefix(RUN_QUEUE_PREFIX).partition(b"/")
    if len(url) > LONGEST_URL or b"%" in queue or not queue or not url.isascii():
        return None
    name = request_parsing.check_name("queue", queue.decode())
    if verb == b"dequeue":
        return Dequeue(name)
    if verb == b"tasks":
        return lambda given, body, reply: run_queues.enqueue(given, name, body)
    return None
