"""The measurements as the tiers in ClickHouse hold them.

ClickHouse sums hours and merges digests; Spark gets the results as Arrow, one query per task. A query
covers some days of all queues, or a share of the queues' digests, and sums in the order of the tables' keys,
so neither side ever holds more than that at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.definitions import QUEUE
from penstock.pipeline.capacity.hours import HOURS, WAITS
from penstock.pipeline.capacity.period import DAY_S, Period
from penstock.warehouse.clickhouse_client import Warehouse, connect
from penstock.warehouse.schema import QUANTILE_FUNCTION, tier_table
from penstock.warehouse.series.packed_maximum import unpack_observed_value
from penstock.warehouse.tiers import HOUR

FORMAT = "penstock_warehouse"
TIMEOUT_S = 600.0
DIGEST_SHARES = 8
ROWS_PER_TASK = 50_000

ENVIRONMENT = "environment"
_PLACE = "organization, project, environment"
_IN_ORDER = "SETTINGS optimize_aggregation_in_order = 1"


@dataclass(frozen=True, slots=True)
class Query(InputPartition):
    """What one task asks."""

    sql: str
    parameters: dict[str, Any]


class WarehouseSource(DataSource):
    """ClickHouse queries as a frame, one task each. Options: `url`, `queries` (JSON); the schema is given."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def reader(self, schema: StructType) -> WarehouseReader:
        queries = [Query(sql, parameters) for sql, parameters in json.loads(self.options["queries"])]
        return WarehouseReader(self.options["url"], queries, schema)


class WarehouseReader(DataSourceReader):
    def __init__(self, url: str, queries: Sequence[Query], schema: StructType) -> None:
        self._url = url
        self._queries = queries
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        return self._queries

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Query)
        schema = to_arrow_schema(self._schema)
        warehouse = connect(self._url, TIMEOUT_S)
        try:
            table = warehouse.query_arrow(partition.sql, partition.parameters)
        finally:
            warehouse.close()
        yield from table.select(schema.names).cast(schema).to_batches(max_chunksize=20_000)


def read_hours(
    session: SparkSession, url: str, period: Period, queues: Sequence[str], expected: int
) -> DataFrame:
    """The hours of every queue (or of those named), and of every environment (if none is named).

    `expected` is how many queues there are, about: tasks are cut so that each gets 50,000 rows at most.
    """
    step = max(1, min(31, ROWS_PER_TASK // (24 * max(1, expected)))) * DAY_S
    spans = [(since, min(since + step, period.end_s)) for since in range(period.start_s, period.end_s, step)]
    queries = [(_queue_hours(period), _of(span, queues)) for span in spans]
    if not queues:
        queries += [(_environment_hours(period), _of(span, ())) for span in spans]
    return _frame(session, url, HOURS, queries)


def read_waits(session: SparkSession, url: str, period: Period, queues: Sequence[str]) -> DataFrame:
    """The percentiles of all waits of the period: digests merged by ClickHouse. Has no row without waits."""
    span = (period.start_s, period.end_s)
    queries = [(_queue_waits(share), _of(span, queues)) for share in range(DIGEST_SHARES)]
    if not queues:
        queries.append((_environment_waits(), _of(span, ())))
    return _frame(session, url, WAITS, queries)


def measured_queues(warehouse: Warehouse, period: Period) -> list[str]:
    """The names of the queues that were measured in the period."""
    rows = warehouse.query(
        f"SELECT DISTINCT queue FROM {tier_table(QUEUE, HOUR)} WHERE {_WITHIN} AND queue != '' "
        "ORDER BY queue",
        _of((period.start_s, period.end_s), ()),
    )
    return [str(row["queue"]) for row in rows]


_WITHIN = "bucket >= toDateTime({since:Int64}, 'UTC') AND bucket < toDateTime({until:Int64}, 'UTC')"
_CHOSEN = (
    f"{_WITHIN} AND queue != '' AND (empty({{queues:Array(String)}}) OR queue IN {{queues:Array(String)}})"
)


def _of(span: tuple[int, int], queues: Sequence[str]) -> dict[str, Any]:
    return {"since": span[0], "until": span[1], "queues": list(queues)}


def _queue_hours(period: Period) -> str:
    """Rows without a group speak for the queue as a whole, so its gauges come from them."""
    table = tier_table(QUEUE, period.tier)
    finishing = "`group` != '' AND acked + dead + expired > 0"
    last = {name: f"maxIf({name}_last, `group` = '')" for name in ("running", "limit")}
    inner = (
        f"SELECT {_PLACE}, queue, toInt64(toUnixTimestamp(bucket)) AS at_s, {_COUNTS}, "
        f"uniqExactStateIf(`group`, {finishing}) AS finishers, "
        "maxIf(depth_max, `group` = '') AS depth, maxIf(running_max, `group` = '') AS running, "
        f"{unpack_observed_value(last['running'], 'NULL')} AS last_running, "
        f"{unpack_observed_value(last['limit'], 'NULL')} AS last_limit "
        f"FROM {table} WHERE {_CHOSEN} GROUP BY {_PLACE}, queue, at_s"
    )
    served = "toFloat64(sum(gone)) / greatest(uniqExactMerge(finishers), 1)"
    return _hours_of(inner, "queue", served)


def _environment_hours(period: Period) -> str:
    inner = (
        f"SELECT {_PLACE}, toInt64(toUnixTimestamp(bucket)) AS at_s, {_COUNTS}, "
        "max(env_depth_max) AS depth, max(env_running_max) AS running, "
        f"{unpack_observed_value('max(env_running_last)', 'NULL')} AS last_running, "
        f"{unpack_observed_value('max(env_limit_last)', 'NULL')} AS last_limit "
        f"FROM {tier_table(QUEUE, period.tier, ENVIRONMENT)} WHERE {_WITHIN} GROUP BY {_PLACE}, at_s"
    )
    return _hours_of(inner, "''", "CAST(NULL, 'Nullable(Float64)')")


_COUNTS = (
    "sum(enqueued) AS came, sum(dequeued) AS taken, sum(acked) + sum(dead) + sum(expired) AS gone, "
    "sum(run_ms_sum) AS worked"
)


def _hours_of(inner: str, queue: str, served: str) -> str:
    grouping = f"{_PLACE}, {queue}, hour_s" if queue != "''" else f"{_PLACE}, hour_s"

    def integer(expression: str, name: str) -> str:
        return f"CAST({expression}, 'Nullable(Int64)') AS {name}"

    columns = [
        integer("sum(came)", "enqueued"),
        integer("sum(taken)", "dequeued"),
        integer("sum(gone)", "finished"),
        f"CAST({served}, 'Nullable(Float64)') AS served",
        integer("max(came)", "peak_enqueued"),
        integer("argMax(at_s, (came, -at_s))", "peak_enqueued_at_s"),
        integer("max(taken)", "peak_dequeued"),
        integer("argMax(at_s, (taken, -at_s))", "peak_dequeued_at_s"),
        integer("max(depth)", "depth_max"),
        integer("max(running)", "running_max"),
        # A bucket in which the gauge was not observed is null there, and argMax passes over nulls.
        integer("argMax(last_running, at_s)", "running_last"),
        integer("argMax(last_limit, at_s)", "limit_last"),
        integer("sum(worked)", "run_ms"),
    ]
    return (
        f"SELECT {_PLACE}, {queue} AS queue, intDiv(at_s, 3600) * 3600 AS hour_s, {', '.join(columns)} "
        f"FROM ({inner}) GROUP BY {grouping} {_IN_ORDER}"
    )


def _queue_waits(share: int) -> str:
    return (
        f"SELECT {_PLACE}, queue, {_WAITS} FROM {tier_table(QUEUE, HOUR)} WHERE {_CHOSEN} "
        f"AND cityHash64(queue) % {DIGEST_SHARES} = {share} GROUP BY {_PLACE}, queue HAVING waits > 0 "
        f"{_IN_ORDER}"
    )


def _environment_waits() -> str:
    return (
        f"SELECT {_PLACE}, '' AS queue, {_WAITS} FROM {tier_table(QUEUE, HOUR, ENVIRONMENT)} "
        f"WHERE {_WITHIN} GROUP BY {_PLACE} HAVING waits > 0 {_IN_ORDER}"
    )


_DIGEST = f"{QUANTILE_FUNCTION.replace('(', 'Merge(', 1)}(wait_ms_digest)"
_WAITS = "toInt64(sum(wait_ms_count)) AS waits, " + ", ".join(
    f"toFloat64({_DIGEST}[{place}]) AS wait_p{level}_ms" for place, level in enumerate((50, 95, 99), start=1)
)


def _frame(
    session: SparkSession, url: str, schema: StructType, queries: Sequence[tuple[str, dict[str, Any]]]
) -> DataFrame:
    session.dataSource.register(WarehouseSource)
    return (
        session.read.format(FORMAT)
        .schema(schema)
        .option("url", url)
        .option("queries", json.dumps(queries))
        .load()
    )
