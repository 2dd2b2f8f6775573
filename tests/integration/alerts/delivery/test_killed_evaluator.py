"""An evaluator that is killed between decision and delivery: the next process delivers the notice, once."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from tests.integration.alerts import evaluator_process
from tests.integration.alerts.conftest import AlertPlatform
from tests.integration.alerts.delivery.http_receiver import OK, receive_http
from tests.integration.alerts.delivery.outbox import Outbox

ROOT = Path(__file__).parents[4]


async def test_the_notice_of_a_killed_evaluator_is_delivered_once(
    platform: AlertPlatform, outbox: Outbox
) -> None:
    await platform.add_queue("orders")
    await platform.add_rule(
        type="BACKLOG", threshold=10, windowMinutes=1, statistic="last", channels=["hook"]
    )
    platform.observe("orders", seconds_ago=30, depth=50)
    async with receive_http([OK, OK]) as receiver:
        channel_id = await outbox.add_channel(receiver.url, "hook")
        await platform.connection.execute(
            "UPDATE alert_channels SET environment_id = $2 WHERE id = $1", channel_id, platform.environment_id
        )
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", evaluator_process.__name__, platform.database_url, platform.redis_url),
            *(platform.warehouse.url, str(platform.now_s)),
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        try:
            assert await process.stdout.readline() == b"evaluated\n"
        finally:
            process.kill()
            await process.wait()
        assert await platform.notices() == [("opened", ["orders"])]
        assert receiver.requests == []

        async with outbox.run_sender():
            await receiver.wait_for_requests(1)
            await platform.evaluate()
            platform.observe("orders", depth=0)
            await platform.evaluate()
            await receiver.wait_for_requests(2)
    transitions = [request.json["data"]["transition"] for request in receiver.requests]
    assert transitions == ["opened", "resolved"]
