"""Which requests are hot, and what answers them.

Push, pop and ack are most of the traffic, and a framework's way to them costs more than they do themselves.
Here a request line leads straight to its handler. The application has the same handlers behind its own
routes: whatever is unusual about a request goes that way, and both answer alike.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import lru_cache
from urllib.parse import parse_qsl

from penstock.api import reading
from penstock.api.answer import Answer
from penstock.api.routes import messages, settle
from penstock.api.services import Services
from penstock.broker.pop import PopOptions

Handler = Callable[[Services, bytes], Awaitable[Answer]]

POP_PREFIX = b"/api/v1/pop/queue/"
LONGEST_URL = 500

POSTS: dict[bytes, Handler] = {
    b"/api/v1/push": messages.push,
    b"/api/v1/ack": settle.ack,
    b"/api/v1/ack/batch": settle.ack_batch,
}


class Pop:
    """A pop as its URL asks for it."""

    __slots__ = ("group", "options", "queue")

    def __init__(self, queue: str, group: str, options: PopOptions) -> None:
        self.queue = queue
        self.group = group
        self.options = options

    def __call__(self, given: Services, has_left: Callable[[], bool]) -> Awaitable[Answer]:
        return messages.pop(given, self.queue, self.group, self.options, has_left)


@lru_cache(maxsize=5_000)
def pop_of(url: bytes) -> Pop | None:
    """What a pop's URL asks for; None if it is none, or an unusual one. Consumers repeat theirs for hours.

    Raises InvalidRequest where a parameter does not fit.
    """
    path, _, query = url.partition(b"?")
    queue = path.removeprefix(POP_PREFIX)
    if not queue or len(url) > LONGEST_URL or b"/" in queue or b"%" in queue or not url.isascii():
        return None
    name = reading.check_name("queue", queue.decode())
    return Pop(name, *messages.pop_options(dict(parse_qsl(query.decode(), keep_blank_values=True))))
