"""The published client of the wire contract, unchanged, against two broker processes on one port."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import httpx
import pytest
import pytest_asyncio
from queen import Queen

from penstock.durable import migrations
from penstock.embedded.servers.ports import any_free_port
from tests.waiting import wait_until, wait_until_async

START_S = 60
KEY = "k1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="


async def make_database(url: str) -> str:
    admin = await asyncpg.connect(url)
    await admin.execute("CREATE DATABASE queen_client")
    await admin.close()
    made = urlunsplit(urlsplit(url)._replace(path="/queen_client"))
    async with migrations.migration_lock(made) as connection:
        await migrations.apply(connection)
    return made


@pytest.fixture(scope="module")
def url(postgres_url: str, redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Two brokers as `penstock serve` starts them. The metrics' end is away: queues must not mind."""
    port = any_free_port()
    settings = {
        "PENSTOCK_POSTGRES_URL": asyncio.run(make_database(postgres_url)),
        "PENSTOCK_REDIS_URL": redis_url,
        "PENSTOCK_CLICKHOUSE_URL": "http://127.0.0.1:1/default",
        "PENSTOCK_HOME": str(tmp_path_factory.mktemp("home")),
        "PENSTOCK_LOAD_MANAGEMENT": "false",  # the answers must not depend on how busy the machine is
        "PENSTOCK_PORT": str(port),
        "PENSTOCK_WORKERS": "2",
        "PENSTOCK_ENCRYPTION_KEYS": KEY,
        "PENSTOCK_LOG_LEVEL": "warning",
    }
    command = [sys.executable, "-m", "penstock.cli.main", "serve"]
    process = subprocess.Popen(command, env={**os.environ, **settings}, stdin=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        wait_until(
            lambda: httpx.get(f"{address}/api/v1/status").status_code == 200, START_S, "the broker answers"
        )
        yield address
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


@pytest_asyncio.fixture
async def queen(url: str) -> AsyncIterator[Queen]:
    # The client takes the process's signals; tests give them back.
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    async with Queen(url=url, retry_attempts=1) as client:
        yield client
    for number, handler in handlers.items():
        signal.signal(number, handler)


def payloads(messages: list[dict[str, Any]]) -> list[Any]:
    return [message["data"] for message in messages]


async def left(queen: Queen, queue: str) -> int:
    """What the queue's slowest group has not finished."""
    detail = await queen.admin.get_queue(queue)
    return detail["depth"] + detail["running"]


async def test_a_queue_is_made_configured_and_deleted(queen: Queen, queue: str) -> None:
    made = await queen.queue(queue).create()
    assert made["configured"] is True
    assert (made["options"]["leaseTime"], made["options"]["retryLimit"]) == (300, 3)
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


async def test_a_bad_option_reaches_the_callback(queen: Queen, queue: str) -> None:
    failures: list[str] = []

    async def on_error(error: Exception) -> None:
        failures.append(str(error))

    await queen.queue(queue).config({"lease_tme": 5}).create().on_error(on_error)
    assert failures == ["unknown option 'leaseTme': did you mean leaseTime?"]


async def test_any_json_is_pushed_popped_and_acked(queen: Queen, queue: str) -> None:
    pushed = await queen.queue(queue).push([{"data": {"n": 1}}, {"data": None}, {"data": {}}, {"n": 4}])
    assert {result["status"] for result in pushed} == {"queued"}
    messages = await queen.queue(queue).batch(10).wait(False).pop()
    assert payloads(messages) == [{"n": 1}, None, {}, {"n": 4}]
    assert (await queen.ack(messages[0]))["success"] is True
    assert (await queen.ack(messages[0]))["success"] is False, "once is enough"
    assert (await queen.ack(messages[1:]))["success"] is True
    assert await queen.queue(queue).wait(False).pop() == []
    assert await left(queen, queue) == 0


async def test_a_duplicate_is_told_apart(queen: Queen, queue: str) -> None:
    seen: dict[str, list[Any]] = {"queued": [], "duplicate": []}

    async def on_success(items: list[Any]) -> None:
        seen["queued"] += items

    async def on_duplicate(items: list[Any], error: Exception) -> None:
        seen["duplicate"] += items

    for items in (["a"], ["a", "b"]):
        messages = [{"transactionId": item, "data": item} for item in items]
        await queen.queue(queue).push(messages).on_success(on_success).on_duplicate(on_duplicate)
    assert [item["transactionId"] for item in seen["queued"]] == ["a", "b"]
    assert [item["transactionId"] for item in seen["duplicate"]] == ["a"]
    again = await queen.queue(queue).partition("elsewhere").push([{"transactionId": "a", "data": 1}])
    assert again[0]["status"] == "queued", "ids are unique within a partition"


async def test_a_waiting_pop_gets_what_is_pushed_meanwhile(queen: Queen, queue: str) -> None:
    await queen.queue(queue).create()
    waiting = [
        asyncio.create_task(queen.queue(queue).wait(True).timeout_millis(20_000).pop()) for _ in range(4)
    ]

    async def parked() -> bool:
        # Each process tells of its own; asked often enough, both have been asked.
        return (
            sum({b["worker"]: b["parkedPops"] for b in [await batching(queen) for _ in range(8)]}.values())
            >= 4
        )

    await wait_until_async(parked, 15, "the pops are parked")
    started = time.monotonic()
    for i in range(4):
        await queen.queue(queue).partition(str(i)).push([{"data": i}])
    found = [data for messages in await asyncio.gather(*waiting) for data in payloads(messages)]
    assert sorted(found) == [0, 1, 2, 3]
    assert time.monotonic() - started < 10


async def batching(queen: Queen) -> Any:
    async with httpx.AsyncClient() as fresh:  # a connection of its own, so that any worker may answer
        return (await fresh.get(f"{queen._config['urls'][0]}/api/v1/analytics/batching")).json()


async def test_messages_are_consumed_one_by_one_and_in_batches(queen: Queen, queue: str) -> None:
    await queen.queue(queue).push([{"data": i} for i in range(6)])
    single: list[int] = []
    batches: list[list[int]] = []

    async def one(message: dict[str, Any]) -> None:
        single.append(message["data"])

    async def many(messages: list[dict[str, Any]]) -> None:
        batches.append(payloads(messages))

    await queen.queue(queue).batch(2).limit(2).each().consume(one)
    await queen.queue(queue).batch(3).limit(4).consume(many)
    assert single == [0, 1]
    assert batches == [[2, 3, 4], [5]]
    assert await left(queen, queue) == 0


async def test_order_holds_in_every_partition_under_concurrency(queen: Queen, queue: str) -> None:
    names = [f"p{i}" for i in range(8)]
    for start in (0, 10):
        for name in names:
            numbers = [{"data": start + i} for i in range(10)]
            await queen.queue(queue).partition(name).push(numbers)
    seen: dict[str, list[int]] = defaultdict(list)
    at_work: set[str] = set()

    async def handler(messages: list[dict[str, Any]]) -> None:
        partition = messages[0]["partition"]
        assert partition not in at_work, "one lease per partition"
        at_work.add(partition)
        await asyncio.sleep(0)
        seen[partition] += payloads(messages)
        at_work.remove(partition)

    await queen.queue(queue).concurrency(6).batch(7).wait(False).idle_millis(500).consume(handler)
    assert seen == {name: list(range(20)) for name in names}


async def test_one_partition_is_consumed_in_order_by_many_workers(queen: Queen, queue: str) -> None:
    await queen.queue(queue).push([{"data": i} for i in range(50)])
    seen: list[int] = []

    async def handler(message: dict[str, Any]) -> None:
        seen.append(message["data"])

    await queen.queue(queue).concurrency(5).batch(1).wait(False).idle_millis(700).each().consume(handler)
    assert seen == list(range(50))


async def test_every_group_gets_everything(queen: Queen, queue: str) -> None:
    await queen.queue(queue).push([{"data": i} for i in range(20)])
    for group in ("billing", "mail"):
        messages = await (
            queen.queue(queue).group(group).subscription_mode("from_beginning").batch(20).wait(False).pop()
        )
        assert payloads(messages) == list(range(20)), group
        assert (await queen.ack(messages, True, {"group": group}))["success"] is True


async def test_a_failed_batch_comes_again_as_it_was(queen: Queen, queue: str) -> None:
    await queen.queue(queue).config({"retry_limit": 3}).create()
    await queen.queue(queue).push([{"data": i} for i in range(10)])
    attempts: list[list[int]] = []

    async def handler(messages: list[dict[str, Any]]) -> None:
        attempts.append(payloads(messages))
        if len(attempts) < 3:
            raise RuntimeError("not yet")

    await queen.queue(queue).batch(10).wait(False).limit(30).consume(handler)
    assert attempts == [list(range(10))] * 3
    assert await left(queen, queue) == 0


async def test_what_fails_too_often_is_a_dead_letter_with_its_error(queen: Queen, queue: str) -> None:
    await queen.queue(queue).config({"retry_limit": 2, "encryption_enabled": True}).create()
    await queen.queue(queue).partition("x").push([{"data": {"n": 1}, "transactionId": "t"}])
    tries = 0

    async def handler(message: dict[str, Any]) -> None:
        nonlocal tries
        tries += 1
        raise RuntimeError(f"failure {tries}")

    async def on_error(message: dict[str, Any], error: Exception) -> None:
        await queen.ack(message, False, {"error": str(error)})

    await queen.queue(queue).wait(False).limit(3).each().consume(handler).on_error(on_error)
    assert tries == 3
    found = await queen.queue(queue).dlq().limit(10).get()
    [letter] = found["messages"]
    assert (found["total"], letter["data"], letter["errorMessage"]) == (1, {"n": 1}, "failure 3")
    assert (letter["transactionId"], letter["retryCount"], letter["partition"]) == ("t", 3, "x")
    assert (await queen.queue(queue).dlq("nobody").get())["messages"] == []
    assert (await queen.queue(queue).partition("x").dlq().from_("2020-01-01T00:00:00Z").get())["total"] == 1
    assert (await queen.queue(queue).partition("y").dlq().get())["messages"] == []


async def test_a_renewed_lease_outlives_its_time(queen: Queen, queue: str) -> None:
    await queen.queue(queue).config({"lease_time": 2}).create()
    await queen.queue(queue).push([{"data": "long"}])
    stolen: list[Any] = []

    async def handler(message: dict[str, Any]) -> None:
        # Somebody else waits for longer than the lease, and gets nothing.
        stolen.extend(await queen.queue(queue).wait(True).timeout_millis(2_600).pop())

    await queen.queue(queue).wait(False).limit(1).renew_lease(True, 400).each().consume(handler)
    assert stolen == []
    assert await left(queen, queue) == 0
    renewed = await queen.renew("1.00000000-0000-0000-0000-000000000000")
    assert renewed["success"] is False


async def test_a_renewal_tells_the_new_end(queen: Queen, queue: str) -> None:
    await queen.queue(queue).push([{"data": 1}, {"data": 2}])
    messages = await queen.queue(queue).batch(2).wait(False).pop()
    [renewed] = await queen.renew(messages)
    assert renewed["success"] is True
    assert datetime.fromisoformat(renewed["newExpiresAt"]) > datetime.now(UTC)


async def test_buffered_pushes_arrive_by_number_by_time_and_when_flushed(queen: Queen, queue: str) -> None:
    async def pushed() -> int:
        return (await queen.admin.get_queue(queue))["totals"]["pushed"]

    await queen.queue(queue).create()
    large = {"message_count": 5, "time_millis": 60_000}
    for i in range(5):
        await queen.queue(queue).buffer(large).push([{"data": i}])

    async def five() -> bool:
        return await pushed() == 5

    await wait_until_async(five, 10, "a full buffer is sent")
    for i in (5, 6):
        await queen.queue(queue).buffer(large).push([{"data": i}])
    assert queen.get_buffer_stats()["totalBufferedMessages"] == 2
    await queen.queue(queue).flush_buffer()
    assert await pushed() == 7
    await (
        queen.queue(queue)
        .partition("soon")
        .buffer({"message_count": 5, "time_millis": 50})
        .push([{"data": 7}])
    )

    async def eight() -> bool:
        return await pushed() == 8

    await wait_until_async(eight, 10, "a buffer is sent when its time has come")
    messages = await queen.queue(queue).batch(10).partitions(2).wait(False).pop()
    assert sorted(payloads(messages)) == list(range(8))


@pytest.mark.parametrize("mode", ["new", "new-only", "now"])
async def test_a_group_can_start_with_what_is_new(queen: Queen, queue: str, mode: str) -> None:
    def consumer() -> Any:
        builder = queen.queue(queue).group("late").batch(10).wait(False)
        return builder.subscription_from("now") if mode == "now" else builder.subscription_mode(mode)

    await queen.queue(queue).push([{"data": "old"}])
    assert await consumer().pop() == []
    await queen.queue(queue).push([{"data": "new"}])
    assert payloads(await consumer().pop()) == ["new"]
    everything = await queen.queue(queue).group("all").subscription_mode("all").batch(10).wait(False).pop()
    assert payloads(everything) == ["old", "new"]


async def test_a_group_can_start_at_a_moment(queen: Queen, queue: str) -> None:
    await queen.queue(queue).push([{"data": "before"}])
    [row] = (await queen.admin.list_messages(queue=queue))["messages"]
    pushed_at = datetime.fromisoformat(row["createdAt"])
    await wait_until_async(lambda: _is_past(pushed_at), 5, "a millisecond passes")
    moment = datetime.now(UTC).isoformat()
    await queen.queue(queue).push([{"data": "after"}])
    messages = await queen.queue(queue).group("g").subscription_from(moment).batch(10).wait(False).pop()
    assert payloads(messages) == ["after"]


async def _is_past(moment: datetime) -> bool:
    return (datetime.now(UTC) - moment).total_seconds() > 0.002


async def test_a_transaction_moves_messages_on_as_one(queen: Queen, queue: str) -> None:
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
    assert await left(queen, queue) == 0


async def test_a_transaction_that_fails_leaves_nothing(queen: Queen, queue: str) -> None:
    await queen.queue(f"{queue}-next").create()
    await queen.queue(queue).push([{"data": 1}, {"data": 2}])
    first, second = await queen.queue(queue).batch(2).wait(False).pop()
    await queen.ack(second)
    with pytest.raises(Exception, match=r"operations\[2\] \(ack\)"):
        await queen.transaction().queue(f"{queue}-next").push([{"data": 1}]).ack([first, second]).commit()
    assert await queen.queue(f"{queue}-next").wait(False).pop() == []
    assert await left(queen, queue) == 2, "the first one was not acked either"
    await queen.transaction().queue(f"{queue}-next").push([{"data": 1}]).ack(first).commit()
    assert await left(queen, queue) == 0
    with pytest.raises(Exception, match="no operations"):
        await queen.transaction().commit()


async def test_a_consumer_can_commit_its_own_transactions(queen: Queen, queue: str) -> None:
    await queen.queue(queue).config({"retry_limit": 0}).create()
    await queen.queue(queue).push([{"data": i} for i in range(4)])

    async def handler(message: dict[str, Any]) -> None:
        status = "failed" if message["data"] == 2 else "completed"
        forward = queen.transaction().queue(f"{queue}-next").push([{"data": message["data"] * 10}])
        await forward.ack(message, status, {"consumer_group": "g"}).commit()

    await queen.queue(queue).group("g").wait(False).limit(4).each().auto_ack(False).consume(handler)
    assert payloads(await queen.queue(f"{queue}-next").batch(9).wait(False).pop()) == [0, 10, 20, 30]
    assert payloads((await queen.queue(queue).dlq("g").get())["messages"]) == [2]


async def test_consumers_leave_traces(queen: Queen, queue: str) -> None:
    await queen.queue(queue).push([{"data": 1}])
    traced: list[Any] = []

    async def handler(message: dict[str, Any]) -> None:
        config = {"traceName": [queue, "flow"], "eventType": "step", "data": {"at": 1}}
        traced.append((message, await message["trace"](config)))
        traced.append((message, await message["trace"]({"data": "no name"})))

    await queen.queue(queue).group("g").limit(1).each().consume(handler)
    assert all(result["success"] and result["traceId"] for _, result in traced)
    message = traced[0][0]
    found = await queen.admin.get_traces_for_message(message["partitionId"], message["transactionId"])
    assert [(t["data"], t["event_type"], t["consumer_group"]) for t in found["traces"]] == [
        ({"at": 1}, "step", "g"),
        ("no name", "info", "g"),
    ]
    [trace] = (await queen.admin.get_traces_by_name(queue))["traces"]
    assert (trace["queue_name"], trace["transaction_id"]) == (queue, message["transactionId"])
    names = (await queen.admin.get_trace_names(search=queue))["trace_names"]
    assert [name["trace_name"] for name in names] == [queue]


async def test_one_pop_drains_several_partitions_up_to_its_batch(queen: Queen, queue: str) -> None:
    for p in range(5):
        await queen.queue(queue).partition(f"p{p}").push([{"data": (p, m)} for m in range(4)])
    first = await queen.queue(queue).batch(100).wait(False).pop()
    assert len(first) == 4, "one partition unless told otherwise"
    messages = await queen.queue(queue).batch(10).partitions(3).wait(False).pop()
    assert len(messages) == 10
    assert len({message["partitionId"] for message in messages}) == 3
    assert len({message["leaseId"] for message in messages}) == 1
    results = (await queen.ack(messages))["results"]
    assert all(result["success"] for result in results)


async def test_queues_are_popped_by_namespace_and_task(queen: Queen, queue: str) -> None:
    await queen.queue(f"{queue}.mail").push([{"data": "letter"}])
    await queen.queue(f"{queue}.print").push([{"data": "page"}])
    messages = await queen.queue().namespace(queue).task("print").batch(5).wait(False).pop()
    assert payloads(messages) == ["page"]
    seen: list[Any] = []

    async def handler(message: dict[str, Any]) -> None:
        seen.append(message["data"])

    await queen.queue().namespace(queue).limit(1).each().consume(handler)
    assert seen == ["letter"]


async def test_held_back_messages_come_when_their_time_has_come(queen: Queen, queue: str) -> None:
    await queen.queue(queue).config({"delayed_processing": 1}).create()
    await queen.queue(f"{queue}-window").config({"window_buffer": 1}).create()
    for name in (queue, f"{queue}-window"):
        await queen.queue(name).push([{"data": 1}, {"data": 2}])
        assert await queen.queue(name).batch(5).wait(False).pop() == []
    for name in (queue, f"{queue}-window"):
        messages = await queen.queue(name).batch(5).wait(True).timeout_millis(10_000).pop()
        assert payloads(messages) == [1, 2]


async def test_an_encrypted_queue_looks_like_any_other(queen: Queen, queue: str) -> None:
    await queen.queue(queue).config({"encryption_enabled": True}).create()
    await queen.queue(queue).push([{"data": {"secret": "word"}}])
    assert payloads(await queen.queue(queue).wait(False).pop()) == [{"secret": "word"}]
    assert (await queen.admin.list_messages(queue=queue))["messages"][0]["data"] == {"secret": "word"}


async def test_a_full_queue_says_so(queen: Queen, queue: str) -> None:
    await queen.queue(queue).config({"max_size": 2}).create()
    await queen.queue(queue).push([{"data": 1}, {"data": 2}])
    with pytest.raises(Exception, match="maxSize"):
        await queen.queue(queue).push([{"data": 3}])


async def test_groups_are_managed(queen: Queen, queue: str) -> None:
    group = f"{queue}-group"
    await queen.queue(queue).push([{"data": 1}])

    async def take() -> list[Any]:
        return payloads(await queen.queue(queue).group(group).auto_ack(False).batch(5).wait(False).pop())

    assert await take() == [1]
    assert group in [row["name"] for row in await queen.admin.list_consumer_groups()]
    assert (await queen.admin.get_consumer_group(group))[queue]["totalLag"] == 1
    lagging = await queen.admin.get_lagging_consumers(0)
    assert queue in [row["queue_name"] for row in lagging]
    assert (await queen.admin.seek_consumer_group(group, queue, {"toEnd": True}))["success"] is True
    assert await take() == []
    assert (await queen.update_consumer_group_timestamp(group, "2020-01-01T00:00:00Z"))["success"] is True
    assert await take() == [1]
    assert (await queen.admin.delete_consumer_group_for_queue(group, queue, False))["success"] is True
    assert await take() == [1]
    assert (await queen.delete_consumer_group(group))["success"] is True
    with pytest.raises(httpx.HTTPStatusError, match="no consumer group"):
        await queen.admin.get_consumer_group(group)


async def test_single_messages_are_managed(queen: Queen, queue: str) -> None:
    items = [{"data": key, "transactionId": key} for key in ("keep", "kill", "drop")]
    pushed = await queen.queue(queue).push(items)
    partition = pushed[0]["partition_id"]
    listed = (await queen.admin.list_messages(queue=queue, limit=2))["messages"]
    assert payloads(listed) == ["drop", "kill"]
    assert (await queen.admin.get_message(partition, "kill"))["payload"] == "kill"
    await queen.queue(queue).wait(False).pop()
    assert (await queen.admin.move_message_to_dlq(partition, "kill"))["success"] is True
    assert (await queen.admin.delete_message(partition, "drop"))["success"] is True
    with pytest.raises(httpx.HTTPStatusError, match="keeps no message"):
        await queen.admin.get_message(partition, "drop")
    assert (await queen.admin.retry_message(partition, "kill"))["success"] is True
    assert (await queen.queue(queue).dlq().get())["total"] == 0
    assert payloads((await queen.admin.list_messages(queue=queue))["messages"]) == ["kill", "kill", "keep"]


async def test_the_admin_calls_are_answered(queen: Queen, queue: str) -> None:
    admin = queen.admin
    await queen.queue(f"{queue}.task").push([{"data": 1}])
    name = f"{queue}.task"
    assert (await admin.get_overview())["queues"] >= 1
    assert queue in [n["namespace"] for n in (await admin.get_namespaces())["namespaces"]]
    assert "task" in [t["task"] for t in (await admin.get_tasks())["tasks"]]
    assert [q["name"] for q in (await admin.list_queues(search=queue, limit=5))["queues"]] == [name]
    assert (await admin.get_queue(name))["totals"]["pending"] == 1
    assert [p["name"] for p in (await admin.get_partitions(queue=name))["partitions"]] == ["Default"]
    assert (await admin.get_status())["messages"]["pushed"] >= 1
    assert name in [q["name"] for q in (await admin.get_queue_stats(namespace=queue))["queues"]]
    assert (await admin.get_queue_detail(name))["totals"]["pending"] == 1
    assert (await admin.refresh_consumer_stats())["success"] is True
    for call in (admin.get_analytics, admin.get_system_metrics, admin.get_worker_metrics):
        assert isinstance(await call(), dict)
