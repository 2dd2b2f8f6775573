"""How long an event takes from XADD until ClickHouse shows it, with the whole platform running under load."""

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

from redis import Redis

from penstock.definitions import QUEUE
from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.servers.home_secrets import ensure_password
from penstock.embedded.supervision.state import read_state
from penstock.shards import shard_of
from penstock.warehouse.clickhouse_client import Warehouse, connect
from penstock.warehouse.schema import tier_table
from penstock.warehouse.tiers import FINE

START_S = 300
SEEN_WITHIN_S = 60
POLL_S = 0.02


def latencies(home: Path, samples: int) -> dict[str, float]:
    """Seconds from before XADD to after the row was found in the 5-second tier: p50, p95 and the worst."""
    with _platform(home) as (redis, warehouse):
        _measure(redis, warehouse, 3, "warm")
        taken = _measure(redis, warehouse, samples, "probe")
    ranks = statistics.quantiles(taken, n=20, method="inclusive")
    return {"p50": ranks[9], "p95": ranks[18], "worst": max(taken), "samples": len(taken)}


def _measure(redis: Redis, warehouse: Warehouse, samples: int, name: str) -> list[float]:
    chance = random.Random(7)
    taken = []
    for number in range(samples):
        time.sleep(chance.uniform(0, 1))  # anywhere between two triggers
        queue = f"{name}-{number}"
        fields = {"org": "bench", "proj": "bench", "env": "bench", "queue": queue, "eq": 1}
        started = time.perf_counter()
        redis.xadd(QUEUE.stream_keys[shard_of(queue, QUEUE.shards)], dict(fields))
        while not _is_visible(warehouse, queue):
            if time.perf_counter() - started > SEEN_WITHIN_S:
                raise RuntimeError(f"an event was not visible within {SEEN_WITHIN_S} s")
            time.sleep(POLL_S)
        taken.append(time.perf_counter() - started)
    return taken


def _is_visible(warehouse: Warehouse, queue: str) -> bool:
    [row] = warehouse.query(
        f"SELECT sum(events) AS n FROM {tier_table(QUEUE, FINE)} "
        "WHERE organization = 'bench' AND project = 'bench' AND environment = 'bench' "
        "AND queue = {queue:String}",
        {"queue": queue},
    )
    return int(row["n"]) == 1


@contextmanager
def _platform(home: Path) -> Iterator[tuple[Redis, Warehouse]]:
    """`penstock up --demo`: PostgreSQL, Redis, ClickHouse, a broker with a gentle load, and the pipeline."""
    environment = {**os.environ, "PENSTOCK_HOME": str(home), "PENSTOCK_PORT": str(any_free_port())}
    with (home.parent / "up.log").open("wb") as log:
        command = [sys.executable, "-m", "penstock.cli.main", "up", "--demo"]
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        _wait(home, process)
        state = read_state(home)
        assert state is not None
        at = {component.name: urlsplit(component.address).netloc for component in state.components}
        password = ensure_password(home)
        redis = Redis.from_url(f"redis://:{password}@{at['valkey']}/0")
        warehouse = connect(f"http://penstock:{password}@{at['clickhouse']}/default")
        yield redis, warehouse
        warehouse.close()
        redis.close()
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()


def _wait(home: Path, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_S
    while True:
        state = read_state(home)
        if state is not None and state.all_up:
            return
        if process.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"the platform did not start: {(home.parent / 'up.log').read_text()}")
        time.sleep(0.2)
