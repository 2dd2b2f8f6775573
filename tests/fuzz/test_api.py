"""Generated histories of requests to all routes, with and without tokens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from penstock.config import Settings
from tests.fuzz.api_target import ApiTarget
from tests.fuzz.fuzz_run import FuzzRun
from tests.integration.api.broker_tokens import ALL_SCOPES, GuardedBroker, run_guarded_broker


@pytest_asyncio.fixture(scope="module")
async def broker(shared_settings: Settings) -> AsyncIterator[GuardedBroker]:
    async with run_guarded_broker(shared_settings) as guarded_broker:
        yield guarded_broker


@pytest.mark.parametrize("scopes", [ALL_SCOPES, ["read"], ["produce", "consume"], None], ids=str)
async def test_generated_histories_get_declared_responses(
    broker: GuardedBroker, fuzz_run: FuzzRun, scopes: list[str] | None
) -> None:
    token = None if scopes is None else await broker.secret(scopes)
    kind = "all scopes" if scopes is ALL_SCOPES else " and ".join(scopes or ["no token"])
    base_url = f"http://localhost:{broker.server.port}"
    target = ApiTarget(f"API histories, {kind}", broker.server.app.openapi(), base_url, token)
    await asyncio.to_thread(fuzz_run.run, target)
