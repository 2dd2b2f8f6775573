"""Producers and a consumer that use brokers while these are replaced, as behind a load balancer.

The balancer asks `/health/ready` of every broker and sends requests to those that are ready. Every failed
request and every status of 400 and more is kept in `failures`.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import httpx

QUEUE = "upgrade"
PARTITIONS = [f"p{number}" for number in range(4)]
CHECK_INTERVAL_S = 0.1
BACKLOG = 200


@dataclass
class RollingLoad:
    """What clients sent, got and were refused."""

    client: httpx.AsyncClient
    urls: set[str] = field(default_factory=set)
    ready: set[str] = field(default_factory=set)
    unready_statuses: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    served: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    pushed: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    delivered: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    failures: list[str] = field(default_factory=list)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    random: random.Random = field(default_factory=lambda: random.Random(7480))

    @property
    def total_pushed(self) -> int:
        return sum(self.pushed.values())

    @property
    def total_delivered(self) -> int:
        return sum(map(len, self.delivered.values()))

    async def balance(self) -> None:
        """Update the brokers that are ready, until this is cancelled."""
        while True:
            for url in list(self.urls):
                try:
                    status = (await self.client.get(f"{url}/health/ready")).status_code
                except httpx.HTTPError:
                    status = 0
                if status == 200:
                    self.ready.add(url)
                else:
                    self.ready.discard(url)
                    self.unready_statuses[url].add(status)
            await asyncio.sleep(CHECK_INTERVAL_S)  # the pace of a load balancer, not a wait for something

    async def call(self, method: str, path: str, **options: Any) -> httpx.Response | None:
        """Send a request to a ready broker; return None if it failed."""
        url = self.random.choice(sorted(self.ready))
        try:
            response = await self.client.request(method, url + path, **options)
        except httpx.HTTPError as error:
            self.failures.append(f"{method} {url}{path}: {error!r}")
            return None
        if response.status_code >= 400:
            self.failures.append(f"{method} {url}{path}: {response.status_code} {response.text}")
            return None
        self.served[url] += 1
        return response

    async def produce(self, partition: str) -> None:
        """Push numbered messages to one partition. An answered push is never sent again."""
        while not self.stopping.is_set():
            if self.total_pushed > self.total_delivered + BACKLOG:
                await asyncio.sleep(CHECK_INTERVAL_S)  # the pace of a load balancer, not a wait for something
                continue
            number = self.pushed[partition]
            item = {"queue": QUEUE, "partition": partition, "transactionId": f"{partition}-{number}"}
            response = await self.call("POST", "/api/v1/push", json={"items": [{**item, "payload": number}]})
            if response is not None:
                assert response.status_code in (201, 202), response.text
                assert response.json()[0]["status"] == "queued", response.text
                self.pushed[partition] = number + 1

    async def consume(self) -> None:
        """Pop and ack until all producers have stopped and every pushed message was delivered."""
        params = {"batch": 20, "partitions": 4, "wait": "true", "timeout": 300}
        while not self.stopping.is_set() or self.total_delivered < self.total_pushed:
            response = await self.call("GET", f"/api/v1/pop/queue/{QUEUE}", params=params)
            if response is None or response.status_code == 204:
                continue
            messages = response.json()["messages"]
            for message in messages:
                self.delivered[message["partition"]].append(message["data"])
            acks = [
                {name: message[name] for name in ("transactionId", "partitionId", "leaseId")}
                | {"status": "completed"}
                for message in messages
            ]
            if acks:
                await self.call("POST", "/api/v1/ack/batch", json={"acknowledgments": acks})
