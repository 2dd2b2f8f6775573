"""The rate of one worker, from the run times in ClickHouse. Each rate is read at most every five seconds."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redis.asyncio import Redis
from redis.exceptions import RedisError

from penstock.api.warehouse_access import WarehouseAccess
from penstock.clock import Clock, system_clock
from penstock.definitions import QUEUE
from penstock.errors import PenstockError
from penstock.model import Scope
from penstock.streams.watermark import read_watermark

if TYPE_CHECKING:
    from penstock.warehouse.matrix.service_times import ServiceTime

MAX_AGE_S = 5.0
TIMEOUT_S = 3.0
"""A slow ClickHouse does not delay an autoscaler for longer: it gets the last rate."""
MAX_RATES = 10_000


@dataclass(frozen=True, slots=True)
class MeasuredRate:
    """How long work takes, or why that is unknown. `counted_until_s`: the watermark of the metrics."""

    service_time: ServiceTime | None
    counted_until_s: float | None
    problem: str | None = None

    @property
    def is_known(self) -> bool:
        """Whether the metrics could be read, now or earlier; they may say that nothing has finished."""
        return self.problem is None or self.service_time is not None


class ServiceRates:
    """Rates of the queues that autoscalers ask for. The last rate that was read is kept during an outage."""

    def __init__(self, warehouse: WarehouseAccess, redis: Redis, clock: Clock = system_clock) -> None:
        self._warehouse = warehouse
        self._redis = redis
        self._clock = clock
        self._rates: dict[tuple[Scope, str, str], tuple[float, MeasuredRate]] = {}

    async def get(self, scope: Scope, queue: str, group: str) -> MeasuredRate:
        key = (scope, queue, group)
        read_at, rate = self._rates.get(key, (float("-inf"), None))
        if rate is None or time.monotonic() - read_at >= MAX_AGE_S:
            rate = await self._read(scope, queue, group, rate)
            while len(self._rates) >= MAX_RATES:
                del self._rates[next(iter(self._rates))]
            self._rates[key] = (time.monotonic(), rate)
        return rate

    async def _read(self, scope: Scope, queue: str, group: str, last: MeasuredRate | None) -> MeasuredRate:
        last_measured = None if last is None else last.service_time
        counted_until_s = await self._read_watermark()
        end_s = int(self._clock() if counted_until_s is None else min(counted_until_s, self._clock()))
        try:
            async with asyncio.timeout(TIMEOUT_S):
                measured = await asyncio.to_thread(
                    self._warehouse.read_service_time, scope, queue, group, end_s
                )
        except TimeoutError:
            problem = f"ClickHouse did not answer within {TIMEOUT_S:.0f} s."
        except PenstockError as error:
            problem = error.detail
        else:
            # A rate of longer ago is better than none: how long work takes changes slowly.
            return MeasuredRate(measured or last_measured, counted_until_s)
        return MeasuredRate(last_measured, counted_until_s, problem)

    async def _read_watermark(self) -> float | None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await read_watermark(self._redis, QUEUE, self._clock)
        except (RedisError, OSError, TimeoutError):
            return None  # the answer says that the watermark is unknown
