"""Measure the time from XADD until ClickHouse shows the event, and the CPU time of an idle pipeline."""

from __future__ import annotations

import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from redis import Redis
from redis.typing import EncodableT, FieldT

from bench.servers import ProcessTree
from penstock.definitions import QUEUE
from penstock.embedded.servers.home_secrets import ensure_password
from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.supervision.state import read_state
from penstock.shards import shard_of
from penstock.warehouse.clickhouse_client import Warehouse, connect
from penstock.warehouse.schema import tier_table
from penstock.warehouse.tiers import FINE

START_TIMEOUT_S = 300
VISIBLE_TIMEOUT_S = 60
POLL_INTERVAL_S = 0.02
SETTLE_S = 5.0
"""Time for the pipeline to become idle after the last event."""


def measure_latencies(home: Path, samples: int) -> dict[str, float]:
    """Return the seconds from before XADD until a query finds the row in the 5-second tier, under load."""
    with _run_platform(home, "--demo") as (redis, warehouse):
        _measure(redis, warehouse, 3, "warm")
        latencies_s = _measure(redis, warehouse, samples, "probe")
    quantiles = statistics.quantiles(latencies_s, n=20, method="inclusive")
    return {
        "p50": quantiles[9],
        "p95": quantiles[18],
        "worst": max(latencies_s),
        "samples": len(latencies_s),
    }


def measure_idle_cpu(home: Path, seconds: float) -> float:
    """Return the CPU seconds per minute of the pipeline's processes on a platform without load."""
    with _run_platform(home) as (redis, warehouse):
        _measure(redis, warehouse, 3, "warm")
        state = read_state(home)
        pipeline = state.find_component("pipeline") if state else None
        assert pipeline is not None
        assert pipeline.pid is not None
        processes = ProcessTree(psutil.Process(pipeline.pid))
        time.sleep(SETTLE_S)
        before = processes.exact_cpu_s()
        time.sleep(seconds)
        return (processes.exact_cpu_s() - before) / seconds * 60


def _measure(redis: Redis, warehouse: Warehouse, samples: int, name: str) -> list[float]:
    rng = random.Random(7)
    latencies_s = []
    for number in range(samples):
        time.sleep(rng.uniform(0, 1))  # at a random time between two triggers
        queue = f"{name}-{number}"
        fields: dict[FieldT, EncodableT] = {
            "org": "bench",
            "proj": "bench",
            "env": "bench",
            "queue": queue,
            "eq": 1,
        }
        started = time.perf_counter()
        redis.xadd(QUEUE.stream_keys[shard_of(queue, QUEUE.shards)], fields)
        while not _is_visible(warehouse, queue):
            if time.perf_counter() - started > VISIBLE_TIMEOUT_S:
                raise RuntimeError(f"An event was not visible within {VISIBLE_TIMEOUT_S} s")
            time.sleep(POLL_INTERVAL_S)
        latencies_s.append(time.perf_counter() - started)
    return latencies_s


def _is_visible(warehouse: Warehouse, queue: str) -> bool:
    [row] = warehouse.query(
        f"SELECT sum(events) AS n FROM {tier_table(QUEUE, FINE)} "
        "WHERE organization = 'bench' AND project = 'bench' AND environment = 'bench' "
        "AND queue = {queue:String}",
        {"queue": queue},
    )
    return int(row["n"]) == 1


@contextmanager
def _run_platform(home: Path, *options: str) -> Iterator[tuple[Redis, Warehouse]]:
    """Run `penstock up`: all servers, a broker and the pipeline. With `--demo`, a light load too."""
    environment = {**os.environ, "PENSTOCK_HOME": str(home), "PENSTOCK_PORT": str(any_free_port())}
    with (home.parent / "up.log").open("wb") as log:
        command = [sys.executable, "-m", "penstock.cli.main", "up", *options]
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        _wait_until_up(home, process)
        state = read_state(home)
        assert state is not None
        addresses = {component.name: urlsplit(component.address).netloc for component in state.components}
        password = ensure_password(home)
        redis = Redis.from_url(f"redis://:{password}@{addresses['valkey']}/0")
        warehouse = connect(f"http://penstock:{password}@{addresses['clickhouse']}/default")
        yield redis, warehouse
        warehouse.close()
        redis.close()
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()


def _wait_until_up(home: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        state = read_state(home)
        if state is not None and state.all_up:
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"The platform did not start: {(home.parent / 'up.log').read_text()}")
        time.sleep(0.2)
