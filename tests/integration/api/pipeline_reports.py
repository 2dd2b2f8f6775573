"""Reports as a pipeline writes them, for tests without one."""

from __future__ import annotations

import time
from typing import Any, cast

from penstock.streams.batch_history import BatchRecord
from penstock.streams.progress import Progress


def report(**changes: object) -> Progress:
    """A report of a pipeline that runs."""
    metric = {"state": "running", "failures": 0, "restarts": 0, "last_failure": None, "freshness": None}
    fields: dict[str, Any] = {
        "at": time.time(),
        "started_at": time.time() - 60,
        "state": "running",
        "host": "here",
        "pid": 7,
        "query_id": None,
        "batch_id": 3,
        "input_rows_per_s": 12.5,
        "processed_rows_per_s": 100.0,
        "batch_ms": 20.0,
        "lag": {},
        "freshness": time.time() - 2,
        "rejected": 1,
        "lost": 2,
        "metrics": {"queue": metric, "worker": metric},
        "spark": {
            "master": "local[2]",
            "cores": 2,
            "heap_bytes": 50,
            "heap_limit_bytes": 100,
            "stages": [{"stage": 4, "tasks": 2, "active": 1, "completed": 1, "failed": 0}],
            "executors": [
                {
                    "id": "driver",
                    "address": "127.0.0.1:1",
                    "cores": 2,
                    "active_tasks": 1,
                    "completed_tasks": 9,
                }
                | {"failed_tasks": 0, "task_s": 1.5, "gc_s": 0.1}
            ],
        },
    }
    return cast("Progress", fields | changes)


def batch(number: int) -> BatchRecord:
    """A batch of 40 ms."""
    return BatchRecord(
        batch_id=number,
        started_at=1_800_000_000.0 + number,
        duration_ms=40.0,
        plan_ms=5.0,
        read_ms=20.0,
        insert_ms=10.0,
        checkpoint_ms=4.0,
        entries=6,
        rows=3,
    )
