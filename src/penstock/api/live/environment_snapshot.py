"""All queues of an environment at one moment, from PostgreSQL, Redis and ClickHouse.

Each server is read in a number of calls that does not grow with its queues, at most every two seconds, and
only while the console or a program needs it. All readers of a broker process share the result. A server that
is away leaves its figures unknown; the others are shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from redis.asyncio import Redis
from redis.exceptions import RedisError

from penstock.api.live.queue_rows import (
    ListedKind,
    QueueRow,
    build_durable_rows,
    build_run_rows,
    build_unknown_rows,
)
from penstock.api.live.shared_read import EnvironmentReads
from penstock.api.warehouse_access import WarehouseAccess
from penstock.broker.broker import Broker
from penstock.broker.durable_store import ListedQueue
from penstock.clock import Clock, system_clock
from penstock.definitions import QUEUE
from penstock.errors import PenstockError
from penstock.model import Scope
from penstock.runqueue.queue import RunQueues
from penstock.runqueue.task_model import EnvironmentState, QueueState
from penstock.streams.watermark import read_watermark

if TYPE_CHECKING:
    from penstock.warehouse.matrix.queue_activity import EnvironmentActivity

MAX_AGE_S = 2.0
ACTIVITY_AGE_S = 5.0
"""The finest metrics have points of 5 seconds."""
SERVER_TIMEOUT_S = 30.0
"""A hundred thousand queues take PostgreSQL several seconds, and more on a busy machine."""
METRICS_WAIT_S = 1.0
"""A slow ClickHouse does not delay the rest for longer."""
DEFAULT_LAG_S = 15.0
MAX_LAG_S = 120.0
"""Rates end where the pipeline has counted all events: so far back at most."""

T = TypeVar("T")
RunQueueStates = tuple[Sequence[QueueState], EnvironmentState]


@dataclass(frozen=True, slots=True)
class MetricsState:
    """The metrics of all queues, or why there are none."""

    activity: EnvironmentActivity | None
    problem: str | None
    counted_until_s: float | None = None
    """The time up to which the pipeline has counted every event."""


@dataclass(frozen=True, slots=True)
class EnvironmentSnapshot:
    """The queues of an environment at one moment."""

    read_at_s: float
    rows: Sequence[QueueRow]
    metrics: MetricsState
    problems: Mapping[str, str]
    """Why the figures of a server are unknown, by `postgres` and `redis`."""
    pages: dict[object, object] = field(default_factory=dict)
    """What was computed from this snapshot, such as sorted rows, for the next reader with that request."""

    def find(self, queue: str) -> QueueRow | None:
        by_name: Mapping[str, QueueRow] = self.remember("by name", self._index)
        return by_name.get(queue)

    def remember(self, key: object, compute: Callable[[], T]) -> T:
        """Return what `compute` returns; a second call with the key does not compute again."""
        if key not in self.pages:
            self.pages[key] = compute()
        return self.pages[key]  # type: ignore[return-value]  # a key has one type of value

    def _index(self) -> dict[str, QueueRow]:
        return {row.name: row for row in self.rows}


class EnvironmentSnapshots:
    """Snapshots of the environments that have readers in this process."""

    def __init__(
        self,
        broker: Broker,
        run_queues: RunQueues,
        warehouse: WarehouseAccess,
        redis: Redis,
        clock: Clock = system_clock,
    ) -> None:
        self._broker = broker
        self._run_queues = run_queues
        self._warehouse = warehouse
        self._redis = redis
        self._clock = clock
        self._metrics = EnvironmentReads(self._read_metrics, ACTIVITY_AGE_S)
        self._snapshots = EnvironmentReads(self._read, MAX_AGE_S)

    async def get(self, scope: Scope) -> EnvironmentSnapshot:
        """Return a snapshot that is at most two seconds old, or older if a read takes long."""
        return await self._snapshots.get(scope)

    async def get_newer(self, scope: Scope) -> EnvironmentSnapshot:
        """Return a snapshot that is read after this call."""
        return await self._snapshots.get_newer(scope)

    async def stop(self) -> None:
        await self._snapshots.stop()
        await self._metrics.stop()

    async def _read(self, scope: Scope, previous: EnvironmentSnapshot | None) -> EnvironmentSnapshot:
        durable, run, metrics = await asyncio.gather(
            _try_read(self._broker.store.gauges.list_queues(scope), "PostgreSQL"),
            _try_read(self._read_run_queues(scope), "Redis"),
            self._metrics.get_within(scope, METRICS_WAIT_S),
        )
        metrics = metrics or MetricsState(None, "ClickHouse has not answered yet.")
        # In a thread: building ten thousand rows would hold up the requests of this process.
        return await asyncio.to_thread(
            _build_snapshot, self._clock(), durable, run, metrics, [] if previous is None else previous.rows
        )

    async def _read_run_queues(self, scope: Scope) -> RunQueueStates:
        return await self._run_queues.list_queues(scope), await self._run_queues.get_environment(scope)

    async def _read_metrics(self, scope: Scope, previous: MetricsState | None) -> MetricsState:
        now_s = self._clock()
        counted_until_s = await self._read_watermark()
        end_s = now_s - DEFAULT_LAG_S if counted_until_s is None else counted_until_s
        end_s = min(max(end_s, now_s - MAX_LAG_S), now_s)
        try:
            activity = await asyncio.to_thread(self._warehouse.read_activity, scope, int(end_s))
        except PenstockError as error:
            return MetricsState(None, error.detail, counted_until_s)
        return MetricsState(activity, None, counted_until_s)

    async def _read_watermark(self) -> float | None:
        try:
            async with asyncio.timeout(METRICS_WAIT_S):
                return await read_watermark(self._redis, QUEUE, self._clock)
        except (RedisError, OSError, TimeoutError):
            return None  # the snapshot itself says that Redis is away


def _build_snapshot(
    now_s: float,
    durable: Sequence[ListedQueue] | str,
    run: RunQueueStates | str,
    metrics: MetricsState,
    previous_rows: Sequence[QueueRow],
) -> EnvironmentSnapshot:
    """Build a snapshot. A text instead of queues says why their server is away."""
    problems: dict[str, str] = {}
    if isinstance(durable, str):
        problems["postgres"] = durable
        durable_rows = build_unknown_rows(previous_rows, ListedKind.DURABLE)
    else:
        durable_rows = build_durable_rows(durable, metrics.activity, now_s)
    if isinstance(run, str):
        problems["redis"] = run
        run_rows = build_unknown_rows(previous_rows, ListedKind.RUN)
    else:
        run_rows = build_run_rows(*run, metrics.activity, now_s)
    return EnvironmentSnapshot(now_s, [*durable_rows, *run_rows], metrics, problems)


async def _try_read(read: Awaitable[T], server: str) -> T | str:
    """Return what a server says, or why it does not."""
    try:
        async with asyncio.timeout(SERVER_TIMEOUT_S):
            return await read
    except TimeoutError:
        return f"{server} did not answer within {SERVER_TIMEOUT_S:.0f} s."
    except PenstockError as error:
        return error.detail
