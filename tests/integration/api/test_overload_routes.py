"""More than can be done: accepted in order, refused politely, carried out once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI

from penstock.broker.broker import Broker
from penstock.broker.overload.load import Threshold
from penstock.durable.pool import Database
from tests.integration.api.calls import get, pop, popped, problem, push
from tests.waiting import wait_until_async


@pytest_asyncio.fixture
async def broker(app: FastAPI) -> AsyncIterator[Broker]:
    """A broker whose lanes are not drained until the test says so, and whose load is the test's."""
    found: Broker = app.state.services.broker
    await found.drain.stop()
    await found.load.stop()
    found.load._enabled = True
    yield found


def busy(broker: Broker, is_busy: bool = True, *kinds: str) -> None:
    for kind in kinds or ("push", "ack"):
        broker.load._kinds[kind].is_busy = is_busy


async def send(client: httpx.AsyncClient, *payloads: Any, queue: str = "q", **item: Any) -> httpx.Response:
    items = [{"queue": queue, "payload": payload, **item} for payload in payloads]
    return await client.post("/api/v1/push", json={"items": items})


async def done(client: httpx.AsyncClient, operation_id: str) -> dict[str, Any]:
    """The operation, once it is carried out."""

    async def look() -> dict[str, Any] | None:
        found: dict[str, Any] = await get(client, f"/operations/{operation_id}")
        return found if found["status"] == "completed" else None

    found = await wait_until_async(look, 10, "the operation is carried out")
    assert found is not None
    return found


async def test_order_holds_under_load(client: httpx.AsyncClient, broker: Broker) -> None:
    await push(client, 1, 2)
    busy(broker)
    spilled = await send(client, 3, 4)
    assert spilled.status_code == 202
    busy(broker, False)
    behind = await send(client, 5, 6)
    assert behind.status_code == 202
    assert (spilled.json()["reason"], behind.json()["reason"]) == ("system_busy", "maintaining_order")
    assert (spilled.json()["queuePosition"], behind.json()["queuePosition"]) == (1, 2)
    assert {item["operationId"] for item in behind.json()["items"]} == {behind.json()["operationId"]}
    await broker.drain.start()
    await done(client, behind.json()["operationId"])
    await push(client, 7)
    assert await popped(client, batch=10) == [1, 2, 3, 4, 5, 6, 7]


async def test_every_item_of_a_mixed_push_has_its_own_result(
    client: httpx.AsyncClient, broker: Broker
) -> None:
    busy(broker)
    await send(client, 0, partition="behind")
    busy(broker, False)
    items = [
        {"queue": "q", "partition": "free", "payload": 1},
        {"queue": "q", "partition": "behind", "payload": 2},
        {"queue": "bad/name", "payload": 3},
        {"queue": "q", "partition": "free", "payload": 4},
    ]
    answer = await client.post("/api/v1/push", json={"items": items})
    assert answer.status_code == 202
    results = answer.json()["items"]
    assert [item["index"] for item in results] == [0, 1, 2, 3]
    assert [item["status"] for item in results] == ["queued", "queued", "failed", "queued"]
    assert [item.get("reason") for item in results] == [None, "maintaining_order", None, None]
    assert await popped(client, "q", batch=10, partitions=5) == [1, 4]


async def test_lanes_that_are_full_refuse_and_take_more_when_they_have_drained(
    client: httpx.AsyncClient, broker: Broker
) -> None:
    broker.load._kinds["push"].threshold = Threshold(0.7, 3)
    busy(broker)
    for number in range(3):
        assert (await send(client, number)).status_code == 202
    refused = await send(client, "too much")
    problem(refused, 429, "overloaded")
    assert int(refused.headers["retry-after"]) >= 1
    busy(broker, False)
    problem(await send(client, "behind, and no room"), 429, "overloaded")
    assert (await send(client, "another lane", queue="free")).status_code == 201
    await broker.drain.start()
    await broker.load.start()

    async def taken() -> bool:
        return (await send(client, "after")).status_code in (201, 202)

    await wait_until_async(taken, 10, "pushes are taken again")

    async def everything() -> bool:
        stats = await get(client, "/operations/stats")
        return not any(row["status"] == "pending" for row in stats["stats"])

    await wait_until_async(everything, 10, "lanes are empty")
    assert await popped(client, batch=10) == [0, 1, 2, "after"]


async def test_acks_are_accepted_for_later_and_their_result_can_be_asked_for(
    client: httpx.AsyncClient, broker: Broker
) -> None:
    await push(client, "a", "b")
    first, second = await pop(client, batch=2)
    busy(broker)
    keys = ("transactionId", "partitionId", "leaseId")
    acks = [{key: message[key] for key in keys} for message in (first, second)]
    answer = await client.post(
        "/api/v1/ack/batch", json={"acknowledgments": [*acks, {**acks[0], "leaseId": None}]}
    )
    assert answer.status_code == 202
    assert [item["success"] for item in answer.json()["items"]] == [True, True, False]
    single = await client.post("/api/v1/ack", json=acks[0])
    assert single.status_code == 202
    busy(broker, False)
    await broker.drain.start()
    result = await done(client, answer.json()["operationId"])
    assert [item["success"] for item in result["result"]] == [True, True]
    late = await done(client, single.json()["operationId"])
    assert not late["result"][0]["success"], "the message was settled by then"
    assert await pop(client, batch=2) == []


async def test_an_ack_without_its_lease_is_refused_under_load_too(
    client: httpx.AsyncClient, broker: Broker
) -> None:
    await push(client, "a")
    [message] = await pop(client)
    group, _, _ = message["leaseId"].partition(".")
    busy(broker)
    body = {
        "transactionId": message["transactionId"],
        "partitionId": message["partitionId"],
        "leaseId": f"{group}.00000000-0000-7000-8000-000000000000",
    }
    problem(await client.post("/api/v1/ack", json=body), 409, "lease_lost")


async def test_an_operation_tells_its_result_and_can_be_listed(
    client: httpx.AsyncClient, broker: Broker
) -> None:
    await push(client, "first", transactionId="k")
    busy(broker)
    answer = (await send(client, "again", transactionId="k")).json()
    pending = await get(client, f"/operations/{answer['operationId']}")
    assert (pending["status"], pending["queuePosition"], pending["result"]) == ("pending", 1, None)
    listed = await get(client, "/operations", status="pending", queue="q")
    assert [one["operationId"] for one in listed["operations"]] == [answer["operationId"]]
    assert (await get(client, "/operations", queue="other"))["operations"] == []
    busy(broker, False)
    await broker.drain.start()
    result = await done(client, answer["operationId"])
    assert [item["status"] for item in result["result"]] == ["duplicate"]
    stats = await get(client, "/operations/stats")
    assert [(row["type"], row["status"], row["count"]) for row in stats["stats"]] == [
        ("push", "completed", 1)
    ]
    assert stats["load"]["operations"]["push"]["decisions"]["spill"] == 1
    assert stats["journal"]["records"] == 0


async def test_an_operation_that_fails_for_good_is_parked_and_can_be_tried_again(
    client: httpx.AsyncClient, broker: Broker
) -> None:
    await client.post("/api/v1/configure", json={"queue": "q", "options": {"maxSize": 1}})
    await push(client, "takes all the room")
    busy(broker)
    first, second = [(await send(client, name)).json()["operationId"] for name in ("poison", "fine")]
    busy(broker, False)
    object.__setattr__(broker.drain._plan, "attempts", 1)
    await broker.drain.start()

    async def both_parked() -> bool:
        rows = (await get(client, "/operations", status="failed"))["operations"]
        return [row["operationId"] for row in rows] == [first, second]

    await wait_until_async(both_parked, 10, "both are parked")
    assert "full" in (await get(client, f"/operations/{first}"))["error"]
    await client.post("/api/v1/configure", json={"queue": "q", "options": {"maxSize": 0}})
    answer = await client.post(f"/api/v1/operations/{first}/retry")
    assert answer.json() == {"operationId": first, "status": "pending"}
    await done(client, first)
    problem(await client.post(f"/api/v1/operations/{first}/retry"), 409, "wrong_state")
    dropped = await client.delete(f"/api/v1/operations/{second}")
    assert dropped.json() == {"operationId": second, "dropped": True, "status": "failed"}
    problem(await client.get(f"/api/v1/operations/{second}"), 404, "unknown_operation")
    problem(await client.delete("/api/v1/operations/nonsense"), 422, "invalid_request")


async def test_pops_and_system_work_go_on_while_pushes_are_refused(
    client: httpx.AsyncClient, broker: Broker
) -> None:
    await push(client, "a")
    broker.load._kinds["push"].threshold = Threshold(0.7, 0)
    busy(broker, True, "push")
    problem(await send(client, "b"), 429, "overloaded")
    assert await popped(client) == ["a"]
    assert (await client.get("/api/v1/status")).status_code == 200


async def test_a_drain_whose_session_dies_is_taken_over_and_nothing_is_done_twice(
    client: httpx.AsyncClient, broker: Broker, database: Database
) -> None:
    busy(broker)
    answers = [(await send(client, n)).json() for n in range(3)]
    busy(broker, False)
    async with database.connection() as holder:
        transaction = holder.transaction()
        await transaction.start()
        await holder.fetch("SELECT 1 FROM partitions FOR UPDATE")
        await broker.drain.start()

        async def blocked() -> Any:
            return await database.fetchrow(
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
                "AND query LIKE 'SELECT * FROM drain_v1%' AND wait_event_type = 'Lock'"
            )

        row = await wait_until_async(blocked, 10, "the drain waits for the partition")
        await database.fetch("SELECT pg_terminate_backend($1)", row["pid"])
        await transaction.rollback()
    await done(client, answers[-1]["operationId"])
    assert await popped(client, batch=10) == [0, 1, 2]


async def test_with_load_management_off_nothing_is_spilled_or_refused(
    client: httpx.AsyncClient, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy(broker)
    monkeypatch.setattr(broker.load, "_enabled", False)
    answers = await asyncio.gather(*(send(client, n) for n in range(20)))
    assert {answer.status_code for answer in answers} == {201}
