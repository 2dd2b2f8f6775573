"""Run Penstock's pipeline in its own process, with a running session, controlled through a pipe."""

from __future__ import annotations

import logging
import multiprocessing
import os
import statistics
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
from redis import Redis
from redis.typing import EncodableT, FieldT

from bench.backlog import generate_events
from bench.servers import ProcessTree
from penstock.definitions import QUEUE

TIMEOUT_S = 600
SMALL_EVENTS = 1_000
SMALL_BATCHES = 12
SAMPLE_INTERVAL_S = 0.5

PIPELINE, DRIVER, TASKS = "as the pipeline does", "the driver inserts", "tasks insert"
ARROW_WRITER = "DataSourceStreamArrowWriter inserts"
"""Who inserts the rows: the driver in `foreachBatch`, the tasks that read them, or Spark's writer.

The pipeline chooses between the first two by the size of a batch."""
NEVER = 1 << 60
"""Bytes that no batch has."""


class SparkConsumer:
    """Controls the process. `close` ends it."""

    def __init__(self, home: Path, java_home: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, child_pipe = context.Pipe()
        self._process = context.Process(target=_serve, args=(child_pipe, home, java_home), daemon=True)
        self._process.start()
        child_pipe.close()
        self._receive()

    def drain(self, redis_url: str, clickhouse_url: str, writer: str = PIPELINE) -> dict[str, float]:
        """Count all entries of the streams; returns durations, CPU time, and peak memory by process."""
        processes = ProcessTree(psutil.Process(self._process.pid))
        before = processes.cpu_s()
        self._pipe.send(("drain", redis_url, clickhouse_url, writer))
        with _MemoryMonitor(processes.leader) as monitor:
            result = self._receive()
        return result | monitor.peak | {"cpu_s": processes.cpu_s() - before}

    def batch_costs(self, redis_url: str, clickhouse_url: str) -> dict[str, float]:
        """Return the milliseconds of a trigger without events, and of one with 1,000 events."""
        self._pipe.send(("batches", redis_url, clickhouse_url))
        return self._receive()

    def close(self) -> None:
        """End the process; kill it if it does not end within a minute."""
        self._pipe.send(("stop",))
        self._process.join(60)
        if self._process.is_alive():
            self._process.kill()

    def _receive(self) -> dict[str, float]:
        while not self._pipe.poll(1):
            if not self._process.is_alive():
                raise RuntimeError("The process of the pipeline ended")
        response = self._pipe.recv()
        if isinstance(response, Exception):
            raise response
        return dict(response)


class _MemoryMonitor:
    """Measures the peak memory of a process and its children, in MB."""

    def __init__(self, leader: psutil.Process) -> None:
        self.peak = {"memory_mb": 0.0, "jvm_mb": 0.0, "driver_mb": 0.0, "tasks_mb": 0.0}
        self._leader = leader
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> _MemoryMonitor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._done.wait(SAMPLE_INTERVAL_S):
            sample = {"jvm_mb": 0.0, "driver_mb": _memory_mb(self._leader), "tasks_mb": 0.0}
            for process in self._leader.children(recursive=True):
                try:
                    kind = "jvm_mb" if process.name() == "java" else "tasks_mb"
                    sample[kind] += _memory_mb(process)
                except psutil.NoSuchProcess:
                    continue
            sample["memory_mb"] = sum(sample.values())
            self.peak = {name: max(self.peak[name], sample[name]) for name in self.peak}


def _memory_mb(process: psutil.Process) -> float:
    """Return the resident memory; shared pages (Spark forks its Python processes) are divided."""
    memory = process.memory_full_info()
    return float(getattr(memory, "pss", memory.rss)) / 2**20


def _serve(pipe: Connection, home: Path, java_home: str) -> None:
    os.environ["JAVA_HOME"] = java_home
    logging.basicConfig(level=logging.WARNING)
    from penstock.pipeline.session import build_session

    session = build_session("", home / "spark")
    pipe.send({})
    pipeline = _BenchPipeline(session, home)
    while True:
        command, *arguments = pipe.recv()
        if command == "stop":
            break
        try:
            response: Any = (pipeline.drain if command == "drain" else pipeline.batch_costs)(*arguments)
        except Exception as error:  # noqa: BLE001 - raised on the other side
            response = RuntimeError(str(error)[:2000])
        pipe.send(response)
    session.stop()


class _BenchPipeline:
    """Runs queries with the source, sink and options of the pipeline."""

    def __init__(self, session: Any, home: Path) -> None:
        self._session = session
        self._home = home
        for name, value in {"noDataProgressEventInterval": 0, "numRecentProgressUpdates": 500}.items():
            session.conf.set(f"spark.sql.streaming.{name}", str(value))

    def drain(self, redis_url: str, clickhouse_url: str, writer: str) -> dict[str, float]:
        started = time.perf_counter()
        query, sink = self._start_query(redis_url, clickhouse_url, {"availableNow": True}, writer)
        query.awaitTermination()
        total_s = time.perf_counter() - started
        if error := query.exception():
            raise error
        seconds = sum(p["durationMs"]["triggerExecution"] for p in query.recentProgress) / 1000
        return {
            "seconds": seconds,
            "batches": len([p for p in query.recentProgress if p["numInputRows"]]),
            "start_s": total_s - seconds,
            "read_s": sink.reading_s,
            "write_s": sink.writing_s,
        }

    def batch_costs(self, redis_url: str, clickhouse_url: str) -> dict[str, float]:
        query, sink = self._start_query(redis_url, clickhouse_url, {"processingTime": "100 milliseconds"})
        try:
            for number in range(1, SMALL_BATCHES + 1):
                _add_small_batch(redis_url, number)
                deadline = time.monotonic() + TIMEOUT_S
                while sink.state.total_entries < number * SMALL_EVENTS:
                    if not query.isActive or time.monotonic() > deadline:
                        raise RuntimeError(f"A small batch was not counted: {query.exception()}")
                    time.sleep(0.02)
            time.sleep(1)  # time for some triggers without events
            progress = query.recentProgress
        finally:
            query.stop()
        triggers = [(p["numInputRows"], p["durationMs"]["triggerExecution"]) for p in progress]
        # The first two are warm-up.
        full = [ms for rows, ms in triggers if rows][2:]
        empty = [ms for rows, ms in triggers if not rows]
        return {
            "empty_batch_ms": statistics.median(empty) if empty else 0.0,
            "batch_of_1000_ms": statistics.median(full),
        }

    def _start_query(
        self, redis_url: str, clickhouse_url: str, trigger: dict[str, Any], writer: str = PIPELINE
    ) -> tuple[Any, Any]:
        from bench import arrow_writer
        from bench.timed_sink import TimedSink
        from penstock.pipeline.source.planning import TASK_INSERT_BYTES
        from penstock.pipeline.source.redis_streams import FORMAT, encode_definition
        from penstock.warehouse.clickhouse_client import connect

        sink = TimedSink(QUEUE, connect(clickhouse_url), Redis.from_url(redis_url), threading.Event())
        task_insert_bytes = {PIPELINE: TASK_INSERT_BYTES, TASKS: 0}.get(writer, NEVER)
        frame = (
            self._session.readStream.format(FORMAT)
            .option("redis_url", redis_url)
            .option("definition", encode_definition(QUEUE))
            .option("tasks", self._session.sparkContext.defaultParallelism)
            .option("clickhouse_url", clickhouse_url)
            .option("task_insert_bytes", task_insert_bytes)
            .load()
        )
        checkpoint = self._home / "checkpoints" / uuid4().hex
        stream = frame.writeStream.option("checkpointLocation", str(checkpoint))
        if writer == ARROW_WRITER:
            arrow_writer.register(self._session)
            stream = stream.format(arrow_writer.FORMAT).option("clickhouse_url", clickhouse_url)
        else:
            stream = stream.foreachBatch(sink)
        return stream.trigger(**trigger).start(), sink


def _add_small_batch(redis_url: str, seed: int) -> None:
    """Add 1,000 events in one transaction, so that they form one batch."""
    with Redis.from_url(redis_url) as redis, redis.pipeline(transaction=True) as pipe:
        for number, (fields, _) in enumerate(
            generate_events(SMALL_EVENTS, 200, seed, int(time.time() * 1000))
        ):
            entry: dict[FieldT, EncodableT] = {}
            entry.update(fields.items())
            entry["t"] = int(time.time() * 1000)
            pipe.xadd(QUEUE.stream_keys[number % QUEUE.shards], entry)
        pipe.execute()
