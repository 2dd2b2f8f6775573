"""A light load over HTTP that gives a new platform data to show: `python -m penstock.cli.demo`.

It uses five durable queues with different load patterns and two run queues, together at most about 35
messages and tasks per second. It uses the public API only and waits while the broker is unreachable. On
SIGINT and SIGTERM it stops at once and returns the messages it has leased.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypedDict

import httpx

from penstock.cli import demo_tasks
from penstock.cli.broker_address import BrokerAddress
from penstock.cli.options import TOKEN_VARIABLE
from penstock.config import load_settings
from penstock.listen_address import local_url
from penstock.log_format import configure_logging

logger = logging.getLogger("penstock.demo")

CONSUMER_GROUP = "demo"
TICK_S = 0.5
RETRY_INTERVAL_S = 1.0
RETURN_TIMEOUT_S = 1.0
REPEAT_MESSAGE_INTERVAL_S = 60.0


@dataclass(frozen=True, slots=True)
class QueueLoad:
    """The load of one queue: messages per second over time, and the consumers that process them."""

    queue: str
    rate: Callable[[float], float]
    work_s: float
    workers: int = 1
    partitions: int = 1
    failure_rate: float = 0.0


def constant_rate(per_s: float) -> Callable[[float], float]:
    return lambda elapsed_s: per_s


def burst_rate(
    per_s: float, duration_s: float, interval_s: float, idle_per_s: float = 0.0
) -> Callable[[float], float]:
    return lambda elapsed_s: per_s if elapsed_s % interval_s < duration_s else idle_per_s


QUEUE_LOADS = (
    QueueLoad("orders", constant_rate(6.0), work_s=0.02, workers=2, partitions=4, failure_rate=0.004),
    QueueLoad("emails", burst_rate(12.0, 8, 60, idle_per_s=0.3), work_s=0.2, partitions=2),
    QueueLoad("thumbnails", burst_rate(4.0, 150, 300, idle_per_s=0.5), work_s=0.4, partitions=2),
    QueueLoad("webhooks", constant_rate(2.0), work_s=0.08, failure_rate=0.05),
    QueueLoad("reports", burst_rate(0.8, 4, 120), work_s=0.5),
)


class LeasedMessage(TypedDict):
    """The fields of a popped message that an ack needs."""

    id: str
    transactionId: str
    partitionId: str
    leaseId: str


@dataclass(slots=True)
class DemoLoad:
    """The producers and consumers of all durable queues, on one HTTP client."""

    http: httpx.AsyncClient
    leased_messages: dict[str, LeasedMessage] = field(default_factory=dict)
    logged_at: dict[str, float] = field(default_factory=dict)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for load in QUEUE_LOADS:
                group.create_task(self.produce(load))
                for _ in range(load.workers):
                    group.create_task(self.consume(load))

    async def produce(self, load: QueueLoad) -> None:
        started_at = last_tick_at = time.monotonic()
        while True:
            await asyncio.sleep(TICK_S * random.uniform(0.8, 1.2))
            now = time.monotonic()
            # Do not catch up after a pause (a restart, a suspended laptop): that would flood the broker.
            count = load.rate(now - started_at) * min(now - last_tick_at, 2 * TICK_S)
            last_tick_at = now
            items = [
                {
                    "queue": load.queue,
                    "partition": f"p{random.randrange(load.partitions)}",
                    "payload": {"number": random.randrange(1_000_000), "made_by": "penstock demo"},
                }
                for _ in range(int(count + random.random()))
            ]
            if items:
                await self.post("/api/v1/push", {"items": items})

    async def consume(self, load: QueueLoad) -> None:
        query: dict[str, str | int] = {
            "batch": 5,
            "consumerGroup": CONSUMER_GROUP,
            "wait": "true",
            "timeout": 2_000,
        }
        while True:
            popped_at = time.monotonic()
            request = self.http.build_request("GET", f"/api/v1/pop/queue/{load.queue}", params=query)
            response = await self.send(request)
            messages: list[LeasedMessage] = []
            if response.status_code == 200:
                messages = response.json()["messages"]
            self.leased_messages.update((message["id"], message) for message in messages)
            for message in messages:
                await asyncio.sleep(load.work_s * random.uniform(0.5, 1.5))
                failed = random.random() < load.failure_rate
                await self.ack(message, "failed" if failed else "completed")
            if not messages and time.monotonic() - popped_at < TICK_S:
                await asyncio.sleep(TICK_S)

    async def ack(self, message: LeasedMessage, status: str) -> None:
        body = {
            "transactionId": message["transactionId"],
            "partitionId": message["partitionId"],
            "leaseId": message["leaseId"],
            "status": status,
            "consumerGroup": CONSUMER_GROUP,
        }
        if status == "failed":
            body["error"] = "Simulated failure of the demo"
        await self.post("/api/v1/ack", body)
        self.leased_messages.pop(message["id"], None)

    async def return_leased_messages(self) -> None:
        """Return leased messages for retry; otherwise their partitions would wait until the leases expire."""
        with suppress(TimeoutError):
            async with asyncio.timeout(RETURN_TIMEOUT_S):
                await asyncio.gather(
                    *(self.ack(message, "retry") for message in self.leased_messages.values())
                )

    async def post(self, path: str, body: object) -> httpx.Response:
        return await self.send(self.http.build_request("POST", path, json=body))

    async def send(self, request: httpx.Request) -> httpx.Response:
        """Send a request until the broker accepts or rejects it; retry on overload, failure and outage."""
        while True:
            try:
                response = await self.http.send(request)
            except httpx.TransportError:
                self.log_message("waiting for the broker")
            else:
                if response.status_code != 429 and response.status_code < 500:
                    return response
                status = response.status_code
                self.log_message(f"{request.url.path} returned HTTP {status}; see the log of the broker")
            await asyncio.sleep(RETRY_INTERVAL_S)

    def log_message(self, message: str) -> None:
        """Log a message at most once a minute: a problem often lasts and affects every worker."""
        now = time.monotonic()
        if now - self.logged_at.get(message, -REPEAT_MESSAGE_INTERVAL_S) >= REPEAT_MESSAGE_INTERVAL_S:
            self.logged_at[message] = now
            logger.warning(message)


async def run_queues_and_tasks(demo: DemoLoad, url: str, tls: ssl.SSLContext) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(demo.run())
        group.create_task(demo_tasks.run(url, tls, demo.log_message))


async def run(address: BrokerAddress) -> None:
    """Load the broker until a signal or a cancellation ends it."""
    tls = address.create_tls_context()
    token = os.environ.get(TOKEN_VARIABLE)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with httpx.AsyncClient(base_url=address.url, headers=headers, timeout=10, verify=tls) as http:
        demo = DemoLoad(http)
        load = asyncio.create_task(run_queues_and_tasks(demo, address.url, tls))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, load.cancel)
        with suppress(asyncio.CancelledError):
            await load
        await demo.return_leased_messages()


def main() -> None:
    settings = load_settings()
    configure_logging(settings.log_level, settings.log_format, "demo")
    asyncio.run(run(BrokerAddress(local_url(settings), "", settings.tls_cert)))


if __name__ == "__main__":
    main()
