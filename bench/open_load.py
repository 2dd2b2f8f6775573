"""Open-loop load: requests arrive when they arrive, whether or not the broker keeps up.

A lane is one producer of one partition. It sends its next request when the one before is accepted or given
up, so that its order is defined. An arrival takes a lane that is free; there are so many that hardly any
arrival finds none, and those that do are counted. A request is sent up to `ATTEMPTS` times, each time for at
most `TIMEOUT_S`, and between attempts its producer waits as a typical client does: longer each time, by
chance, and at least as long as the broker asks for.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from bench.http_load import length_of, post

TIMEOUT_S = 2.0
ATTEMPTS = 3
BACKOFF_S = 0.5
TICK_S = 0.002


class TimedOut(Exception):
    """No answer in time, or no connection."""


class Channel(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.WriteTransport | None = None
        self._buffer = bytearray()
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self.is_open = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(TimedOut("the broker closed the connection"))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head = self._buffer.find(b"\r\n\r\n")
        if head < 0 or self._answer is None or self._answer.done():
            return
        end = head + 4 + length_of(bytes(self._buffer[: head + 4]), head)
        if len(self._buffer) >= end:
            self._answer.set_result((int(self._buffer[9:12]), bytes(self._buffer)))
            self._buffer.clear()

    async def ask(self, request: bytes, timeout_s: float) -> tuple[int, bytes]:
        """Status and the whole answer. Raises TimedOut; the connection is gone then, as with any client."""
        assert self._transport is not None
        loop = asyncio.get_running_loop()
        self._answer = loop.create_future()
        timer = loop.call_later(timeout_s, self._give_up)
        self._transport.write(request)
        try:
            return await self._answer
        finally:
            timer.cancel()

    def _give_up(self) -> None:
        assert self._answer is not None
        if not self._answer.done():
            self._answer.set_exception(TimedOut("no answer in time"))
        self.close()

    def close(self) -> None:
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()


class Pool:
    """Connections to a broker, made as they are needed, up to a number; then requests wait for one."""

    def __init__(self, port: int, most: int) -> None:
        self._port = port
        self._most = most
        self._open = 0
        self._free: list[Channel] = []
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        deadline = time.perf_counter() + TIMEOUT_S
        channel = await self._take(deadline)
        try:
            return await channel.ask(request, max(0.001, deadline - time.perf_counter()))
        finally:
            self._give_back(channel)

    async def _take(self, deadline: float) -> Channel:
        while True:
            while self._free:
                channel = self._free.pop()
                if channel.is_open:
                    return channel
                self._open -= 1
            if self._open < self._most:
                self._open += 1
                try:
                    loop = asyncio.get_running_loop()
                    async with asyncio.timeout(max(0.001, deadline - time.perf_counter())):
                        _, channel = await loop.create_connection(Channel, "127.0.0.1", self._port)
                    return channel
                except (OSError, TimeoutError) as error:
                    self._open -= 1
                    raise TimedOut("no connection") from error
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                async with asyncio.timeout(max(0.001, deadline - time.perf_counter())):
                    await turn
            except TimeoutError:
                raise TimedOut("no connection is free") from None

    def _give_back(self, channel: Channel) -> None:
        if channel.is_open:
            self._free.append(channel)
        else:
            self._open -= 1
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                break

    def close(self) -> None:
        for channel in self._free:
            channel.close()


@dataclass(slots=True)
class Lane:
    """A producer of a partition: what it has sent, and what of that was accepted."""

    number: int
    partition: int
    sent: int = 0
    accepted: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Counts:
    """What happened, in requests. Those of a window are the difference of two."""

    arrived: int = 0
    no_lane: int = 0
    """Arrivals that found no lane free: not offered."""
    sent: int = 0
    """Attempts, the first and the repeated ones."""
    accepted: int = 0
    accepted_later: int = 0
    """Of the accepted: with a 202."""
    refused: int = 0
    """Attempts that were answered with a 429 or 503."""
    timed_out: int = 0
    """Attempts without an answer in time."""
    given_up: int = 0
    """Requests that were never accepted."""


class OpenLoad:
    """Load on one queue of one broker. `body` makes a request's body of its lane and number."""

    def __init__(
        self, port: int, lanes: list[Lane], body: Callable[[Lane, int], bytes], connections: int
    ) -> None:
        self._pool = Pool(port, connections)
        self.lanes = lanes
        self._free = deque(lanes)
        self._body = body
        self._requests: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self.counts = Counts()
        self.latencies_s: list[tuple[float, float]] = []
        """When a request was accepted, and how long after it had arrived."""

    async def arrive(self, rate: float, seconds: float) -> None:
        """Let requests arrive by chance for so long, `rate` a second."""
        started = time.perf_counter()
        due = random.expovariate(rate)
        while (now := time.perf_counter() - started) < seconds:
            while due <= now:
                self._begin()
                due += random.expovariate(rate)
            await asyncio.sleep(TICK_S)

    async def one_after_the_other(self, requests: int, seconds: float) -> None:
        """Keep so many requests on the way, which says how much the broker can do."""
        ends = time.perf_counter() + seconds

        async def producer() -> None:
            while time.perf_counter() < ends:
                lane = self._free.popleft()
                await self._request(lane)

        await asyncio.gather(*(producer() for _ in range(requests)))

    async def finish(self) -> None:
        """Wait until every request was accepted or given up."""
        while self._requests:
            await asyncio.wait(self._requests)
        self._pool.close()
        if self._failure is not None:
            raise self._failure

    def _begin(self) -> None:
        self.counts.arrived += 1
        if not self._free:
            self.counts.no_lane += 1
            return
        task = asyncio.create_task(self._request(self._free.popleft()))
        self._requests.add(task)
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._requests.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._failure = task.exception()

    async def _request(self, lane: Lane) -> None:
        arrived = time.perf_counter()
        lane.sent += 1
        number = lane.sent
        request = post("/api/v1/push", self._body(lane, number))
        try:
            for attempt in range(ATTEMPTS):
                wait_s = random.uniform(0, BACKOFF_S * 2**attempt)
                self.counts.sent += 1
                try:
                    status, answer = await self._pool.ask(request)
                except TimedOut:
                    self.counts.timed_out += 1
                else:
                    if status in (201, 202):
                        self._accept(lane, number, status, answer, arrived)
                        return
                    if status not in (429, 503):
                        raise RuntimeError(f"answered {status}: {answer[-300:].decode(errors='replace')}")
                    self.counts.refused += 1
                    wait_s += retry_after_s(answer)
                if attempt < ATTEMPTS - 1:
                    await asyncio.sleep(wait_s)
            self.counts.given_up += 1
        finally:
            self._free.append(lane)

    def _accept(self, lane: Lane, number: int, status: int, answer: bytes, arrived: float) -> None:
        if b'"failed"' in answer:
            raise RuntimeError(f"a part failed: {answer[-300:].decode(errors='replace')}")
        now = time.perf_counter()
        lane.accepted.append(number)
        self.counts.accepted += 1
        self.counts.accepted_later += status == 202
        self.latencies_s.append((now, now - arrived))


def retry_after_s(answer: bytes) -> float:
    head = answer[: answer.find(b"\r\n\r\n")].lower()
    at = head.find(b"retry-after: ")
    return 0.0 if at < 0 else float(head[at + 13 :].split(b"\r\n", 1)[0])
