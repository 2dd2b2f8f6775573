"""The server's HTTP protocol with a short way for hot requests.

uvicorn reads requests, keeps connections alive and stops gracefully; a usual hot request is then handled
right here, in one task and one write, instead of through the application's interface. Whatever is unusual
(another route, a body of unknown length, a second request on the connection before the first is answered)
goes the server's own way.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

from fastapi import FastAPI
from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from penstock.api import problems
from penstock.api.auth import Guards
from penstock.api.http.fast_routes import (
    POP_PREFIX,
    STATUS_PATH,
    Dequeue,
    Pop,
    may_be_remembered,
    pop_of,
    post_of,
    status_of,
)
from penstock.api.http.head_cache import Heads
from penstock.api.http.reply import Start
from penstock.api.http.response import Answer
from penstock.api.services import Services
from penstock.errors import Overloaded, PenstockError

_JSON = b"content-type: application/json\r\ncontent-length: %d\r\n"
_CLOSE = b"connection: close\r\n"
_GIVING_BACK = (Pop, Dequeue)


class HotCycle:
    """One hot request from its head to its answer, in the shape in which the server keeps those under way.

    It is the `Reply` that its batch tells what became of it; a task is made only for what has to be awaited.
    """

    __slots__ = (
        "body",
        "disconnected",
        "finish",
        "keep_alive",
        "protocol",
        "rescue",
        "response_complete",
        "start",
        "task",
    )

    def __init__(self, protocol: ExpressProtocol, start: Start) -> None:
        self.protocol = protocol
        self.start = start
        self.body = b""
        self.keep_alive = True
        self.disconnected = False
        self.response_complete = False
        self.task: asyncio.Task[None] | None = None
        self.finish: Callable[[Any], Answer | Awaitable[Answer]] = _nothing_to_finish
        self.rescue: Callable[[Exception], Awaitable[Answer]] | None = None

    def run(self) -> None:
        """Begin to answer."""
        try:
            work = self.start(self.protocol.services, self.body, self)
        except Exception as error:  # noqa: BLE001 - the last line of defence, as in the application
            self._send(*self._problem(error))
        else:
            if work is not None:
                self._await(work)

    @property
    def message_event(self) -> HotCycle:
        """The server sets this when the client has left."""
        return self

    def set(self) -> None:
        # A pop gives back what it had leased. A push or ack goes on: what it did is counted and announced.
        if self._gives_back and not self.response_complete and self.task is not None:
            self.task.cancel()

    def has_left(self) -> bool:
        return self.disconnected or self.protocol.transport.is_closing()

    def done(self) -> bool:
        return self._gives_back and self.has_left()

    def set_result(self, result: Any) -> None:
        try:
            answer = self.finish(result)
        except Exception as error:  # noqa: BLE001 - as above, and the rest of the batch is not to blame
            self._send(*self._problem(error))
            return
        if isinstance(answer, Answer):
            self._send(_head(answer), answer.body)
        else:
            self._await(answer)

    def set_exception(self, exception: Exception) -> None:
        if self.rescue is not None:
            self._await(self.rescue(exception))
        else:
            self._send(*self._problem(exception))

    @property
    def _gives_back(self) -> bool:
        return isinstance(self.start, _GIVING_BACK)

    def _await(self, work: Awaitable[Answer]) -> None:
        self.task = self._in_task(self._awaited(work))

    def _in_task(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        tasks = self.protocol.tasks
        task = self.protocol.loop.create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task

    async def _awaited(self, work: Awaitable[Answer]) -> None:
        try:
            answer = await work
            head, body = _head(answer), answer.body
        except asyncio.CancelledError:
            return
        except Exception as error:  # noqa: BLE001 - as above
            head, body = self._problem(error)
        self._send(head, body)

    def _send(self, head: bytes, body: bytes) -> None:
        if self.protocol.flow.write_paused and not self.disconnected:
            self.task = self._in_task(self._send_later(head, body))
        else:
            self._write(head, body)

    async def _send_later(self, head: bytes, body: bytes) -> None:
        await self.protocol.flow.drain()
        self._write(head, body)

    def _write(self, head: bytes, body: bytes) -> None:
        protocol = self.protocol
        self.response_complete = True
        # These may refer to the cycle they belong to, and would keep it until such loops are looked for.
        self.finish, self.rescue = _nothing_to_finish, None
        if self.disconnected:
            return
        end = b"\r\n" if self.keep_alive else _CLOSE + b"\r\n"
        protocol.transport.write(b"".join((head, end, body)))
        if not self.keep_alive:
            protocol.transport.close()
        protocol.on_response_complete()

    def _problem(self, error: Exception) -> tuple[bytes, bytes]:
        if isinstance(error, Overloaded):
            return _refusal(math.ceil(error.retry_after_s))
        if isinstance(error, PenstockError):
            return _head_and_body(problems.of_penstock_error(error))
        return _head_and_body(problems.of_unexpected(error, self.protocol.url.decode("latin-1")))


def _nothing_to_finish(result: Any) -> Answer:
    raise RuntimeError("nothing was begun")


_heads: WeakKeyDictionary[FastAPI, Heads] = WeakKeyDictionary()


class ExpressProtocol(HttpToolsProtocol):
    services: Services
    _heads: Heads
    _idle_since = 0.0
    _in_message = False
    """Whether the parser has begun with a request that is not complete."""
    _completed = 0
    """How many it has completed."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.services = self.application.state.services
        self._heads = _heads.setdefault(self.application, Heads())

    def data_received(self, data: bytes) -> None:
        if self._in_message or not self._is_free:
            super().data_received(data)
            return
        found = self._heads.find(data)
        if found is not None:
            seen, body = found
            self._unset_keepalive_if_required()
            self.url = seen.url
            cycle = HotCycle(self, seen.start)
            cycle.body = body
            self.cycle = cycle  # type: ignore[assignment]
            cycle.run()
            return
        completed = self._completed
        super().data_received(data)
        read: object = self.cycle
        one = self._completed == completed + 1 and not self._in_message
        if one and isinstance(read, HotCycle) and may_be_remembered(self.url, read.start):
            self._heads.remember(data, read.start, self.url, len(read.body))

    @property
    def _is_free(self) -> bool:
        """Whether no request is under way."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def application(self) -> FastAPI:
        app = self.app
        assert isinstance(app, FastAPI)
        return app

    def on_message_begin(self) -> None:
        # What the application would be told of the request is put together when it is needed.
        self.url = b""
        self.expect_100_continue = False
        self.headers = []
        self._in_message = True

    def on_headers_complete(self) -> None:
        handler = self._hot_handler()
        if handler is not None:
            self.cycle = HotCycle(self, handler)  # type: ignore[assignment]
            return
        url, headers, expect = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expect
        self.headers.extend(headers)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        cycle = self.cycle
        if isinstance(cycle, HotCycle):
            cycle.body = cycle.body + body if cycle.body else body
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_message = False
        self._completed += 1
        cycle = self.cycle
        if isinstance(cycle, HotCycle):
            cycle.run()
        else:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        if self.pipeline:
            super().on_response_complete()
            return
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        # One timer per connection that looks again, rather than one made and cancelled with every request.
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._look_again_in(self.timeout_keep_alive)

    def _unset_keepalive_if_required(self) -> None:
        """Called with every piece of data that comes, and at the end."""
        if self.transport.is_closing():
            super()._unset_keepalive_if_required()
        else:
            self._idle_since = self.loop.time()

    def timeout_keep_alive_handler(self) -> None:
        self.timeout_keep_alive_task = None
        if self.transport.is_closing():
            return
        idle = self.cycle is None or self.cycle.response_complete
        left_s = self._idle_since + self.timeout_keep_alive - self.loop.time() if idle else 1.0
        if left_s > 0:
            self._look_again_in(left_s)
        else:
            super().timeout_keep_alive_handler()

    def _look_again_in(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def shutdown(self) -> None:
        """The server stops and finishes what is in flight; who only waits must not hold it up."""
        self.services.broker.parked_pops.wake_all_for_shutdown()
        self.services.run_queues.let_go()
        super().shutdown()

    def _hot_handler(self) -> Start | None:
        """What answers the request, if it is hot and has nothing unusual about it."""
        if not self._is_free:
            return None
        handler: Start | None
        method = self.parser.get_method()
        try:
            if method == b"POST":
                handler = post_of(self.url)
            elif method == b"GET" and self.url.startswith(POP_PREFIX):
                handler = pop_of(self.url)
            elif method == b"GET" and self.url.startswith(STATUS_PATH):
                handler = status_of(self.url)
                self._check_caller()
            else:
                return None
        except PenstockError:
            return None  # the application says what is wrong with it
        return handler if handler is not None and self._is_plain(method == b"POST") else None

    def _check_caller(self) -> None:
        """Raise unless whoever sent this request may have what tokens guard.

        Asked while its headers are at hand: the next request on the connection brings others.
        """
        found: Guards = self.application.state.guards
        token = next((value for name, value in self.headers if name == b"authorization"), b"")
        found.check_caller(self.client[0] if self.client else None, token.decode("latin-1"))

    def _is_plain(self, with_body: bool) -> bool:
        if self.expect_100_continue or self.parser.get_http_version() != "1.1":
            return False
        length = 0
        for name, value in self.headers:
            if name == b"content-length":
                length = int(value)
            elif name in (b"transfer-encoding", b"upgrade"):
                return False
        most = self.services.settings.max_body_bytes if with_body else 0
        return length <= most and self.parser.should_keep_alive()


def _head(answer: Answer) -> bytes:
    return STATUS_LINE[answer.status] + (_JSON % len(answer.body) if answer.body else b"")


@lru_cache(maxsize=256)
def _refusal(retry_after_s: int) -> tuple[bytes, bytes]:
    """Made once, because a broker that refuses has better things to do."""
    return _head_and_body(problems.of_penstock_error(Overloaded(retry_after_s)))


def _head_and_body(response: Response) -> tuple[bytes, bytes]:
    lines = b"".join(b"%s: %s\r\n" % pair for pair in response.raw_headers)
    return STATUS_LINE[response.status_code] + lines, bytes(response.body)
