"""How fast series are read: every row of the routing table, over as many rows as a busy platform keeps.

The rows are made by ClickHouse itself, in the form that views and pipeline leave them. A series is timed
twice: what ClickHouse and the connection to it take (the query), and all of it up to the JSON (the answer).
The time that a `SELECT 1` takes through the same connection is taken off both. On a busy machine trust the
processor time.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import psutil
from rich.console import Console
from rich.progress import Progress

from bench import harness
from bench.servers import Processes
from penstock.definitions import QUEUE
from penstock.embedded.servers.clickhouse import ClickHouse
from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.supervision.component import running
from penstock.model import DEFAULT_SCOPE
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.schema import QUANTILE_FUNCTION, TierTable, table_gauges, tier_tables
from penstock.warehouse.schema_migrations import migrate
from penstock.warehouse.series import packed_maximum
from penstock.warehouse.series.native_format import Column
from penstock.warehouse.series.queue_series import environment_series, queue_series
from penstock.warehouse.series.window import window

GOAL_MS = 50.0
ROUTING = ("30m", "2h", "24h", "7d", "30d", "90d")
"""The periods of the routing table. Its last row, "30 days and more", has 720 points; 90 days are three times
that."""

BUCKETS = {"5s": 34_560, "1m": 11_520, "1h": 2_208}
"""What is loaded per queue: 2 days of 5 seconds, 8 days of minutes, 92 days of hours. Windows
begin within that, as they do for queues that have been active for longer."""

SAMPLES = {"5s": 2, "1m": 24, "1h": 200}
"""Waits and run times behind a row's digests: 2 messages in 5 seconds; in an hour a digest is full."""

UNWRITTEN_S = 90
"""Percentiles of buckets that ended less than this ago are not written down yet: the pipeline does it once a
minute."""

CHUNK_ROWS, CHUNK_SAMPLES = 250_000, 8_000_000
"""What one insert makes at most, so that the memory of a load is bounded."""

LOADERS = 2
FULL_ROWS, QUICK_ROWS = 34_560_000, 345_600


class Timed(Warehouse):
    """A connection that knows how long it was waited for; what is asked at the same time counts once."""

    took_s = 0.0
    under_way = 0
    began = 0.0
    lock = threading.Lock()

    def query(self, sql: str, parameters: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        with self._watch():
            return super().query(sql, parameters)

    def query_columns(self, sql: str, parameters: Mapping[str, Any] | None = None) -> dict[str, Column]:
        with self._watch():
            return super().query_columns(sql, parameters)

    @contextmanager
    def _watch(self) -> Iterator[None]:
        with self.lock:
            if not self.under_way:
                self.began = time.perf_counter()
            self.under_way += 1
        try:
            yield
        finally:
            with self.lock:
                self.under_way -= 1
                if not self.under_way:
                    self.took_s += time.perf_counter() - self.began


@dataclass(slots=True)
class Times:
    """Milliseconds of one row of the routing table."""

    points: int = 0
    query: list[float] = field(default_factory=list)
    answer: list[float] = field(default_factory=list)
    server_cpu: list[float] = field(default_factory=list)


def load_statement(table: TierTable, end_s: int, first: int, buckets: int, queues: int) -> str:
    """An insert of `buckets` rows per queue, the newest `first` buckets before the one `end_s` falls in."""
    width, samples = table.tier.width_s, SAMPLES[table.tier.name]
    start = end_s // width * width + width - (first + buckets) * width
    moment = f"toDateTime({start} + {width} * (number % {buckets}), 'UTC')"
    columns = [f"'{value}'" for value in ("default", "default", "default")]
    if table.rollup is None:
        columns += [f"concat('queue-', toString(intDiv(number, {buckets})))", "''"]
    columns += [moment, "3", f"toUInt64(toUnixTimestamp({moment})) * 1000"]
    columns += [f"rand({n}) % 20" for n, _ in enumerate(QUEUE.counters)]
    for n, _ in enumerate(table_gauges(QUEUE, table.rollup), start=20):
        columns += [f"toNullable(toUInt64(1000 + rand({n}) % 50))"]
        columns += [packed_maximum.pack_observation(f"rand({n}) % 1000", f"toUnixTimestamp({moment})", "number")]
    state = QUANTILE_FUNCTION.replace("(", "State(", 1)
    for n, _ in enumerate(QUEUE.samples, start=40):
        values = f"arrayMap(i -> toUInt64((rand({n}) + i * 7919) % 5000), range({samples}))"
        columns += [str(samples), f"arraySum({values})", f"arrayMax({values})"]
        digest = f"initializeAggregation('{state}', {values})"
        columns += [digest]
        if table.tier.stores_percentiles:
            found = [f"finalizeAggregation({digest})[{place}]" for place in (1, 2, 3)]
            columns += [
                f"if(toUnixTimestamp({moment}) + {width + UNWRITTEN_S} > {end_s}, 0, "
                f"{packed_maximum.pack_percentiles(str(samples), found)})"
            ]
    return f"INSERT INTO {table.name} SELECT {', '.join(columns)} FROM numbers({queues * buckets})"


def load(warehouse: Warehouse, queues: int, end_s: int, progress: Progress) -> int:
    """Fill every tier of `queues` queues and of their environment; the rows that were made."""
    jobs = []
    for table in tier_tables(QUEUE):
        things = queues if table.rollup is None else 1
        rows = min(CHUNK_ROWS, CHUNK_SAMPLES // SAMPLES[table.tier.name])
        step = max(rows // things, 1)
        for first in range(0, BUCKETS[table.tier.name], step):
            buckets = min(step, BUCKETS[table.tier.name] - first)
            jobs.append((things * buckets, load_statement(table, end_s, first, buckets, things)))
    total = sum(rows for rows, _ in jobs)
    task = progress.add_task("loading rows", total=total)

    def run(job: tuple[int, str]) -> None:
        rows, statement = job
        warehouse.command(statement, {"max_threads": 1, "max_partitions_per_insert_block": 0})
        progress.update(task, advance=rows, refresh=True)

    with ThreadPoolExecutor(LOADERS) as pool:
        list(pool.map(run, jobs))
    return total


def settle(warehouse: Warehouse, timeout_s: float = 300.0) -> None:
    """Wait for the merges that the load caused, which would be measured otherwise; but not for ever."""
    deadline, quiet = time.monotonic() + timeout_s, 0
    while quiet < 5 and time.monotonic() < deadline:
        [row] = warehouse.query("SELECT count() AS merges FROM system.merges")
        quiet = 0 if row["merges"] else quiet + 1
        time.sleep(0.3)


def put_together(warehouse: Warehouse, end_s: int, progress: Progress) -> None:
    """Do at once what ClickHouse does by itself when a day of minutes or hours has passed by an hour."""
    tables = ", ".join(f"'{table.name}'" for table in tier_tables(QUEUE) if table.tier.merges_days)
    many = warehouse.query(
        "SELECT table, partition FROM system.parts WHERE active AND database = currentDatabase() "
        f"AND table IN ({tables}) AND partition < toString(toDate({end_s} - 3600, 'UTC')) "
        "GROUP BY table, partition HAVING count() > 1"
    )
    for row in progress.track(many, description="merging days"):
        warehouse.command(f"OPTIMIZE TABLE {row['table']} PARTITION '{row['partition']}' FINAL")


def measure(
    warehouse: Timed, server: Processes, queues: int, end_s: int, repeats: int, progress: Progress
) -> tuple[list[float], dict[str, dict[str, Times]]]:
    """The round trips, and the times per period of a queue and of the environment, in turns."""
    chosen = random.Random(1)
    round_trips: list[float] = []
    found = {who: {period: Times() for period in ROUTING} for who in ("queue", "environment")}
    task = progress.add_task("reading series", total=repeats + 1)
    for number in range(repeats + 1):
        for period in ROUTING:
            for who, times in found.items():
                started = time.perf_counter()
                warehouse.query("SELECT 1")
                if number:  # the first round warms up
                    round_trips.append((time.perf_counter() - started) * 1000)
                cpu_s, warehouse.took_s, started = server.cpu_s(), 0.0, time.perf_counter()
                if who == "queue":
                    queue = f"queue-{chosen.randrange(queues)}"
                    series = queue_series(warehouse, DEFAULT_SCOPE, queue, period=period, now=end_s)
                else:
                    series = environment_series(warehouse, DEFAULT_SCOPE, period=period, now=end_s)
                msgspec.json.encode(series)
                if number:
                    times[period].answer.append((time.perf_counter() - started) * 1000)
                    times[period].query.append(warehouse.took_s * 1000)
                    times[period].server_cpu.append((server.cpu_s() - cpu_s) * 1000)
                    times[period].points = len(series["timeseries"])
                del series  # or the next one would be charged for clearing it away
        progress.update(task, advance=1, refresh=True)
    return round_trips, found


def percentile(values: list[float], level: float) -> float:
    return sorted(values)[min(int(len(values) * level), len(values) - 1)]


def summary(
    round_trip_ms: float, found: dict[str, dict[str, Times]]
) -> dict[str, dict[str, dict[str, float]]]:
    """Per thing and period: milliseconds above the round trip."""
    return {
        who: {
            period: {
                "points": times.points,
                "query_p50": round(percentile(times.query, 0.5) - round_trip_ms, 1),
                "query_p95": round(percentile(times.query, 0.95) - round_trip_ms, 1),
                "server_cpu": round(statistics.mean(times.server_cpu), 1),
                "answer_p50": round(percentile(times.answer, 0.5) - round_trip_ms, 1),
                "answer_p95": round(percentile(times.answer, 0.95) - round_trip_ms, 1),
            }
            for period, times in periods.items()
        }
        for who, periods in found.items()
    }


def run(rows: int, repeats: int, results_in: Path, console: Console) -> dict[str, Any]:
    """LoadMonitor, measure, print and write; the document that was written."""
    queues = max(round(rows / BUCKETS["5s"]), 1)
    home = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    home.chmod(0o755)
    machine = harness.environment(["chdb", "clickhouse-connect", "msgspec"])
    try:
        server = ClickHouse(home, any_free_port())
        with running(server) as child, harness.progress_bar(console) as progress:
            migrate(server.url)
            warehouse = Timed(server.url, 600)
            end_s, started = int(time.time()), time.perf_counter()
            loaded = load(warehouse, queues, end_s, progress)
            load_s = time.perf_counter() - started
            settle(warehouse)
            put_together(warehouse, end_s, progress)
            stored = _stored(warehouse)
            processes = Processes(psutil.Process(child.process.pid))
            round_trips, found = measure(warehouse, processes, queues, end_s, repeats, progress)
            warehouse.close()
    finally:
        shutil.rmtree(home)
    round_trip_ms = statistics.median(round_trips)
    above = summary(round_trip_ms, found)
    results = harness.Results()
    for who, periods in found.items():
        for period, times in periods.items():
            p95 = percentile(times.answer, 0.95)
            results.measurements.append(
                harness.Measurement(
                    period, who, 0, 1000 / statistics.median(times.answer), {"answer_p95_ms": p95}
                )
            )
    results.extra = {
        "rows_5s": queues * BUCKETS["5s"],
        "rows": loaded,
        "queues": queues,
        "load_s": round(load_s, 1),
        "stored": stored,
        "round_trip_ms": {"p50": round(round_trip_ms, 2), "p95": round(percentile(round_trips, 0.95), 2)},
        "above_round_trip_ms": above,
        "goal_ms": GOAL_MS,
        "windows": {period: window(period=period, now_s=end_s).resolution for period in ROUTING},
    }
    slowest = max(row["query_p95"] for periods in above.values() for row in periods.values())
    ratios = {"slowest_query_p95_of_goal": slowest / GOAL_MS}
    units = {"rate": "answers per second", "above_round_trip_ms": "milliseconds"}
    path = harness.write_json(results_in, "series", results, ratios, units, machine)
    _show(console, results.extra)
    panels = {
        f"{who}: p95 above the round trip": {
            f"{period} {part}": max(row[f"{part}_p95"], 0.1)
            for period, row in periods.items()
            for part in ("query", "answer")
        }
        for who, periods in above.items()
    }
    title = f"Series over {loaded / 1e6:,.1f} million rows of {queues:,} queues"
    harness.bars(results_in / "series.png", title, panels, "ms", ours="", columns=2)
    console.print(f"written to {path}")
    return results.extra | {"ratios": ratios}


def _stored(warehouse: Warehouse) -> dict[str, dict[str, int]]:
    rows = warehouse.query(
        "SELECT table, sum(rows) AS rows, count() AS parts, sum(bytes_on_disk) AS bytes FROM system.parts "
        "WHERE active AND database = currentDatabase() AND table LIKE 'queue%' GROUP BY table ORDER BY table"
    )
    return {row["table"]: {name: int(row[name]) for name in ("rows", "parts", "bytes")} for row in rows}


def _show(console: Console, found: Mapping[str, Any]) -> None:
    rows = [
        [
            f"{'env.' if who == 'environment' else who} {period}",
            found["windows"][period],
            f"{row['points']:,}",
            *(
                f"{row[name]:.1f}"
                for name in ("query_p50", "query_p95", "server_cpu", "answer_p50", "answer_p95")
            ),
            "yes" if row["query_p95"] < GOAL_MS else "no",
        ]
        for who, periods in found["above_round_trip_ms"].items()
        for period, row in periods.items()
    ]
    stored = ", ".join(f"{name} {part['rows']:,}" for name, part in found["stored"].items())
    trip = found["round_trip_ms"]
    title = f"ms above a round trip of {trip['p50']} (p95 {trip['p95']})"
    heads = ["", "width", "points", "query", "p95", "cpu", "answer", "p95", f"< {GOAL_MS:.0f}"]
    console.print(harness.table(title, heads, rows))
    console.print(
        "query and answer: p50, then p95; cpu: ClickHouse's mean; the last column is of the query's p95"
    )
    console.print(f"rows: {stored}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.series", description=__doc__)
    parser.add_argument("--rows", type=int, default=FULL_ROWS, help="5-second rows; 1,000 queues by default")
    parser.add_argument("--repeats", type=int, default=100, help="series read per period")
    parser.add_argument("--quick", action="store_true", help="a smoke run: 10 queues, few repeats")
    parser.add_argument("--results", type=Path, default=harness.RESULTS, help="where the results go")
    given = parser.parse_args()
    rows, repeats = (QUICK_ROWS, 5) if given.quick else (given.rows, given.repeats)
    run(rows, repeats, given.results, Console())


if __name__ == "__main__":
    main()
