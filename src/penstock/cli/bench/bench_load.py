"""Push, pop and ack messages of one queue from several threads, and time every request."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.cli.broker_client import BrokerClient, JsonObject

OPERATIONS = ("push", "pop", "ack")
POP_WAIT_MS = 500
REQUEST_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """How much load, and in which form."""

    queue: str
    messages: int
    batch: int
    payload_bytes: int
    partitions: int
    producers: int
    consumers: int
    max_s: float


@dataclass(slots=True)
class RequestTimes:
    """The requests of one operation: their durations, and the messages they carried."""

    seconds: list[float] = field(default_factory=list)
    messages: int = 0

    def percentile_ms(self, percent: float) -> float | None:
        """Return the duration that this share of the requests did not exceed."""
        if not self.seconds:
            return None
        ordered = sorted(self.seconds)
        return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)] * 1000


class BenchLoad:
    """Runs a plan once. Threads share it; `times` and `finished_at` are complete when `run` returns."""

    def __init__(self, plan: BenchPlan, connect: Callable[[], BrokerClient]) -> None:
        self.plan = plan
        self.times = {operation: RequestTimes() for operation in OPERATIONS}
        self.finished_at: list[float] = []
        """Seconds after the start at which each ack ended, once per message."""
        self.duration_s = 0.0
        self._connect = connect
        self._payload = "x" * plan.payload_bytes
        self._lock = threading.Lock()
        self._remaining = plan.messages
        self._is_stopped = threading.Event()
        self._started = 0.0

    @property
    def acked(self) -> int:
        return self.times["ack"].messages

    @property
    def pushed(self) -> int:
        return self.times["push"].messages

    def run(self, on_progress: Callable[[int], None]) -> None:
        """Run all threads until every pushed message is acked or the time is over. Raises their errors."""
        self._started = time.perf_counter()
        with ThreadPoolExecutor(self.plan.producers + self.plan.consumers) as pool:
            producers = [pool.submit(self._produce, number) for number in range(self.plan.producers)]
            consumers = [pool.submit(self._consume, producers) for _ in range(self.plan.consumers)]
            threads = [*producers, *consumers]
            try:
                while pending := wait(threads, timeout=0.1, return_when=FIRST_EXCEPTION).not_done:
                    on_progress(self.acked)
                    if any(thread.done() and thread.exception() for thread in threads) or self._is_over():
                        self._is_stopped.set()
                        wait(pending)
            finally:
                self._is_stopped.set()
        self.duration_s = time.perf_counter() - self._started
        for thread in threads:
            thread.result()
        on_progress(self.acked)

    def _produce(self, number: int) -> None:
        with self._connect() as broker:
            for count in self._batches():
                partition = f"p{(number + self.pushed) % self.plan.partitions}"
                item = {"queue": self.plan.queue, "partition": partition, "payload": self._payload}
                with self._timed("push", count):
                    broker.post_list("/api/v1/push", {"items": [item] * count})

    def _consume(self, producers: list[Any]) -> None:
        path = f"/api/v1/pop/queue/{self.plan.queue}"
        parameters: dict[str, str | int | None] = {
            "batch": self.plan.batch,
            "partitions": self.plan.partitions,
            "wait": "true",
            "timeout": POP_WAIT_MS,
        }
        with self._connect() as broker:
            while not self._is_stopped.is_set():
                started = time.perf_counter()
                messages = broker.get_waiting(path, REQUEST_TIMEOUT_S, **parameters).get("messages", [])
                assert isinstance(messages, list)
                if not messages:
                    if all(producer.done() for producer in producers) and self.acked >= self.pushed:
                        return
                    continue
                self._record("pop", started, len(messages))
                with self._timed("ack", len(messages)):
                    broker.post_list("/api/v1/ack/batch", {"acknowledgments": list(map(_ack_of, messages))})

    def _batches(self) -> Iterator[int]:
        """Yield the sizes of batches until all messages are pushed or the load is stopped."""
        while not self._is_stopped.is_set():
            with self._lock:
                count = min(self.plan.batch, self._remaining)
                self._remaining -= count
            if not count:
                return
            yield count

    def _timed(self, operation: str, messages: int) -> _Timer:
        return _Timer(self._record, operation, messages)

    def _record(self, operation: str, started: float, messages: int) -> None:
        now = time.perf_counter()
        with self._lock:
            times = self.times[operation]
            times.seconds.append(now - started)
            times.messages += messages
            if operation == "ack":
                self.finished_at += [now - self._started] * messages

    def _is_over(self) -> bool:
        return time.perf_counter() - self._started > self.plan.max_s


class _Timer:
    """Records a request that ends without an error."""

    def __init__(self, record: Callable[[str, float, int], None], operation: str, messages: int) -> None:
        self._record = record
        self._operation = operation
        self._messages = messages

    def __enter__(self) -> None:
        self._started = time.perf_counter()

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        if error_type is None:
            self._record(self._operation, self._started, self._messages)


def _ack_of(message: dict[str, Any]) -> JsonObject:
    fields = ("transactionId", "partitionId", "leaseId")
    return {**{name: message[name] for name in fields}, "status": "completed"}
