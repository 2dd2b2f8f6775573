"""HTTP/1.1 as this server accepts it: bounded heads, unambiguous framing, no slow clients, no upgrades.

uvicorn bounds neither the size of a head nor the time that a request and the reading of its response take,
and drops the body of a request that offers an upgrade. Here the first two end with an error and the
connection, the third ends with the connection, and an upgrade is ignored.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import httptools
from starlette.responses import Response
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from penstock.api import problems
from penstock.api.http.request_limits import (
    RequestLimits,
    SlowRequestTimer,
    StalledResponseTimer,
    check_head,
    check_size,
    head_too_large,
)
from penstock.errors import MalformedRequest, PenstockError, RequestTimeout

logger = logging.getLogger(__name__)

CLOSE_HEADER = b"connection: close\r\n"


class StrictHttpProtocol(HttpToolsProtocol):
    """One client connection. Subclasses override `start_request`, `receive_body` and `finish_request`."""

    limits = RequestLimits()
    _slow_request: SlowRequestTimer
    _stalled_response: StalledResponseTimer | None = None
    """Runs while the client reads more slowly than the application sends."""
    _previous_cycle: RequestResponseCycle | None = None
    """The request before the current one of the application."""
    _in_message = False
    """Whether the parser has started a request that is not complete, or the connection was refused."""
    _in_head = False
    _is_refused = False
    """Whether an error ends the connection. Its input is discarded."""
    _messages_completed = 0
    """The number of requests the parser has completed."""
    _body_events = 0
    """The number of pieces of bodies that the parser has passed on."""
    _header_fields: dict[bytes, bytes]
    """The headers of the current request by name."""
    _chunk_bytes = 0
    """The size of the chunk of data that is being parsed."""
    _unfinished_bytes = 0
    """Received bytes of a head, a chunk extension or trailers whose end has not arrived."""
    _discarded_bytes = 0
    """Bytes of a body that arrived after its response."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._slow_request = SlowRequestTimer(
            self.loop, self.limits, self._holds_up_client, self._refuse_slow_request
        )

    def connection_lost(self, exc: Exception | None) -> None:
        self._slow_request.stop()
        del self._slow_request  # its callbacks refer to this object
        self._stop_stall_timer()
        super().connection_lost(exc)
        HttpToolsProtocol._unset_keepalive_if_required(self)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled_response = StalledResponseTimer(
            self.loop,
            self.limits.response_stall_s,
            self.transport.get_write_buffer_size,
            self._abort_stalled_response,
        )
        self._stalled_response.start()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_stall_timer()

    def _stop_stall_timer(self) -> None:
        if self._stalled_response is not None:
            self._stalled_response.stop()
            self._stalled_response = None

    def _abort_stalled_response(self) -> None:
        logger.warning(
            "closed a connection whose client read nothing for %g s, with %d bytes of a response unread",
            self.limits.response_stall_s,
            self.transport.get_write_buffer_size(),
        )
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        self._unset_keepalive_if_required()
        self._chunk_bytes = len(data)
        completed_before, events_before = self._messages_completed, self._body_events
        try:
            self._parse(data)
        except httptools.HttpParserError as error:
            self._refuse(_cause(error))
            return
        if not self._in_message:
            self._slow_request.stop()
            return
        self._slow_request.watch(self._messages_completed, self._in_head, len(data))
        if self._messages_completed == completed_before and self._body_events == events_before:
            self._unfinished_bytes += len(data)
            if self._unfinished_bytes > self.limits.head_bytes:
                self._refuse(head_too_large(self.limits))

    def _parse(self, data: bytes) -> None:
        rest: bytes | memoryview = data
        while True:
            try:
                self.parser.feed_data(rest)
                return
            except httptools.HttpParserUpgrade as upgrade:
                # The parser skips the body of a request that offers an upgrade: parse it without the offer.
                head = self._head_without_upgrade()
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
                self.parser.feed_data(head)
                rest = memoryview(rest)[upgrade.args[0] :]

    def _head_without_upgrade(self) -> bytes:
        version = self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)]
        for name, value in self.headers:
            if name == b"connection":
                options = [option for option in value.split(b",") if option.strip().lower() != b"upgrade"]
                lines.append(b"connection:" + b",".join(options))
            elif name != b"upgrade":
                lines.append(b"%s: %s" % (name, value))
        return b"\r\n".join(lines) + b"\r\n\r\n"

    def on_message_begin(self) -> None:
        # The ASGI scope is built in `start_request`, and only for requests of the application.
        self.url = b""
        self.expect_100_continue = False
        self.headers = []
        self._in_message = self._in_head = True
        self._unfinished_bytes = self._discarded_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            return  # trailers are ignored: the application must not see them among the headers
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        check_size(self.limits, self._unfinished_bytes + self._chunk_bytes, self.url, self.headers)
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise MalformedRequest("The broker is not a proxy. Send another method than CONNECT.")
            return  # `_parse` parses the request again
        self._header_fields = check_head(self.parser.get_http_version(), self.url, self.headers)
        self.start_request()
        self._in_head = False

    def start_request(self) -> None:
        """Pass the request whose head is complete to the application."""
        url, headers, expect = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expect
        self.headers.extend(headers)
        self._previous_cycle = self.cycle
        super().on_headers_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        if cycle.waiting_for_100_continue:
            app = _close_without_continue(cycle, app)
        super()._start_asgi_task(cycle, app)

    def on_chunk_header(self) -> None:
        self._body_events += 1
        self._unfinished_bytes = 0

    def on_body(self, body: bytes) -> None:
        self._body_events += 1
        self._unfinished_bytes = 0
        if not self.cycle.response_complete:
            self.receive_body(body)
            return
        self._discarded_bytes += len(body)
        if self._discarded_bytes > self.limits.discarded_bytes:
            self.transport.close()

    def receive_body(self, body: bytes) -> None:
        """Pass a piece of the body to the application."""
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return  # `_parse` parses the request again
        self._in_message = False
        self._messages_completed += 1
        self.finish_request()

    def finish_request(self) -> None:
        """Tell the application that the body is complete."""
        super().on_message_complete()

    @property
    def _is_idle(self) -> bool:
        """Whether no request is in flight."""
        return self.cycle is None or self.cycle.response_complete

    def _holds_up_client(self) -> bool:
        """Whether the client waits for this server before it sends more."""
        is_asked_for_body = not getattr(self.cycle, "waiting_for_100_continue", False)
        return self.flow.read_paused or not (self._in_head or is_asked_for_body)

    def _refuse_slow_request(self) -> None:
        self._refuse(RequestTimeout("The request arrived too slowly. Send it again without pauses."))

    def _refuse(self, error: PenstockError) -> None:
        """End the connection with this error, or with the response to the request before."""
        self._is_refused = self._in_message = True
        self._slow_request.stop()
        cycle = self.cycle
        if self._in_head:
            if not self._is_idle:
                cycle.keep_alive = False
                return
        elif self.pipeline and self.pipeline[0][0] is cycle:
            self.pipeline.popleft()
            assert self._previous_cycle is not None
            self._previous_cycle.keep_alive = False
            return
        elif cycle.response_complete or getattr(cycle, "response_started", False):
            self.transport.close()
            return
        else:
            cycle.disconnected = True
            cycle.message_event.set()
        head, body = head_and_body(problems.from_penstock_error(error))
        self.transport.write(b"".join((head, CLOSE_HEADER, b"\r\n", body)))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(self.limits.linger_s, self.transport.close)


def head_and_body(response: Response) -> tuple[bytes, bytes]:
    """The response as bytes: the head without its last line, and the body."""
    lines = b"".join(b"%s: %s\r\n" % pair for pair in response.raw_headers)
    return STATUS_LINE[response.status_code] + lines, bytes(response.body)


def _cause(error: httptools.HttpParserError) -> PenstockError:
    """The error raised in a callback of the parser, or the parser's own as MalformedRequest."""
    if isinstance(error.__context__, PenstockError):
        return error.__context__
    return MalformedRequest(f"The request is not valid HTTP/1.1: {error}.")


def _close_without_continue(cycle: RequestResponseCycle, app: ASGI3Application) -> ASGI3Application:
    """Close the connection if the response comes before `100 Continue`: the body may never follow."""

    async def app_that_closes(scope: Any, receive: Any, send: Any) -> None:
        async def send_and_close(message: Any) -> None:
            if cycle.waiting_for_100_continue:
                cycle.keep_alive = False
            await send(message)

        await app(scope, receive, send_and_close)

    return app_that_closes
