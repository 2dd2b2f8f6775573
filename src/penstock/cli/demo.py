"""A gentle load over HTTP, so that a new platform has something to show: `python -m penstock.cli.demo`.

Five durable queues with characters of their own and two run queues, at most about 35 messages and tasks a
second together. It uses the public API only, waits while the broker is away, and stops at once on SIGINT and
SIGTERM, giving back what it has leased.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx

from penstock.cli import demo_tasks
from penstock.config import load_settings

GROUP = "demo"
TICK_S = 0.5
RETRY_S = 1.0
GIVE_BACK_S = 1.0
TELL_AGAIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Character:
    """How one queue behaves: messages per second over time, and who works on them."""

    queue: str
    rate: Callable[[float], float]
    work_s: float
    workers: int = 1
    partitions: int = 1
    failure_rate: float = 0.0


def burst(rate: float, lasts_s: float, every_s: float, between: float = 0.0) -> Callable[[float], float]:
    return lambda elapsed_s: rate if elapsed_s % every_s < lasts_s else between


CHARACTERS = (
    Character("orders", lambda _: 6.0, work_s=0.02, workers=2, partitions=4, failure_rate=0.004),
    Character("emails", burst(12.0, 8, 60, between=0.3), work_s=0.2, partitions=2),
    Character("thumbnails", burst(4.0, 150, 300, between=0.5), work_s=0.4, partitions=2),
    Character("webhooks", lambda _: 2.0, work_s=0.08, failure_rate=0.05),
    Character("reports", burst(0.8, 4, 120), work_s=0.5),
)


@dataclass(slots=True)
class Demo:
    """The producers and consumers of all characters on one HTTP client."""

    http: httpx.AsyncClient
    held: dict[str, dict[str, Any]] = field(default_factory=dict)
    told: dict[str, float] = field(default_factory=dict)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for character in CHARACTERS:
                group.create_task(self.produce(character))
                for _ in range(character.workers):
                    group.create_task(self.consume(character))

    async def produce(self, character: Character) -> None:
        started = before = time.monotonic()
        while True:
            await asyncio.sleep(TICK_S * random.uniform(0.8, 1.2))
            now = time.monotonic()
            # A pause (a restart, a laptop's lid) is not made up for: that would be a flood.
            due = character.rate(now - started) * min(now - before, 2 * TICK_S)
            before = now
            items = [
                {
                    "queue": character.queue,
                    "partition": f"p{random.randrange(character.partitions)}",
                    "payload": {"number": random.randrange(1_000_000), "made_by": "penstock demo"},
                }
                for _ in range(int(due + random.random()))
            ]
            if items:
                await self.call("POST", "/api/v1/push", json={"items": items})

    async def consume(self, character: Character) -> None:
        query = {"batch": 5, "consumerGroup": GROUP, "wait": "true", "timeout": 2_000}
        while True:
            asked = time.monotonic()
            response = await self.call("GET", f"/api/v1/pop/queue/{character.queue}", params=query)
            messages = response.json()["messages"] if response.status_code == 200 else []
            self.held.update((message["id"], message) for message in messages)
            for message in messages:
                await asyncio.sleep(character.work_s * random.uniform(0.5, 1.5))
                failed = random.random() < character.failure_rate
                await self.settle(message, "failed" if failed else "completed")
            if not messages and time.monotonic() - asked < TICK_S:
                await asyncio.sleep(TICK_S)

    async def settle(self, message: dict[str, Any], status: str) -> None:
        names = ("transactionId", "partitionId", "leaseId")
        body = {name: message[name] for name in names} | {"status": status, "consumerGroup": GROUP}
        if status == "failed":
            body["error"] = "the demo fails now and then"
        await self.call("POST", "/api/v1/ack", json=body)
        self.held.pop(message["id"], None)

    async def give_back(self) -> None:
        """Return what is still leased, or its partitions would stand still until the leases run out."""
        with suppress(TimeoutError):
            async with asyncio.timeout(GIVE_BACK_S):
                await asyncio.gather(*(self.settle(message, "retry") for message in self.held.values()))

    async def call(self, method: str, path: str, **options: Any) -> httpx.Response:
        """The broker's answer, however long it takes to come back. Only its own refusals are returned."""
        while True:
            try:
                response = await self.http.request(method, path, **options)
            except httpx.TransportError:
                self.tell("waiting for the broker")
            else:
                if response.status_code != 429 and response.status_code < 500:
                    return response
                self.tell(f"{path} answered {response.status_code}; the broker's log says why")
            await asyncio.sleep(RETRY_S)

    def tell(self, words: str) -> None:
        """Say it, but not every second: trouble tends to last, and to touch every worker."""
        now = time.monotonic()
        if now - self.told.get(words, -TELL_AGAIN_S) >= TELL_AGAIN_S:
            self.told[words] = now
            print(f"demo: {words}", flush=True)


async def everything(demo: Demo, url: str) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(demo.run())
        group.create_task(demo_tasks.run(url, demo.tell))


async def run(url: str) -> None:
    """Load the broker at `url` until a signal or a cancellation ends it."""
    async with httpx.AsyncClient(base_url=url, timeout=10) as http:
        demo = Demo(http)
        work = asyncio.create_task(everything(demo, url))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, work.cancel)
        with suppress(asyncio.CancelledError):
            await work
        await demo.give_back()


def main() -> None:
    asyncio.run(run(f"http://127.0.0.1:{load_settings().port}"))


if __name__ == "__main__":
    main()
