"""The server's HTTP protocol with a fast path for hot requests.

uvicorn reads requests, keeps connections alive and stops gracefully. A usual hot request is handled right
here, in at most one task and one write, instead of through the ASGI application. An unusual request (another
route, a body of unknown length, a second request on the connection before the first has its response) goes
through uvicorn's own code to the application.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from contextvars import copy_context
from functools import lru_cache
from weakref import WeakKeyDictionary

from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from penstock.access.quotas.enforced_quotas import QuotaConnection
from penstock.access.quotas.quota_definitions import CONNECTIONS
from penstock.api import problems
from penstock.api.access import check_access, check_group, check_queue
from penstock.api.http.fast_routes import (
    POP_PREFIX,
    STATUS_PATH,
    HotRoute,
    dlq_status_route,
    is_cacheable,
    pop_route,
    post_route,
)
from penstock.api.http.head_cache import RequestHeadCache
from penstock.api.http.origin_check import OriginCheck
from penstock.api.http.read_only_console import check_console_access
from penstock.api.http.reply import Handler, PendingRequest
from penstock.api.http.request_ids import read_request_ids
from penstock.api.http.response import HotResponse
from penstock.api.http.strict_protocol import CLOSE_HEADER, StrictHttpProtocol, head_and_body
from penstock.api.routes.push_pop import PopHandler
from penstock.api.routes.run_queue_tasks import DequeueHandler
from penstock.api.services import Services
from penstock.caller import Caller
from penstock.errors import Overloaded, PenstockError, QuotaExceeded, TooManyConnections
from penstock.log_format import RequestIds, request_ids

_JSON_HEADERS = b"content-type: application/json\r\ncontent-length: %d\r\n"
RETURNS_LEASES = (PopHandler, DequeueHandler)
"""Handlers whose leases are released when the client disconnects before it has the response."""


class FastRequestCycle:
    """One hot request from its head to its response, in the shape of uvicorn's own request cycle.

    It is the `Reply` that a batch gives its result to. A task is created only if something must be awaited.
    """

    __slots__ = (
        "body",
        "body_chunks",
        "caller",
        "disconnected",
        "handler",
        "keep_alive",
        "pending_request",
        "protocol",
        "request_ids",
        "response_complete",
        "task",
    )

    def __init__(self, protocol: FastHttpProtocol, handler: Handler, caller: Caller) -> None:
        self.protocol = protocol
        self.handler = handler
        self.caller = caller
        self.body = b""
        self.body_chunks: list[bytes] | None = None
        self.keep_alive = True
        self.disconnected = False
        self.response_complete = False
        self.task: asyncio.Task[None] | None = None
        self.pending_request: PendingRequest | None = None
        self.request_ids: RequestIds | None = None

    def receive_body(self, body: bytes) -> None:
        if not self.body:
            self.body = body
        elif self.body_chunks is None:
            self.body_chunks = [body]
        else:
            self.body_chunks.append(body)

    def run(self) -> None:
        """Start the request."""
        if self.body_chunks is not None:
            self.body = b"".join((self.body, *self.body_chunks))
            self.body_chunks = None
        try:
            quotas = self.caller.quotas
            if quotas is not None:
                quotas.admit_request(len(self.body), self.protocol.quota_connection)
            work = self.handler(self.protocol.services, self.caller, self.body, self)
        except Exception as error:  # noqa: BLE001 - the last handler of errors, as in the application
            self._send(*self._problem(error))
        else:
            if work is not None:
                self._start_task(work)

    @property
    def message_event(self) -> FastRequestCycle:
        """uvicorn calls `message_event.set()` when the client disconnects."""
        return self

    def set(self) -> None:
        # A cancelled pop releases its leases. A push or ack goes on: its effects are counted and announced.
        if self.response_complete or not isinstance(self.handler, RETURNS_LEASES):
            return
        if self.task is not None:
            self.task.cancel()
        elif self.pending_request is not None:
            self.pending_request.cancel()

    def client_disconnected(self) -> bool:
        return self.disconnected or self.protocol.transport.is_closing()

    def done(self) -> bool:
        return isinstance(self.handler, RETURNS_LEASES) and self.client_disconnected()

    def set_result(self, result: object) -> None:
        try:
            response = self.pending_request.finish(result)  # type: ignore[union-attr]  # set by the handler
        except Exception as error:  # noqa: BLE001 - as above; an error here must not fail the rest of the batch
            self._send(*self._problem(error))
            return
        if isinstance(response, HotResponse):
            self._send(_head(response), response.body)
        else:
            self._start_task(response)

    def set_exception(self, exception: Exception) -> None:
        recovery = self.pending_request.recover(exception) if self.pending_request is not None else None
        if recovery is None:
            self._send(*self._problem(exception))
        else:
            self._start_task(recovery)

    def _start_task(self, work: Awaitable[HotResponse]) -> None:
        self.task = self._create_task(self._await_and_send(work))

    def _create_task(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        tasks = self.protocol.tasks
        task = self.protocol.loop.create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task

    async def _await_and_send(self, work: Awaitable[HotResponse]) -> None:
        try:
            response = await work
            head, body = _head(response), response.body
        except asyncio.CancelledError:
            return
        except Exception as error:  # noqa: BLE001 - as above
            head, body = self._problem(error)
        self._send(head, body)

    async def _send_when_writable(self, head: bytes, body: bytes) -> None:
        await self.protocol.flow.drain()
        self._send(head, body)

    def _send(self, head: bytes, body: bytes) -> None:
        protocol = self.protocol
        if protocol.flow.write_paused and not self.disconnected:
            self.task = self._create_task(self._send_when_writable(head, body))
            return
        self.response_complete = True
        # The request may refer to this cycle; such a reference loop would keep it until the next garbage
        # collection.
        self.pending_request = None
        if self.disconnected:
            return
        quotas = self.caller.quotas
        if quotas is not None and quotas.limits_bytes:
            quotas.add_bytes(len(body))
        end = b"\r\n" if self.keep_alive else CLOSE_HEADER + b"\r\n"
        if self.request_ids is not None:
            end = b"x-request-id: %s\r\n%s" % (self.request_ids.request_id.encode(), end)
        protocol.transport.write(b"".join((head, end, body)))
        if not self.keep_alive:
            protocol.transport.close()
        protocol.on_response_complete()

    def _problem(self, error: Exception) -> tuple[bytes, bytes]:
        if isinstance(error, Overloaded):
            return _refusal(error.retry_after_s)
        if isinstance(error, QuotaExceeded) and error.quota == CONNECTIONS:
            self.keep_alive = False
        if isinstance(error, PenstockError):
            return head_and_body(problems.from_penstock_error(error))
        ambient_ids = request_ids.set(self.request_ids)  # a batch calls this in a context of its own
        try:
            response = problems.from_unexpected_error(error, self.protocol.url.decode("latin-1"))
        finally:
            request_ids.reset(ambient_ids)
        del response.headers["X-Request-Id"]  # `_send` adds it
        return head_and_body(response)


_head_caches: WeakKeyDictionary[FastAPI, RequestHeadCache] = WeakKeyDictionary()


class FastHttpProtocol(StrictHttpProtocol):
    """One client connection: hot requests in a `FastRequestCycle`, all others as uvicorn handles them."""

    cycle_type = FastRequestCycle
    """The cycle of hot requests. A server that exports spans has another one."""
    services: Services
    _head_cache: RequestHeadCache
    """Holds heads that passed all checks."""
    _origin_check: OriginCheck
    quota_connection: QuotaConnection
    _idle_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.services = self.application.state.services
        self._head_cache = _head_caches.setdefault(self.application, RequestHeadCache())
        self._origin_check = self.application.state.origin_check
        self.quota_connection = QuotaConnection()
        self.app_state = {**self.app_state, "quota_connection": self.quota_connection}
        self._idle_since = self.loop.time()
        max_connections = self.services.settings.max_connections
        if len(self.connections) > max_connections:
            self._in_head = True
            self._refuse(TooManyConnections(max_connections))
            return
        self._check_keep_alive_in(self.timeout_keep_alive)

    def connection_lost(self, exc: Exception | None) -> None:
        self.quota_connection.close()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        cycle = self.cycle
        if self._in_message or (cycle is not None and not cycle.response_complete):
            super().data_received(data)
            return
        cache_hit = self._head_cache.find(data)
        if cache_hit is not None:
            cached_head, body = cache_hit
            self.url = cached_head.url
            cached_head.caller.was_used = True
            fast_cycle = self.cycle_type(self, cached_head.handler, cached_head.caller)
            fast_cycle.body = body
            self.cycle = fast_cycle  # type: ignore[assignment]
            fast_cycle.run()
            return
        completed_before = self._messages_completed
        super().data_received(data)
        parsed_cycle: object = self.cycle
        is_one_request = self._messages_completed == completed_before + 1 and not self._in_message
        if (
            is_one_request
            and isinstance(parsed_cycle, FastRequestCycle)
            and parsed_cycle.request_ids is None
            and is_cacheable(self.url, parsed_cycle.handler)
        ):
            self._head_cache.add(
                data, parsed_cycle.handler, parsed_cycle.caller, self.url, len(parsed_cycle.body)
            )

    @property
    def application(self) -> FastAPI:
        app = self.app
        assert isinstance(app, FastAPI)
        return app

    def start_request(self) -> None:
        cycle = self._hot_cycle()
        if cycle is None:
            super().start_request()
        else:
            self.cycle = cycle  # type: ignore[assignment]

    def receive_body(self, body: bytes) -> None:
        cycle: object = self.cycle
        if isinstance(cycle, FastRequestCycle):
            cycle.receive_body(body)
        else:
            super().receive_body(body)

    def finish_request(self) -> None:
        cycle: object = self.cycle
        if not isinstance(cycle, FastRequestCycle):
            super().finish_request()
        elif cycle.request_ids is None:
            cycle.run()
        else:
            context = copy_context()
            context.run(request_ids.set, cycle.request_ids)
            context.run(cycle.run)

    def on_response_complete(self) -> None:
        if self.pipeline:
            super().on_response_complete()
            return
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        # One timer per connection that reschedules itself, instead of one created and cancelled per request.
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._check_keep_alive_in(self.timeout_keep_alive)

    def _unset_keepalive_if_required(self) -> None:
        """uvicorn calls this with every chunk of received data, and at the end of the connection."""
        if self.transport.is_closing():
            super()._unset_keepalive_if_required()
        else:
            self._idle_since = self.loop.time()

    def timeout_keep_alive_handler(self) -> None:
        self.timeout_keep_alive_task = None
        if self.transport.is_closing():
            return
        if not self._is_idle:
            return  # the end of the response starts the timer again
        remaining_s = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if remaining_s > 0:
            self._check_keep_alive_in(remaining_s)
        else:
            super().timeout_keep_alive_handler()

    def _check_keep_alive_in(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def shutdown(self) -> None:
        """Stop once in-flight requests are finished. Long polls and live streams end at once."""
        self.services.broker.parked_pops.wake_all_for_shutdown()
        self.services.run_queues.wake_all_for_shutdown()
        self.services.live_streams.end_all()
        super().shutdown()

    def _hot_cycle(self) -> FastRequestCycle | None:
        """The cycle of the current request, if the request is hot and has nothing unusual about it."""
        if not self._is_idle:
            return None
        method = self.parser.get_method()
        try:
            route = self._hot_route(method)
            if route is None:
                return None
            self._origin_check.check(method, self.url, self._header_fields)
            caller = self.services.authentication.find_caller(self._header_fields)
            if caller is None:
                return None
            _check_caller(caller, route)
            check_console_access(self.services.settings, self._header_fields, route.access)
            if not caller.has_known_quotas:
                self.services.quotas.attach(caller)
        except PenstockError:
            return None  # the application reports the error
        if not self._is_plain(method == b"POST"):
            return None
        cycle = self.cycle_type(self, route.handler, caller)
        cycle.request_ids = read_request_ids(self._header_fields)
        return cycle

    def _hot_route(self, method: bytes) -> HotRoute | None:
        if method == b"POST":
            return post_route(self.url)
        if method == b"GET" and self.url.startswith(POP_PREFIX):
            return pop_route(self.url)
        if method == b"GET" and self.url.startswith(STATUS_PATH):
            return dlq_status_route(self.url)
        return None

    def _is_plain(self, has_body: bool) -> bool:
        if self.expect_100_continue or self.parser.get_http_version() != "1.1":
            return False
        if b"transfer-encoding" in self._header_fields:
            return False
        length = int(self._header_fields.get(b"content-length", b"0"))
        max_length = self.services.settings.max_body_bytes if has_body else 0
        return length <= max_length and self.parser.should_keep_alive()


def _check_caller(caller: Caller, route: HotRoute) -> None:
    """Raise Forbidden unless the caller may use the route with the queue and group in its URL."""
    check_access(caller, route.access)
    if route.queue is not None or route.covers_all_queues:
        check_queue(caller, route.queue)
    if route.group is not None:
        check_group(caller, route.group)


def _head(response: HotResponse) -> bytes:
    head = _json_head(response.status, len(response.body))
    if response.headers is not None:
        head += "".join(f"{name.lower()}: {value}\r\n" for name, value in response.headers.items()).encode()
    return head


@lru_cache(maxsize=1024)
def _json_head(status: int, length: int) -> bytes:
    """The head of a response with a JSON body of this length, cached: lengths repeat."""
    return STATUS_LINE[status] + (_JSON_HEADERS % length if length else b"")


@lru_cache(maxsize=1024)
def _refusal(retry_after_s: float) -> tuple[bytes, bytes]:
    """The response of an overloaded broker, cached: it must cost next to nothing."""
    return head_and_body(problems.from_penstock_error(Overloaded(retry_after_s)))
