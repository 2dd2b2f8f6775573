"""Open-loop load: requests arrive at their own rate, whether or not the broker keeps up.

A producer writes to one partition. It sends its next request when the previous one is accepted or given up,
so that its order is defined. Each arrival takes an idle producer. There are so many producers that hardly any
arrival finds none, and the load counts the arrivals that do. A request is sent up to `MAX_ATTEMPTS` times,
with a timeout of `TIMEOUT_S` each. Between attempts the producer waits as a typical client does: for a random
time that grows with each attempt, and at least as long as the broker says: the exact seconds in the body, or
else the Retry-After header.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from bench.http_load import content_length, post

TIMEOUT_S = 2.0
MAX_ATTEMPTS = 3
BACKOFF_S = 0.5
TICK_S = 0.002
RETRY_AFTER_FIELD = re.compile(rb'"retryAfter":([0-9.]+)')


class RequestTimeout(Exception):
    """The broker did not respond in time, or no connection was available in time."""


class PooledConnection(asyncio.Protocol):
    """One connection with one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.WriteTransport | None = None
        self._buffer = bytearray()
        self._response: asyncio.Future[tuple[int, bytes]] | None = None
        self.is_open = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        if self._response is not None and not self._response.done():
            self._response.set_exception(RequestTimeout("The broker closed the connection."))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head = self._buffer.find(b"\r\n\r\n")
        if head < 0 or self._response is None or self._response.done():
            return
        status = int(self._buffer[9:12])
        length = 0 if status == 204 else content_length(bytes(self._buffer[: head + 4]), head)
        if len(self._buffer) >= head + 4 + length:
            self._response.set_result((status, bytes(self._buffer)))
            self._buffer.clear()

    async def send(self, request: bytes, timeout_s: float) -> tuple[int, bytes]:
        """Return status and complete response.

        Raises RequestTimeout and closes the connection after a timeout, as any client does.
        """
        assert self._transport is not None
        loop = asyncio.get_running_loop()
        self._response = loop.create_future()
        timer = loop.call_later(timeout_s, self._on_timeout)
        self._transport.write(request)
        try:
            return await self._response
        finally:
            timer.cancel()

    def _on_timeout(self) -> None:
        assert self._response is not None
        if not self._response.done():
            self._response.set_exception(RequestTimeout("The broker did not respond in time."))
        self.close()

    def close(self) -> None:
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()


class ConnectionPool:
    """Connections to a broker, opened on demand. At `max_connections`, requests wait for a free one."""

    def __init__(self, port: int, max_connections: int, timeout_s: float = TIMEOUT_S) -> None:
        self._port = port
        self._max_connections = max_connections
        self._timeout_s = timeout_s
        self._open_count = 0
        self._free: list[PooledConnection] = []
        self._waiters: deque[asyncio.Future[None]] = deque()

    async def send(self, request: bytes) -> tuple[int, bytes]:
        """Send a request on a free connection and return status and complete response."""
        deadline = time.perf_counter() + self._timeout_s
        connection = await self._acquire(deadline)
        try:
            return await connection.send(request, max(0.001, deadline - time.perf_counter()))
        finally:
            self._release(connection)

    async def _acquire(self, deadline: float) -> PooledConnection:
        while True:
            while self._free:
                connection = self._free.pop()
                if connection.is_open:
                    return connection
                self._open_count -= 1
            if self._open_count < self._max_connections:
                self._open_count += 1
                try:
                    loop = asyncio.get_running_loop()
                    async with asyncio.timeout(max(0.001, deadline - time.perf_counter())):
                        _, connection = await loop.create_connection(
                            PooledConnection, "127.0.0.1", self._port
                        )
                    return connection
                except (OSError, TimeoutError) as error:
                    self._open_count -= 1
                    raise RequestTimeout("The broker did not accept a connection in time.") from error
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                async with asyncio.timeout(max(0.001, deadline - time.perf_counter())):
                    await waiter
            except TimeoutError:
                raise RequestTimeout("No connection became free in time.") from None

    def _release(self, connection: PooledConnection) -> None:
        if connection.is_open:
            self._free.append(connection)
        else:
            self._open_count -= 1
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                break

    def close(self) -> None:
        for connection in self._free:
            connection.close()


@dataclass(slots=True)
class Producer:
    """A producer of one partition: how many requests it sent, and the numbers of those accepted."""

    number: int
    partition: int
    sent: int = 0
    accepted: list[int] = field(default_factory=list)


@dataclass(slots=True)
class RequestCounts:
    """Counts of requests since the start. The counts of a time window are the difference of two."""

    arrived: int = 0
    no_producer: int = 0
    """Arrivals that found no idle producer: not sent."""
    sent: int = 0
    """Attempts, both first and repeated."""
    accepted: int = 0
    deferred: int = 0
    """Accepted requests with status 202."""
    refused: int = 0
    """Attempts with status 429 or 503."""
    timed_out: int = 0
    """Attempts without a response in time."""
    given_up: int = 0
    """Requests that no attempt got accepted."""


class OpenLoopLoad:
    """Load on one broker. `build_body` returns the body of a producer's request by number.

    `path` is that of a push, or of another request that is answered with 201.
    """

    def __init__(
        self,
        port: int,
        producers: list[Producer],
        build_body: Callable[[Producer, int], bytes],
        max_connections: int,
        path: str = "/api/v1/push",
    ) -> None:
        self._pool = ConnectionPool(port, max_connections)
        self._path = path
        self.producers = producers
        self._idle_producers = deque(producers)
        self._build_body = build_body
        self._requests: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self.counts = RequestCounts()
        self.latencies_s: list[tuple[float, float]] = []
        """For each accepted request, when it was accepted and how long after its arrival."""

    async def generate_arrivals(self, rate: float, seconds: float) -> None:
        """Let requests arrive at random times, `rate` per second on average, for `seconds`."""
        started = time.perf_counter()
        due = random.expovariate(rate)
        while (now := time.perf_counter() - started) < seconds:
            while due <= now:
                self._start_request()
                due += random.expovariate(rate)
            await asyncio.sleep(TICK_S)

    async def run_closed_loop(self, concurrency: int, seconds: float) -> None:
        """Keep `concurrency` requests in flight, which shows the broker's capacity."""
        end = time.perf_counter() + seconds

        async def send_requests() -> None:
            while time.perf_counter() < end:
                producer = self._idle_producers.popleft()
                await self._send(producer)

        await asyncio.gather(*(send_requests() for _ in range(concurrency)))

    async def finish(self) -> None:
        """Wait until every request is accepted or given up, then close the connections."""
        while self._requests:
            await asyncio.wait(self._requests)
        self._pool.close()
        if self._failure is not None:
            raise self._failure

    def _start_request(self) -> None:
        self.counts.arrived += 1
        if not self._idle_producers:
            self.counts.no_producer += 1
            return
        task = asyncio.create_task(self._send(self._idle_producers.popleft()))
        self._requests.add(task)
        task.add_done_callback(self._on_request_done)

    def _on_request_done(self, task: asyncio.Task[None]) -> None:
        self._requests.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._failure = task.exception()

    async def _send(self, producer: Producer) -> None:
        arrived = time.perf_counter()
        producer.sent += 1
        number = producer.sent
        request = post(self._path, self._build_body(producer, number))
        try:
            for attempt in range(MAX_ATTEMPTS):
                wait_s = random.uniform(0, BACKOFF_S * 2**attempt)
                self.counts.sent += 1
                try:
                    status, response = await self._pool.send(request)
                except RequestTimeout:
                    self.counts.timed_out += 1
                else:
                    if status in (201, 202):
                        self._record_accepted(producer, number, status, response, arrived)
                        return
                    if status not in (429, 503):
                        raise RuntimeError(f"The broker responded with {status}: {_tail(response)}")
                    self.counts.refused += 1
                    wait_s += retry_after_s(response)
                if attempt < MAX_ATTEMPTS - 1:
                    await asyncio.sleep(wait_s)
            self.counts.given_up += 1
        finally:
            self._idle_producers.append(producer)

    def _record_accepted(
        self, producer: Producer, number: int, status: int, response: bytes, arrived: float
    ) -> None:
        if b'"failed"' in response:
            raise RuntimeError(f"The broker refused some messages of a request: {_tail(response)}")
        now = time.perf_counter()
        producer.accepted.append(number)
        self.counts.accepted += 1
        self.counts.deferred += status == 202
        self.latencies_s.append((now, now - arrived))


def retry_after_s(response: bytes) -> float:
    """Return the seconds after which the broker wants a retry, exact if the body has them; 0 without any."""
    exact = RETRY_AFTER_FIELD.search(response)
    if exact is not None:
        return float(exact[1])
    head = response[: response.find(b"\r\n\r\n")].lower()
    start = head.find(b"retry-after: ")
    return 0.0 if start < 0 else float(head[start + 13 :].split(b"\r\n", 1)[0])


def _tail(response: bytes) -> str:
    return response[-300:].decode(errors="replace")
