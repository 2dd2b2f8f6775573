"""Store the percentiles of closed buckets next to their digests.

Merging and evaluating a digest takes about a microsecond, and a week of minutes has twenty thousand digests.
Therefore the percentiles of a closed bucket are computed once and inserted as another row of the bucket,
together with the number of samples they cover. A reader uses them if they cover all samples of the bucket,
and merges the digests otherwise. A bucket that a late event reached, that is still open, or whose percentiles
were never stored gives the same numbers, more slowly.

Storing the same percentiles again changes nothing, so the work may be interrupted, repeated, or done by two
processes at once.
"""

from __future__ import annotations

from penstock.definitions import MetricDefinition
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.schema import (
    QUANTILE_FUNCTION,
    QUANTILES,
    TierTable,
    key_columns,
    tier_tables,
)
from penstock.warehouse.series import packed_maximum
from penstock.warehouse.series.readings import bucket_between
from penstock.warehouse.tiers import Tier

CHUNK_BUCKETS = 120
"""Buckets per insert, over all series of the metric. This bounds the memory of an insert."""

INSERT_SETTINGS: dict[str, int | str] = {
    # Equal rows must be inserted again: a rebuild may have removed the first ones.
    "insert_deduplicate": 0,
    "throw_on_max_partitions_per_insert_block": 0,
    "optimize_aggregation_in_order": 1,
    # Distributed tables use these: a shard has only some rows of a rollup's bucket, so the percentiles are
    # computed from the rows of all shards, and then inserted into the shards.
    "distributed_product_mode": "global",
    "parallel_distributed_insert_select": 0,
    "distributed_foreground_insert": 1,
}


def write_percentiles(
    warehouse: Warehouse,
    definition: MetricDefinition,
    tier: Tier,
    since_s: int,
    until_s: int,
    suffix: str = "",
) -> None:
    """Store the missing percentiles of all buckets that start at `since_s` or later and before `until_s`.

    With a `suffix`, write to the copies of the tables whose names end in it.
    """
    if not tier.stores_percentiles or not definition.samples:
        return
    step = CHUNK_BUCKETS * tier.width_s
    for table in tier_tables(definition):
        if table.tier == tier:
            for start in range(since_s, until_s, step):
                warehouse.command(
                    insert_statement(definition, table, start, min(start + step, until_s), suffix),
                    INSERT_SETTINGS,
                )


def insert_statement(
    definition: MetricDefinition, table: TierTable, since_s: int, until_s: int, suffix: str = ""
) -> str:
    """Return the INSERT of missing percentiles. It reads only digests of buckets that have new samples."""
    samples = [sample.name for sample in definition.samples]
    key = ", ".join(key_columns(definition, table))
    columns = [f"{name}_percentiles" for name in samples]
    has_new_samples = [
        f"{packed_maximum.unpack_percentiles_count(f'max({name}_percentiles)')} != sum({name}_count)"
        for name in samples
    ]
    rows = f"FROM {table.name}{suffix} WHERE {bucket_between(since_s, until_s)}"
    return (
        f"INSERT INTO {table.name}{suffix} ({', '.join((key, *columns))}) "
        f"SELECT {', '.join((key, *map(_merged_percentiles, samples)))} {rows} "
        f"AND ({key}) IN (SELECT {key} {rows} GROUP BY {key} HAVING {' OR '.join(has_new_samples)}) "
        f"GROUP BY {key}"
    )


def _merged_percentiles(sample: str) -> str:
    """SQL of a bucket's packed percentiles, from the digests of its rows."""
    merged = f"{QUANTILE_FUNCTION.replace('(', 'Merge(', 1)}({sample}_digest)"
    return packed_maximum.pack_percentiles(
        f"sum({sample}_count)", [f"{merged}[{index}]" for index in range(1, len(QUANTILES) + 1)]
    )
