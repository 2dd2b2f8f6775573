"""Killed at every seam, the pipeline ends with the exact totals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from events import fill, totals
from redis import Redis

from penstock.streams.progress import read_progress
from penstock.warehouse.client import Warehouse
from waiting import wait_until

SCRIPT = Path(__file__).with_name("killed_job.py")
PATIENCE_S = 90


def test_kills_at_every_seam_leave_exact_totals(
    java_home: str, redis: Redis, stream_url: str, warehouse: Warehouse, tmp_path: Path
) -> None:
    environment = os.environ | {
        "JAVA_HOME": java_home,
        "PENSTOCK_HOME": str(tmp_path),
        "PENSTOCK_REDIS_URL": stream_url,
        "PENSTOCK_CLICKHOUSE_URL": warehouse.url,
        "PENSTOCK_TRIGGER_MS": "200",
    }
    log = tmp_path / "pipeline.log"

    def started(seam: str) -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            return subprocess.Popen(
                [sys.executable, str(SCRIPT), seam], env=environment, stdout=output, stderr=output
            )

    total, count = 0, 0
    for seam in ("after-insert", "before-commit"):
        total += fill(redis, 2_000, start=count)
        count += 2_000
        assert started(seam).wait(PATIENCE_S) == -signal.SIGKILL, log.read_text()
    # The second process died repeating the first one's batch, which was counted already.
    assert [tier[0] for tier in totals(warehouse)] == [2_000] * 3

    last = started("never")
    try:
        total += fill(redis, 2_000, start=count)
        count += 2_000
        wait_until(lambda: totals(warehouse)[2][0] >= count, PATIENCE_S, "the rest is counted")
        wait_until(
            lambda: set((read_progress(stream_url) or {"lag": {"": 1}})["lag"].values()) == {0},
            PATIENCE_S,
            "nothing is left in the streams",
        )
    finally:
        last.send_signal(signal.SIGTERM)
        stopped = last.wait(PATIENCE_S)
    assert stopped == 0, log.read_text()
    waits = sum(n % 3 + n % 11 for n in range(count))
    assert totals(warehouse) == [(count, total, 2 * count, waits)] * 3
    assert (read_progress(stream_url) or {})["state"] == "stopped"
