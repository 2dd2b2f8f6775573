"""The fast path answers as uvicorn's own protocol does, however requests are damaged and split."""

from __future__ import annotations

import asyncio

import pytest

from tests.deadlines import deadline_s
from tests.fuzz.fuzz_run import FuzzRun
from tests.fuzz.fuzz_target import FuzzTarget
from tests.fuzz.http_exchange import compare
from tests.fuzz.http_requests import CORPUS, sent_requests, split
from tests.integration.api import shared_app
from tests.integration.api.http.raw_connections import RunningServer

server = shared_app.server


@pytest.mark.parametrize("request_number", range(len(CORPUS)))
async def test_a_request_may_be_split_at_every_byte(server: RunningServer, request_number: int) -> None:
    request = CORPUS[request_number]
    await compare(server, request, [split(request, [i]) for i in range(len(request))])
    await compare(server, request, [[request[i : i + 1] for i in range(len(request))]])


async def test_generated_requests_get_the_responses_of_uvicorn(
    server: RunningServer, fuzz_run: FuzzRun
) -> None:
    loop = asyncio.get_running_loop()

    def check(drawn: tuple[bytes, list[int]]) -> None:
        data, positions = drawn
        splits = [[data], split(data, positions), [data]]
        asyncio.run_coroutine_threadsafe(compare(server, data, splits), loop).result(deadline_s(60))

    target = FuzzTarget("HTTP fast path, compared with uvicorn", sent_requests(), check, 150)
    await asyncio.to_thread(fuzz_run.run, target)
    assert not server.uvicorn.server_state.connections, "connections stayed open"
