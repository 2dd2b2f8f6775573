"""Several broker processes behind one port: minute rows and metrics cover all of them."""

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
from tests.integration.api.calls import label_values
from tests.waiting import wait_until_async

Totals = dict[tuple[str, ...], float]


@asynccontextmanager
async def run_two_workers(settings: Settings) -> AsyncIterator[str]:
    """Two workers on one port. They have stopped when the context ends."""
    program = BrokerService(settings, build_environment(settings))
    child = start(program)
    try:
        await asyncio.to_thread(wait_until_healthy, program, child)
        yield f"{program.address}/api/v1"
    finally:
        await asyncio.to_thread(stop, child, program.stop_timeout_s)


def two_worker_settings(home: Path, database_url: str) -> Settings:
    return Settings(
        home=home,
        port=any_free_port(),
        workers=2,
        postgres_url=database_url,
        redis_url="redis://127.0.0.1:1/0",
        clickhouse_url="http://127.0.0.1:1",
        log_level="warning",
    )


class CountingClient:
    """A client that counts its operations. Every request opens a new connection, so both workers get some."""

    def __init__(self) -> None:
        self._client = httpx.AsyncClient(verify=False, limits=httpx.Limits(max_keepalive_connections=0))
        self.counts: Counter[str] = Counter()

    async def work(self, url: str, rounds: int) -> None:
        for number in range(rounds):
            items = [{"queue": f"q{number % 3}", "payload": n} for n in range(1 + number % 4)]
            pushed = await self._call("POST", f"{url}/push", json={"items": items})
            self.counts["push_messages"] += sum(item["status"] == "queued" for item in pushed.json())
            self.counts["push_requests"] += 1
            popped = await self._call("GET", f"{url}/pop/queue/q{number % 3}?batch=10&consumerGroup=g")
            self.counts["pop_requests"] += 1
            messages = popped.json()["messages"] if popped.status_code == 200 else []
            self.counts["pop_messages"] += len(messages)
            acks = [
                {
                    "transactionId": message["transactionId"],
                    "partitionId": message["partitionId"],
                    "leaseId": message["leaseId"],
                    "status": "dlq" if index == 3 else "completed",
                }
                for index, message in enumerate(messages)
            ]
            await self._call("POST", f"{url}/ack/batch", json={"acknowledgments": acks, "consumerGroup": "g"})
            self.counts["ack_requests"] += bool(acks)
            self.counts["ack_messages"] += len(acks)
            self.counts["dead_letters"] += sum(ack["status"] == "dlq" for ack in acks)

    async def close(self) -> None:
        await self._client.aclose()

    async def _call(self, method: str, url: str, **options: Any) -> httpx.Response:
        response = await self._client.request(method, url, **options)
        assert response.is_success, response.text
        return response


async def test_minute_rows_add_up_to_the_operations_of_a_client(
    database_url: str, database: Database, tmp_path: Path
) -> None:
    settings = two_worker_settings(tmp_path, database_url)
    counting_client = CountingClient()
    for _ in range(2):  # a restart in between
        async with run_two_workers(settings) as url:
            await asyncio.gather(*(counting_client.work(url, 8) for _ in range(3)))
    await counting_client.close()
    columns = ", ".join(f"sum({name})::bigint AS {name}" for name in counting_client.counts)
    [rows] = await database.fetch(
        f"""SELECT {columns}, count(DISTINCT pid)::int AS pids, count(DISTINCT worker)::int AS workers
            FROM worker_metrics"""
    )
    written = dict(rows)
    assert (written.pop("pids"), written.pop("workers")) == (4, 2)
    assert written == counting_client.counts
    [queues] = await database.fetch(
        """SELECT sum(push_messages)::bigint AS push_messages, sum(pop_messages)::bigint AS pop_messages,
                  sum(completed + failed + dead_letters)::bigint AS ack_messages,
                  sum(dead_letters)::bigint AS dead_letters, sum(lag_count)::bigint AS lag_count
           FROM queue_lag_metrics"""
    )
    assert dict(queues) == {
        **{
            name: counting_client.counts[name]
            for name in ("push_messages", "pop_messages", "ack_messages", "dead_letters")
        },
        "lag_count": counting_client.counts["pop_messages"],
    }


async def scrape(url: str) -> tuple[Totals, Totals]:
    """The counters and gauges of one scrape, from the worker that accepts the connection."""
    async with httpx.AsyncClient(verify=False) as client:
        response = await client.get(url.replace("/api/v1", "/metrics"))
    counters: Totals = {}
    gauges: Totals = {}
    families = text_string_to_metric_families(response.text)  # type: ignore[no-untyped-call]
    for family in families:
        for sample in family.samples:
            samples = gauges if family.type == "gauge" else counters
            samples[(sample.name, *sorted(label_values(sample.labels)))] = sample.value
    return counters, gauges


async def test_counters_never_decrease_when_a_worker_is_killed(database_url: str, tmp_path: Path) -> None:
    async with run_two_workers(two_worker_settings(tmp_path, database_url)) as url:
        counting_client = CountingClient()
        last: Totals = {}
        decreased: list[str] = []

        async def scrape_and_compare() -> Totals:
            nonlocal last
            counters, gauges = await scrape(url)
            decreased.extend(
                f"{name}: {value} to {counters.get(name, 0)}"
                for name, value in last.items()
                if counters.get(name, 0) < value
            )
            last = counters
            return gauges

        async def counters_match() -> bool:
            gauges = await scrape_and_compare()
            pushed = sum(
                last.get(("penstock_queue_messages_total", "", "pushed", f"q{n}"), 0) for n in range(3)
            )
            return (
                gauges["penstock_workers",] == 2
                and last["penstock_requests_total", "push"] == counting_client.counts["push_requests"]
                and pushed == counting_client.counts["push_messages"]
            )

        await counting_client.work(url, 12)
        await wait_until_async(counters_match, 20, "the counters of both workers are combined")
        pids = worker_pids(tmp_path)
        assert len(pids) == 2

        async def either_worker_answers_for_both() -> bool:
            async with httpx.AsyncClient(verify=False) as client:
                workers = (await client.get(f"{url}/status/workers")).json()["workers"]
            assert [(worker["worker"], worker["pid"]) for worker in workers] == list(enumerate(pids))
            return all(worker["recent"]["timestamps"] for worker in workers)

        await wait_until_async(either_worker_answers_for_both, 20, "both workers have samples")
        os.kill(pids[0], signal.SIGKILL)

        async def worker_is_replaced() -> bool:
            try:
                gauges = await scrape_and_compare()
            except httpx.HTTPError:
                return False  # the killed worker had accepted the connection
            return pids[0] not in worker_pids(tmp_path) and gauges["penstock_workers",] == 2

        await wait_until_async(worker_is_replaced, 40, "another worker has taken over the slot")
        before = counting_client.counts["push_requests"]
        await counting_client.work(url, 6)
        assert counting_client.counts["push_requests"] > before
        await wait_until_async(counters_match, 20, "the counters continue from their old values")
        assert decreased == []
        await counting_client.close()


def worker_pids(home: Path) -> list[int]:
    [directory] = (home / "run").glob("workers-*")
    return [json.loads(file.read_bytes())["pid"] for file in sorted(directory.glob("*.json"))]
