"""`penstock pipeline replay` and `status` against real servers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from redis import Redis
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.definitions import QUEUE
from penstock.streams.progress import write_progress
from penstock.streams.wire import encode_fields
from penstock.warehouse.clickhouse_client import connect
from penstock.warehouse.schema import REJECTED_TABLE
from penstock.warehouse.schema_migrations import migrate

KEY = QUEUE.stream_keys[0]


@pytest.fixture
def redis(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Redis]:
    """The Redis of the commands, without streams and without a report."""
    monkeypatch.setenv("PENSTOCK_REDIS_URL", redis_url)
    with Redis.from_url(redis_url) as client:
        yield client


def test_status_shows_the_lag_of_this_moment_and_the_reason_of_a_failure(redis: Redis) -> None:
    report = {"state": "failed", "failures": 2, "last_failure": "no such column", "lag": {KEY: 0}}
    progress: Any = {"at": time.time(), "state": "failing", "lag": {KEY: 0}, "metrics": {"queue": report}}
    write_progress(redis, progress)
    redis.xadd(KEY, {"any": "entry"})
    result = CliRunner().invoke(app, ["pipeline", "status"])
    assert result.exit_code == 1
    assert "The queue query has failed 2 times and will be started again: no such column." in result.stdout
    shown = json.loads(CliRunner().invoke(app, ["pipeline", "status", "--json"]).stdout)
    assert (shown["lag"], shown["metrics"]["queue"]["lag"]) == ({KEY: 1}, {KEY: 1})


def test_replay_reports_what_it_added_and_what_cannot_be_read(
    redis: Redis, clickhouse_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database_url = f"{clickhouse_url.rstrip('/').rpartition('/')[0]}/replay_{time.time_ns()}"
    migrate(database_url)
    monkeypatch.setenv("PENSTOCK_CLICKHOUSE_URL", database_url)
    readable = {"org": "o", "proj": "p", "env": "e", "queue": "q", "eq": "3"}
    events = [readable, readable | {"eq": "many"}]
    now_s = int(time.time())
    rows = {
        "metric": ["queue"] * 2,
        "reason": ["not_a_number"] * 2,
        "stream": [KEY] * 2,
        "at": pa.array([now_s] * 2, pa.timestamp("s", "UTC")),
        "entry": [f"{now_s * 1000}-{number}" for number in range(2)],
        "text": [""] * 2,
        "fields": [
            encode_fields([(name.encode(), value.encode()) for name, value in event.items()])
            for event in events
        ],
        "replayed": pa.array([0] * 2, pa.uint8()),
    }
    warehouse = connect(database_url)
    warehouse.insert_once(REJECTED_TABLE, pa.table(rows), "one")
    warehouse.close()
    dry = CliRunner().invoke(app, ["pipeline", "replay", "--metric", "queue", "--dry-run"])
    assert dry.stdout == "queue: 1 can be replayed, 1 cannot be read.\n"
    assert redis.xlen(KEY) == 0
    result = CliRunner().invoke(app, ["pipeline", "replay", "--json"])
    assert json.loads(result.stdout) == [
        {"metric": "queue", "replayed": 1, "still_rejected": 1},
        {"metric": "worker", "replayed": 0, "still_rejected": 0},
    ]
    assert result.exit_code == 1
    [(_, fields)] = redis.xrange(KEY) or []
    assert fields is not None
    assert fields[b"t"] == b"%d" % (now_s * 1000)
