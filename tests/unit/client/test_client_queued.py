"""A broker that has too much to do: what it accepts for later, and what it refuses for now."""

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
from tests.unit.client.scripted import Reply, Scripted
from tests.waiting import wait_until_async

PUSH, ACK, ACKS, OPERATIONS = "/api/v1/push", "/api/v1/ack", "/api/v1/ack/batch", "/api/v1/operations"
QUICK = ClientSettings(retry_delay_s=0.01, max_retry_delay_s=0.1, retry_attempts=5)
POLLING = ClientSettings(queued_operation_behavior="poll", queued_operation_timeout_s=20, retry_delay_s=0.01)


def pushed(index: int, **more: Any) -> dict[str, Any]:
    return {"index": index, "status": "queued", "transaction_id": f"t{index}", "queueName": "q", **more}


def later(items: list[dict[str, Any]], operation_id: str = "op-1") -> Reply:
    told = {"status": "queued", "operationId": operation_id, "queuePosition": 3, "reason": "system_busy"}
    return Reply(202, {**told, "estimatedWait": 1.5, "items": items})


def operation(operation_id: str, status: str, **more: Any) -> Reply:
    return Reply(200, {"operationId": operation_id, "type": "push", "status": status, "attempts": 1, **more})


MESSAGE = {
    "id": "m", "partition": "p", "partitionId": "1", "transactionId": "t0", "traceId": None, "data": 1,
    "createdAt": "2026-01-01T00:00:00Z", "leaseId": "l", "consumerGroup": "g", "retryCount": 0,
}  # fmt: skip


def a_message() -> Message:
    return msgspec.convert(MESSAGE, Message)


async def test_what_is_accepted_for_later_is_returned_as_such() -> None:
    items = [pushed(0), pushed(1, operationId="op-1", reason="system_busy"), pushed(2, operationId="op-2")]
    async with Scripted({PUSH: [later(items, "op-2")]}) as server, Client(server.url) as client:
        results = await client.push_many(NewMessage("q", n) for n in range(3))
        assert [result.operation_id for result in results] == [None, "op-1", "op-2"]
        assert results[1].reason == "system_busy"
        assert results.operation_ids == ["op-1", "op-2"]
        assert results.queued is not None
        assert results.queued.operation_id == "op-2"
        assert results.queued.queue_position == 3
        assert results.queued.estimated_wait_s == 1.5
        assert len(server.asked) == 1


async def test_what_is_done_has_nothing_queued() -> None:
    async with Scripted({PUSH: [Reply(201, [pushed(0)])]}) as server, Client(server.url) as client:
        results = await client.push_many([NewMessage("q", 0)])
        assert results.queued is None
        assert results.operation_ids == []


async def test_who_polls_gets_what_became_of_it() -> None:
    items = [pushed(0, operationId="op-1"), pushed(1), pushed(2, operationId="op-1")]
    done = [pushed(0, message_id="a"), {**pushed(1, message_id="b"), "status": "duplicate"}]
    script = {
        PUSH: [later(items)],
        f"{OPERATIONS}/op-1": [
            Reply.problem(503, "database_unavailable", "0"),
            operation("op-1", "pending", estimatedWait=0.1),
            operation("op-1", "processing"),
            operation("op-1", "completed", result=done),
        ],
    }
    async with Scripted(script) as server, Client(server.url, POLLING) as client:
        given = [NewMessage("q", 0), NewMessage("q", 1), NewMessage("q", 2, transaction_id="mine")]
        results = await client.push_many(given)
        assert [(r.index, r.message_id, r.status, r.operation_id) for r in results] == [
            (0, "a", "queued", None),
            (1, None, "queued", None),
            (2, "b", "duplicate", None),
        ]
        assert results.queued is None


async def test_a_duplicate_of_ones_own_push_is_the_push() -> None:
    """Its first answer was lost, and both were accepted for later."""
    done = [{**pushed(0, message_id="a"), "status": "duplicate"}]
    script = {
        PUSH: [Reply.problem(503, "x"), later([pushed(0, operationId="op-1")])],
        f"{OPERATIONS}/op-1": [operation("op-1", "completed", result=done)],
    }
    async with Scripted(script) as server, Client(server.url, POLLING) as client:
        assert (await client.push("q", 0)).status == "queued"


async def test_an_operation_that_another_brokers_journal_has_is_waited_for() -> None:
    script = {
        PUSH: [later([pushed(0, operationId="op-1")])],
        f"{OPERATIONS}/op-1": [
            Reply.problem(404, "unknown_operation"),
            operation("op-1", "completed", result=[pushed(0, message_id="a")]),
        ],
    }
    async with Scripted(script) as server, Client(server.url, POLLING) as client:
        assert (await client.push("q", 0)).message_id == "a"


async def test_what_takes_too_long_is_returned_as_accepted() -> None:
    script = {
        PUSH: [later([pushed(0, operationId="op-1")])],
        f"{OPERATIONS}/op-1": [operation("op-1", "pending", estimatedWait=60)],
    }
    settings = ClientSettings(queued_operation_behavior="poll", queued_operation_timeout_s=0.3)
    async with Scripted(script) as server, Client(server.url, settings) as client:
        results = await client.push_many([NewMessage("q", 0)])
        assert results[0].status == "queued"
        assert results.operation_ids == ["op-1"]
        assert results.queued is not None


async def test_an_operation_that_fails_is_told() -> None:
    failed = operation("op-1", "failed", error="the disk is on fire")
    script = {
        PUSH: [later([pushed(0, operationId="op-1")]), later([pushed(0, operationId="op-1"), pushed(1)])],
        f"{OPERATIONS}/op-1": [failed],
    }
    async with Scripted(script) as server, Client(server.url, POLLING) as client:
        with pytest.raises(OperationFailed, match="the disk is on fire") as error:
            await client.push("q", 0)
        assert error.value.operation_id == "op-1"
        bad, good = await client.push_many([NewMessage("q", 0), NewMessage("q", 1)])
        assert (bad.status, bad.error, bad.operation_id) == ("failed", "the disk is on fire", "op-1")
        assert good.status == "queued"


async def test_acks_are_accepted_for_later_too() -> None:
    accepted = {"transactionId": "t0", "success": True, "operationId": "op-1", "reason": "system_busy"}
    refused = {"transactionId": "t0", "success": False, "error": "the lease is not in force"}
    script = {
        ACK: [later([accepted])],
        ACKS: [later([accepted, refused])],
        f"{OPERATIONS}/op-1": [operation("op-1", "completed", result=[{**refused, "error": "gone"}])],
    }
    async with Scripted(script) as server:
        async with Client(server.url) as client:
            assert (await client.ack(a_message())).operation_id == "op-1"
            results = await client.ack_many([a_message(), a_message()])
            assert [result.success for result in results] == [True, False]
            assert results.operation_ids == ["op-1"]
        async with Client(server.url, POLLING) as client:
            with pytest.raises(LeaseLost, match="gone"):
                await client.ack(a_message())
            results = await client.ack_many([a_message(), a_message()])
            assert [result.error for result in results] == ["gone", "the lease is not in force"]
            assert results.queued is None


@pytest.mark.parametrize("status", [429, 503])
async def test_a_broker_that_refuses_is_asked_again_when_it_says_so(status: int) -> None:
    script = {PUSH: [Reply.problem(status, "overloaded", "1"), Reply(201, [pushed(0)])]}
    settings = ClientSettings(retry_delay_s=0.01)
    async with Scripted(script) as server, Client(server.url, settings) as client:
        assert (await client.push("q", 0)).status == "queued"
        first, second = server.times(PUSH)
        assert 1 <= second - first < 10


async def test_a_client_that_does_not_repeat_tells_when_to_come_back() -> None:
    script = {PUSH: [Reply.problem(429, "overloaded", "7"), Reply.problem(503, "journal_full", "9")]}
    impatient = ClientSettings(retry_on_429=False, retry_attempts=1)
    async with Scripted(script) as server, Client(server.url, impatient) as client:
        with pytest.raises(Overloaded) as busy:
            await client.push("q", 0)
        assert (busy.value.code, busy.value.retry_after_s, busy.value.uncertain) == ("overloaded", 7, False)
        with pytest.raises(Unavailable) as full:
            await client.push("q", 0)
        assert (full.value.code, full.value.retry_after_s) == ("journal_full", 9)
    assert len(server.asked) == 2


async def test_the_longest_wait_caps_what_a_broker_asks_for() -> None:
    script = {PUSH: [Reply.problem(429, "overloaded", "3600"), Reply(201, [pushed(0)])]}
    settings = ClientSettings(max_retry_delay_s=0.05)
    async with Scripted(script) as server, Client(server.url, settings) as client:
        assert (await asyncio.wait_for(client.push("q", 0), 30)).status == "queued"


async def test_a_buffer_is_content_with_what_is_accepted() -> None:
    accepted = later([pushed(n, operationId="op-1") for n in range(2)])
    script = {PUSH: [Reply.problem(429, "overloaded", "0"), accepted, Reply.problem(429, "overloaded", "0")]}
    async with Scripted(script) as server, Client(server.url, QUICK) as client:
        buffer = client.buffered("q", size=2, interval_s=600)
        await buffer.push(0)
        await buffer.push(1)
        assert len(buffer) == 0
        assert len(server.asked) == 2
        await buffer.push(2)
        with pytest.raises(FlushFailed) as failure:
            await buffer.close()
        assert [message.payload for message in failure.value.unsent] == [2]


async def test_a_consumer_settles_what_it_handled_however_often_it_is_refused() -> None:
    accepted = {"transactionId": "t0", "success": True, "operationId": "op-1", "reason": "system_busy"}
    busy = Reply.problem(429, "overloaded", "0")
    popped = Reply(200, {"queue": "q", "messages": [MESSAGE]})
    script = {
        "/api/v1/pop/queue/q?batch=1&wait=true&timeout=30000": [busy, popped, Reply(204)],
        ACKS: [busy] * 7 + [later([accepted])],
    }
    lost: list[Message] = []
    handled: list[int] = []
    settings = ClientSettings(retry_delay_s=0.001, max_retry_delay_s=0.01, retry_attempts=2)
    async with Scripted(script) as server, Client(server.url, settings) as client:

        async def settled() -> bool:
            return len(server.times(ACKS)) == 8

        async with client.consume(
            "q", lambda message: handled.append(message.data), auto_renew=False, on_lease_lost=lost.extend
        ):
            await wait_until_async(settled, 30, "the ack is accepted")
    assert handled == [1]
    assert lost == []
    assert len(server.times(ACKS)) == 8


async def test_operations_are_looked_at_retried_and_deleted() -> None:
    listed = {"operationId": "op-1", "type": "push", "status": "failed", "queue": "q", "error": "x"}
    script = {
        f"{OPERATIONS}?status=failed&queue=a%2Fb&limit=2&after=op-0": [
            Reply(200, {"operations": [listed], "next": "op-1"})
        ],
        f"{OPERATIONS}/stats": [Reply(200, {"waiting": 3})],
        f"{OPERATIONS}/op-1/retry": [Reply(200, {"operationId": "op-1", "status": "pending"})],
        f"{OPERATIONS}/op-1": [Reply(204)],
        f"{OPERATIONS}/slow": [operation("slow", "pending")],
    }
    async with Scripted(script) as server, Client(server.url, QUICK) as client:
        page = await client.operations.list(status="failed", queue="a/b", limit=2, after="op-0")
        assert [(one.operation_id, one.status, one.finished) for one in page.operations] == [
            ("op-1", "failed", True)
        ]
        assert page.next == "op-1"
        assert await client.operations.stats() == {"waiting": 3}
        await client.operations.retry("op-1")
        await client.operations.delete("op-1")
        with pytest.raises(NotFound):
            await client.operations.wait("nobody")
        with pytest.raises(OperationPending, match="accepted"):
            await client.operations.wait("slow", timeout_s=0.2)
        sync = SyncClient(server.url, QUICK)
        try:
            assert await asyncio.to_thread(sync.operations.stats) == {"waiting": 3}
        finally:
            await asyncio.to_thread(sync.close)
        assert [(asked.method, asked.path) for asked in server.asked][2:4] == [
            ("POST", f"{OPERATIONS}/op-1/retry"),
            ("DELETE", f"{OPERATIONS}/op-1"),
        ]
