"""Traces are found by message and by name, and pruned by age."""

from __future__ import annotations

from datetime import timedelta

from penstock.durable.catalog import QueueCatalog
from penstock.durable.trace_log import Trace, TraceLog
from penstock.model import DEFAULT_SCOPE, Scope
from tests.integration.durable.queue_under_test import START, QueueUnderTest


async def record(
    queue: QueueUnderTest, data: str, *names: str, key: str = "t", scope: Scope = DEFAULT_SCOPE
) -> int | None:
    partition_id = (await queue.partition()).partition_id
    return await TraceLog(queue.database).record(
        scope, Trace(partition_id, key, "g", "info", names, data.encode()), queue.now
    )


async def traces_by_name(queue: QueueUnderTest, name: str, **limits: int) -> list[str]:
    paging = {"limit": 10, "offset": 0, **limits}
    rows = await TraceLog(queue.database).list_by_name(DEFAULT_SCOPE, name, start=None, end=None, **paging)
    return [row.data.decode() for row in rows]


async def names(queue: QueueUnderTest, prefix: str = "", limit: int = 10, offset: int = 0) -> list[object]:
    rows = await TraceLog(queue.database).list_names(DEFAULT_SCOPE, prefix, limit=limit, offset=offset)
    return [(row.name, row.traces) for row in rows]


async def test_traces_of_a_message_are_in_order(queue: QueueUnderTest) -> None:
    partition_id = (await queue.partition()).partition_id
    for i in range(3):
        await record(queue, str(i))
        await record(queue, "other", key="u")
    rows = await TraceLog(queue.database).list_of_message(partition_id, "t", limit=10, offset=1)
    assert [row.data for row in rows] == [b"1", b"2"]


async def test_traces_of_a_name_are_latest_first(queue: QueueUnderTest) -> None:
    for i in range(4):
        await record(queue, str(i), "flow", f"n{i % 2}")
        queue.later(1_000)
    assert await traces_by_name(queue, "flow") == ["3", "2", "1", "0"]
    assert await traces_by_name(queue, "flow", limit=2, offset=1) == ["2", "1"]
    assert await traces_by_name(queue, "n1") == ["3", "1"]
    rows = await TraceLog(queue.database).list_by_name(
        DEFAULT_SCOPE,
        "flow",
        start=START + timedelta(seconds=1),
        end=START + timedelta(seconds=3),
        limit=10,
        offset=0,
    )
    assert [row.data for row in rows] == [b"2", b"1"]


async def test_names_are_listed_once_with_their_number_of_traces(queue: QueueUnderTest) -> None:
    for name in ("b", "a", "b", "order 2", "order 1", "Z"):
        await record(queue, "1", name)
    assert await names(queue) == [("Z", 1), ("a", 1), ("b", 2), ("order 1", 1), ("order 2", 1)]
    assert await names(queue, limit=2, offset=1) == [("a", 1), ("b", 2)]
    assert await names(queue, "order") == [("order 1", 1), ("order 2", 1)]
    assert await names(queue, "x") == []


async def test_a_trace_for_the_partition_of_another_tenant_is_refused(queue: QueueUnderTest) -> None:
    assert await record(queue, "1", "n", scope=Scope("acme")) is None
    assert await names(queue) == []


async def test_old_traces_are_pruned_in_steps(queue: QueueUnderTest) -> None:
    for i in range(5):
        await record(queue, str(i), "flow")
        queue.later(1_000)
    before = START + timedelta(seconds=3)
    pruned = [await queue.database.fetch("SELECT prune_traces_v1($1, 2) AS n", before) for _ in range(3)]
    assert [row["n"] for [row] in pruned] == [2, 1, 0]
    assert await traces_by_name(queue, "flow") == ["4", "3"]
    assert await names(queue) == [("flow", 2)]


async def test_deleting_a_queue_deletes_its_traces(queue: QueueUnderTest) -> None:
    await record(queue, "1", "flow")
    await QueueCatalog(queue.database).delete_queue((await queue.partition()).queue_id)
    assert await names(queue) == []
    assert await queue.database.fetch("SELECT 1 FROM traces") == []
