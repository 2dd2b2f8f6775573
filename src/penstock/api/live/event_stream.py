"""Streams of server-sent events: a document, and again whenever it has changed.

https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager

import msgspec

from penstock.api.problems import problem_fields
from penstock.errors import PenstockError, Unauthorized, UnknownEnvironment

INTERVAL_S = 2.0
HEARTBEAT_S = 15.0
RETRY_MS = 3_000
MAX_STREAMS = 500
MAX_STREAMS_PER_CALLER = 100

MEDIA_TYPE = "text/event-stream"
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""The second keeps proxies such as nginx from buffering the stream."""

HEARTBEAT = b": heartbeat\n\n"


class TooManyStreams(PenstockError):
    code = "too_many_streams"
    status = 429
    title = "Too many streams"
    retry_after_s = 10.0


class BrokerStopping(PenstockError):
    code = "broker_stopping"
    status = 503
    title = "Broker stopping"


class LiveStreams:
    """The open streams of this process: at most so many in all, and per caller."""

    def __init__(
        self,
        *,
        max_streams: int = MAX_STREAMS,
        max_per_caller: int = MAX_STREAMS_PER_CALLER,
        interval_s: float = INTERVAL_S,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        self._max_streams = max_streams
        self._max_per_caller = max_per_caller
        self._interval_s = interval_s
        self._heartbeat_s = heartbeat_s
        self._by_subject: Counter[str] = Counter()
        self._stopping = asyncio.Event()

    @property
    def count(self) -> int:
        return self._by_subject.total()

    def end_all(self) -> None:
        """End all streams and refuse new ones: this process is about to stop. May be called repeatedly."""
        self._stopping.set()

    @contextmanager
    def counted(self, subject: str) -> Iterator[None]:
        """Count a stream until the end of the block. Raises TooManyStreams and BrokerStopping."""
        self.check(subject)
        self._by_subject[subject] += 1
        try:
            yield
        finally:
            self._by_subject[subject] -= 1
            self._by_subject += Counter()  # without callers that have no stream any more

    def check(self, subject: str) -> None:
        """Raise the error of a caller that may not open a stream now."""
        if self._stopping.is_set():
            raise BrokerStopping("This broker is stopping. Connect again in a moment.")
        if self._by_subject[subject] >= self._max_per_caller:
            raise TooManyStreams(
                f"{subject} has {self._max_per_caller:,} live streams on this broker. Close some, such as "
                "browser tabs of the console."
            )
        if self.count >= self._max_streams:
            raise TooManyStreams(
                f"This broker has {self._max_streams:,} live streams. Try again later, or fetch the document "
                "without a stream."
            )

    async def events(
        self, subject: str, read: Callable[[], Awaitable[Mapping[str, object]]]
    ) -> AsyncIterator[bytes]:
        """Yield the bytes of a stream until the broker stops or `read` says that the caller's access ended.

        An error of `read` becomes an event `problem`, and the stream goes on.
        """
        with self.counted(subject):
            yield b"retry: %d\n\n" % RETRY_MS
            last_event, sent_at = b"", time.monotonic()
            while not self._stopping.is_set():
                try:
                    document = await read()
                except (Unauthorized, UnknownEnvironment) as error:
                    yield format_event("end", problem_fields(error))
                    return
                except PenstockError as error:
                    event = fingerprint = format_event("problem", problem_fields(error))
                else:
                    event = format_event("snapshot", document)
                    fingerprint = format_event("snapshot", {**document, "asOf": None})
                if fingerprint != last_event:
                    last_event, sent_at = fingerprint, time.monotonic()
                    yield event
                elif time.monotonic() - sent_at >= self._heartbeat_s:
                    sent_at = time.monotonic()
                    yield HEARTBEAT
                await self._pause()
            stopping = BrokerStopping("This broker is stopping. Connect again in a moment.")
            yield format_event("end", problem_fields(stopping))

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(self._interval_s):
                await self._stopping.wait()
        except TimeoutError:
            return


def format_event(name: str, document: Mapping[str, object]) -> bytes:
    """Return an event. JSON has no line breaks, so its data is one line."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(document))
