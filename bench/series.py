"""Measure how fast series are read, for each period of the routing table, over the rows of a busy platform.

ClickHouse generates the rows, in the form that the views and the pipeline leave them. Each series has three
times: that of ClickHouse and the connection to it (the query), and the total up to the JSON of either format
(the answer). The table excludes the time of a `SELECT 1` over the same connection; `answer_vs_query` compares
whole times. On a busy machine, trust the CPU time.
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

import psutil
from rich.console import Console
from rich.progress import Progress

from bench import harness
from bench.servers import ProcessTree
from penstock.definitions import QUEUE
from penstock.embedded.servers.clickhouse import ClickHouse
from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.supervision.component import running
from penstock.model import DEFAULT_SCOPE
from penstock.warehouse.clickhouse_client import ResultRow, Warehouse
from penstock.warehouse.schema import QUANTILE_FUNCTION, TierTable, table_gauges, tier_tables
from penstock.warehouse.schema_migrations import migrate
from penstock.warehouse.series import packed_maximum
from penstock.warehouse.series.native_format import Column
from penstock.warehouse.series.points import SeriesReader
from penstock.warehouse.series.queue_series import environment_series, queue_series
from penstock.warehouse.series.series_fields import SeriesFormat
from penstock.warehouse.series.series_response import Series
from penstock.warehouse.series.window import resolve_window

GOAL_MS = 50.0
ROUTING = ("30m", "2h", "24h", "7d", "30d", "90d")
"""The periods of the routing table. Its last row, "30 days and more", has 720 points; 90 days have three
times as many."""

BUCKETS = {"5s": 34_560, "1m": 11_520, "1h": 2_208}
"""Buckets loaded per queue: 2 days of 5 seconds, 8 days of minutes, 92 days of hours. All windows start
within these, like those of queues that have been active for longer."""

SAMPLES = {"5s": 2, "1m": 24, "1h": 200}
"""Waits and run times in the digests of a row: 2 messages in 5 seconds; in an hour a digest is full."""

PERCENTILE_DELAY_S = 90
"""Buckets that ended more recently have no stored percentiles: the pipeline stores them once a minute."""

MAX_CHUNK_ROWS, MAX_CHUNK_SAMPLES = 250_000, 8_000_000
"""Limits of one insert, which bound the memory of the load."""

LOADERS = 2
FORMATS = (SeriesFormat.POINTS, SeriesFormat.COLUMNS)
TimesByFormat = dict[SeriesFormat, list[float]]
MAX_ANSWER_VS_QUERY = 1.5
"""A whole answer should take at most this many times as long as the queries it needs."""

SHOWN_TIMES = ("query_p50", "query_p95", "server_cpu", "answer_p50", "answer_p95", "columns_p50")
FULL_ROWS, QUICK_ROWS = 34_560_000, 345_600


class TimedWarehouse(Warehouse):
    """A client that measures the time spent waiting for queries; concurrent queries count once."""

    def __init__(self, url: str, timeout_s: float) -> None:
        super().__init__(url, timeout_s)
        self.waited_s = 0.0
        self._queries_in_flight = 0
        self._wait_started = 0.0
        self._timer_lock = threading.Lock()

    def query(self, sql: str, parameters: Mapping[str, object] | None = None) -> list[ResultRow]:
        with self._measure():
            return super().query(sql, parameters)

    def query_columns(self, sql: str, parameters: Mapping[str, object] | None = None) -> dict[str, Column]:
        with self._measure():
            return super().query_columns(sql, parameters)

    @contextmanager
    def _measure(self) -> Iterator[None]:
        with self._timer_lock:
            if not self._queries_in_flight:
                self._wait_started = time.perf_counter()
            self._queries_in_flight += 1
        try:
            yield
        finally:
            with self._timer_lock:
                self._queries_in_flight -= 1
                if not self._queries_in_flight:
                    self.waited_s += time.perf_counter() - self._wait_started


@dataclass(slots=True)
class PeriodTimes:
    """The measured milliseconds of one period."""

    points: int = 0
    query: list[float] = field(default_factory=list)
    answer: TimesByFormat = field(default_factory=lambda: {form: [] for form in FORMATS})
    """Both formats are written from the same reading, in turns."""
    encode_cpu: dict[SeriesFormat, list[float]] = field(
        default_factory=lambda: {form: [] for form in FORMATS}
    )
    read_cpu: list[float] = field(default_factory=list)
    """CPU time of this process without the JSON: to send queries, decode replies, carry forward."""
    server_cpu: list[float] = field(default_factory=list)


def load_statement(table: TierTable, end_s: int, first: int, buckets: int, queues: int) -> str:
    """Return an INSERT of `buckets` rows per queue. The newest is `first` buckets before that of `end_s`."""
    width, samples = table.tier.width_s, SAMPLES[table.tier.name]
    start = end_s // width * width + width - (first + buckets) * width
    bucket = f"toDateTime({start} + {width} * (number % {buckets}), 'UTC')"
    columns = [f"'{value}'" for value in ("default", "default", "default")]
    if table.rollup is None:
        columns += [f"concat('queue-', toString(intDiv(number, {buckets})))", "''"]
    columns += [bucket, "3", f"toUInt64(toUnixTimestamp({bucket})) * 1000"]
    columns += [f"rand({n}) % 20" for n, _ in enumerate(QUEUE.counters)]
    for n, _ in enumerate(table_gauges(QUEUE, table.rollup), start=20):
        columns += [f"toNullable(toUInt64(1000 + rand({n}) % 50))"]
        columns += [
            packed_maximum.pack_observation(f"rand({n}) % 1000", f"toUnixTimestamp({bucket})", "number")
        ]
    state = QUANTILE_FUNCTION.replace("(", "State(", 1)
    for n, _ in enumerate(QUEUE.samples, start=40):
        values = f"arrayMap(i -> toUInt64((rand({n}) + i * 7919) % 5000), range({samples}))"
        columns += [str(samples), f"arraySum({values})", f"arrayMax({values})"]
        digest = f"initializeAggregation('{state}', {values})"
        columns += [digest]
        if table.tier.stores_percentiles:
            percentiles = [f"finalizeAggregation({digest})[{index}]" for index in (1, 2, 3)]
            columns += [
                f"if(toUnixTimestamp({bucket}) + {width + PERCENTILE_DELAY_S} > {end_s}, 0, "
                f"{packed_maximum.pack_percentiles(str(samples), percentiles)})"
            ]
    return f"INSERT INTO {table.name} SELECT {', '.join(columns)} FROM numbers({queues * buckets})"


def load(
    warehouse: Warehouse,
    queues: int,
    end_s: int,
    progress: Progress,
    buckets_per_tier: Mapping[str, int] = BUCKETS,
) -> int:
    """Fill every tier of `queues` queues and of their environment. Return the number of rows."""
    jobs = []
    for table in tier_tables(QUEUE):
        series_count = queues if table.rollup is None else 1
        rows = min(MAX_CHUNK_ROWS, MAX_CHUNK_SAMPLES // SAMPLES[table.tier.name])
        step = max(rows // series_count, 1)
        total_buckets = buckets_per_tier[table.tier.name]
        for first in range(0, total_buckets, step):
            buckets = min(step, total_buckets - first)
            jobs.append((series_count * buckets, load_statement(table, end_s, first, buckets, series_count)))
    total = sum(rows for rows, _ in jobs)
    task = progress.add_task("loading rows", total=total)

    def run(job: tuple[int, str]) -> None:
        rows, statement = job
        warehouse.command(statement, {"max_threads": 1, "max_partitions_per_insert_block": 0})
        progress.update(task, advance=rows, refresh=True)

    with ThreadPoolExecutor(LOADERS) as pool:
        list(pool.map(run, jobs))
    return total


def wait_for_merges(warehouse: Warehouse, timeout_s: float = 300.0) -> None:
    """Wait for the merges caused by the load, which would distort the measurement."""
    deadline, idle_polls = time.monotonic() + timeout_s, 0
    while idle_polls < 5 and time.monotonic() < deadline:
        [row] = warehouse.query("SELECT count() AS merges FROM system.merges")
        idle_polls = 0 if row["merges"] else idle_polls + 1
        time.sleep(0.3)


def merge_days(warehouse: Warehouse, end_s: int, progress: Progress) -> None:
    """Merge the parts of closed days now. ClickHouse does it by itself an hour after the end of a day."""
    tables = ", ".join(f"'{table.name}'" for table in tier_tables(QUEUE) if table.tier.merges_days)
    unmerged_days = warehouse.query(
        "SELECT table, partition FROM system.parts WHERE active AND database = currentDatabase() "
        f"AND table IN ({tables}) AND partition < toString(toDate({end_s} - 3600, 'UTC')) "
        "GROUP BY table, partition HAVING count() > 1"
    )
    for row in progress.track(unmerged_days, description="merging days"):
        warehouse.command(f"OPTIMIZE TABLE {row['table']} PARTITION '{row['partition']}' FINAL")


def measure(
    warehouse: TimedWarehouse, server: ProcessTree, queues: int, end_s: int, repeats: int, progress: Progress
) -> tuple[list[float], dict[str, dict[str, PeriodTimes]]]:
    """Return the round trips, and the times per period of a queue and of the environment, in turns."""
    reader = SeriesReader(warehouse)
    randomness = random.Random(1)
    round_trips: list[float] = []
    times_by_subject = {
        subject: {period: PeriodTimes() for period in ROUTING} for subject in ("queue", "environment")
    }
    task = progress.add_task("reading series", total=repeats + 1)
    for number in range(repeats + 1):
        for period in ROUTING:
            for subject, times in times_by_subject.items():
                started = time.perf_counter()
                warehouse.query("SELECT 1")
                if number:  # the first round warms up
                    round_trips.append((time.perf_counter() - started) * 1000)
                cpu_s, warehouse.waited_s, stopwatch = server.cpu_s(), 0.0, Stopwatch()
                if subject == "queue":
                    queue = f"queue-{randomness.randrange(queues)}"
                    series = queue_series(reader, DEFAULT_SCOPE, queue, period=period, now_s=end_s)
                else:
                    series = environment_series(reader, DEFAULT_SCOPE, period=period, now_s=end_s)
                read_ms, read_cpu_ms = stopwatch.elapsed_ms()
                encoded = {form: _encode(series, form) for form in (FORMATS if number % 2 else FORMATS[::-1])}
                if number:
                    times[period].query.append(warehouse.waited_s * 1000)
                    times[period].server_cpu.append((server.cpu_s() - cpu_s) * 1000)
                    times[period].points = len(series.window.buckets)
                    for form, (encode_ms, encode_cpu_ms) in encoded.items():
                        times[period].answer[form].append(read_ms + encode_ms)
                        times[period].encode_cpu[form].append(encode_cpu_ms)
                    times[period].read_cpu.append(read_cpu_ms)
        progress.update(task, advance=1, refresh=True)
    reader.close()
    return round_trips, times_by_subject


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """Milliseconds of the clock and of this process's CPU since it was started."""

    started: float = field(default_factory=time.perf_counter)
    cpu_started: float = field(default_factory=time.process_time)

    def elapsed_ms(self) -> tuple[float, float]:
        return (time.perf_counter() - self.started) * 1000, (time.process_time() - self.cpu_started) * 1000


def _encode(series: Series, form: SeriesFormat) -> tuple[float, float]:
    """Return the milliseconds and the CPU milliseconds of writing the JSON."""
    stopwatch = Stopwatch()
    series.to_json(form)
    return stopwatch.elapsed_ms()


def percentile(values: list[float], level: float) -> float:
    return sorted(values)[min(int(len(values) * level), len(values) - 1)]


def summary(
    round_trip_ms: float, times_by_subject: dict[str, dict[str, PeriodTimes]]
) -> dict[str, dict[str, dict[str, float]]]:
    """Return the milliseconds above the round trip, per subject and period."""
    return {
        subject: {
            period: {
                "points": times.points,
                "query_p50": round(percentile(times.query, 0.5) - round_trip_ms, 1),
                "query_p95": round(percentile(times.query, 0.95) - round_trip_ms, 1),
                "server_cpu": round(statistics.mean(times.server_cpu), 1),
                "answer_p50": round(percentile(times.answer[SeriesFormat.POINTS], 0.5) - round_trip_ms, 1),
                "answer_p95": round(percentile(times.answer[SeriesFormat.POINTS], 0.95) - round_trip_ms, 1),
                "columns_p50": round(percentile(times.answer[SeriesFormat.COLUMNS], 0.5) - round_trip_ms, 1),
                "columns_p95": round(percentile(times.answer[SeriesFormat.COLUMNS], 0.95) - round_trip_ms, 1),
                "read_cpu": round(statistics.median(times.read_cpu), 1),
                "encode_cpu": round(statistics.median(times.encode_cpu[SeriesFormat.POINTS]), 1),
                "columns_encode_cpu": round(statistics.median(times.encode_cpu[SeriesFormat.COLUMNS]), 1),
            }
            for period, times in periods.items()
        }
        for subject, periods in times_by_subject.items()
    }


def compare_answers(
    times_by_subject: dict[str, dict[str, PeriodTimes]],
) -> dict[SeriesFormat, dict[str, float]]:
    """Return the median of answer divided by query of every row of the routing table, for each format.

    The time of a query and of its answer come from the same reading, so a busy machine affects both.
    """
    return {
        form: {
            f"{subject} {period}": round(
                statistics.median(
                    answer_ms / query_ms
                    for answer_ms, query_ms in zip(times.answer[form], times.query, strict=True)
                ),
                3,
            )
            for subject, periods in times_by_subject.items()
            for period, times in periods.items()
        }
        for form in FORMATS
    }


def run(rows: int, repeats: int, results_in: Path, console: Console) -> dict[str, Any]:
    """Load the rows, measure, print and write the results. Return the results."""
    queues = max(round(rows / BUCKETS["5s"]), 1)
    home = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    home.chmod(0o755)
    machine = harness.describe_environment(["chdb", "clickhouse-connect", "msgspec"])
    try:
        server = ClickHouse(home, any_free_port())
        with running(server) as child, harness.progress_bar(console) as progress:
            migrate(server.url)
            warehouse = TimedWarehouse(server.url, 600)
            end_s, started = int(time.time()), time.perf_counter()
            loaded = load(warehouse, queues, end_s, progress)
            load_s = time.perf_counter() - started
            wait_for_merges(warehouse)
            merge_days(warehouse, end_s, progress)
            stored = _stored(warehouse)
            processes = ProcessTree(psutil.Process(child.process.pid))
            round_trips, times_by_subject = measure(warehouse, processes, queues, end_s, repeats, progress)
            warehouse.close()
    finally:
        shutil.rmtree(home)
    round_trip_ms = statistics.median(round_trips)
    above = summary(round_trip_ms, times_by_subject)
    results = harness.Results()
    for subject, periods in times_by_subject.items():
        for period, times in periods.items():
            answers_ms = times.answer[SeriesFormat.POINTS]
            results.measurements.append(
                harness.Measurement(
                    period,
                    subject,
                    0,
                    1000 / statistics.median(answers_ms),
                    {"answer_p95_ms": percentile(answers_ms, 0.95)},
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
        "answer_vs_query": compare_answers(times_by_subject),
        "max_answer_vs_query": MAX_ANSWER_VS_QUERY,
        "windows": {period: resolve_window(period=period, now_s=end_s).resolution for period in ROUTING},
    }
    slowest = max(row["query_p95"] for periods in above.values() for row in periods.values())
    answers = results.extra["answer_vs_query"]
    ratios = {
        "slowest_query_p95_of_goal": slowest / GOAL_MS,
        "answer_vs_query": max(answers[SeriesFormat.POINTS].values()),
        "columns_answer_vs_query": max(answers[SeriesFormat.COLUMNS].values()),
    }
    units = {"rate": "answers per second", "above_round_trip_ms": "milliseconds"}
    path = harness.write_json(results_in, "series", results, ratios, units, machine)
    _show(console, results.extra)
    panels = {
        f"{subject}: p95 above the round trip": {
            f"{period} {step}": max(row[f"{step}_p95"], 0.1)
            for period, row in periods.items()
            for step in ("query", "answer")
        }
        for subject, periods in above.items()
    }
    title = f"Series over {loaded / 1e6:,.1f} million rows of {queues:,} queues"
    harness.plot_bars(results_in / "series.png", title, panels, "ms", ours="", columns=2)
    console.print(f"written to {path}")
    return results.extra | {"ratios": ratios}


def _stored(warehouse: Warehouse) -> dict[str, dict[str, int]]:
    rows = warehouse.query(
        "SELECT table, sum(rows) AS rows, count() AS parts, sum(bytes_on_disk) AS bytes FROM system.parts "
        "WHERE active AND database = currentDatabase() AND table LIKE 'queue%' GROUP BY table ORDER BY table"
    )
    return {row["table"]: {name: int(row[name]) for name in ("rows", "parts", "bytes")} for row in rows}


def _show(console: Console, results: Mapping[str, Any]) -> None:
    rows = [
        [
            f"{'env.' if subject == 'environment' else subject} {period}",
            results["windows"][period],
            f"{row['points']:,}",
            *(
                f"{row[name]:.1f}"
                for name in (
                    "query_p50",
                    "query_p95",
                    "server_cpu",
                    "answer_p50",
                    "answer_p95",
                    "columns_p50",
                )
            ),
            *(f"{results['answer_vs_query'][form][f'{subject} {period}']:.2f}" for form in FORMATS),
            "yes" if row["query_p95"] < GOAL_MS else "no",
        ]
        for subject, periods in results["above_round_trip_ms"].items()
        for period, row in periods.items()
    ]
    stored = ", ".join(f"{name} {table['rows']:,}" for name, table in results["stored"].items())
    trip = results["round_trip_ms"]
    title = f"ms above a round trip of {trip['p50']} (p95 {trip['p95']})"
    heads = [
        "",
        "width",
        "points",
        "query",
        "p95",
        "cpu",
        "answer",
        "p95",
        "columns",
        "÷",
        "÷",
        f"< {GOAL_MS:.0f}",
    ]
    console.print(harness.build_table(title, heads, rows))
    console.print(
        "query and answer: p50, then p95; columns: p50 of the columnar format; cpu: mean of ClickHouse; "
        "÷: answer by query of both formats; the last column compares the query's p95"
    )
    console.print(f"rows: {stored}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.series", description=__doc__)
    parser.add_argument("--rows", type=int, default=FULL_ROWS, help="5-second rows; 1,000 queues by default")
    parser.add_argument("--repeats", type=int, default=100, help="series read per period")
    parser.add_argument("--quick", action="store_true", help="a smoke run: 10 queues, few repeats")
    harness.add_results_option(parser)
    arguments = parser.parse_args()
    rows, repeats = (QUICK_ROWS, 5) if arguments.quick else (arguments.rows, arguments.repeats)
    run(rows, repeats, arguments.results, Console())


if __name__ == "__main__":
    main()
