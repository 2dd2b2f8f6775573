"""Configure, push, pop and ack with the Queen client."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from queen import Queen

from tests.deadlines import deadline_s
from tests.e2e.queen_client.queen_messages import count_unfinished, payloads
from tests.waiting import wait_until_async


async def test_a_queue_is_created_configured_and_deleted(queen: Queen, queue: str) -> None:
    created = await queen.queue(queue).create()
    assert created["configured"] is True
    assert (created["options"]["leaseTime"], created["options"]["retryLimit"]) == (300, 3)
    options = {
        "lease_time": 60,
        "retry_limit": 5,
        "priority": 7,
        "max_size": 5000,
        "dlq_after_max_retries": True,
    }
    configured = await queen.queue(queue).namespace("ns").task("t").config(options).create()
    assert configured["options"] | {"leaseTime": 60, "priority": 7, "maxSize": 5000} == configured["options"]
    assert (configured["namespace"], configured["task"]) == ("ns", "t")
    assert await queen.queue(queue).delete() == {"deleted": True, "existed": True, "queue": queue}
    assert (await queen.queue(queue).delete())["existed"] is False


async def test_an_unknown_option_reaches_the_error_callback(queen: Queen, queue: str) -> None:
    failures: list[str] = []

    async def on_error(error: Exception) -> None:
        failures.append(str(error))

    await queen.queue(queue).config({"lease_tme": 5}).create().on_error(on_error)
    [failure] = failures
    assert "'leaseTme'" in failure
    assert "leaseTime?" in failure


async def test_any_json_is_pushed_popped_and_acked(queen: Queen, queue: str) -> None:
    pushed = await queen.queue(queue).push([{"data": {"n": 1}}, {"data": None}, {"data": {}}, {"n": 4}])
    assert {result["status"] for result in pushed} == {"queued"}
    messages = await queen.queue(queue).batch(10).wait(False).pop()
    assert payloads(messages) == [{"n": 1}, None, {}, {"n": 4}]
    assert (await queen.ack(messages[0]))["success"] is True
    assert (await queen.ack(messages[0]))["success"] is False, "a second ack fails"
    assert (await queen.ack(messages[1:]))["success"] is True
    assert await queen.queue(queue).wait(False).pop() == []
    assert await count_unfinished(queen, queue) == 0


async def test_a_duplicate_push_reaches_the_duplicate_callback(queen: Queen, queue: str) -> None:
    reported: dict[str, list[Any]] = {"queued": [], "duplicate": []}

    async def on_success(items: list[Any]) -> None:
        reported["queued"] += items

    async def on_duplicate(items: list[Any], error: Exception) -> None:
        reported["duplicate"] += items

    for items in (["a"], ["a", "b"]):
        messages = [{"transactionId": item, "data": item} for item in items]
        await queen.queue(queue).push(messages).on_success(on_success).on_duplicate(on_duplicate)
    assert [item["transactionId"] for item in reported["queued"]] == ["a", "b"]
    assert [item["transactionId"] for item in reported["duplicate"]] == ["a"]
    elsewhere = await queen.queue(queue).partition("elsewhere").push([{"transactionId": "a", "data": 1}])
    assert elsewhere[0]["status"] == "queued", "ids are unique only within a partition"


async def test_a_waiting_pop_gets_a_message_pushed_later(queen: Queen, queue: str) -> None:
    await queen.queue(queue).create()
    waiting = [
        asyncio.create_task(queen.queue(queue).wait(True).timeout_millis(20_000).pop()) for _ in range(4)
    ]

    async def all_pops_are_parked() -> bool:
        # Each broker process reports its own pops. After eight requests, both have most likely responded.
        reports = [await read_batching(queen) for _ in range(8)]
        parked_by_worker = {report["worker"]: int(report["parkedPops"]) for report in reports}
        return sum(parked_by_worker.values()) >= 4

    await wait_until_async(all_pops_are_parked, 15, "the pops are parked")
    started = time.monotonic()
    for i in range(4):
        await queen.queue(queue).partition(str(i)).push([{"data": i}])
    popped = [data for messages in await asyncio.gather(*waiting) for data in payloads(messages)]
    assert sorted(popped) == [0, 1, 2, 3]
    assert time.monotonic() - started < deadline_s(10)


async def read_batching(queen: Queen) -> Any:
    async with httpx.AsyncClient() as http:  # a new connection, so that any worker may respond
        return (await http.get(f"{queen._config['urls'][0]}/api/v1/analytics/batching")).json()


async def test_a_renewal_returns_the_new_expiry(queen: Queen, queue: str) -> None:
    await queen.queue(queue).push([{"data": 1}, {"data": 2}])
    messages = await queen.queue(queue).batch(2).wait(False).pop()
    renewals: Any = await queen.renew(messages)
    [renewed] = renewals
    assert renewed["success"] is True
    assert datetime.fromisoformat(renewed["newExpiresAt"]) > datetime.now(UTC)


async def test_a_push_buffer_is_sent_when_full_flushed_or_old(queen: Queen, queue: str) -> None:
    async def count_pushed() -> int:
        return int((await queen.admin.get_queue(queue))["totals"]["pushed"])

    await queen.queue(queue).create()
    large_buffer = {"message_count": 5, "time_millis": 60_000}
    for i in range(5):
        await queen.queue(queue).buffer(large_buffer).push([{"data": i}])

    async def five_are_pushed() -> bool:
        return await count_pushed() == 5

    await wait_until_async(five_are_pushed, 10, "a full buffer is sent")
    for i in (5, 6):
        await queen.queue(queue).buffer(large_buffer).push([{"data": i}])
    assert queen.get_buffer_stats()["totalBufferedMessages"] == 2
    await queen.queue(queue).flush_buffer()
    assert await count_pushed() == 7
    await (
        queen.queue(queue)
        .partition("timed")
        .buffer({"message_count": 5, "time_millis": 50})
        .push([{"data": 7}])
    )

    async def eight_are_pushed() -> bool:
        return await count_pushed() == 8

    await wait_until_async(eight_are_pushed, 10, "an old buffer is sent")
    messages = await queen.queue(queue).batch(10).partitions(2).wait(False).pop()
    assert sorted(payloads(messages)) == list(range(8))


async def test_one_pop_drains_several_partitions_up_to_its_batch(queen: Queen, queue: str) -> None:
    for p in range(5):
        await queen.queue(queue).partition(f"p{p}").push([{"data": (p, m)} for m in range(4)])
    first = await queen.queue(queue).batch(100).wait(False).pop()
    assert len(first) == 4, "one partition by default"
    messages = await queen.queue(queue).batch(10).partitions(3).wait(False).pop()
    assert len(messages) == 10
    assert len({message["partitionId"] for message in messages}) == 3
    assert len({message["leaseId"] for message in messages}) == 1
    results = (await queen.ack(messages))["results"]
    assert all(result["success"] for result in results)


async def test_delayed_messages_are_delivered_after_their_delay(queen: Queen, queue: str) -> None:
    await queen.queue(queue).config({"delayed_processing": 1}).create()
    await queen.queue(f"{queue}-window").config({"window_buffer": 1}).create()
    for name in (queue, f"{queue}-window"):
        await queen.queue(name).push([{"data": 1}, {"data": 2}])
        assert await queen.queue(name).batch(5).wait(False).pop() == []
    for name in (queue, f"{queue}-window"):
        messages = await queen.queue(name).batch(5).wait(True).timeout_millis(10_000).pop()
        assert payloads(messages) == [1, 2]


async def test_an_encrypted_queue_behaves_like_any_other(queen: Queen, queue: str) -> None:
    await queen.queue(queue).config({"encryption_enabled": True}).create()
    await queen.queue(queue).push([{"data": {"secret": "word"}}])
    assert payloads(await queen.queue(queue).wait(False).pop()) == [{"secret": "word"}]
    assert (await queen.admin.list_messages(queue=queue))["messages"][0]["data"] == {"secret": "word"}


async def test_a_push_to_a_full_queue_fails(queen: Queen, queue: str) -> None:
    await queen.queue(queue).config({"max_size": 2}).create()
    await queen.queue(queue).push([{"data": 1}, {"data": 2}])
    with pytest.raises(Exception, match="maxSize"):
        await queen.queue(queue).push([{"data": 3}])
