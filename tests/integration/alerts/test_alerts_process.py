"""The process that evaluates alerts, on own servers."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from penstock.alerts.alerts_heartbeat import heartbeat_path
from penstock.config import Settings, as_environment
from tests.deadlines import deadline_s
from tests.waiting import wait_until_async


async def test_it_creates_a_missing_home(
    database_url: str, redis_url: str, clickhouse_url: str, tmp_path: Path
) -> None:
    home = tmp_path / "missing" / "home"
    settings = Settings(
        home=home, postgres_url=database_url, redis_url=redis_url, clickhouse_url=clickhouse_url
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "penstock.alerts.alerts_process"), env=os.environ | as_environment(settings)
    )
    try:

        async def has_heartbeat() -> bool:
            return heartbeat_path(home).exists() or process.returncode is not None

        await wait_until_async(has_heartbeat, 20, "the process writes its heartbeat")
        assert process.returncode is None
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(deadline_s(20)):
            await process.wait()
    assert process.returncode == 0
