"""`make bench-alerts`: measure evaluations of alert rules over the metrics of many queues.

The evaluator of the platform runs against real servers with generated metrics: first with ten rules, then
with a thousand, then with other scopes, and with rules that every queue breaches. The clock moves 30 seconds
from one evaluation to the next.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import asyncpg
import psutil
from redis.asyncio import Redis
from rich.console import Console
from rich.progress import Progress

from bench import harness
from bench.alert_rules import Rule, breached_rules, mixed_rules, scoped_rules
from bench.series import load, wait_for_merges
from bench.servers import Servers, run_servers
from penstock.alerts.evaluation.evaluator import Evaluator
from penstock.broker.store_migrations import migrate as migrate_stores
from penstock.config import Settings
from penstock.durable.cluster_lock import ClusterLock
from penstock.durable.pool import SCHEMA
from penstock.embedded.servers.clickhouse import ClickHouse
from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.supervision.component import running
from penstock.runqueue.queue import RunQueues
from penstock.warehouse.clickhouse_client import ResultRow, Warehouse
from penstock.warehouse.series.native_format import Column

CADENCE_S = 30.0
MAX_SHARE_OF_CADENCE, MAX_QUERY_GROWTH = 0.2, 1.5

BUCKETS = {"5s": 1_560, "1m": 1_560, "1h": 96}
"""Buckets loaded per queue: more than the longest windows of rules (2 h, 24 h) and of objectives (72 h)."""

UNITS = {
    "rate": "evaluations per second",
    "seconds": "of a whole evaluation: read rules, states and metrics, decide, store",
    "queries": "of ClickHouse, per evaluation",
    "postgres_calls": "per evaluation",
    "pairs": "stored states of a rule and a queue after the evaluation",
    "ratios evaluation_vs_cadence": f"median seconds of 1,000 rules ÷ {CADENCE_S:g}",
    "ratios queries_1000_rules_vs_10": "median queries of 1,000 rules ÷ those of 10 rules",
}


class CountingWarehouse(Warehouse):
    """A client that counts queries."""

    queries = 0

    def query(self, sql: str, parameters: Mapping[str, object] | None = None) -> list[ResultRow]:
        self.queries += 1
        return super().query(sql, parameters)

    def query_columns(self, sql: str, parameters: Mapping[str, object] | None = None) -> dict[str, Column]:
        self.queries += 1
        return super().query_columns(sql, parameters)


@dataclass(slots=True)
class CallCounter:
    """Counts the calls that the evaluator makes on its PostgreSQL connection."""

    calls: int = 0

    @contextmanager
    def count(self) -> Iterator[None]:
        fetch = ClusterLock.fetch

        async def counted_fetch(lock: ClusterLock, query: str, *args: object) -> list[Any]:
            self.calls += 1
            return await fetch(lock, query, *args)

        with patch.object(ClusterLock, "fetch", counted_fetch):
            yield


@dataclass(slots=True)
class Evaluation:
    """One evaluation of a scenario."""

    seconds: float
    cpu_s: float
    queries: int
    postgres_calls: int
    pairs: int


@dataclass(slots=True)
class ScenarioResult:
    rules: int
    evaluations: list[Evaluation] = field(default_factory=list)

    @property
    def first_s(self) -> float:
        """The evaluation of an evaluator that has just started, with empty caches."""
        return self.evaluations[0].seconds

    def median(self, name: str) -> float:
        """Return the median over the evaluations after the first."""
        return float(statistics.median(getattr(evaluation, name) for evaluation in self.evaluations[1:]))

    @property
    def slowest_s(self) -> float:
        return max(evaluation.seconds for evaluation in self.evaluations[1:])


class AlertBench:
    """The servers with their data, and evaluators whose clock the benchmark moves."""

    def __init__(
        self, connection: asyncpg.Connection[Any], url: str, redis_url: str, warehouse: CountingWarehouse
    ) -> None:
        self._connection = connection
        self._url = url
        self._redis_url = redis_url
        self._warehouse = warehouse
        self._environment_id = 0
        self.now_s = 0.0

    async def create_queues(self, count: int) -> None:
        self._environment_id = await self._connection.fetchval(
            "INSERT INTO environments (organization, project, name) VALUES ('default', 'default', 'default') "
            "ON CONFLICT (organization, project, name) DO UPDATE SET name = excluded.name RETURNING id"
        )
        await self._connection.execute(
            "INSERT INTO queues (environment_id, name) SELECT $1, 'queue-' || n "
            "FROM generate_series(0, $2::int - 1) n",
            *(self._environment_id, count),
        )
        await self._connection.execute(
            "INSERT INTO alert_channels (id, environment_id, name, kind, settings, secrets) "
            "VALUES ($1, $2, 'ops', 'webhook', '{}', '')",
            *(uuid4(), self._environment_id),
        )

    async def evaluate(self, rules: Sequence[Rule], rounds: int, progress: Progress) -> ScenarioResult:
        """Store the rules and evaluate them: once with a new evaluator, then `rounds` times."""
        await self._connection.execute("TRUNCATE alert_rules CASCADE")
        await self._connection.executemany(
            "INSERT INTO alert_rules (id, environment_id, name, rule, enabled) VALUES ($1, $2, $3, $4, true)",
            [(uuid4(), self._environment_id, rule["name"], json.dumps(rule)) for rule in rules],
        )
        await self._connection.execute("VACUUM ANALYZE alert_rules, alert_states, alert_incidents")
        result = ScenarioResult(len(rules))
        evaluator = Evaluator(
            self._url,
            Redis.from_url(self._redis_url),
            self._warehouse,
            RunQueues(self._redis_url),
            clock=lambda: self.now_s,
        )
        task = progress.add_task(f"{len(rules):,} rules", total=rounds + 1)
        try:
            for _ in range(rounds + 1):
                result.evaluations.append(await self._evaluate_once(evaluator))
                progress.update(task, advance=1, refresh=True)
        finally:
            await evaluator.stop()
            await evaluator.close()
        return result

    async def _evaluate_once(self, evaluator: Evaluator) -> Evaluation:
        self.now_s += CADENCE_S
        counter, queries = CallCounter(), self._warehouse.queries
        process = psutil.Process()
        cpu, started = process.cpu_times(), time.perf_counter()
        with counter.count():
            assert await evaluator.run_round()
        seconds = time.perf_counter() - started
        cpu_after = process.cpu_times()
        cpu_s = cpu_after.user + cpu_after.system - cpu.user - cpu.system
        pairs = await self._connection.fetchval("SELECT count(*) FROM alert_states")
        return Evaluation(seconds, cpu_s, self._warehouse.queries - queries, counter.calls, pairs)


async def measure_scenarios(
    servers: Servers,
    clickhouse_url: str,
    scenarios: Mapping[str, Sequence[Rule]],
    queues: int,
    rounds: int,
    progress: Progress,
) -> tuple[dict[str, ScenarioResult], int]:
    """Load the metrics and evaluate each scenario. Return the results and the number of loaded rows."""
    url = await servers.create_database("alerts")
    await migrate_stores(Settings(postgres_url=url, clickhouse_url=clickhouse_url))
    warehouse = CountingWarehouse(clickhouse_url, 600)
    connection = await asyncpg.connect(url, server_settings={"search_path": SCHEMA})
    try:
        end_s = int(time.time())
        rows = await asyncio.to_thread(load, warehouse, queues, end_s, progress, BUCKETS)
        await asyncio.to_thread(wait_for_merges, warehouse)
        bench = AlertBench(connection, url, servers.redis_url, warehouse)
        bench.now_s = end_s - CADENCE_S * len(scenarios) * (rounds + 1)
        await bench.create_queues(queues)
        results = {name: await bench.evaluate(rules, rounds, progress) for name, rules in scenarios.items()}
    finally:
        await connection.close()
        warehouse.close()
    return results, rows


def run(queues: int, rules: int, rounds: int, results_in: Path, console: Console) -> dict[str, Any]:
    """Measure, print and write the results. Return the ratios."""
    few, many = "10 rules", f"{rules:,} rules"
    scenarios = {
        few: mixed_rules(10),
        many: mixed_rules(rules),
        "own scopes": scoped_rules(rules, queues),
        "all fire": breached_rules(rules),
    }
    machine = harness.describe_environment(["chdb", "asyncpg", "numpy"])
    with run_servers() as servers, harness.progress_bar(console) as progress:
        clickhouse = ClickHouse(servers.home, any_free_port())
        with running(clickhouse):
            scenario_results, rows = asyncio.run(
                measure_scenarios(servers, clickhouse.url, scenarios, queues, rounds, progress)
            )
    ratios = {
        "evaluation_vs_cadence": scenario_results[many].median("seconds") / CADENCE_S,
        "queries_1000_rules_vs_10": scenario_results[many].median("queries")
        / scenario_results[few].median("queries"),
    }
    results = harness.Results()
    for name, result in scenario_results.items():
        for number, evaluation in enumerate(result.evaluations):
            counts = asdict(evaluation)
            results.measurements.append(
                harness.Measurement(name, "evaluator", number, 1 / evaluation.seconds, counts)
            )
    results.extra = {
        "queues": queues,
        "rules": rules,
        "rows": rows,
        "cadence_s": CADENCE_S,
        "limits": {
            "evaluation_vs_cadence": MAX_SHARE_OF_CADENCE,
            "queries_1000_rules_vs_10": MAX_QUERY_GROWTH,
        },
        "first_evaluation_s": {name: round(result.first_s, 3) for name, result in scenario_results.items()},
    }
    path = harness.write_json(results_in, "alerts", results, ratios, UNITS, machine)
    _show(console, queues, scenario_results, ratios)
    _plot(results_in / "alerts.png", queues, scenario_results)
    console.print(f"written to {path}")
    return ratios


def _show(
    console: Console, queues: int, results: Mapping[str, ScenarioResult], ratios: Mapping[str, float]
) -> None:
    rows = [
        [
            name,
            f"{result.median('seconds'):.2f}",
            f"{result.slowest_s:.2f}",
            f"{result.first_s:.2f}",
            f"{result.median('cpu_s'):.2f}",
            f"{result.median('queries'):.3g}",
            f"{result.median('postgres_calls'):g}",
            f"{result.median('pairs'):,.0f}",
        ]
        for name, result in results.items()
    ]
    heads = ["", "median", "max", "first", "cpu", "queries", "calls", "states"]
    console.print(harness.build_table(f"An evaluation over {queues:,} queues", heads, rows))
    console.print("median, max and first in seconds; first: of a new evaluator; cpu: of the")
    console.print("evaluator alone; queries: of ClickHouse; calls: of PostgreSQL; states: stored")
    for name, limit in (
        ("evaluation_vs_cadence", MAX_SHARE_OF_CADENCE),
        ("queries_1000_rules_vs_10", MAX_QUERY_GROWTH),
    ):
        console.print(f"{name}: {ratios[name]:.3g} (at most {limit:g})")


def _plot(path: Path, queues: int, results: Mapping[str, ScenarioResult]) -> None:
    panels = {
        "seconds per evaluation": {name: result.median("seconds") for name, result in results.items()},
        "ClickHouse queries per evaluation": {
            name: result.median("queries") for name, result in results.items()
        },
    }
    harness.plot_bars(path, f"Alert rules over {queues:,} queues", panels, "", ours="", columns=2)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.alerts", description=__doc__)
    parser.add_argument("--queues", type=int, default=1_000)
    parser.add_argument("--rules", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=10, help="evaluations per scenario, after the first")
    parser.add_argument("--quick", action="store_true", help="a smoke run: few queues, rules and rounds")
    harness.add_results_option(parser)
    arguments = parser.parse_args()
    sizes = (10, 100, 6) if arguments.quick else (arguments.queues, arguments.rules, arguments.rounds)
    queues, rules, rounds = sizes
    run(queues, rules, rounds, arguments.results, Console())


if __name__ == "__main__":
    main()
