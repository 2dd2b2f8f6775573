"""A sender that is killed between sending and recording: the notice arrives again with the same id."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from tests.integration.alerts.delivery import sender_process
from tests.integration.alerts.delivery.http_receiver import HANG, OK, receive_http
from tests.integration.alerts.delivery.outbox import Outbox

ROOT = Path(__file__).parents[4]


async def test_a_notice_whose_sender_was_killed_is_sent_again_with_the_same_id(
    outbox: Outbox, database_url: str
) -> None:
    async with receive_http([HANG, OK]) as receiver:
        await outbox.write(await outbox.add_channel(receiver.url))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", sender_process.__name__, database_url),
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        )
        try:
            # The receiver has the whole notice, and the sender has no response to record.
            [first] = await receiver.wait_for_requests(1)
        finally:
            process.kill()
            await process.wait()
        async with outbox.run_sender():
            [notice] = await outbox.wait_for_notices("sent")
    assert notice.attempts == 2
    assert [request.headers["webhook-id"] for request in receiver.requests] == [str(notice.id)] * 2
    assert first.json["data"] == receiver.requests[1].json["data"] | {
        "incidentUrl": None,
        "queueUrl": None,
    }
