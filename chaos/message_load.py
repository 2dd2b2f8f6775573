"""Producers and consumers of durable queues.

The payload of a message is its transaction id, which follows from its producer and its number. Most producers
repeat a push until it is answered; the others go on with the next message, so that outcomes stay unknown.
"""

from __future__ import annotations

import asyncio
import math
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from chaos.calls import RecordedClient
from chaos.history import Call
from chaos.polling import poll

QUEUE, OUT = "chaos", "chaos.out"
WATCHED = "chaos.watched"
"""An alert rule watches it."""
LEASE_S = 3.0
RETRY_LIMIT = 3
PARTITIONS = tuple(f"p{n}" for n in range(4))
SHARED_PARTITION = "shared"
"""Two producers push to it, and none repeats a push."""
GROUPS = ("movers", "ackers", "seekers")
CONSUMERS_PER_GROUP = 2
MAX_BACKLOG = 400

DRAIN_LEASE_S = 30.0
"""At the end of a run, so that a busy machine drains the queues too."""


def queue_options(lease_s: float) -> list[dict[str, Any]]:
    """Return the bodies that configure the queues."""
    return [
        {"queue": QUEUE, "options": {"leaseTime": lease_s, "retryLimit": RETRY_LIMIT}},
        {"queue": OUT, "options": {"leaseTime": lease_s, "retryLimit": 1000}},
        {"queue": WATCHED, "options": {"leaseTime": lease_s, "retryLimit": 1000}},
    ]


@dataclass(slots=True)
class LoadState:
    """What all clients share: when to end, and whether to still misbehave."""

    producing: bool = True
    consuming: bool = True
    misbehaving: bool = True
    """Whether consumers fail, stall and seek. At the end they only ack, so that queues drain."""
    pushed: int = 0
    acked: dict[str, int] = field(default_factory=dict)
    before_all: datetime = field(default_factory=lambda: datetime.now(UTC) - timedelta(minutes=10))
    """Before every message, also those that a clock which was stepped back dates."""

    @property
    def backlog(self) -> int:
        return self.pushed - min((self.acked.get(group, 0) for group in GROUPS[:2]), default=0)


def parse_push(response: httpx.Response) -> dict[str, Any]:
    return {"statuses": [item["status"] for item in response.json()]}


def parse_pop(response: httpx.Response) -> dict[str, Any]:
    if response.status_code == 204:
        return {"messages": []}
    names = ("transactionId", "partition", "partitionId", "data", "leaseId", "retryCount")
    return {"messages": [{name: message[name] for name in names} for message in response.json()["messages"]]}


def parse_acks(response: httpx.Response) -> dict[str, Any]:
    results = response.json()
    return {
        "successes": [result["success"] for result in results],
        "dead": [bool(result.get("dlq")) for result in results],
    }


def parse_nothing(response: httpx.Response) -> dict[str, Any]:
    return {}


class Producer:
    """Pushes numbered messages to one partition."""

    def __init__(self, client: RecordedClient, state: LoadState, partition: str, *, repeats: bool) -> None:
        self._client, self._state, self._partition, self._repeats = client, state, partition, repeats

    async def run(self, source: random.Random) -> None:
        number = 0
        while self._state.producing:
            await asyncio.sleep(source.uniform(0.02, 0.12))
            if self._state.backlog > MAX_BACKLOG:
                continue
            numbers = range(number, number + source.randint(1, 6))
            number = numbers.stop
            timeout_s = math.inf if self._repeats else 0.0
            if await poll(lambda numbers=numbers: self._push(numbers), timeout_s):  # type: ignore[misc]
                self._state.pushed += len(numbers)

    async def _push(self, numbers: range) -> bool:
        """Push these messages and return whether they are stored."""
        prefix = self._client.name if self._partition == SHARED_PARTITION else self._partition
        items = [
            {
                "queue": QUEUE,
                "partition": self._partition,
                "transactionId": f"{prefix}-{number}",
                "payload": f"{prefix}-{number}",
            }
            for number in numbers
        ]
        call = await self._client.call(
            "push", {"items": items}, "POST", "/api/v1/push", parse_push, json={"items": items}
        )
        return call.ok


class Consumer:
    """Pops messages of one group and acks, fails, extends or abandons them."""

    def __init__(
        self, client: RecordedClient, state: LoadState, queue: str, group: str, source: random.Random
    ) -> None:
        self._client, self._state, self._queue, self._group = client, state, queue, group
        self._source = source

    async def run(self) -> None:
        while self._state.consuming:
            call = await self._pop()
            messages = call.result.get("messages", [])
            if call.ok and messages:
                await self._process(messages)
            elif not call.ok:
                await asyncio.sleep(0.1)
            if self._state.misbehaving and self._group == "seekers" and self._source.random() < 0.02:
                await self._seek()

    async def drain(self) -> None:
        """Ack every message until this is cancelled."""
        while True:
            call = await self._pop()
            if call.result.get("messages"):
                await self._ack(call.result["messages"], lambda: "completed")
            elif not call.ok:
                await asyncio.sleep(0.1)

    async def _pop(self) -> Call:
        params = {
            "consumerGroup": self._group,
            "batch": self._source.choice((1, 5, 10)),
            "partitions": self._source.choice((1, 2)),
            "wait": "true",
            "timeout": 1000,
        }
        args = {"queue": self._queue, "group": self._group, "lease_s": LEASE_S}
        return await self._client.call(
            "pop", args, "GET", f"/api/v1/pop/queue/{self._queue}", parse_pop, params=params
        )

    async def _process(self, messages: list[dict[str, Any]]) -> None:
        choice = self._source.random() if self._state.misbehaving else 1.0
        if choice < 0.03:
            return  # this consumer dies, and its lease expires
        if choice < 0.06:
            await self._pause(LEASE_S + 0.5)  # too late: another consumer may hold the messages
        elif choice < 0.12:
            await self._extend(messages)
            await self._pause(LEASE_S * 0.7)
        if self._group == "movers" and self._queue == QUEUE:
            await self._move(messages)
        elif choice < 0.5:
            await self._ack_singly(messages)
        else:
            await self._ack(messages, self._choose_status)

    async def _pause(self, seconds: float) -> None:
        """Pause, unless the run ends meanwhile."""

        async def has_ended() -> bool:
            return not self._state.misbehaving

        await poll(has_ended, seconds)

    def _choose_status(self) -> str:
        if not self._state.misbehaving:
            return "completed"
        return self._source.choices(("completed", "failed", "retry", "dlq"), (92, 4, 3, 1))[0]

    async def _ack_singly(self, messages: list[dict[str, Any]]) -> None:
        """Ack each message on its own, out of order."""
        for message in self._source.sample(messages, len(messages)):
            await self._ack([message], lambda: "completed")

    async def _ack(self, messages: list[dict[str, Any]], choose_status: Any) -> None:
        acks = [_ack_item(message, choose_status()) for message in messages]
        body = {"acknowledgments": [_ack_body(ack) for ack in acks]}
        args = {"queue": self._queue, "group": self._group, "acks": acks}
        for _ in range(3):
            call = await self._client.call("ack", args, "POST", "/api/v1/ack/batch", parse_acks, json=body)
            if call.ok:
                self._count(sum(call.result["successes"]))
            if call.outcome != "unknown":
                return
            await asyncio.sleep(0.1)

    async def _move(self, messages: list[dict[str, Any]]) -> None:
        """Ack messages and push them to the output queue in one transaction.

        Some transactions also ack under a lease that does not exist: they must fail and store nothing.
        """
        must_fail = self._state.misbehaving and self._source.random() < 0.05
        acks = [_ack_item(message, "completed") for message in messages]
        prefix = "rolled-back " if must_fail else ""
        items = [
            {
                "queue": OUT,
                "partition": message["partition"],
                "transactionId": prefix + message["transactionId"],
                "payload": message["data"],
            }
            for message in messages
        ]
        operations = [{"type": "push", "items": items}, *({"type": "ack", **_ack_body(ack)} for ack in acks)]
        if must_fail:
            stale = acks[-1] | {"leaseId": "1.00000000-0000-7000-8000-000000000000"}
            operations.append({"type": "ack", **_ack_body(stale)})
        args = {"queue": self._queue, "group": self._group, "acks": acks, "items": items}
        for _ in range(3):
            call = await self._client.call(
                "transaction",
                args,
                "POST",
                "/api/v1/transaction",
                parse_nothing,
                json={"operations": operations},
            )
            if call.ok:
                self._count(len(messages))
            if call.outcome != "unknown":
                return
            await asyncio.sleep(0.1)

    def _count(self, messages: int) -> None:
        if self._queue == QUEUE:
            self._state.acked[self._group] = self._state.acked.get(self._group, 0) + messages

    async def _extend(self, messages: list[dict[str, Any]]) -> None:
        lease = messages[0]["leaseId"]
        args = {"lease": lease, "seconds": LEASE_S}
        path = f"/api/v1/lease/{lease}/extend"
        await self._client.call("extend", args, "POST", path, parse_nothing, json={"seconds": int(LEASE_S)})

    async def _seek(self) -> None:
        to_end = self._source.random() < 0.3
        body = {"toEnd": True} if to_end else {"timestamp": self._state.before_all.isoformat()}
        args = {"queue": self._queue, "group": self._group, "to_end": to_end}
        path = f"/api/v1/consumer-groups/{self._group}/queues/{self._queue}/seek"
        await self._client.call("seek", args, "POST", path, parse_nothing, json=body)


def _ack_item(message: dict[str, Any], status: str) -> dict[str, Any]:
    names = ("transactionId", "partition", "partitionId", "leaseId")
    return {name: message[name] for name in names} | {"status": status}


def _ack_body(ack: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in ack.items() if name != "partition"}
