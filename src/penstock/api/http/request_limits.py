"""Limits of requests: the size and form of a head, and the speed of a request and of its reader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from penstock.errors import HeadTooLarge, MalformedRequest

Header = tuple[bytes, bytes]
"""A name in lower case and its value."""

_SINGLE_HEADERS = (
    *(b"host", b"content-length", b"transfer-encoding", b"content-type"),
    *(b"origin", b"sec-fetch-site", b"expect"),
)


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """What one request may cost until its response is read."""

    head_bytes: int = 64 * 1024
    headers: int = 128
    head_s: float = 10.0
    """Time in which a head must arrive."""
    body_window_s: float = 10.0
    body_window_bytes: int = 5_000
    """What must arrive of a body in each window: 500 bytes per second."""
    discarded_bytes: int = 32 * 1024 * 1024
    """What is read of a body after its response, so that the connection stays usable."""
    response_stall_s: float = 30.0
    """Time in which a client that is sent more than the buffers hold must read some of it."""
    linger_s: float = 1.0
    """Time to read what the client still sends after an error; closing at once could lose the response."""


def check_size(limits: RequestLimits, received_bytes: int, url: bytes, headers: list[Header]) -> None:
    """Raise HeadTooLarge if the head exceeds the limits. It is among the bytes received."""
    if received_bytes > limits.head_bytes:
        received_bytes = len(url) + sum(len(name) + len(value) + 4 for name, value in headers)
    if received_bytes > limits.head_bytes or len(headers) > limits.headers:
        raise head_too_large(limits)


def head_too_large(limits: RequestLimits) -> HeadTooLarge:
    return HeadTooLarge(
        f"The request head exceeds {limits.head_bytes} bytes or {limits.headers} headers. Send fewer or "
        "shorter headers."
    )


def check_head(version: str, url: bytes, headers: list[Header]) -> dict[bytes, bytes]:
    """Return the headers by name. Raise MalformedRequest if the head is ambiguous or not HTTP/1.1.

    A proxy in front of the broker could see other requests in the same bytes if this were accepted.
    """
    if version not in ("1.1", "1.0"):
        raise MalformedRequest(f"The request line says HTTP/{version}. Send HTTP/1.1.")
    fields = dict(headers)
    if len(fields) != len(headers):
        _refuse_duplicates(headers)
    if not fields.get(b"host") and version == "1.1":
        raise MalformedRequest("The request has no Host header. Send the name and port of the broker in it.")
    if b"transfer-encoding" in fields:
        if b"content-length" in fields:
            raise MalformedRequest(
                "The request has both Content-Length and Transfer-Encoding. Send one of them."
            )
        if fields[b"transfer-encoding"].strip().lower() != b"chunked" or version == "1.0":
            raise MalformedRequest("The only supported Transfer-Encoding is chunked, in HTTP/1.1.")
    if b"%" in url:
        _refuse_undecodable(url)
    return fields


def _refuse_duplicates(headers: list[Header]) -> None:
    names = [name for name, _ in headers]
    for name in _SINGLE_HEADERS:
        if names.count(name) > 1:
            raise MalformedRequest(f"The request has {names.count(name)} headers {name.decode()}. Send one.")


def _refuse_undecodable(url: bytes) -> None:
    # The framework would replace invalid bytes, so the URL would name another queue.
    try:
        unquote_to_bytes(url).decode()
    except UnicodeDecodeError:
        raise MalformedRequest(
            "The URL is not UTF-8 once its %-escapes are decoded. Encode it again."
        ) from None


class SlowRequestTimer:
    """Calls `on_slow` if the request that is being received is too slow. It runs during receipt only."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: RequestLimits,
        is_paused: Callable[[], bool],
        on_slow: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._limits = limits
        self._is_paused = is_paused
        self._on_slow = on_slow
        self._part: tuple[int, bool] | None = None
        self._received_bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, request_number: int, in_head: bool, received_bytes: int) -> None:
        """Note that data arrived, and that this head or body is not complete yet."""
        part = (request_number, in_head)
        if part != self._part:
            self.stop()
            self._part = part
            self._start_window()
        self._received_bytes += received_bytes

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = self._part = None

    def _start_window(self) -> None:
        assert self._part is not None
        _, in_head = self._part
        self._received_bytes = 0
        duration_s = self._limits.head_s if in_head else self._limits.body_window_s
        self._timer = self._loop.call_later(duration_s, self._end_window)

    def _end_window(self) -> None:
        assert self._part is not None
        _, in_head = self._part
        is_slow = in_head or self._received_bytes < self._limits.body_window_bytes
        if is_slow and not self._is_paused():
            self.stop()
            self._on_slow()
        else:
            self._start_window()


class StalledResponseTimer:
    """Calls `on_stalled` if the client reads nothing of a response while the write buffer is full."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        stall_s: float,
        unread_bytes: Callable[[], int],
        on_stalled: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._stall_s = stall_s
        self._unread_bytes = unread_bytes
        self._on_stalled = on_stalled
        self._last_unread_bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._last_unread_bytes = self._unread_bytes()
        self._timer = self._loop.call_later(self._stall_s, self._check)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        if self._unread_bytes() < self._last_unread_bytes:
            self.start()
        else:
            self._timer = None
            self._on_stalled()
