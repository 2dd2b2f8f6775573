"""Queue options: defaults, changes to waiting messages, and refused values."""

from __future__ import annotations

from datetime import timedelta

import pytest

from penstock.broker.queues.queue_options import (
    OPTIONS,
    QueueOption,
    columns_to_options,
    options_to_columns,
)
from penstock.durable import log
from penstock.durable.catalog import ConfiguredQueue, QueueCatalog
from penstock.durable.pool import Database
from penstock.errors import InvalidRequest
from penstock.ids import new_id
from penstock.model import DEFAULT_SCOPE, Scope
from tests.integration.durable.queue_under_test import QueueUnderTest


async def configure(queue: QueueUnderTest, **changes: int | bool | str | list[str]) -> ConfiguredQueue:
    return await QueueCatalog(queue.database).configure(DEFAULT_SCOPE, queue.name, changes)


async def ready_in_ms(queue: QueueUnderTest) -> int | None:
    row = await queue.database.fetchrow("SELECT ready_at FROM positions")
    assert row is not None
    return (
        None if row["ready_at"] is None else round((row["ready_at"] - queue.now) / timedelta(milliseconds=1))
    )


async def test_a_new_queue_has_defaults_and_a_default_partition(queue: QueueUnderTest) -> None:
    created = await configure(queue)
    shown = columns_to_options(created.columns, 300_000)
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
        "indexKeys": [],
    }
    assert created.partition_id == (await queue.partition()).partition_id


async def test_options_that_are_left_out_stay(queue: QueueUnderTest) -> None:
    await configure(queue, retry_limit=7, namespace="ns")
    changed = await configure(queue, priority=2)
    assert (changed.columns["retry_limit"], changed.columns["priority"], changed.columns["namespace"]) == (
        7,
        2,
        "ns",
    )


async def test_an_existing_queue_gets_no_default_partition(queue: QueueUnderTest) -> None:
    await queue.partition("other")
    assert (await configure(queue, priority=1)).partition_id is None


async def test_every_option_fills_its_own_column(queue: QueueUnderTest) -> None:
    values: dict[str, object] = {}
    for name, option in OPTIONS.items():
        if isinstance(option, QueueOption):
            values[name] = True if option.low is None else max(1, int(option.low) + 1)
    del values["encryptionEnabled"]  # it excludes index keys
    values["indexKeys"] = ["$.orderId", "$.items[*].sku"]
    created = await configure(queue, **options_to_columns(values))
    assert columns_to_options(created.columns, 1) == values | {"encryptionEnabled": False}
    assert len({option.column for option in OPTIONS.values()}) == len(OPTIONS)


async def test_fractions_of_a_second_are_kept(queue: QueueUnderTest) -> None:
    created = await configure(queue, **options_to_columns({"delayedProcessing": 0.25, "leaseTime": 2.0}))
    assert (created.columns["delay_ms"], created.columns["lease_ms"]) == (250, 2_000)
    assert columns_to_options(created.columns, 1)["delayedProcessing"] == 0.25


@pytest.mark.parametrize(
    ("name", "value", "explanation"),
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
def test_an_invalid_value_is_refused_with_an_explanation(name: str, value: object, explanation: str) -> None:
    with pytest.raises(InvalidRequest, match=name) as caught:
        options_to_columns({name: value})
    assert explanation in caught.value.detail


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


async def test_a_new_delay_applies_to_a_ready_message(queue: QueueUnderTest) -> None:
    await queue.group()
    await queue.push("a")
    await configure(queue, delay_ms=1_000)
    assert await ready_in_ms(queue) == 1_000


async def test_a_shorter_window_applies_to_a_waiting_partition(queue: QueueUnderTest) -> None:
    await configure(queue, window_ms=60_000)
    await queue.push("a")
    assert (await queue.pop()).payloads == []
    queue.later(1_000)
    await configure(queue, window_ms=500)
    assert (await queue.pop()).payloads == ["a"]


async def test_changed_options_do_not_move_a_delayed_retry_forward(queue: QueueUnderTest) -> None:
    await configure(queue, retry_delay_ms=30_000)
    await queue.push("a")
    queue.later(1)
    await queue.ack(await queue.pop(), "failed")
    await configure(queue, delay_ms=1)
    assert await ready_in_ms(queue) == 30_000


async def test_changed_options_do_not_affect_a_lease_in_force(queue: QueueUnderTest) -> None:
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


async def test_deleting_a_queue_deletes_all_its_rows_except_the_log(queue: QueueUnderTest) -> None:
    await queue.push("a", "b", keys=["x", "y"])
    await queue.ack(await queue.pop(), "dlq")
    found = await QueueCatalog(queue.database).find_queue(DEFAULT_SCOPE, queue.name)
    assert found is not None
    assert await QueueCatalog(queue.database).delete_queue(found.id) is True
    assert await QueueCatalog(queue.database).delete_queue(found.id) is False
    for table in ("queues", "partitions", "groups", "positions", "tallies", "dead_letters", "dead_tallies"):
        assert await queue.database.fetch(f"SELECT * FROM {table}") == [], table
    assert await queue.depth() == (0, 0), "a new queue of the same name is empty"


async def test_a_push_to_a_deleted_queue_reports_it(queue: QueueUnderTest) -> None:
    ids = await queue.partition()
    await QueueCatalog(queue.database).delete_queue(ids.queue_id)
    segment = log.Segment(ids.partition_id, [str(new_id())], [None], [None], [b"1"])
    assert (await log.push(queue.database, [segment])).first_offsets == [None]


async def test_queues_of_another_tenant_are_not_found(database: Database, queue: QueueUnderTest) -> None:
    await configure(queue)
    other = Scope("acme", "default", "default")
    assert await QueueCatalog(database).find_queue(other, queue.name) is None
    assert await QueueCatalog(database).list_holdings(other) == []
    assert await QueueCatalog(database).list_partitions(other) == []
    assert (await QueueCatalog(database).sum_environment(other)).queues == 0


async def test_totals_count_kept_waiting_running_and_dead_messages(queue: QueueUnderTest) -> None:
    await queue.push(*"abcd", partition="x")
    await queue.push("e", partition="y")
    await queue.ack(await queue.pop(partition="x"), "dlq")
    delivery = await queue.pop(2, partition="x")
    assert delivery.payloads == ["b", "c"]
    [row] = await QueueCatalog(queue.database).list_holdings(DEFAULT_SCOPE)
    # The test's clock, which dates the leases, is ahead: they are in force.
    assert (row.partitions, row.groups, row.pushed, row.kept) == (2, 1, 5, 5)
    assert (row.depth, row.running, row.dead) == (2, 2, 1)
    [x, y] = await QueueCatalog(queue.database).list_partitions(DEFAULT_SCOPE, queue=queue.name)
    assert [(p.name, p.pending, p.running) for p in (x, y)] == [("x", 1, 2), ("y", 1, 0)]


async def test_totals_are_summed_by_namespace_and_task(database: Database) -> None:
    for name in ("jobs.mail", "jobs.print", "plain"):
        await QueueUnderTest(database, name).push("a", "b")
    rows = await QueueCatalog(database).sum_by_label(DEFAULT_SCOPE, "namespace")
    assert [(row.label, row.queues, row.depth) for row in rows] == [("jobs", 2, 4)]
    rows = await QueueCatalog(database).sum_by_label(DEFAULT_SCOPE, "task")
    assert [(row.label, row.queues) for row in rows] == [("mail", 1), ("print", 1)]
    total = await QueueCatalog(database).sum_environment(DEFAULT_SCOPE)
    assert (total.queues, total.namespaces, total.pushed, total.depth) == (3, 1, 6, 6)
