"""The embedded servers follow a clock that is stepped while they run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest
import redis
from chaos.platform_process import add_environment
from chaos.stepped_clock import SteppedClock, find_compiler, stepped_clocks

from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.servers.postgres import Postgres
from penstock.embedded.servers.valkey import Valkey
from penstock.embedded.supervision.component import running
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler")

STEPS_S = (0.0, 3600.0, -3600.0, 0.0)
SLACK_S = 60.0


@pytest.fixture
def clock() -> Iterator[SteppedClock]:
    with stepped_clocks(["server"]) as clocks:
        yield clocks["server"]


@pytest.mark.timeout(120)
def test_postgres_and_its_open_sessions_follow_a_stepped_clock(
    open_tmp_path: Path, clock: SteppedClock
) -> None:
    server = Postgres(open_tmp_path, any_free_port())
    add_environment(server, clock.environment)

    async def read_offsets() -> list[float]:
        connection = await asyncpg.connect(server.url)
        offsets = []
        for step_s in STEPS_S:
            clock.set_offset(step_s)
            now_s = await connection.fetchval("SELECT extract(epoch FROM clock_timestamp())::float8")
            offsets.append(now_s - time.time())
        await connection.close()
        return offsets

    with running(server):
        assert asyncio.run(read_offsets()) == [pytest.approx(step_s, abs=SLACK_S) for step_s in STEPS_S]


@pytest.mark.timeout(60)
def test_valkey_follows_a_stepped_clock(open_tmp_path: Path, clock: SteppedClock) -> None:
    server = Valkey(open_tmp_path, any_free_port())
    add_environment(server, clock.environment)
    with running(server), redis.Redis.from_url(server.url) as client:
        for step_s in STEPS_S:
            clock.set_offset(step_s)

            def is_stepped(step_s: float = step_s) -> bool:
                return bool(abs(client.time()[0] - time.time() - step_s) < SLACK_S)

            # Valkey reads the time ten times a second.
            wait_until(is_stepped, 5, f"the clock is stepped by {step_s:g} s")
