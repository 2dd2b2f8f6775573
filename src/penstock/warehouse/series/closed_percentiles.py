"""Percentiles of buckets that have passed, written down beside their digests.

A digest takes about a microsecond to merge and to read off, and a week of minutes has twenty thousand of
them. So the percentiles of a bucket that has passed are worked out once and inserted as one more row of it,
which says for how many samples they speak. Whoever reads a bucket takes them if they speak for all the
samples it has now, and merges its digests otherwise: a bucket that an event reached later, that is still
open, or that was never written down gives the same numbers, in more time.

Writing them again changes nothing, so it may be cut short, repeated, or done by two at once.
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
from penstock.warehouse.series.readings import between
from penstock.warehouse.tiers import Tier

CHUNK_BUCKETS = 120
"""Written at a time, of all things that have some: what bounds the memory."""

PLAIN_INSERT = {
    # Rows that say the same again must not be left out: a rebuild may have taken the first ones away.
    "insert_deduplicate": 0,
    "throw_on_max_partitions_per_insert_block": 0,
    "optimize_aggregation_in_order": 1,
}


def write_percentiles(
    warehouse: Warehouse,
    definition: MetricDefinition,
    tier: Tier,
    since_s: int,
    until_s: int,
    suffix: str = "",
) -> None:
    """Write down the percentiles of all buckets that start in this time, where that was not done yet.

    With a `suffix`, in the copies of the tables whose names end in it.
    """
    if not tier.stores_percentiles or not definition.samples:
        return
    step = CHUNK_BUCKETS * tier.width_s
    for table in tier_tables(definition):
        if table.tier == tier:
            for start in range(since_s, until_s, step):
                warehouse.command(
                    statement(definition, table, start, min(start + step, until_s), suffix), PLAIN_INSERT
                )


def statement(
    definition: MetricDefinition, table: TierTable, since_s: int, until_s: int, suffix: str = ""
) -> str:
    """The insert. Digests are read only of buckets that have something new."""
    samples = [sample.name for sample in definition.samples]
    key = ", ".join(key_columns(definition, table))
    columns = [f"{name}_percentiles" for name in samples]
    changed = [
        f"{packed_maximum.unpack_percentiles_count(f'max({name}_percentiles)')} != sum({name}_count)"
        for name in samples
    ]
    rows = f"FROM {table.name}{suffix} WHERE {between(since_s, until_s)}"
    return (
        f"INSERT INTO {table.name}{suffix} ({', '.join((key, *columns))}) "
        f"SELECT {', '.join((key, *map(worked_out, samples)))} {rows} "
        f"AND ({key}) IN (SELECT {key} {rows} GROUP BY {key} HAVING {' OR '.join(changed)}) GROUP BY {key}"
    )


def worked_out(sample: str) -> str:
    """A bucket's percentiles from the digests of its rows."""
    merged = f"{QUANTILE_FUNCTION.replace('(', 'Merge(', 1)}({sample}_digest)"
    return packed_maximum.pack_percentiles(
        f"sum({sample}_count)", [f"{merged}[{place}]" for place in range(1, len(QUANTILES) + 1)]
    )
