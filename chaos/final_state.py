"""Read what is stored at the end of a run, after the queues were drained, into the history.

The log and the positions are read from PostgreSQL itself, because a pop whose answer is lost would hide
messages. Everything else is read as users read it, over HTTP.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import defaultdict
from datetime import datetime
from typing import Any

import asyncpg
import httpx

from chaos.alert_load import CHANNEL, RULE
from chaos.history import HistoryWriter
from chaos.message_load import OUT, QUEUE, WATCHED
from chaos.polling import POLL_S, poll
from chaos.task_load import LIMITS

DRAIN_TIMEOUT_S = 240
"""Longer than a clock is stepped: a lease of a clock that was ahead lasts as much longer."""
READ_TIMEOUT_S = 60
SERIES_TIMEOUT_S = 180
SERIES_STABLE_S = 35
"""Longer than two comparisons of counts with PostgreSQL."""
NOTICE_TIMEOUT_S = 60
"""For the delivery of the last notices. Those that wait for longer are recorded as pending."""
PAGE = 1000
QUEUES = (QUEUE, OUT, WATCHED)

_LOG = """SELECT q.name AS queue, t.name AS partition, l.transaction_ids FROM penstock.partitions t
   JOIN penstock.queues q ON q.id = t.queue_id JOIN penstock.log l ON l.partition_id = t.id
   WHERE q.name = ANY ($1) ORDER BY t.id, l.first_offset"""
_UNFINISHED = """SELECT coalesce(sum(t.next_offset - p.cursor), 0)::bigint FROM penstock.positions p
   JOIN penstock.partitions t ON t.id = p.partition_id JOIN penstock.queues q ON q.id = t.queue_id
   WHERE q.name = ANY ($1)"""
_DEFERRED = "SELECT coalesce(sum(deferred_pushes + deferred_acks), 0)::bigint FROM penstock.partitions"


class FinalState:
    """Waits until everything is drained, and records it."""

    def __init__(self, postgres_url: str, http: httpx.AsyncClient, history: HistoryWriter) -> None:
        self._postgres_url, self._http, self._history = postgres_url, http, history

    async def wait_until_drained(self) -> str | None:
        """Return None when nothing is left to do, or what is left when it has not shrunk for the timeout."""
        least, since = math.inf, self._history.now()
        while self._history.now() - since < DRAIN_TIMEOUT_S:
            try:
                work = await self._count_work()
            except (httpx.HTTPError, OSError, asyncpg.PostgresError) as error:
                work = {repr(error): 1}
            if not any(work.values()):
                return None
            if sum(work.values()) < least:
                least, since = sum(work.values()), self._history.now()
            await asyncio.sleep(POLL_S)
        return ", ".join(f"{count} {name}" for name, count in work.items() if count)

    async def record(self, *, pipeline: bool, series_from_s: float = 0.0) -> None:
        """Record everything; the series not before a time, because they end at the current one."""
        await self._record_log()
        await self._record_dead_letters()
        for queue in LIMITS:
            await self._record_run_queue(queue)
        if pipeline:
            await self._record_alerts()
            await asyncio.sleep(max(0.0, series_from_s - self._history.now()))
            await self._record_series((*QUEUES, *LIMITS))

    async def _count_work(self) -> dict[str, int]:
        stats = await self._get("/api/v1/operations/stats")
        tasks = [await self._get(f"/api/v1/run-queues/{queue}") for queue in LIMITS]
        connection = await asyncpg.connect(self._postgres_url)
        try:
            deferred = await connection.fetchval(_DEFERRED)
            unfinished = await connection.fetchval(_UNFINISHED, QUEUES)
        finally:
            await connection.close()
        return {
            "records of the journal": stats["journal"]["records"],
            "deferred operations": deferred,
            "unfinished messages": unfinished,
            "tasks": sum(task["depth"] + task["delayed"] + task["running"] for task in tasks),
        }

    async def _get(self, path: str, **params: Any) -> dict[str, Any]:
        response = await self._http.get(path, params=params, timeout=READ_TIMEOUT_S)
        response.raise_for_status()
        body: dict[str, Any] = response.json()
        return body

    def _write(self, op: str, args: dict[str, Any], result: dict[str, Any]) -> None:
        self._history.complete(self._history.invoke("audit", op, args), "ok", result)

    async def _record_log(self) -> None:
        connection = await asyncpg.connect(self._postgres_url)
        try:
            rows = await connection.fetch(_LOG, QUEUES)
            tallies = await connection.fetch(
                """SELECT q.name AS queue, sum(y.completed)::bigint AS completed FROM penstock.tallies y
                   JOIN penstock.queues q ON q.id = y.queue_id WHERE q.name = ANY ($1) GROUP BY 1""",
                QUEUES,
            )
        finally:
            await connection.close()
        logs: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        for row in rows:
            logs[row["queue"]][row["partition"]] += row["transaction_ids"]
        completed = {row["queue"]: row["completed"] for row in tallies}
        for queue in QUEUES:
            result = {"partitions": logs[queue], "completed": completed.get(queue, 0)}
            self._write("final log", {"queue": queue}, result)

    async def _record_dead_letters(self) -> None:
        letters: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            page = await self._get("/api/v1/dlq", limit=PAGE, **({"cursor": cursor} if cursor else {}))
            letters += [
                {
                    name: letter[name]
                    for name in ("kind", "queue", "partition", "consumerGroup", "transactionId")
                }
                for letter in page["messages"]
            ]
            cursor = page["nextCursor"]
            if not cursor:
                break
        status = await self._get("/api/v1/dlq/status", limit=PAGE)
        # The list has dead tasks only if it names their run queue, so they are read from there.
        counts = [
            [row["queue"], row["consumerGroup"], row["deadLetters"]]
            for row in status["groups"]
            if row["kind"] == "durable"
        ]
        self._write("final dead letters", {}, {"letters": letters, "counts": counts})

    async def _record_run_queue(self, queue: str) -> None:
        figures = await self._get(f"/api/v1/run-queues/{queue}")
        dead: list[str] = []
        after: dict[str, str] = {}
        while True:
            page = await self._get(f"/api/v1/run-queues/{queue}/dead-letters", limit=100, **after)
            dead += [task["id"] for task in page["tasks"]]
            if not page["next"]:
                break
            after = {"after": page["next"]}
        counts = {name: figures[name] for name in ("depth", "delayed", "running", "dead")}
        self._write("final run queue", {"queue": queue}, counts | {"dead_ids": dead})

    async def _record_alerts(self) -> None:
        """Record incidents and notices, with the times of the history."""
        notices: list[dict[str, Any]] = []

        async def are_delivered() -> bool:
            nonlocal notices
            notices = (await self._get("/api/v1/alert-notices", limit=PAGE, channel=CHANNEL))["notices"]
            return all(notice["state"] != "pending" for notice in notices)

        await poll(are_delivered, NOTICE_TIMEOUT_S)
        incidents = (await self._get("/api/v1/incidents", limit=PAGE, rule=RULE))["incidents"]
        began_s = time.time() - self._history.now()

        def to_history(text: str | None) -> float | None:
            return None if text is None else datetime.fromisoformat(text).timestamp() - began_s

        result = {
            "incidents": [
                {
                    "id": incident["id"],
                    "opened_at": to_history(incident["openedAt"]),
                    "resolved_at": to_history(incident["resolvedAt"]),
                }
                for incident in incidents
            ],
            "notices": [
                {
                    "id": notice["id"],
                    "incident": notice["incidentId"],
                    "transition": notice["transition"],
                    "state": notice["state"],
                }
                for notice in notices
            ],
        }
        self._write("final alerts", {}, result)

    async def _record_series(self, queues: tuple[str, ...]) -> None:
        """Read the sums of every tier until they have not changed for a while.

        A broker adds what a killed one did not emit when it next compares its counts with PostgreSQL.
        """
        deadline = self._history.now() + SERIES_TIMEOUT_S
        last: dict[str, Any] = {}
        same_since = self._history.now()
        while self._history.now() - same_since < SERIES_STABLE_S and self._history.now() < deadline:
            tiers = {queue: await self._read_tiers(queue) for queue in queues}
            if tiers != last:
                last, same_since = tiers, self._history.now()
            await asyncio.sleep(2)
        for queue in queues:
            self._write("final series", {"queue": queue}, {"tiers": last[queue]})

    async def _read_tiers(self, queue: str) -> dict[str, dict[str, int]]:
        tiers = {}
        for resolution in ("5s", "1m", "1h"):
            series = await self._get(
                f"/api/v1/queues/{queue}/metrics", period="2h", resolution=resolution, fields="throughput"
            )
            points = series["timeseries"]
            tiers[resolution] = {
                "enqueued": sum(point["throughput"]["enqueued"] for point in points),
                "completed": sum(point["throughput"]["completed"] for point in points),
                "lost": sum(
                    series["completeness"][name] for name in ("lost", "rejected", "streams_replaced")
                ),
            }
        return tiers
