"""Insert the rows of one range into ClickHouse, in the task that read it.

A task that is repeated, or that runs twice at the same time, inserts the same rows under the same tokens, and
ClickHouse counts them once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import pyarrow as pa

from penstock.definitions import MetricDefinition
from penstock.pipeline.batch_inserts import InsertedRows, batch_token, divide_rows
from penstock.pipeline.task_batch import read_task_batch
from penstock.pipeline.transforms import landing_columns
from penstock.warehouse.clickhouse_client import Warehouse, connect
from penstock.warehouse.schema import landing_table


def insert_range(
    clickhouse_url: str,
    definition: MetricDefinition,
    range_name: str,
    points: pa.RecordBatch,
    retry: Callable[[Callable[[], None]], None],
) -> InsertedRows:
    """Insert the points of a range for the batch of this task; `retry` calls until ClickHouse answers."""
    table, rows = landing_table(definition), to_landing_rows(definition, points)
    for chunk, token in divide_rows(rows, batch_token(*read_task_batch(), table, range_name)):
        retry(partial(_warehouse(clickhouse_url).insert_once, table, chunk, token))
    return InsertedRows.of(rows)


def to_landing_rows(definition: MetricDefinition, points: pa.RecordBatch) -> pa.Table:
    """Return points of the source in the columns of the landing table, as `transforms.landing_rows` does."""
    at_ms = points["at_ms"].to_numpy()
    bucket_ms = pa.array(at_ms // definition.bucket_ms * definition.bucket_ms)
    table = pa.Table.from_batches([points])
    table = table.append_column("at", bucket_ms.cast(pa.timestamp("ms", "UTC")))
    return table.select(landing_columns(definition))


@cache
def _warehouse(clickhouse_url: str) -> Warehouse:
    """Return the client of this process, which serves many tasks one after another."""
    return connect(clickhouse_url)
