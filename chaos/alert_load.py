"""A queue that is filled until its alert fires, and drained until the alert is resolved, again and again.

What the alert has to do follows from the history: an incident while the queue is filled, none while it is
empty.
"""

from __future__ import annotations

import asyncio
import math
import random
from typing import Any

import httpx

from chaos.calls import RecordedClient
from chaos.history import HistoryWriter
from chaos.message_load import WATCHED, Consumer, LoadState, parse_push
from chaos.polling import poll
from chaos.webhook_receiver import SIGNING_SECRET

RULE, CHANNEL, GROUP = "chaos", "receiver", "watched"
FILL = 5
FIRE_TIMEOUT_S = 240.0
"""How long an alert may take to fire or to be resolved once no fault happens any more."""
INCIDENT_POLL_S = 1.0
READ_TIMEOUT_S = 10


async def create_alert_rule(http: httpx.AsyncClient, receiver_port: int) -> None:
    """Create the channel and the rule, which fires while a message waits in the queue."""
    channel = {
        "name": CHANNEL,
        "kind": "webhook",
        "url": f"http://127.0.0.1:{receiver_port}/hook",
        "signingSecrets": [SIGNING_SECRET],
    }
    rule = {
        "name": RULE,
        "type": "BACKLOG",
        "queue": WATCHED,
        "statistic": "last",
        "threshold": 0,
        "windowMinutes": 1,
        "cooldownMinutes": 0,
        "channels": [CHANNEL],
    }
    for path, body in (("alert-channels", channel), ("alert-rules", rule)):
        (await http.post(f"/api/v1/{path}", json=body)).raise_for_status()


class AlertLoad:
    """Fills and drains the watched queue until the load ends."""

    def __init__(self, client: RecordedClient, http: httpx.AsyncClient, history: HistoryWriter) -> None:
        self._client, self._http, self._history = client, http, history
        self._calm_since: float | None = None
        """When the last fault was over. Before, no wait has an end: faults may hold the metrics up."""
        self._number = 0

    async def run(self, state: LoadState, source: random.Random) -> None:
        consumer = Consumer(self._client, state, WATCHED, GROUP, source)
        while state.producing:
            await self._fill()
            await self._wait("alert fires", True)
            draining = asyncio.create_task(consumer.drain())
            try:
                await self._wait("alert resolves", False)
            finally:
                draining.cancel()
                await asyncio.gather(draining, return_exceptions=True)
            await asyncio.sleep(source.uniform(1, 5))

    def expect_calm(self) -> None:
        """Let waits fail from now on, because no further fault happens."""
        self._calm_since = self._history.now()

    async def _fill(self) -> None:
        """Push messages, again until it is answered."""
        names = [f"watched-{self._number + n}" for n in range(FILL)]
        self._number += FILL
        items = [
            {"queue": WATCHED, "partition": "p0", "transactionId": name, "payload": name} for name in names
        ]

        async def push() -> bool:
            args = {"items": items}
            return (await self._client.call("push", args, "POST", "/api/v1/push", parse_push, json=args)).ok

        while not await poll(push, FIRE_TIMEOUT_S):
            continue

    async def _wait(self, op: str, is_open: bool) -> None:
        """Wait for the incident, or for its end, and record whether it came."""
        number = self._history.invoke(self._client.name, op, {"queue": WATCHED})
        since = self._history.now()
        while (incidents := await self._read_open_incidents()) is None or bool(incidents) != is_open:
            calm_since = math.inf if self._calm_since is None else self._calm_since
            if self._history.now() > max(since, calm_since) + FIRE_TIMEOUT_S:
                self._history.complete(number, "fail", {})
                return
            await asyncio.sleep(INCIDENT_POLL_S)
        self._history.complete(number, "ok", {"incidents": [incident["id"] for incident in incidents]})

    async def _read_open_incidents(self) -> list[dict[str, Any]] | None:
        """Return the incidents that are not resolved; None if the broker cannot say."""
        params = {"state": "unresolved", "rule": RULE}
        try:
            response = await self._http.get("/api/v1/incidents", params=params, timeout=READ_TIMEOUT_S)
        except httpx.HTTPError:
            return None
        incidents: list[dict[str, Any]] | None = response.json()["incidents"] if response.is_success else None
        return incidents
