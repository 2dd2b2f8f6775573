"""The route that searches messages."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from penstock.durable.pool import Database
from tests.integration.api import shared_app
from tests.integration.api.calls import ack, app_services, assert_problem, configure, get, pop, push
from tests.integration.api.http.raw_connections import RunningServer
from tests.waiting import wait_until_async

app = shared_app.app
server = shared_app.server
database = shared_app.database


async def search(client: httpx.AsyncClient, **params: Any) -> list[dict[str, Any]]:
    """Repeat the step until the search ends."""
    messages: list[dict[str, Any]] = []
    while True:
        step = await get(client, "/messages/search", **params)
        messages += step["messages"]
        if step["nextCursor"] is None:
            assert step["progress"]["examined"] <= (step["progress"]["total"] or 10**9)
            return messages
        params["cursor"] = step["nextCursor"]


async def test_messages_are_searched_by_text_state_id_and_time(client: httpx.AsyncClient) -> None:
    results = await push(client, {"n": 1, "city": "Bern"}, {"n": 2}, {"n": 3, "city": "bern"}, queue="s1")
    [first] = await pop(client, "s1")
    await ack(client, first)
    assert [m["data"]["n"] for m in await search(client, queue="s1", text="BERN")] == [3, 1]
    assert [m["data"]["n"] for m in await search(client, queue="s1", text="BERN", limit=1)] == [3, 1]
    [completed] = await search(client, queue="s1", status="completed")
    assert (completed["data"]["n"], completed["status"], completed["queue"]) == (1, "completed", "s1")
    [by_id] = await search(client, id=results[1]["message_id"])
    assert by_id["data"]["n"] == 2
    [by_transaction] = await search(client, transactionId=results[2]["transaction_id"])
    assert by_transaction["data"]["n"] == 3
    assert await search(client, queue="s1", to=first["createdAt"]) == []
    assert len(await search(client, **{"queue": "s1", "from": first["createdAt"]})) == 3
    step = await get(client, "/messages/search", queue="s1", text="no such text")
    assert step["progress"] == {"examined": 3, "total": 3, "totalIsExact": True}


async def test_a_text_is_found_in_encrypted_payloads(client: httpx.AsyncClient) -> None:
    await configure(client, "s2", encryptionEnabled=True)
    await push(client, {"secret": "Alpha"}, {"secret": "Beta"}, queue="s2")
    assert [m["data"] for m in await search(client, queue="s2", text="beta")] == [{"secret": "Beta"}]


async def test_an_index_key_returns_the_messages_pushed_since_it_was_declared(
    client: httpx.AsyncClient,
) -> None:
    await push(client, {"orderId": 42}, queue="s3")
    assert (await configure(client, "s3", indexKeys=["$.orderId"])).status_code == 200
    await push(client, {"orderId": 42, "n": 1}, {"orderId": "42", "n": 2}, {"orderId": 43}, queue="s3")
    step = await get(client, "/messages/search", queue="s3", key="$.orderId", value="42")
    assert [m["data"]["n"] for m in step["messages"]] == [2, 1]
    assert step["nextCursor"] is None
    oldest, *_ = reversed(await search(client, queue="s3"))
    assert oldest["createdAt"] <= step["indexedSince"] <= step["messages"][-1]["createdAt"]
    [match] = await search(client, queue="s3", key="$.orderId", value="42", text='"n":1')
    assert match["data"]["n"] == 1


async def test_encryption_and_index_keys_exclude_each_other(client: httpx.AsyncClient) -> None:
    await configure(client, "s4", encryptionEnabled=True)
    assert_problem(await configure(client, "s4", indexKeys=["$.a"]), 409, "wrong_state")
    await configure(client, "s5", indexKeys=["$.a"])
    detail = assert_problem(await configure(client, "s5", encryptionEnabled=True), 409, "wrong_state")
    assert "Set indexKeys to []" in detail
    assert (await configure(client, "s5", encryptionEnabled=True, indexKeys=[])).status_code == 200


@pytest.mark.parametrize("keys", [["orderId"], ["$"], ["$.a ? (@ > 1)"], ["$.a"] * 9, "$.a", [1], ["$..a"]])
async def test_invalid_index_keys_are_refused(client: httpx.AsyncClient, keys: object) -> None:
    assert_problem(await configure(client, "s6", indexKeys=keys), 422, "invalid_request")


@pytest.mark.parametrize(
    ("params", "status", "code"),
    [
        ({"queue": "s7", "cursor": "abc"}, 422, "invalid_request"),
        ({"queue": "s7", "cursor": "WzFd"}, 422, "invalid_request"),
        ({"queue": "s7", "cursor": "WzksMCwtMSwwLC0xLDEsMF0"}, 422, "invalid_request"),
        ({"queue": "s7", "id": "no-uuid"}, 422, "invalid_request"),
        ({"queue": "s7", "key": "$.a"}, 422, "invalid_request"),
        ({"key": "$.a", "value": "1"}, 422, "invalid_request"),
        ({"queue": "s7", "key": "$.a", "value": "1"}, 409, "wrong_state"),
        ({"queue": "s7", "texts": "a"}, 422, "invalid_request"),
        ({"queue": "s7", "partition": "absent"}, 404, "unknown_partition"),
        ({"queue": "absent"}, 404, "unknown_queue"),
    ],
)
async def test_invalid_searches_are_refused(
    client: httpx.AsyncClient, params: dict[str, str], status: int, code: str
) -> None:
    await push(client, 1, queue="s7")
    assert_problem(await client.get("/api/v1/messages/search", params=params), status, code)


async def test_a_search_leaves_out_other_queues(client: httpx.AsyncClient) -> None:
    await push(client, {"marker": "only here"}, queue="s8")
    await push(client, {"marker": "only here"}, queue="s9")
    assert [m["queue"] for m in await search(client, queue="s9", text="only here")] == ["s9"]
    assert [m["queue"] for m in await search(client, text="only here")] == ["s8", "s9"]


async def test_a_client_that_disconnects_ends_its_statement(
    server: RunningServer, database: Database
) -> None:
    async with httpx.AsyncClient(base_url=f"http://localhost:{server.port}") as client:
        await push(client, {"n": 1}, queue="s10")
        async with database.connection() as connection, connection.transaction():
            await connection.execute("LOCK TABLE log IN ACCESS EXCLUSIVE MODE")
            call = asyncio.create_task(
                client.get("/api/v1/messages/search", params={"queue": "s10", "text": "n"})
            )

            async def waiting() -> bool:
                rows = await database.fetch(
                    """SELECT 1 FROM pg_stat_activity
                       WHERE datname = current_database() AND wait_event_type = 'Lock'
                         AND query LIKE '%search_%'"""
                )
                return bool(rows)

            async def ended() -> bool:
                return not await waiting()

            await wait_until_async(waiting, 10, "the search waits for the lock")
            call.cancel()
            await wait_until_async(ended, 4, "the statement is cancelled")
        assert app_services(server.app).broker.database.errors == 0
