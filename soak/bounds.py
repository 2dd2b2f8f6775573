"""What each series may grow, by its name. The first pattern that matches counts."""

from __future__ import annotations

import re

from soak.trend import Bound

FILES, SOCKETS, THREADS = Bound(floor=8), Bound(floor=8), Bound(floor=8)
"""A pool opens and closes some of its connections all the time."""

BOUNDS: tuple[tuple[str, Bound], ...] = (
    (r"memory\.(pipeline Java|clickhouse)", Bound(share=0.10, floor=48)),
    (r"memory\..*", Bound(share=0.10, floor=12)),
    (r"files\.clickhouse", Bound(floor=400)),  # three files of /proc per thread that executes a query
    (r"files\..*", FILES),
    # Pools of threads that grow and shrink with the rate of batches and of queries.
    (r"threads\.(pipeline Java|clickhouse)", Bound(floor=150)),
    (r"threads\..*", THREADS),
    (r"connections\..*", SOCKETS),
    (r"restarts\..*", Bound(share=0)),
    (r"table\.(log|message_keys|all)|index\.(log|message_keys|all)", Bound(share=0.15, floor=4)),
    (r"(table|index)\..*", Bound(share=0.10, floor=1)),
    (r"dead tuples\..*", Bound(share=0.25, floor=5_000)),
    (r"backlog\..*", Bound(share=0.25, floor=1_000)),
    (r"redis\.MB", Bound(share=0.10, floor=2)),
    (r"redis\.keys", Bound(share=0.10, floor=200)),
    (r"stream\..*", Bound(share=0.25, floor=2_000)),
    (r"disk\.journal.*", Bound(share=0)),
    (r"disk\.checkpoint.*", Bound(share=0.10, floor=40)),
    (r"disk\.logs.*", Bound(per_minute=0.5, reason="logs are rotated at 10 MB, two older ones are kept")),
    (
        r"clickhouse\.rows .*",
        Bound(per_minute=600, reason="a row per series and bucket, kept for 2, 31 and 400 days"),
    ),
    (r"clickhouse\.MB", Bound(floor=1, per_minute=0.2, reason="the rows of the tiers, compressed")),
    (r"clickhouse\.parts", Bound(share=0.25, floor=30)),
)


def find_bound(series: str) -> Bound:
    """Return the bound of a series. Raises LookupError for a series without one."""
    for pattern, bound in BOUNDS:
        if re.fullmatch(pattern, series):
            return bound
    raise LookupError(f"The series {series!r} has no bound. Add a pattern to soak/bounds.py.")
