"""An overloaded broker defers writes in order, refuses the rest with 429, and executes each one once."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI

from penstock.broker.broker import Broker
from penstock.config import Settings
from penstock.durable.pool import Database
from tests.integration.api.calls import ack, app_services, assert_problem, get, pop, pop_payloads, push
from tests.waiting import wait_until_async


@pytest.fixture
def overrides() -> dict[str, object]:
    """Settings that a test changes, by parametrization."""
    return {}


@pytest_asyncio.fixture
async def settings(settings: Settings, overrides: dict[str, object]) -> Settings:
    # The long wait keeps a slow machine from timing requests out.
    return settings.model_copy(update={"load_management": True, "load_wait_s": 60.0, **overrides})


@pytest_asyncio.fixture
async def broker(app: FastAPI) -> Broker:
    """A broker whose lanes are not drained until the test starts the drain, and whose load the test sets."""
    broker = app_services(app).broker
    await broker.drain.stop()
    await broker.load.stop()
    return broker


def set_busy(broker: Broker, is_busy: bool = True, *kinds: str) -> None:
    for kind in kinds or ("push", "ack"):
        broker.load._kinds[kind].is_busy = is_busy


async def send(client: httpx.AsyncClient, *payloads: Any, queue: str = "q", **item: Any) -> httpx.Response:
    items = [{"queue": queue, "payload": payload, **item} for payload in payloads]
    return await client.post("/api/v1/push", json={"items": items})


def operation_id(response: httpx.Response) -> str:
    """Return the operation of a 202 response."""
    assert response.status_code == 202, response.text
    return response.headers["penstock-operation-id"]


async def wait_until_completed(client: httpx.AsyncClient, operation_id: str) -> dict[str, Any]:
    """Wait until the operation is completed and return it."""

    async def read_operation() -> dict[str, Any] | None:
        operation: dict[str, Any] = await get(client, f"/operations/{operation_id}")
        return operation if operation["status"] == "completed" else None

    operation = await wait_until_async(read_operation, 10, "the operation is completed")
    assert operation is not None
    return operation


async def test_order_is_kept_under_load(client: httpx.AsyncClient, broker: Broker) -> None:
    await push(client, 1, 2)
    set_busy(broker)
    deferred = await send(client, 3, 4)
    assert deferred.status_code == 202
    set_busy(broker, False)
    behind = await send(client, 5, 6)
    assert behind.status_code == 202
    for response, reason, position in ((deferred, "system_busy", 1), (behind, "maintaining_order", 2)):
        operation = {"operationId": operation_id(response), "queuePosition": position, "reason": reason}
        assert [operation.items() <= item.items() for item in response.json()] == [True, True]
        assert response.headers["penstock-queue-position"] == str(position)
    await broker.drain.start()
    await wait_until_completed(client, operation_id(behind))
    await push(client, 7)
    assert await pop_payloads(client, batch=10) == [1, 2, 3, 4, 5, 6, 7]


async def test_every_item_of_a_mixed_push_has_its_own_result(
    client: httpx.AsyncClient, broker: Broker
) -> None:
    set_busy(broker)
    await send(client, 0, partition="behind")
    set_busy(broker, False)
    items = [
        {"queue": "q", "partition": "free", "payload": 1},
        {"queue": "q", "partition": "behind", "payload": 2},
        {"queue": "bad/name", "payload": 3},
        {"queue": "q", "partition": "free", "payload": 4},
    ]
    response = await client.post("/api/v1/push", json={"items": items})
    assert response.status_code == 202
    results = response.json()
    assert [item["index"] for item in results] == [0, 1, 2, 3]
    assert [item["status"] for item in results] == ["queued", "queued", "failed", "queued"]
    assert [item.get("reason") for item in results] == [None, "maintaining_order", None, None]
    assert await pop_payloads(client, "q", batch=10, partitions=5) == [1, 4]


async def test_a_duplicate_of_a_stored_message_is_reported_at_once(
    client: httpx.AsyncClient, broker: Broker
) -> None:
    [stored] = await push(client, "stored", transactionId="k")
    set_busy(broker)
    response = await send(client, "again", transactionId="k")
    assert response.status_code == 201, "nothing was deferred"
    [result] = response.json()
    assert (result["status"], result["message_id"]) == ("duplicate", stored["message_id"])


@pytest.mark.parametrize("overrides", [{"load_push_depth": 3}])
async def test_full_lanes_refuse_pushes_until_they_have_drained(
    client: httpx.AsyncClient, broker: Broker
) -> None:
    set_busy(broker)
    for number in range(3):
        assert (await send(client, number)).status_code == 202
    refused = await send(client, "too much")
    assert_problem(refused, 429, "overloaded")
    retry_after_s = refused.json()["retryAfter"]
    assert int(refused.headers["retry-after"]) == math.ceil(retry_after_s) >= 1
    set_busy(broker, False)
    assert_problem(await send(client, "behind, and no room"), 429, "overloaded")
    assert (await send(client, "another lane", queue="free")).status_code == 201
    await broker.drain.start()
    await broker.load.start()

    async def is_accepted() -> bool:
        return (await send(client, "after")).status_code in (201, 202)

    await wait_until_async(is_accepted, 10, "pushes are accepted again")

    async def lanes_are_empty() -> bool:
        stats = await get(client, "/operations/stats")
        return not any(row["status"] == "pending" for row in stats["stats"])

    await wait_until_async(lanes_are_empty, 10, "lanes are empty")
    assert await pop_payloads(client, batch=10) == [0, 1, 2, "after"]


async def test_deferred_acks_have_results_that_can_be_read_later(
    client: httpx.AsyncClient, broker: Broker
) -> None:
    await push(client, "a", "b")
    first, second = await pop(client, batch=2)
    set_busy(broker)
    keys = ("transactionId", "partitionId", "leaseId")
    acks = [{key: message[key] for key in keys} for message in (first, second)]
    response = await client.post(
        "/api/v1/ack/batch", json={"acknowledgments": [*acks, {**acks[0], "leaseId": None}]}
    )
    assert response.status_code == 202
    assert [item["success"] for item in response.json()] == [True, True, False]
    single = await client.post("/api/v1/ack", json=acks[0])
    assert single.status_code == 202
    set_busy(broker, False)
    await broker.drain.start()
    result = await wait_until_completed(client, operation_id(response))
    assert [item["success"] for item in result["result"]] == [True, True]
    second_ack = await wait_until_completed(client, operation_id(single))
    assert not second_ack["result"][0]["success"], "the message was acked by then"
    assert await pop(client, batch=2) == []


async def test_an_ack_without_its_lease_is_refused_under_load_too(
    client: httpx.AsyncClient, broker: Broker
) -> None:
    await push(client, "a")
    [message] = await pop(client)
    group, _, _ = message["leaseId"].partition(".")
    set_busy(broker)
    body = {
        "transactionId": message["transactionId"],
        "partitionId": message["partitionId"],
        "leaseId": f"{group}.00000000-0000-7000-8000-000000000000",
    }
    assert_problem(await client.post("/api/v1/ack", json=body), 409, "lease_lost")


async def test_an_operation_has_a_result_and_is_listed(client: httpx.AsyncClient, broker: Broker) -> None:
    set_busy(broker)
    first, second = [operation_id(await send(client, name, transactionId="k")) for name in ("first", "again")]
    pending = await get(client, f"/operations/{second}")
    assert (pending["status"], pending["queuePosition"], pending["result"]) == ("pending", 2, None)
    listed = await get(client, "/operations", status="pending", queue="q")
    assert [operation["operationId"] for operation in listed["operations"]] == [first, second]
    assert (await get(client, "/operations", queue="other"))["operations"] == []
    set_busy(broker, False)
    await broker.drain.start()
    result = await wait_until_completed(client, second)
    assert [item["status"] for item in result["result"]] == ["duplicate"]
    stats = await get(client, "/operations/stats")
    assert [(row["type"], row["status"], row["count"]) for row in stats["stats"]] == [
        ("push", "completed", 2)
    ]
    assert stats["load"]["operations"]["push"]["decisions"]["spill"] == 2
    assert (stats["journal"]["records"], stats["journal"]["problem"]) == (0, None)
    assert stats["journal"]["limitBytes"] == 256 << 20
    assert stats["databaseOutageSeconds"] == 0


@pytest.mark.parametrize("overrides", [{"operation_attempts": 1}])
async def test_a_permanently_failed_operation_is_parked_and_can_be_retried(
    client: httpx.AsyncClient, broker: Broker
) -> None:
    await push(client, "takes all the room")
    set_busy(broker)
    first, second = [operation_id(await send(client, name)) for name in ("poison", "fine")]
    await client.post("/api/v1/configure", json={"queue": "q", "options": {"maxSize": 1}})
    set_busy(broker, False)
    await broker.drain.start()

    async def both_parked() -> bool:
        rows = (await get(client, "/operations", status="failed"))["operations"]
        return [row["operationId"] for row in rows] == [first, second]

    await wait_until_async(both_parked, 10, "both are parked")
    assert "full" in (await get(client, f"/operations/{first}"))["error"]
    await client.post("/api/v1/configure", json={"queue": "q", "options": {"maxSize": 0}})
    response = await client.post(f"/api/v1/operations/{first}/retry")
    assert response.json() == {"operationId": first, "status": "pending"}
    await wait_until_completed(client, first)
    assert_problem(await client.post(f"/api/v1/operations/{first}/retry"), 409, "wrong_state")
    dropped = await client.delete(f"/api/v1/operations/{second}")
    assert dropped.json() == {"operationId": second, "dropped": True, "status": "failed"}
    drop, _, retry = (await get(client, "/audit", action="/operations/"))["entries"]
    assert (retry["object"], retry["after"]["status"]) == ({"operationId": first}, "pending")
    assert (drop["object"], drop["after"]) == ({"operationId": second}, None)
    assert retry["before"]["status"] == drop["before"]["status"] == "failed"
    assert_problem(await client.get(f"/api/v1/operations/{second}"), 404, "unknown_operation")
    assert_problem(await client.delete("/api/v1/operations/nonsense"), 422, "invalid_request")


@pytest.mark.parametrize("overrides", [{"operation_attempts": 1, "failed_operation": "hold"}])
async def test_lanes_are_listed_with_their_first_operation_and_what_blocks_it(
    client: httpx.AsyncClient, broker: Broker
) -> None:
    await push(client, "takes all the room")
    set_busy(broker)
    first, _ = [operation_id(await send(client, name)) for name in ("poison", "fine")]
    operation_id(await send(client, "other", queue="r", partition="p1"))
    listed = await get(client, "/operations/lanes")
    assert [(lane["queue"], lane["operations"], lane["blocked"]) for lane in listed["lanes"]] == [
        ("q", 2, False),
        ("r", 1, False),
    ]
    assert listed["total"] == 2
    assert listed["lanes"][0]["first"]["operationId"] == first
    assert [lane["partition"] for lane in (await get(client, "/operations/lanes", queue="r"))["lanes"]] == [
        "p1"
    ]
    await client.post("/api/v1/configure", json={"queue": "q", "options": {"maxSize": 1}})
    set_busy(broker, False)
    await broker.drain.start()

    async def read_blocked_lane() -> dict[str, Any] | None:
        [lane] = (await get(client, "/operations/lanes", queue="q"))["lanes"]
        return lane if lane["blocked"] else None

    lane = await wait_until_async(read_blocked_lane, 10, "the lane is blocked")
    assert lane is not None
    assert (lane["operations"], lane["retryAt"]) == (2, None)
    assert (lane["first"]["operationId"], lane["first"]["attempts"]) == (first, 1)
    assert "full" in lane["first"]["error"]
    await client.delete(f"/api/v1/operations/{first}")
    await client.post("/api/v1/configure", json={"queue": "q", "options": {"maxSize": 0}})

    async def has_no_lanes() -> bool:
        return bool((await get(client, "/operations/lanes"))["total"] == 0)

    await wait_until_async(has_no_lanes, 10, "all lanes are drained")


async def test_a_full_queue_refuses_a_push_that_would_be_deferred(
    client: httpx.AsyncClient, broker: Broker
) -> None:
    await client.post("/api/v1/configure", json={"queue": "q", "options": {"maxSize": 2}})
    await push(client, "stored")
    set_busy(broker)
    assert (await send(client, "deferred")).status_code == 202
    assert_problem(await send(client, "no room"), 429, "queue_full")
    assert (await send(client, "has room", queue="other")).status_code == 202
    set_busy(broker, False)
    assert_problem(await send(client, "the room is taken", partition="free"), 429, "queue_full")
    await broker.drain.start()

    async def is_stored() -> bool:
        return not (await get(client, "/operations", status="pending"))["operations"]

    await wait_until_async(is_stored, 10, "the deferred push is executed")
    assert await pop_payloads(client, batch=10) == ["stored", "deferred"]


@pytest.mark.parametrize("overrides", [{"load_push_depth": 0}])
async def test_pops_and_status_requests_work_while_pushes_are_refused(
    client: httpx.AsyncClient, broker: Broker
) -> None:
    await push(client, "a")
    set_busy(broker, True, "push")
    assert_problem(await send(client, "b"), 429, "overloaded")
    assert await pop_payloads(client) == ["a"]
    assert (await client.get("/api/v1/status")).status_code == 200


async def test_a_drain_whose_session_dies_resumes_and_executes_nothing_twice(
    client: httpx.AsyncClient, broker: Broker, database: Database
) -> None:
    set_busy(broker)
    responses = [await send(client, n) for n in range(3)]
    set_busy(broker, False)
    async with database.connection() as holder:
        transaction = holder.transaction()
        await transaction.start()
        await holder.fetch("SELECT 1 FROM partitions FOR UPDATE")
        await broker.drain.start()

        async def find_blocked_drain() -> Any:
            return await database.fetchrow(
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
                "AND query LIKE 'SELECT * FROM drain_v1%' AND wait_event_type = 'Lock'"
            )

        row = await wait_until_async(find_blocked_drain, 10, "the drain waits for the partition")
        await database.fetch("SELECT pg_terminate_backend($1)", row["pid"])
        await transaction.rollback()
    await wait_until_completed(client, operation_id(responses[-1]))
    assert await pop_payloads(client, batch=10) == [0, 1, 2]


@pytest.mark.parametrize("overrides", [{"load_management": False}])
async def test_without_load_management_nothing_is_deferred_or_refused(
    client: httpx.AsyncClient, broker: Broker
) -> None:
    set_busy(broker)
    responses = await asyncio.gather(*(send(client, n) for n in range(20)))
    assert {response.status_code for response in responses} == {201}


async def dead_letter_behind_a_lane(client: httpx.AsyncClient, broker: Broker) -> tuple[str, str]:
    """Create a dead letter in a partition with a deferred push; return its paths of requeue and retry."""
    await send(client, "dead", transactionId="t")
    [message] = await pop(client)
    await ack(client, message, "dlq")
    set_busy(broker, True, "push")
    assert (await send(client, "deferred")).status_code == 202
    set_busy(broker, False, "push")
    [dead_letter] = (await get(client, "/dlq", queue="q"))["messages"]
    return (
        f"/api/v1/dlq/letters/{dead_letter['letterId']}/requeue",
        f"/api/v1/messages/{dead_letter['partitionId']}/t/retry",
    )


async def test_a_requeue_and_a_retry_behind_a_lane_get_429(client: httpx.AsyncClient, broker: Broker) -> None:
    paths = await dead_letter_behind_a_lane(client, broker)
    for response in await asyncio.gather(*(client.post(path) for path in paths)):
        assert_problem(response, 429, "overloaded")
        assert response.headers["retry-after"] == "1"
    assert (await get(client, "/dlq", queue="q"))["total"] == 1


@pytest.mark.parametrize("action", ["requeue", "retry"])
async def test_a_requeue_waits_for_the_lane_of_its_partition(
    client: httpx.AsyncClient, broker: Broker, action: str
) -> None:
    paths = dict(zip(("requeue", "retry"), await dead_letter_behind_a_lane(client, broker), strict=True))
    requeue = asyncio.create_task(client.post(paths[action]))
    await broker.drain.start()
    assert (await requeue).status_code == 200
    assert await pop_payloads(client, batch=10) == ["deferred", "dead"]
