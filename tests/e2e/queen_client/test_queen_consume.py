"""Consumers, consumer groups, transactions and traces with the Queen client."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

import pytest
from queen import Queen

from tests.e2e.queen_client.queen_messages import count_unfinished, payloads
from tests.waiting import wait_until_async


async def test_messages_are_consumed_one_by_one_and_in_batches(queen: Queen, queue: str) -> None:
    await queen.queue(queue).push([{"data": i} for i in range(6)])
    single: list[int] = []
    batches: list[list[int]] = []

    async def consume_one(message: Any) -> None:
        single.append(message["data"])

    async def consume_batch(messages: Any) -> None:
        batches.append(payloads(messages))

    await queen.queue(queue).batch(2).limit(2).each().consume(consume_one)
    await queen.queue(queue).batch(3).limit(4).consume(consume_batch)
    assert single == [0, 1]
    assert batches == [[2, 3, 4], [5]]
    assert await count_unfinished(queen, queue) == 0


async def test_order_holds_in_every_partition_under_concurrency(queen: Queen, queue: str) -> None:
    names = [f"p{i}" for i in range(8)]
    for start in (0, 10):
        for name in names:
            numbers = [{"data": start + i} for i in range(10)]
            await queen.queue(queue).partition(name).push(numbers)
    consumed: dict[str, list[int]] = defaultdict(list)
    active_partitions: set[str] = set()

    async def handler(messages: Any) -> None:
        partition = messages[0]["partition"]
        assert partition not in active_partitions, "one lease per partition"
        active_partitions.add(partition)
        await asyncio.sleep(0)
        consumed[partition] += payloads(messages)
        active_partitions.remove(partition)

    await queen.queue(queue).concurrency(6).batch(7).wait(False).idle_millis(500).consume(handler)
    assert consumed == {name: list(range(20)) for name in names}


async def test_one_partition_is_consumed_in_order_by_many_workers(queen: Queen, queue: str) -> None:
    await queen.queue(queue).push([{"data": i} for i in range(50)])
    consumed: list[int] = []

    async def handler(message: Any) -> None:
        consumed.append(message["data"])

    await queen.queue(queue).concurrency(5).batch(1).wait(False).idle_millis(700).each().consume(handler)
    assert consumed == list(range(50))


async def test_every_consumer_group_gets_all_messages(queen: Queen, queue: str) -> None:
    await queen.queue(queue).push([{"data": i} for i in range(20)])
    for group in ("billing", "mail"):
        messages = await (
            queen.queue(queue).group(group).subscription_mode("from_beginning").batch(20).wait(False).pop()
        )
        assert payloads(messages) == list(range(20)), group
        assert (await queen.ack(messages, True, {"group": group}))["success"] is True


async def test_a_failed_batch_is_redelivered_unchanged(queen: Queen, queue: str) -> None:
    await queen.queue(queue).config({"retry_limit": 3}).create()
    await queen.queue(queue).push([{"data": i} for i in range(10)])
    attempts: list[list[int]] = []

    async def handler(messages: Any) -> None:
        attempts.append(payloads(messages))
        if len(attempts) < 3:
            raise RuntimeError("not yet")

    await queen.queue(queue).batch(10).wait(False).limit(30).consume(handler)
    assert attempts == [list(range(10))] * 3
    assert await count_unfinished(queen, queue) == 0


async def test_a_message_that_fails_too_often_becomes_a_dead_letter_with_its_error(
    queen: Queen, queue: str
) -> None:
    await queen.queue(queue).config({"retry_limit": 2, "encryption_enabled": True}).create()
    await queen.queue(queue).partition("x").push([{"data": {"n": 1}, "transactionId": "t"}])
    attempts = 0

    async def handler(message: Any) -> None:
        nonlocal attempts
        attempts += 1
        raise RuntimeError(f"failure {attempts}")

    async def on_error(message: dict[str, Any], error: Exception) -> None:
        await queen.ack(message, False, {"error": str(error)})

    await queen.queue(queue).wait(False).limit(3).each().consume(handler).on_error(on_error)
    assert attempts == 3
    page = await queen.queue(queue).dlq().limit(10).get()
    [dead_letter] = page["messages"]
    assert (page["total"], dead_letter["data"], dead_letter["errorMessage"]) == (1, {"n": 1}, "failure 3")
    assert (dead_letter["transactionId"], dead_letter["retryCount"], dead_letter["partition"]) == (
        "t",
        3,
        "x",
    )
    assert (await queen.queue(queue).dlq("other-group").get())["messages"] == []
    assert (await queen.queue(queue).partition("x").dlq().from_("2020-01-01T00:00:00Z").get())["total"] == 1
    assert (await queen.queue(queue).partition("y").dlq().get())["messages"] == []


async def test_a_renewed_lease_lasts_longer_than_its_first_lease_time(queen: Queen, queue: str) -> None:
    await queen.queue(queue).config({"lease_time": 2}).create()
    await queen.queue(queue).push([{"data": "long"}])
    popped_elsewhere: list[Any] = []

    async def handler(message: Any) -> None:
        # Another consumer waits longer than the lease time and gets nothing.
        popped_elsewhere.extend(await queen.queue(queue).wait(True).timeout_millis(2_600).pop())

    await queen.queue(queue).wait(False).limit(1).renew_lease(True, 400).each().consume(handler)
    assert popped_elsewhere == []
    assert await count_unfinished(queen, queue) == 0
    renewed: Any = await queen.renew("1.00000000-0000-0000-0000-000000000000")
    assert renewed["success"] is False


@pytest.mark.parametrize("start", ["new", "new-only", "now"])
async def test_a_consumer_group_can_start_with_new_messages(queen: Queen, queue: str, start: str) -> None:
    def consumer() -> Any:
        builder = queen.queue(queue).group("late").batch(10).wait(False)
        return builder.subscription_from("now") if start == "now" else builder.subscription_mode(start)

    await queen.queue(queue).push([{"data": "old"}])
    assert await consumer().pop() == []
    await queen.queue(queue).push([{"data": "new"}])
    assert payloads(await consumer().pop()) == ["new"]
    all_messages = await queen.queue(queue).group("all").subscription_mode("all").batch(10).wait(False).pop()
    assert payloads(all_messages) == ["old", "new"]


async def test_a_consumer_group_can_start_at_a_timestamp(queen: Queen, queue: str) -> None:
    await queen.queue(queue).push([{"data": "before"}])
    [row] = (await queen.admin.list_messages(queue=queue))["messages"]
    pushed_at = datetime.fromisoformat(row["createdAt"])
    await wait_until_async(lambda: _is_past(pushed_at), 5, "a millisecond passes")
    start = datetime.now(UTC).isoformat()
    await queen.queue(queue).push([{"data": "after"}])
    messages = await queen.queue(queue).group("g").subscription_from(start).batch(10).wait(False).pop()
    assert payloads(messages) == ["after"]


async def _is_past(timestamp: datetime) -> bool:
    return (datetime.now(UTC) - timestamp).total_seconds() > 0.002


async def test_a_transaction_pushes_and_acks_atomically(queen: Queen, queue: str) -> None:
    await queen.queue(queue).push([{"data": i} for i in (1, 2, 3)])
    messages = await queen.queue(queue).batch(3).wait(False).pop()
    result = await (
        queen.transaction()
        .queue(f"{queue}-sum")
        .push([{"data": sum(payloads(messages))}, {"data": "more"}])
        .queue(f"{queue}-log")
        .partition("p")
        .push([{"data": "done"}])
        .ack(messages)
        .commit()
    )
    assert result["success"] is True
    assert payloads(await queen.queue(f"{queue}-sum").batch(5).wait(False).pop()) == [6, "more"]
    assert payloads(await queen.queue(f"{queue}-log").partition("p").wait(False).pop()) == ["done"]
    assert await count_unfinished(queen, queue) == 0


async def test_a_failed_transaction_changes_nothing(queen: Queen, queue: str) -> None:
    await queen.queue(f"{queue}-next").create()
    await queen.queue(queue).push([{"data": 1}, {"data": 2}])
    first, second = await queen.queue(queue).batch(2).wait(False).pop()
    await queen.ack(second)
    with pytest.raises(Exception, match=r"operations\[2\] \(ack\)"):
        await queen.transaction().queue(f"{queue}-next").push([{"data": 1}]).ack([first, second]).commit()
    assert await queen.queue(f"{queue}-next").wait(False).pop() == []
    assert await count_unfinished(queen, queue) == 2, "the first message is not acked either"
    await queen.transaction().queue(f"{queue}-next").push([{"data": 1}]).ack(first).commit()
    assert await count_unfinished(queen, queue) == 0
    with pytest.raises(Exception, match="no operations"):
        await queen.transaction().commit()


async def test_a_consumer_can_commit_its_own_transactions(queen: Queen, queue: str) -> None:
    await queen.queue(queue).config({"retry_limit": 0}).create()
    await queen.queue(queue).push([{"data": i} for i in range(4)])

    async def handler(message: Any) -> None:
        status = "failed" if message["data"] == 2 else "completed"
        forward = queen.transaction().queue(f"{queue}-next").push([{"data": message["data"] * 10}])
        await forward.ack(message, status, {"consumer_group": "g"}).commit()

    await queen.queue(queue).group("g").wait(False).limit(4).each().auto_ack(False).consume(handler)
    assert payloads(await queen.queue(f"{queue}-next").batch(9).wait(False).pop()) == [0, 10, 20, 30]
    assert payloads((await queen.queue(queue).dlq("g").get())["messages"]) == [2]


async def test_consumers_record_traces(queen: Queen, queue: str) -> None:
    await queen.queue(queue).push([{"data": 1}])
    traced: list[Any] = []

    async def handler(message: Any) -> None:
        config = {"traceName": [queue, "flow"], "eventType": "step", "data": {"at": 1}}
        traced.append((message, await message["trace"](config)))
        traced.append((message, await message["trace"]({"data": "no name"})))

    await queen.queue(queue).group("g").limit(1).each().consume(handler)
    assert all(result["success"] and result["traceId"] for _, result in traced)
    message = traced[0][0]
    page = await queen.admin.get_traces_for_message(message["partitionId"], message["transactionId"])
    assert [(t["data"], t["event_type"], t["consumer_group"]) for t in page["traces"]] == [
        ({"at": 1}, "step", "g"),
        ("no name", "info", "g"),
    ]
    [trace] = (await queen.admin.get_traces_by_name(queue))["traces"]
    assert (trace["queue_name"], trace["transaction_id"]) == (queue, message["transactionId"])
    names = (await queen.admin.get_trace_names(search=queue))["trace_names"]
    assert [name["trace_name"] for name in names] == [queue]


async def test_queues_are_popped_by_namespace_and_task(queen: Queen, queue: str) -> None:
    await queen.queue(f"{queue}.mail").push([{"data": "letter"}])
    await queen.queue(f"{queue}.print").push([{"data": "page"}])
    messages = await queen.queue().namespace(queue).task("print").batch(5).wait(False).pop()
    assert payloads(messages) == ["page"]
    consumed: list[Any] = []

    async def handler(message: Any) -> None:
        consumed.append(message["data"])

    await queen.queue().namespace(queue).limit(1).each().consume(handler)
    assert consumed == ["letter"]
