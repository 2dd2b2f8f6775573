"""Bursts on an idle broker: many requests at once after no, slow or quiet traffic.

Part of `make bench-overload`. The database is local or 20 ms away. A burst of up to `MAX_EXECUTED` requests
must be executed completely. A larger one may be deferred or refused in part if its slowest requests waited
longer than the broker allows (`load_wait_s`).
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass

from bench import http_load
from bench.servers import RunningBroker

DISTANCES_MS = {"local": 0.0, "20 ms away": 20.0}
"""Round-trip times between broker and database."""
KINDS = ("push", "pop", "ack")
SIZES = (50, 200, 1_000)
MAX_EXECUTED = 200
LOAD_WAIT_S = 1.0
"""The broker's setting, at its default."""
PARTITIONS = 64
TRAFFIC = {"no traffic": (0, 0.0), "slow traffic": (4, 0.4), "quiet traffic": (40, 0.0)}
"""Requests before a burst, one after another, and the pause after each in seconds."""
IDLE_S = 1.5
"""How long the broker idles before a burst without traffic before it."""
CALLERS, NEW_PARTITIONS = 50, 2_000


@dataclass(frozen=True, slots=True)
class BurstResult:
    """The responses to one burst."""

    kind: str
    size: int
    distance: str
    traffic: str
    deferred: int
    refused: int
    slowest_ms: float
    """Of the executed requests."""

    @property
    def wrongly_turned_away(self) -> int:
        """Requests that were deferred or refused although they would not have waited too long."""
        is_too_long = self.size > MAX_EXECUTED and self.slowest_ms > LOAD_WAIT_S * 1000
        return 0 if is_too_long else self.deferred + self.refused


@dataclass(slots=True)
class _Responses:
    """Counts responses by status, and keeps the bodies and the time of the slowest that was executed."""

    started: float
    deferred: int = 0
    refused: int = 0
    slowest_s: float = 0.0
    bodies: list[bytes] | None = None

    def add(self, status: int, body: bytes) -> None:
        if status == 202:
            self.deferred += 1
        elif status == 429:
            self.refused += 1
        elif status in (200, 201, 204):
            self.slowest_s = time.perf_counter() - self.started
            if self.bodies is not None:
                self.bodies.append(body)
        else:
            raise http_load.unexpected_response(status, body)


class BurstBenchmark:
    """Bursts on one broker. Each uses a queue of its own."""

    def __init__(self, broker: RunningBroker, distance: str) -> None:
        self._port = broker.port
        self._distance = distance
        self._queue_numbers = itertools.count(1)

    async def measure(self, kind: str, size: int, traffic: str) -> BurstResult:
        """Prepare a queue, send the traffic before the burst, then the burst."""
        traffic_requests, pause_s = TRAFFIC[traffic]
        requests = await self._prepare(kind, size + traffic_requests)
        before, burst = requests[:traffic_requests], requests[traffic_requests:]
        await asyncio.sleep(0 if before else IDLE_S)
        for request in before:
            await self._send([request])
            await asyncio.sleep(pause_s)
        responses = await self._send(burst)
        return BurstResult(
            kind,
            size,
            self._distance,
            traffic,
            responses.deferred,
            responses.refused,
            round(responses.slowest_s * 1000, 1),
        )

    async def measure_new_partitions(self, pushes: int) -> BurstResult:
        """Let callers push to new partitions, each its next one when the one before it was answered."""
        queue = f"new-{next(self._queue_numbers)}"
        requests = [_push(queue, f"p{number}") for number in range(pushes)]
        responses = await self._send(requests, callers=CALLERS)
        return BurstResult(
            f"push to {pushes:,} new partitions",
            CALLERS,
            self._distance,
            "no traffic",
            responses.deferred,
            responses.refused,
            round(responses.slowest_s * 1000, 1),
        )

    async def _prepare(self, kind: str, count: int) -> list[bytes]:
        """Return requests of a kind that the broker can execute, after pushing and popping what they need."""
        queue = f"burst-{next(self._queue_numbers)}"
        partitions = [f"p{n}" for n in range(PARTITIONS if kind == "push" else count)]
        items = ",".join(_item(queue, partition) for partition in partitions)
        await self._send([http_load.post("/api/v1/push", f'{{"items":[{items}]}}'.encode())])
        if kind == "push":
            return [_push(queue, partitions[number % PARTITIONS]) for number in range(count)]
        pops = [http_load.get(f"/api/v1/pop/queue/{queue}?consumerGroup=g")] * count
        if kind == "pop":
            return pops
        responses = await self._send(pops, callers=CALLERS)
        assert responses.bodies is not None
        return [_ack(body) for body in responses.bodies if body]

    async def _send(self, requests: list[bytes], callers: int | None = None) -> _Responses:
        """Send requests, all at once or `callers` at a time, and wait for all responses."""
        unsent = iter(requests)
        connections = await http_load.connect(self._port, min(callers or len(requests), len(requests)))
        responses = _Responses(time.perf_counter(), bodies=[])

        def next_request(status: int, body: bytes) -> bytes | None:
            responses.add(status, body)
            return next(unsent, None)

        # All first requests are on their way before a response is read.
        first_requests = [next(unsent) for _ in connections]
        loops = [
            connection.start(request, next_request)
            for connection, request in zip(connections, first_requests, strict=True)
        ]
        await asyncio.gather(*loops)
        for connection in connections:
            connection.close()
        return responses


def _item(queue: str, partition: str) -> str:
    return f'{{"queue":"{queue}","partition":"{partition}","payload":1}}'


def _push(queue: str, partition: str) -> bytes:
    return http_load.post("/api/v1/push", f'{{"items":[{_item(queue, partition)}]}}'.encode())


def _ack(popped: bytes) -> bytes:
    [message] = json.loads(popped)["messages"]
    body = {name: message[name] for name in ("transactionId", "partitionId", "leaseId")}
    return http_load.post("/api/v1/ack", json.dumps(body).encode())


async def measure_bursts(
    start_broker: Callable[[float], Awaitable[RunningBroker]],
    distances: Sequence[str],
    sizes: Sequence[int],
    new_partitions: int,
    report: Callable[[str], None],
) -> list[BurstResult]:
    """Measure all bursts, each on an idle broker. The first of a broker is the first thing it gets to do."""
    results: list[BurstResult] = []
    for distance in distances:
        benchmark = BurstBenchmark(await start_broker(DISTANCES_MS[distance]), distance)
        for traffic in TRAFFIC:
            report(f"bursts, database {distance}, after {traffic}")
            for size, kind in itertools.product(sizes, KINDS):
                results.append(await benchmark.measure(kind, size, traffic))
        results.append(await benchmark.measure_new_partitions(new_partitions))
    return results


def to_json(results: Sequence[BurstResult]) -> list[dict[str, object]]:
    return [asdict(result) for result in results]


def table_rows(results: Sequence[BurstResult]) -> list[list[str]]:
    """Return a row per kind, size and distance, with the sums and the slowest response over all traffics."""
    rows: list[list[str]] = []
    groups = itertools.groupby(
        sorted(results, key=lambda r: (r.distance, r.kind, r.size)),
        key=lambda r: (r.distance, r.kind, r.size),
    )
    for (distance, kind, size), group in groups:
        bursts = list(group)
        slowest_ms = max(burst.slowest_ms for burst in bursts)
        deferred, refused = sum(b.deferred for b in bursts), sum(b.refused for b in bursts)
        rows.append([f"{kind} × {size:,}", distance, f"{deferred}", f"{refused}", f"{slowest_ms:,.0f}"])
    return rows
