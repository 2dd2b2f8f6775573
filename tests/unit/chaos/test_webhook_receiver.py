"""The receiver of webhooks records what it got and how it answered."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from chaos.history import Call, HistoryWriter, read_history
from chaos.webhook_receiver import ANSWERS, SIGNING_SECRET, WEIGHTS, WebhookReceiver
from standardwebhooks import Webhook

from tests.deadlines import deadline_s

BODY = '{"type": "alert.opened", "data": {"incidentId": "i", "transition": "opened"}}'


def seed_of(answer: str) -> int:
    """Return a seed whose first answer is this one."""
    return next(seed for seed in range(1000) if random.Random(seed).choices(ANSWERS, WEIGHTS)[0] == answer)


@dataclass
class Recording:
    receiver: WebhookReceiver
    history: HistoryWriter
    path: Path

    async def deliver(self, body: str = BODY, signed_body: str = BODY) -> int | None:
        """Send a notice and return the status of the answer; None without one."""
        at = datetime.now(UTC)
        headers = {
            "webhook-id": "n1",
            "webhook-timestamp": str(int(at.timestamp())),
            "webhook-signature": Webhook(SIGNING_SECRET).sign("n1", at, signed_body),
        }
        async with httpx.AsyncClient(timeout=deadline_s(5)) as client:
            try:
                response = await client.post(
                    f"http://127.0.0.1:{self.receiver.port}/hook", content=body, headers=headers
                )
            except httpx.RemoteProtocolError:
                return None
            return response.status_code

    def read(self) -> Call:
        [call] = read_history(self.path).calls
        return call


@pytest.fixture
async def recording(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Recording]:
    history = HistoryWriter(tmp_path / "history.jsonl")
    receiver = WebhookReceiver(history, random.Random(seed_of(request.param)))
    await receiver.start()
    yield Recording(receiver, history, tmp_path / "history.jsonl")
    await receiver.close()
    history.close()


@pytest.mark.parametrize(
    ("recording", "status", "outcome"),
    [("ok", 200, "ok"), ("error", 500, "fail"), ("hang up", None, "unknown")],
    indirect=["recording"],
)
async def test_each_answer_is_recorded_with_its_outcome(
    recording: Recording, status: int | None, outcome: str
) -> None:
    assert await recording.deliver() == status
    call = recording.read()
    assert call.outcome == outcome
    assert call.args == {"id": "n1", "incident": "i", "transition": "opened", "signed": True}


@pytest.mark.parametrize("recording", ["error"], indirect=True)
async def test_a_receiver_that_behaves_accepts_every_delivery(recording: Recording) -> None:
    recording.receiver.misbehaving = False
    assert await recording.deliver() == 200


@pytest.mark.parametrize("recording", ["ok"], indirect=True)
async def test_a_wrong_signature_is_recorded(recording: Recording) -> None:
    assert await recording.deliver(signed_body="{}") == 200
    assert recording.read().args["signed"] is False
