"""Responses of an overloaded broker: deferred pushes and acks, and refused requests."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from penstock.client import (
    Client,
    ClientSettings,
    FlushFailed,
    LeaseLost,
    Message,
    NewMessage,
    NotFound,
    OperationFailed,
    OperationPending,
    Overloaded,
    SyncClient,
    Unavailable,
)
from tests.deadlines import deadline_s
from tests.unit.client.scripted_broker import ScriptedBroker, ScriptedResponse
from tests.waiting import wait_until_async

PUSH = "/api/v1/push"
ACK = "/api/v1/ack"
ACK_BATCH = "/api/v1/ack/batch"
OPERATIONS = "/api/v1/operations"
FAST_RETRIES = ClientSettings(retry_delay_s=0.01, max_retry_delay_s=0.1, retry_attempts=5)
POLL = ClientSettings(queued_operation_behavior="poll", queued_operation_timeout_s=20, retry_delay_s=0.01)


def push_result(index: int, **fields: Any) -> dict[str, Any]:
    """Return the result of one pushed message."""
    return {"index": index, "status": "queued", "transaction_id": f"t{index}", "queueName": "q", **fields}


def deferred(items: list[dict[str, Any]]) -> ScriptedResponse:
    """Return a 202 with these results."""
    operation = {"queuePosition": 3, "reason": "system_busy", "estimatedWait": 1.5}
    return ScriptedResponse(202, [operation | item if "operationId" in item else item for item in items])


def operation(operation_id: str, status: str, **fields: Any) -> ScriptedResponse:
    """Return the state of an operation."""
    body = {"operationId": operation_id, "type": "push", "status": status, "attempts": 1}
    return ScriptedResponse(200, {**body, **fields})


MESSAGE = {
    "id": "m", "partition": "p", "partitionId": "1", "transactionId": "t0", "traceId": None, "data": 1,
    "createdAt": "2026-01-01T00:00:00Z", "leaseId": "l", "consumerGroup": "g", "retryCount": 0,
}  # fmt: skip


def popped_message() -> Message:
    return msgspec.convert(MESSAGE, Message)


async def test_a_deferred_push_returns_its_operation_ids() -> None:
    items = [
        push_result(0),
        push_result(1, operationId="op-1", reason="system_busy"),
        push_result(2, operationId="op-2", queuePosition=4),
    ]
    async with ScriptedBroker({PUSH: [deferred(items)]}) as broker, Client(broker.url) as client:
        results = await client.push_many(NewMessage("q", n) for n in range(3))
        assert [result.operation_id for result in results] == [None, "op-1", "op-2"]
        assert results[1].reason == "system_busy"
        assert results.operation_ids == ["op-1", "op-2"]
        assert results.queued is not None
        assert results.queued.operation_id == "op-2"
        assert (results.queued.queue_position, results.queued.estimated_wait_s) == (4, 1.5)
        assert (results[1].queue_position, results[1].estimated_wait_s) == (3, 1.5)
        assert len(broker.requests) == 1


async def test_a_deferred_push_of_an_older_broker_is_read() -> None:
    items = [push_result(0, operationId="op-1", reason="system_busy"), push_result(1)]
    body = {
        "status": "queued",
        "operationId": "op-1",
        "queuePosition": 3,
        "reason": "system_busy",
        "items": items,
    }
    async with ScriptedBroker({PUSH: [ScriptedResponse(202, body)]}) as broker, Client(broker.url) as client:
        results = await client.push_many(NewMessage("q", n) for n in range(2))
        assert results.operation_ids == ["op-1"]
        assert results.queued is not None
        assert results.queued.reason == "system_busy"


async def test_an_executed_push_has_no_operation() -> None:
    async with (
        ScriptedBroker({PUSH: [ScriptedResponse(201, [push_result(0)])]}) as broker,
        Client(broker.url) as client,
    ):
        results = await client.push_many([NewMessage("q", 0)])
        assert results.queued is None
        assert results.operation_ids == []


async def test_polling_returns_the_executed_results() -> None:
    items = [push_result(0, operationId="op-1"), push_result(1), push_result(2, operationId="op-1")]
    executed = [push_result(0, message_id="a"), {**push_result(1, message_id="b"), "status": "duplicate"}]
    script = {
        PUSH: [deferred(items)],
        f"{OPERATIONS}/op-1": [
            ScriptedResponse.problem(503, "database_unavailable", "0"),
            operation("op-1", "pending", estimatedWait=0.1),
            operation("op-1", "processing"),
            operation("op-1", "completed", result=executed),
        ],
    }
    async with ScriptedBroker(script) as broker, Client(broker.url, POLL) as client:
        messages = [NewMessage("q", 0), NewMessage("q", 1), NewMessage("q", 2, transaction_id="mine")]
        results = await client.push_many(messages)
        assert [(r.index, r.message_id, r.status, r.operation_id) for r in results] == [
            (0, "a", "queued", None),
            (1, None, "queued", None),
            (2, "b", "duplicate", None),
        ]
        assert results.queued is None


async def test_a_deferred_duplicate_of_the_clients_own_push_counts_as_queued() -> None:
    """The first response was lost, and both pushes were deferred."""
    executed = [{**push_result(0, message_id="a"), "status": "duplicate"}]
    script = {
        PUSH: [ScriptedResponse.problem(503, "x"), deferred([push_result(0, operationId="op-1")])],
        f"{OPERATIONS}/op-1": [operation("op-1", "completed", result=executed)],
    }
    async with ScriptedBroker(script) as broker, Client(broker.url, POLL) as client:
        assert (await client.push("q", 0)).status == "queued"


async def test_polling_waits_for_an_operation_in_the_journal_of_another_broker() -> None:
    script = {
        PUSH: [deferred([push_result(0, operationId="op-1")])],
        f"{OPERATIONS}/op-1": [
            ScriptedResponse.problem(404, "unknown_operation"),
            operation("op-1", "completed", result=[push_result(0, message_id="a")]),
        ],
    }
    async with ScriptedBroker(script) as broker, Client(broker.url, POLL) as client:
        assert (await client.push("q", 0)).message_id == "a"


async def test_polling_returns_a_pending_operation_after_its_timeout() -> None:
    script = {
        PUSH: [deferred([push_result(0, operationId="op-1")])],
        f"{OPERATIONS}/op-1": [operation("op-1", "pending", estimatedWait=60)],
    }
    settings = ClientSettings(queued_operation_behavior="poll", queued_operation_timeout_s=0.3)
    async with ScriptedBroker(script) as broker, Client(broker.url, settings) as client:
        results = await client.push_many([NewMessage("q", 0)])
        assert results[0].status == "queued"
        assert results.operation_ids == ["op-1"]
        assert results.queued is not None


async def test_polling_reports_a_failed_operation() -> None:
    failed = operation("op-1", "failed", error="disk full")
    script = {
        PUSH: [
            deferred([push_result(0, operationId="op-1")]),
            deferred([push_result(0, operationId="op-1"), push_result(1)]),
        ],
        f"{OPERATIONS}/op-1": [failed],
    }
    async with ScriptedBroker(script) as broker, Client(broker.url, POLL) as client:
        with pytest.raises(OperationFailed, match="disk full") as error:
            await client.push("q", 0)
        assert error.value.operation_id == "op-1"
        failed_result, stored_result = await client.push_many([NewMessage("q", 0), NewMessage("q", 1)])
        assert (failed_result.status, failed_result.error, failed_result.operation_id) == (
            "failed",
            "disk full",
            "op-1",
        )
        assert stored_result.status == "queued"


async def test_acks_can_be_deferred_too() -> None:
    accepted = {"transactionId": "t0", "success": True, "operationId": "op-1", "reason": "system_busy"}
    refused = {"transactionId": "t0", "success": False, "error": "lease expired"}
    script = {
        ACK: [deferred([accepted])],
        ACK_BATCH: [deferred([accepted, refused])],
        f"{OPERATIONS}/op-1": [operation("op-1", "completed", result=[{**refused, "error": "gone"}])],
    }
    async with ScriptedBroker(script) as broker:
        async with Client(broker.url) as client:
            assert (await client.ack(popped_message())).operation_id == "op-1"
            results = await client.ack_many([popped_message(), popped_message()])
            assert [result.success for result in results] == [True, False]
            assert results.operation_ids == ["op-1"]
        async with Client(broker.url, POLL) as client:
            with pytest.raises(LeaseLost, match="gone"):
                await client.ack(popped_message())
            results = await client.ack_many([popped_message(), popped_message()])
            assert [result.error for result in results] == ["gone", "lease expired"]
            assert results.queued is None


@pytest.mark.parametrize("status", [429, 503])
async def test_a_refused_request_is_retried_after_retry_after(status: int) -> None:
    script = {
        PUSH: [ScriptedResponse.problem(status, "overloaded", "1"), ScriptedResponse(201, [push_result(0)])]
    }
    settings = ClientSettings(retry_delay_s=0.01)
    async with ScriptedBroker(script) as broker, Client(broker.url, settings) as client:
        assert (await client.push("q", 0)).status == "queued"
        first, second = broker.times_s(PUSH)
        assert 1 <= second - first < 10


async def test_without_retries_the_error_has_the_retry_after() -> None:
    script = {
        PUSH: [
            ScriptedResponse.problem(429, "overloaded", "7"),
            ScriptedResponse.problem(503, "journal_full", "9"),
        ]
    }
    no_retries = ClientSettings(retry_on_429=False, retry_attempts=1)
    async with ScriptedBroker(script) as broker, Client(broker.url, no_retries) as client:
        with pytest.raises(Overloaded) as overloaded:
            await client.push("q", 0)
        assert (overloaded.value.code, overloaded.value.retry_after_s, overloaded.value.uncertain) == (
            "overloaded",
            7,
            False,
        )
        with pytest.raises(Unavailable) as unavailable:
            await client.push("q", 0)
        assert (unavailable.value.code, unavailable.value.retry_after_s) == ("journal_full", 9)
    assert len(broker.requests) == 2


async def test_the_exact_seconds_of_the_body_precede_the_header_that_rounds_them_up() -> None:
    body = {"status": 429, "detail": "Broker overloaded.", "code": "overloaded", "retryAfter": 0.27}
    no_retries = ClientSettings(retry_on_429=False)
    script = {PUSH: [ScriptedResponse(429, body, "1")]}
    async with ScriptedBroker(script) as broker, Client(broker.url, no_retries) as client:
        with pytest.raises(Overloaded) as overloaded:
            await client.push("q", 0)
    assert overloaded.value.retry_after_s == 0.27


async def test_the_maximum_delay_bounds_the_wait_between_attempts() -> None:
    script = {
        PUSH: [ScriptedResponse.problem(429, "overloaded", "3600"), ScriptedResponse(201, [push_result(0)])]
    }
    settings = ClientSettings(max_retry_delay_s=0.05)
    async with ScriptedBroker(script) as broker, Client(broker.url, settings) as client:
        assert (await asyncio.wait_for(client.push("q", 0), deadline_s(30))).status == "queued"


async def test_a_buffer_counts_deferred_messages_as_sent() -> None:
    accepted = deferred([push_result(n, operationId="op-1") for n in range(2)])
    script = {
        PUSH: [
            ScriptedResponse.problem(429, "overloaded", "0"),
            accepted,
            ScriptedResponse.problem(429, "overloaded", "0"),
        ]
    }
    async with ScriptedBroker(script) as broker, Client(broker.url, FAST_RETRIES) as client:
        buffer = client.buffered("q", size=2, interval_s=600)
        await buffer.push(0)
        await buffer.push(1)
        assert len(buffer) == 0
        assert len(broker.requests) == 2
        await buffer.push(2)
        with pytest.raises(FlushFailed) as failure:
            await buffer.close()
        assert [message.payload for message in failure.value.unsent] == [2]


async def test_a_consumer_retries_a_refused_ack_without_end() -> None:
    accepted = {"transactionId": "t0", "success": True, "operationId": "op-1", "reason": "system_busy"}
    overloaded = ScriptedResponse.problem(429, "overloaded", "0")
    popped = ScriptedResponse(200, {"queue": "q", "messages": [MESSAGE]})
    script = {
        "/api/v1/pop/queue/q?batch=1&wait=true&timeout=30000": [overloaded, popped, ScriptedResponse(204)],
        ACK_BATCH: [overloaded] * 7 + [deferred([accepted])],
    }
    lost: list[Message] = []
    handled: list[int] = []
    settings = ClientSettings(retry_delay_s=0.001, max_retry_delay_s=0.01, retry_attempts=2)
    async with ScriptedBroker(script) as broker, Client(broker.url, settings) as client:

        async def is_ack_accepted() -> bool:
            return len(broker.times_s(ACK_BATCH)) == 8

        async with client.consume(
            "q", lambda message: handled.append(message.data), auto_renew=False, on_lease_lost=lost.extend
        ):
            await wait_until_async(is_ack_accepted, 30, "the ack is accepted")
    assert handled == [1]
    assert lost == []
    assert len(broker.times_s(ACK_BATCH)) == 8


async def test_operations_are_listed_retried_and_deleted() -> None:
    failed = {"operationId": "op-1", "type": "push", "status": "failed", "queue": "q", "error": "x"}
    script = {
        f"{OPERATIONS}?status=failed&queue=a%2Fb&limit=2&after=op-0": [
            ScriptedResponse(200, {"operations": [failed], "next": "op-1"})
        ],
        f"{OPERATIONS}/stats": [ScriptedResponse(200, {"waiting": 3})],
        f"{OPERATIONS}/op-1/retry": [ScriptedResponse(200, {"operationId": "op-1", "status": "pending"})],
        f"{OPERATIONS}/op-1": [ScriptedResponse(204)],
        f"{OPERATIONS}/slow": [operation("slow", "pending")],
    }
    async with ScriptedBroker(script) as broker, Client(broker.url, FAST_RETRIES) as client:
        page = await client.operations.list(status="failed", queue="a/b", limit=2, after="op-0")
        assert [(listed.operation_id, listed.status, listed.finished) for listed in page.operations] == [
            ("op-1", "failed", True)
        ]
        assert page.next == "op-1"
        assert await client.operations.stats() == {"waiting": 3}
        await client.operations.retry("op-1")
        await client.operations.delete("op-1")
        with pytest.raises(NotFound):
            await client.operations.wait("missing")
        with pytest.raises(OperationPending, match="accepted"):
            await client.operations.wait("slow", timeout_s=0.2)
        sync_client = SyncClient(broker.url, FAST_RETRIES)
        try:
            assert await asyncio.to_thread(sync_client.operations.stats) == {"waiting": 3}
        finally:
            await asyncio.to_thread(sync_client.close)
        assert [(request.method, request.path) for request in broker.requests][2:4] == [
            ("POST", f"{OPERATIONS}/op-1/retry"),
            ("DELETE", f"{OPERATIONS}/op-1"),
        ]
