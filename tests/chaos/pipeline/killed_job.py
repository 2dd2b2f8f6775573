"""Run the pipeline as a process of its own, in which somebody is killed at a chosen seam.

Usage: killed_job.py ORDERS METRIC..., with the settings in the environment. A file in the directory ORDERS is
named after a seam and says who dies there, once: `driver` (this process), `task` (the process that reads),
`node` (the Spark worker that the reading task runs on, with all its processes), or a server's pid.

What is patched here reaches Spark's other processes with the source's classes, which travel by value because
they belong to the main module.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from penstock.config import load_settings
from penstock.definitions import QUEUE
from penstock.errors import WarehouseUnavailable
from penstock.pipeline import session
from penstock.pipeline.job import run
from penstock.pipeline.sink import clickhouse_sink
from penstock.pipeline.source.redis_streams import StreamsReader, StreamsSource
from penstock.pipeline.source.stream_range import RawConnection
from penstock.warehouse.clickhouse_client import Warehouse

ORDERS = Path(sys.argv[1])
METRICS = sys.argv[2:]
DRIVER = os.getpid()
SINK_SEAMS = ("before-insert", "after-insert", "before-move")
PATIENCE_S = 120


def reached(seam: str) -> bool:
    """Kill whoever is to die here, and return whether there was an order."""
    order = ORDERS / seam
    taken = order.with_suffix(f".{os.getpid()}")
    try:
        order.rename(taken)  # one of several that come here at once
    except FileNotFoundError:
        return False
    victim = taken.read_text()
    for process in victims(victim):
        process.kill()
        deadline = time.monotonic() + PATIENCE_S
        # Not the tests' own waiting: this travels to Spark's tasks, which have this file alone.
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline, f"{process} was killed and is {process.status()}"
            time.sleep(0.01)
    return True


def victims(victim: str) -> list[psutil.Process]:
    if victim == "driver":
        return [psutil.Process(DRIVER)]
    if victim == "task":
        return [psutil.Process()]
    if victim == "node":
        mine = psutil.Process()
        [node] = [one for one in mine.parents() if any("deploy.worker.Worker" in w for w in one.cmdline())]
        others = [one for one in node.children(recursive=True) if one != mine]
        return [node, *others, mine]
    return [psutil.Process(int(victim))]


class Meeting:
    """A seam in the driver: where somebody dies, all metrics are there."""

    def __init__(self) -> None:
        self._barriers = {seam: threading.Barrier(len(METRICS)) for seam in SINK_SEAMS}

    def reached(self, seam: str) -> bool:
        if not (ORDERS / seam).exists():
            return False
        self._barriers[seam].wait(PATIENCE_S)
        reached(seam)
        self._barriers[seam].wait(PATIENCE_S)
        return True


def patch_sink() -> None:
    meeting = Meeting()
    insert, move = Warehouse.insert_once, clickhouse_sink.write_positions

    def insert_once(self: Warehouse, table: str, rows: Any, token: str) -> None:
        meeting.reached("before-insert")
        if table.startswith("fresh_token"):
            token += uuid4().hex
        elif table.startswith("no_token"):
            token = ""
        insert(self, table, rows, token)
        if meeting.reached("after-insert"):
            raise WarehouseUnavailable("ClickHouse died before it could answer")

    def write_positions(*arguments: Any) -> None:
        meeting.reached("before-move")
        move(*arguments)

    Warehouse.insert_once = insert_once  # type: ignore[method-assign]
    clickhouse_sink.write_positions = write_positions


class KillableReader(StreamsReader):
    def read(self, partition: InputPartition) -> Iterator[Any]:
        patch_reading()
        return super().read(partition)

    def commit(self, end: Any) -> None:
        super().commit(end)
        reached("after-trim")


def patch_reading() -> None:
    xrange = RawConnection.xrange
    if xrange.__name__ == "xrange_and_die":  # a process reads many times
        return

    def xrange_and_die(self: RawConnection, *arguments: Any) -> Any:
        reply = xrange(self, *arguments)
        reached("reading")
        return reply

    RawConnection.xrange = xrange_and_die  # type: ignore[method-assign]


class KillableSource(StreamsSource):
    def streamReader(self, schema: StructType) -> StreamsReader:
        reader = super().streamReader(schema)
        reader.__class__ = KillableReader
        return reader


def main() -> None:
    from tests.chaos.pipeline.kill_metrics import (
        MUTANTS,  # not for Spark's other processes, which do not find it
    )

    patch_sink()
    session.StreamsSource = KillableSource  # type: ignore[misc]
    known = {definition.name: definition for definition in (QUEUE, *MUTANTS)}
    run(load_settings(), [known[name] for name in METRICS])


if __name__ == "__main__":
    main()
