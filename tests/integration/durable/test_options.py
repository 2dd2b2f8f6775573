"""Setting options: what stays, what follows, what is refused."""

from __future__ import annotations

from datetime import timedelta

import pytest

from penstock.durable import catalog, log, options
from penstock.durable.options import OPTIONS, columns, described
from penstock.durable.pool import Database
from penstock.errors import InvalidRequest
from penstock.ids import new_id
from penstock.model import DEFAULT_SCOPE, Scope
from tests.integration.durable.queue_under_test import QueueUnderTest


async def configure(queue: QueueUnderTest, **changes: int | bool | str) -> options.Configured:
    return await options.configure(queue.database, DEFAULT_SCOPE, queue.name, changes)


async def ready_in_ms(queue: QueueUnderTest) -> int | None:
    row = await queue.database.fetchrow("SELECT ready_at FROM positions")
    assert row is not None
    return (
        None if row["ready_at"] is None else round((row["ready_at"] - queue.now) / timedelta(milliseconds=1))
    )


async def test_a_new_queue_has_defaults_and_a_default_partition(queue: QueueUnderTest) -> None:
    made = await configure(queue)
    shown = described(made.row, 300_000)
    assert shown == {
        "leaseTime": 300,
        "retryLimit": 3,
        "retryDelay": 0,
        "dlqAfterMaxRetries": True,
        "deadLetterQueue": True,
        "priority": 0,
        "delayedProcessing": 0,
        "windowBuffer": 0,
        "ttl": 0,
        "maxWaitTimeSeconds": 0,
        "maxSize": 0,
        "maxPartitions": 0,
        "retentionEnabled": False,
        "retentionSeconds": 0,
        "completedRetentionSeconds": 0,
        "encryptionEnabled": False,
    }
    assert made.partition_id == (await queue.partition()).partition_id


async def test_what_is_left_out_stays(queue: QueueUnderTest) -> None:
    await configure(queue, retry_limit=7, namespace="ns")
    changed = await configure(queue, priority=2)
    assert (changed.row["retry_limit"], changed.row["priority"], changed.row["namespace"]) == (7, 2, "ns")


async def test_an_existing_queue_gets_no_partition_it_did_not_ask_for(queue: QueueUnderTest) -> None:
    await queue.partition("mine")
    assert (await configure(queue, priority=1)).partition_id is None


async def test_every_option_fills_its_own_column(queue: QueueUnderTest) -> None:
    given: dict[str, object] = {}
    for name, option in OPTIONS.items():
        given[name] = True if option.low is None else max(1, int(option.low) + 1)
    made = await configure(queue, **columns(given))
    assert described(made.row, 1) == given
    assert len({option.column for option in OPTIONS.values()}) == len(OPTIONS)


async def test_fractions_of_a_second_are_kept(queue: QueueUnderTest) -> None:
    made = await configure(queue, **columns({"delayedProcessing": 0.25, "leaseTime": 2.0}))
    assert (made.row["delay_ms"], made.row["lease_ms"]) == (250, 2_000)
    assert described(made.row, 1)["delayedProcessing"] == 0.25


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("leaseTime", 0, "from 0.1 to 86400"),
        ("leaseTime", "60", "a number of seconds"),
        ("leaseTime", True, "a number of seconds"),
        ("retryLimit", 1.5, "a whole number"),
        ("retryLimit", -1, "from 0 to"),
        ("maxSize", 10**16, "from 0 to 1000000000000000"),
        ("encryptionEnabled", 1, "true or false"),
        ("ttl", [1], "a number of seconds"),
        ("leasetime", 5, "did you mean leaseTime?"),
        ("nonsense", 5, "leaseTime, retryLimit"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_in_words(name: str, value: object, words: str) -> None:
    with pytest.raises(InvalidRequest, match=name) as caught:
        columns({name: value})
    assert words in caught.value.detail


async def test_waiting_messages_follow_a_shorter_and_a_longer_delay(queue: QueueUnderTest) -> None:
    await configure(queue, delay_ms=10_000)
    await queue.group()
    await queue.push("a")
    assert (await queue.pop()).payloads == []
    await configure(queue, delay_ms=1_000)
    assert await ready_in_ms(queue) == 1_000
    await configure(queue, delay_ms=5_000)
    queue.later(4_999)
    assert (await queue.pop()).payloads == []
    queue.later(1)
    assert (await queue.pop()).payloads == ["a"]


async def test_a_message_that_was_ready_is_held_by_a_new_delay(queue: QueueUnderTest) -> None:
    await queue.group()
    await queue.push("a")
    await configure(queue, delay_ms=1_000)
    assert await ready_in_ms(queue) == 1_000


async def test_a_partition_held_by_its_window_follows_a_shorter_one(queue: QueueUnderTest) -> None:
    await configure(queue, window_ms=60_000)
    await queue.push("a")
    assert (await queue.pop()).payloads == []
    queue.later(1_000)
    await configure(queue, window_ms=500)
    assert (await queue.pop()).payloads == ["a"]


async def test_a_held_back_retry_is_not_brought_forward(queue: QueueUnderTest) -> None:
    await configure(queue, retry_delay_ms=30_000)
    await queue.push("a")
    queue.later(1)
    await queue.ack(await queue.pop(), "failed")
    await configure(queue, delay_ms=1)
    assert await ready_in_ms(queue) == 30_000


async def test_a_lease_in_force_is_left_alone(queue: QueueUnderTest) -> None:
    await queue.push("a", "b")
    delivery = await queue.pop()
    await configure(queue, delay_ms=60_000)
    assert await ready_in_ms(queue) == queue.lease_ms
    assert [a.outcome for a in await queue.ack(delivery)] == ["completed"]
    assert await ready_in_ms(queue) == 60_000, "b obeys the new delay"


async def test_a_smaller_size_refuses_new_messages_only(queue: QueueUnderTest) -> None:
    await queue.push(*"abc")
    await configure(queue, max_size=2)
    assert (await queue.push("d")).refused == {0}
    assert await queue.depth() == (3, 0)


async def test_deleting_a_queue_leaves_nothing_of_it_but_log_rows(queue: QueueUnderTest) -> None:
    await queue.push("a", "b", keys=["x", "y"])
    await queue.ack(await queue.pop(), "dlq")
    found = await catalog.find_queue(queue.database, DEFAULT_SCOPE, queue.name)
    assert found is not None
    assert await catalog.delete_queue(queue.database, found.id) is True
    assert await catalog.delete_queue(queue.database, found.id) is False
    for table in ("queues", "partitions", "groups", "positions", "tallies", "dead_letters", "dead_tallies"):
        assert await queue.database.fetch(f"SELECT * FROM {table}") == [], table
    assert await queue.depth() == (0, 0), "a queue of the same name starts anew"


async def test_a_push_to_a_queue_that_was_deleted_says_so(queue: QueueUnderTest) -> None:
    ids = await queue.partition()
    await catalog.delete_queue(queue.database, ids.queue_id)
    segment = log.Segment(ids.partition_id, [new_id()], [None], [None], [b"1"])
    assert (await log.push(queue.database, [segment])).first_offsets == [None]


async def test_queues_of_another_tenant_are_not_found(database: Database, queue: QueueUnderTest) -> None:
    await configure(queue)
    other = Scope("acme", "default", "default")
    assert await catalog.find_queue(database, other, queue.name) is None
    assert await catalog.queue_totals(database, other) == []
    assert await catalog.partitions(database, other) == []
    assert (await catalog.overview(database, other))["queues"] == 0


async def test_totals_tell_what_is_kept_waiting_running_and_dead(queue: QueueUnderTest) -> None:
    await queue.push(*"abcd", partition="x")
    await queue.push("e", partition="y")
    await queue.ack(await queue.pop(partition="x"), "dlq")
    delivery = await queue.pop(2, partition="x")
    assert delivery.payloads == ["b", "c"]
    [row] = await catalog.queue_totals(queue.database, DEFAULT_SCOPE)
    # Leases were taken on the test's own clock, which is ahead: they are in force.
    assert {
        name: row[name] for name in ("partitions", "groups", "pushed", "kept", "depth", "running", "dead")
    } == {
        "partitions": 2,
        "groups": 1,
        "pushed": 5,
        "kept": 5,
        "depth": 2,
        "running": 2,
        "dead": 1,
    }
    [x, y] = await catalog.partitions(queue.database, DEFAULT_SCOPE, queue=queue.name)
    assert [(p["name"], p["pending"], p["running"]) for p in (x, y)] == [("x", 1, 2), ("y", 1, 0)]


async def test_namespaces_and_tasks_are_summed(database: Database) -> None:
    for name in ("jobs.mail", "jobs.print", "plain"):
        await QueueUnderTest(database, name).push("a", "b")
    rows = await catalog.labels(database, DEFAULT_SCOPE, "namespace")
    assert [(row["label"], row["queues"], row["depth"]) for row in rows] == [("jobs", 2, 4)]
    rows = await catalog.labels(database, DEFAULT_SCOPE, "task")
    assert [(row["label"], row["queues"]) for row in rows] == [("mail", 1), ("print", 1)]
    total = await catalog.overview(database, DEFAULT_SCOPE)
    assert (total["queues"], total["namespaces"], total["pushed"], total["depth"]) == (3, 1, 6, 6)
