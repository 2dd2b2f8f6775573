"""Read hours and waits from the tiers in ClickHouse.

ClickHouse sums hours and merges digests; Spark receives the results as Arrow, one query per task. A query
covers some days of all queues, or a share of the digests, and aggregates in the order of the table keys. So
neither side holds more than that in memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypedDict

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.definitions import QUEUE
from penstock.pipeline.capacity.hours import HOUR_SCHEMA, WAIT_SCHEMA
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
_KEY = "organization, project, environment"
_AGGREGATE_IN_ORDER = "SETTINGS optimize_aggregation_in_order = 1"


class QueryParameters(TypedDict):
    """The bound parameters of every query."""

    since: int
    until: int
    queues: list[str]


@dataclass(frozen=True, slots=True)
class WarehouseQuery(InputPartition):
    """The query of one task."""

    sql: str
    parameters: QueryParameters


class WarehouseSource(DataSource):
    """ClickHouse queries as a data frame, one task each. Options: `url`, `queries` (JSON). Needs a schema."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def reader(self, schema: StructType) -> WarehouseReader:
        queries = [WarehouseQuery(sql, parameters) for sql, parameters in json.loads(self.options["queries"])]
        return WarehouseReader(self.options["url"], queries, schema)


class WarehouseReader(DataSourceReader):
    """Runs the queries. A task that is restarted runs its query again."""

    def __init__(self, url: str, queries: Sequence[WarehouseQuery], schema: StructType) -> None:
        self._url = url
        self._queries = queries
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        return self._queries

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, WarehouseQuery)
        schema = to_arrow_schema(self._schema)
        warehouse = connect(self._url, TIMEOUT_S)
        try:
            table = warehouse.query_arrow(partition.sql, partition.parameters)
        finally:
            warehouse.close()
        yield from table.select(schema.names).cast(schema).to_batches(max_chunksize=20_000)


def read_hours(
    session: SparkSession, url: str, period: Period, queues: Sequence[str], expected_queues: int
) -> DataFrame:
    """Return the hours of the given queues, or of every queue and every environment if none is given.

    `expected_queues` is the approximate number of queues: each task gets at most about 50,000 rows.
    """
    step = max(1, min(31, ROWS_PER_TASK // (24 * max(1, expected_queues)))) * DAY_S
    spans = [(start, min(start + step, period.end_s)) for start in range(period.start_s, period.end_s, step)]
    queries = [(_queue_hours_query(period), _parameters(span, queues)) for span in spans]
    if not queues:
        queries += [(_environment_hours_query(period), _parameters(span, ())) for span in spans]
    return _load_frame(session, url, HOUR_SCHEMA, queries)


def read_waits(session: SparkSession, url: str, period: Period, queues: Sequence[str]) -> DataFrame:
    """Return the percentiles of all waits of the period. Subjects without waits have no row."""
    span = (period.start_s, period.end_s)
    queries = [(_queue_waits_query(share), _parameters(span, queues)) for share in range(DIGEST_SHARES)]
    if not queues:
        queries.append((_environment_waits_query(), _parameters(span, ())))
    return _load_frame(session, url, WAIT_SCHEMA, queries)


def list_measured_queues(warehouse: Warehouse, period: Period) -> list[str]:
    """Return the names of the queues that have measurements in the period."""
    rows = warehouse.query(
        f"SELECT DISTINCT queue FROM {tier_table(QUEUE, HOUR)} WHERE {_IN_PERIOD} AND queue != '' "
        "ORDER BY queue",
        _parameters((period.start_s, period.end_s), ()),
    )
    return [str(row["queue"]) for row in rows]


_IN_PERIOD = "bucket >= toDateTime({since:Int64}, 'UTC') AND bucket < toDateTime({until:Int64}, 'UTC')"
_IN_QUEUES = (
    f"{_IN_PERIOD} AND queue != '' AND (empty({{queues:Array(String)}}) OR queue IN {{queues:Array(String)}})"
)


def _parameters(span: tuple[int, int], queues: Sequence[str]) -> QueryParameters:
    return {"since": span[0], "until": span[1], "queues": list(queues)}


def _queue_hours_query(period: Period) -> str:
    """Return the query for hours of queues. Gauges come from rows without a group."""
    table = tier_table(QUEUE, period.tier)
    finishing = "`group` != '' AND acked + dead + expired > 0"
    last = {name: f"maxIf({name}_last, `group` = '')" for name in ("running", "limit")}
    inner = (
        f"SELECT {_KEY}, queue, toInt64(toUnixTimestamp(bucket)) AS at_s, {_COUNT_COLUMNS}, "
        f"uniqExactStateIf(`group`, {finishing}) AS finishers, "
        "maxIf(depth_max, `group` = '') AS depth, maxIf(running_max, `group` = '') AS running, "
        f"{unpack_observed_value(last['running'], 'NULL')} AS last_running, "
        f"{unpack_observed_value(last['limit'], 'NULL')} AS last_limit "
        f"FROM {table} WHERE {_IN_QUEUES} GROUP BY {_KEY}, queue, at_s"
    )
    served = "toFloat64(sum(finished_count)) / greatest(uniqExactMerge(finishers), 1)"
    return _hour_query(inner, "queue", served)


def _environment_hours_query(period: Period) -> str:
    inner = (
        f"SELECT {_KEY}, toInt64(toUnixTimestamp(bucket)) AS at_s, {_COUNT_COLUMNS}, "
        "max(env_depth_max) AS depth, max(env_running_max) AS running, "
        f"{unpack_observed_value('max(env_running_last)', 'NULL')} AS last_running, "
        f"{unpack_observed_value('max(env_limit_last)', 'NULL')} AS last_limit "
        f"FROM {tier_table(QUEUE, period.tier, ENVIRONMENT)} WHERE {_IN_PERIOD} GROUP BY {_KEY}, at_s"
    )
    return _hour_query(inner, "''", "CAST(NULL, 'Nullable(Float64)')")


_COUNT_COLUMNS = (
    "sum(enqueued) AS arrived, sum(dequeued) AS dequeued_count, "
    "sum(acked) + sum(dead) + sum(expired) AS finished_count, "
    "sum(run_ms_sum) AS run_ms_total"
)


def _hour_query(inner: str, queue: str, served: str) -> str:
    grouping = f"{_KEY}, {queue}, hour_s" if queue != "''" else f"{_KEY}, hour_s"

    def integer(expression: str, name: str) -> str:
        return f"CAST({expression}, 'Nullable(Int64)') AS {name}"

    columns = [
        integer("sum(arrived)", "enqueued"),
        integer("sum(dequeued_count)", "dequeued"),
        integer("sum(finished_count)", "finished"),
        f"CAST({served}, 'Nullable(Float64)') AS served",
        integer("max(arrived)", "peak_enqueued"),
        integer("argMax(at_s, (arrived, -at_s))", "peak_enqueued_at_s"),
        integer("max(dequeued_count)", "peak_dequeued"),
        integer("argMax(at_s, (dequeued_count, -at_s))", "peak_dequeued_at_s"),
        integer("max(depth)", "depth_max"),
        integer("max(running)", "running_max"),
        # A bucket in which the gauge was not observed is null, and argMax ignores nulls.
        integer("argMax(last_running, at_s)", "running_last"),
        integer("argMax(last_limit, at_s)", "limit_last"),
        integer("sum(run_ms_total)", "run_ms"),
    ]
    return (
        f"SELECT {_KEY}, {queue} AS queue, intDiv(at_s, 3600) * 3600 AS hour_s, {', '.join(columns)} "
        f"FROM ({inner}) GROUP BY {grouping} {_AGGREGATE_IN_ORDER}"
    )


def _queue_waits_query(share: int) -> str:
    return (
        f"SELECT {_KEY}, queue, {_WAIT_COLUMNS} FROM {tier_table(QUEUE, HOUR)} WHERE {_IN_QUEUES} "
        f"AND cityHash64(queue) % {DIGEST_SHARES} = {share} GROUP BY {_KEY}, queue HAVING waits > 0 "
        f"{_AGGREGATE_IN_ORDER}"
    )


def _environment_waits_query() -> str:
    return (
        f"SELECT {_KEY}, '' AS queue, {_WAIT_COLUMNS} FROM {tier_table(QUEUE, HOUR, ENVIRONMENT)} "
        f"WHERE {_IN_PERIOD} GROUP BY {_KEY} HAVING waits > 0 {_AGGREGATE_IN_ORDER}"
    )


_DIGEST = f"{QUANTILE_FUNCTION.replace('(', 'Merge(', 1)}(wait_ms_digest)"
_WAIT_COLUMNS = "toInt64(sum(wait_ms_count)) AS waits, " + ", ".join(
    f"toFloat64({_DIGEST}[{index}]) AS wait_p{level}_ms" for index, level in enumerate((50, 95, 99), start=1)
)


def _load_frame(
    session: SparkSession, url: str, schema: StructType, queries: Sequence[tuple[str, QueryParameters]]
) -> DataFrame:
    session.dataSource.register(WarehouseSource)
    return (
        session.read.format(FORMAT)
        .schema(schema)
        .option("url", url)
        .option("queries", json.dumps(queries))
        .load()
    )
