"""Several broker processes behind one port: their rows are what a client did, and any answers for all."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from penstock.config import Settings
from penstock.durable.pool import Database
from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.supervision.component import start, wait_until_healthy
from penstock.embedded.supervision.platform import build_environment
from penstock.embedded.supervision.process import stop
from penstock.embedded.supervision.service_components import BrokerService
from tests.waiting import wait_until_async

Totals = dict[tuple[str, ...], float]


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[str]:
    """Two workers on a port; they are told to stop at the end, and have stopped."""
    program = BrokerService(settings, build_environment(settings))
    child = start(program)
    try:
        await asyncio.to_thread(wait_until_healthy, program, child)
        yield f"{program.address}/api/v1"
    finally:
        await asyncio.to_thread(stop, child, program.stop_timeout_s)


def settings_of(home: Path, database_url: str) -> Settings:
    return Settings(
        home=home,
        port=any_free_port(),
        workers=2,
        postgres_url=database_url,
        redis_url="redis://127.0.0.1:1/0",
        clickhouse_url="http://127.0.0.1:1",
        log_level="warning",
    )


class Tally:
    """A client that counts what it does. Every request is a new connection, so both workers get some."""

    def __init__(self) -> None:
        self._client = httpx.AsyncClient(verify=False, limits=httpx.Limits(max_keepalive_connections=0))
        self.done: Counter[str] = Counter()

    async def work(self, url: str, rounds: int) -> None:
        for number in range(rounds):
            items = [{"queue": f"q{number % 3}", "payload": n} for n in range(1 + number % 4)]
            pushed = await self._call("POST", f"{url}/push", json={"items": items})
            self.done["push_messages"] += sum(item["status"] == "queued" for item in pushed.json())
            self.done["push_requests"] += 1
            popped = await self._call("GET", f"{url}/pop/queue/q{number % 3}?batch=10&consumerGroup=g")
            self.done["pop_requests"] += 1
            messages = popped.json()["messages"] if popped.status_code == 200 else []
            self.done["pop_messages"] += len(messages)
            acks = [
                {
                    "transactionId": message["transactionId"],
                    "partitionId": message["partitionId"],
                    "leaseId": message["leaseId"],
                    "status": "dlq" if place == 3 else "completed",
                }
                for place, message in enumerate(messages)
            ]
            await self._call("POST", f"{url}/ack/batch", json={"acknowledgments": acks, "consumerGroup": "g"})
            self.done["ack_requests"] += bool(acks)
            self.done["ack_messages"] += len(acks)
            self.done["dead_letters"] += sum(ack["status"] == "dlq" for ack in acks)

    async def close(self) -> None:
        await self._client.aclose()

    async def _call(self, method: str, url: str, **more: Any) -> httpx.Response:
        answer = await self._client.request(method, url, **more)
        assert answer.is_success, answer.text
        return answer


async def test_minute_rows_add_up_to_what_a_client_did(
    database_url: str, database: Database, tmp_path: Path
) -> None:
    settings = settings_of(tmp_path, database_url)
    tally = Tally()
    for _ in range(2):  # a restart in between
        async with serving(settings) as url:
            await asyncio.gather(*(tally.work(url, 8) for _ in range(3)))
    await tally.close()
    columns = ", ".join(f"sum({name})::bigint AS {name}" for name in tally.done)
    [rows] = await database.fetch(
        f"""SELECT {columns}, count(DISTINCT pid)::int AS pids, count(DISTINCT worker)::int AS workers
            FROM worker_metrics"""
    )
    written = dict(rows)
    assert (written.pop("pids"), written.pop("workers")) == (4, 2)
    assert written == tally.done
    [queues] = await database.fetch(
        """SELECT sum(push_messages)::bigint AS push_messages, sum(pop_messages)::bigint AS pop_messages,
                  sum(completed + failed + dead_letters)::bigint AS ack_messages,
                  sum(dead_letters)::bigint AS dead_letters, sum(lag_count)::bigint AS lag_count
           FROM queue_lag_metrics"""
    )
    assert dict(queues) == {
        **{
            name: tally.done[name]
            for name in ("push_messages", "pop_messages", "ack_messages", "dead_letters")
        },
        "lag_count": tally.done["pop_messages"],
    }


async def scraped(url: str) -> tuple[Totals, Totals]:
    """Counters and gauges as one scrape finds them, from whichever worker takes the connection."""
    async with httpx.AsyncClient(verify=False) as client:
        answer = await client.get(url.replace("/api/v1", "/metrics"))
    counters: Totals = {}
    gauges: Totals = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            into = gauges if family.type == "gauge" else counters
            into[(sample.name, *sorted(sample.labels.values()))] = sample.value
    return counters, gauges


async def test_counters_never_go_back_when_a_worker_is_killed(database_url: str, tmp_path: Path) -> None:
    async with serving(settings_of(tmp_path, database_url)) as url:
        tally = Tally()
        last: Totals = {}
        fallen: list[str] = []

        async def look() -> Totals:
            nonlocal last
            counters, gauges = await scraped(url)
            fallen.extend(
                f"{name}: {value} to {counters.get(name, 0)}"
                for name, value in last.items()
                if counters.get(name, 0) < value
            )
            last = counters
            return gauges

        async def counted() -> bool:
            gauges = await look()
            pushed = sum(
                last.get(("penstock_queue_messages_total", "", "pushed", f"q{n}"), 0) for n in range(3)
            )
            return (
                gauges["penstock_workers",] == 2
                and last["penstock_requests_total", "push"] == tally.done["push_requests"]
                and pushed == tally.done["push_messages"]
            )

        await tally.work(url, 12)
        await wait_until_async(counted, 20, "two workers tell the same of both")
        pids = worker_pids(tmp_path)
        assert len(pids) == 2
        os.kill(pids[0], signal.SIGKILL)

        async def replaced() -> bool:
            try:
                gauges = await look()
            except httpx.HTTPError:
                return False  # the killed worker had taken the connection
            return pids[0] not in worker_pids(tmp_path) and gauges["penstock_workers",] == 2

        await wait_until_async(replaced, 40, "another worker has the dead one's number")
        before = tally.done["push_requests"]
        await tally.work(url, 6)
        assert tally.done["push_requests"] > before
        await wait_until_async(counted, 20, "the counters go on from where they were")
        assert fallen == []
        await tally.close()


def worker_pids(home: Path) -> list[int]:
    [directory] = (home / "run").glob("workers-*")
    return [json.loads(file.read_bytes())["pid"] for file in sorted(directory.glob("*.json"))]
