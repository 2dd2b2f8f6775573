"""Run the pipeline in its own process, and kill a process at a chosen kill point.

Usage: killed_job.py ORDERS METRIC..., with the settings in the environment. A file in the directory ORDERS is
named after a kill point and contains the process to kill there, once: `driver` (this process), `task` (the
process that reads), `node` (the Spark worker that runs the reading task, with all its processes), or the pid
of a server.

The patches reach the other processes of Spark with the classes of the source, which are pickled by value
because they belong to the main module.
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
from penstock.pipeline.source.raw_connection import RawConnection
from penstock.pipeline.source.redis_streams import StreamsReader, StreamsSource
from penstock.streams import positions
from penstock.warehouse.clickhouse_client import Warehouse

ORDERS = Path(sys.argv[1])
METRICS = sys.argv[2:]
DRIVER_PID = os.getpid()
DRIVER_KILL_POINTS = ("before-insert", "after-insert", "before-move")
TIMEOUT_S = 120


def execute_order(kill_point: str) -> bool:
    """Kill the ordered process, if any; returns whether there was an order."""
    order = ORDERS / kill_point
    taken = order.with_suffix(f".{os.getpid()}")
    try:
        order.rename(taken)  # succeeds in one of several processes that get here at once
    except FileNotFoundError:
        return False
    victim = taken.read_text()
    for process in processes_to_kill(victim):
        process.kill()
        deadline = time.monotonic() + TIMEOUT_S
        # tests.waiting is not available here: this code runs in tasks of Spark, which have this file only.
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline, f"{process} was killed and is {process.status()}"
            time.sleep(0.01)
    return True


def processes_to_kill(victim: str) -> list[psutil.Process]:
    if victim == "driver":
        return [psutil.Process(DRIVER_PID)]
    if victim == "task":
        return [psutil.Process()]
    if victim == "node":
        current = psutil.Process()
        [node] = [process for process in current.parents() if is_spark_worker(process)]
        others = [process for process in node.children(recursive=True) if process != current]
        return [node, *others, current]
    return [psutil.Process(int(victim))]


def is_spark_worker(process: psutil.Process) -> bool:
    return any("deploy.worker.Worker" in argument for argument in process.cmdline())


class DriverKillPoints:
    """Kill points in the driver: the queries of all metrics wait for each other there."""

    def __init__(self) -> None:
        self._barriers = {kill_point: threading.Barrier(len(METRICS)) for kill_point in DRIVER_KILL_POINTS}

    def execute_order(self, kill_point: str) -> bool:
        if not (ORDERS / kill_point).exists():
            return False
        self._barriers[kill_point].wait(TIMEOUT_S)
        execute_order(kill_point)
        self._barriers[kill_point].wait(TIMEOUT_S)
        return True


def patch_sink() -> None:
    kill_points = DriverKillPoints()
    insert, move = Warehouse.insert_once, positions.write_positions

    def insert_once(self: Warehouse, table: str, rows: Any, token: str) -> None:
        kill_points.execute_order("before-insert")
        if table.startswith("fresh_token"):
            token += uuid4().hex
        elif table.startswith("no_token"):
            token = ""
        insert(self, table, rows, token)
        if kill_points.execute_order("after-insert"):
            raise WarehouseUnavailable("ClickHouse was killed before it replied")

    def write_positions(*arguments: Any) -> None:
        kill_points.execute_order("before-move")
        move(*arguments)

    setattr(Warehouse, "insert_once", insert_once)  # noqa: B010 - replaces a method
    setattr(clickhouse_sink, "write_positions", write_positions)  # noqa: B010 - replaces an import


class KillableReader(StreamsReader):
    """A reader with kill points while it reads, around its inserts, and after it trims."""

    def read(self, partition: InputPartition) -> Iterator[Any]:
        patch_xrange()
        patch_task_insert()
        return super().read(partition)

    def commit(self, end: Any) -> None:
        super().commit(end)
        execute_order("after-trim")


def patch_xrange() -> None:
    xrange = RawConnection.xrange
    if xrange.__name__ == "xrange_and_die":  # patched already: a process reads many times
        return

    def xrange_and_die(self: RawConnection, *arguments: Any) -> Any:
        reply = xrange(self, *arguments)
        execute_order("reading")
        return reply

    setattr(RawConnection, "xrange", xrange_and_die)  # noqa: B010 - replaces a method


def patch_task_insert() -> None:
    insert = Warehouse.insert_once
    if insert.__name__ != "insert_once" or os.getpid() == DRIVER_PID:
        return

    def insert_and_die(self: Warehouse, table: str, rows: Any, token: str) -> None:
        execute_order("before-task-insert")
        insert(self, table, rows, token)
        execute_order("after-task-insert")

    setattr(Warehouse, "insert_once", insert_and_die)  # noqa: B010 - replaces a method


class KillableSource(StreamsSource):
    """The source with a killable reader."""

    def streamReader(self, schema: StructType) -> StreamsReader:
        reader = super().streamReader(schema)
        reader.__class__ = KillableReader
        return reader


def main() -> None:
    # Imported here, because the other processes of Spark cannot import it.
    from tests.chaos.pipeline.kill_metrics import MUTANTS

    patch_sink()
    setattr(session, "StreamsSource", KillableSource)  # noqa: B010 - replaces an import
    known = {definition.name: definition for definition in (QUEUE, *MUTANTS)}
    run(load_settings(), [known[name] for name in METRICS])


if __name__ == "__main__":
    main()
