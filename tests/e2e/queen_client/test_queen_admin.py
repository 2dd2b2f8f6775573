"""The administration calls of the Queen client."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from queen import Queen

from tests.e2e.queen_client.client_versions import INSTALLED
from tests.e2e.queen_client.queen_messages import payloads


async def test_consumer_groups_are_managed(queen: Queen, queue: str) -> None:
    group = f"{queue}-group"
    await queen.queue(queue).push([{"data": 1}])

    async def pop_payloads() -> list[Any]:
        return payloads(await queen.queue(queue).group(group).auto_ack(False).batch(5).wait(False).pop())

    assert await pop_payloads() == [1]
    groups: Any = await queen.admin.list_consumer_groups()
    assert group in [row["name"] for row in groups]
    assert (await queen.admin.get_consumer_group(group))[queue]["totalLag"] == 1
    lagging: Any = await queen.admin.get_lagging_consumers(0)
    assert queue in [row["queue_name"] for row in lagging]
    assert (await queen.admin.seek_consumer_group(group, queue, {"toEnd": True}))["success"] is True
    assert await pop_payloads() == []
    assert (await queen.update_consumer_group_timestamp(group, "2020-01-01T00:00:00Z"))["success"] is True
    assert await pop_payloads() == [1]
    assert (await queen.admin.delete_consumer_group_for_queue(group, queue, False))["success"] is True
    assert await pop_payloads() == [1]
    assert (await queen.delete_consumer_group(group))["success"] is True
    with pytest.raises(httpx.HTTPStatusError, match="does not exist"):
        await queen.admin.get_consumer_group(group)


async def test_single_messages_are_managed(queen: Queen, queue: str, client_version: str) -> None:
    items = [{"data": key, "transactionId": key} for key in ("keep", "kill", "drop")]
    pushed = await queen.queue(queue).push(items)
    partition = pushed[0]["partition_id"]
    listed = (await queen.admin.list_messages(queue=queue, limit=2))["messages"]
    assert payloads(listed) == ["drop", "kill"]
    assert (await queen.admin.get_message(partition, "kill"))["payload"] == "kill"
    _, message = await queen.queue(queue).batch(2).wait(False).pop()
    if client_version == INSTALLED:
        moved = await queen.admin.move_message_to_dlq(partition, "kill")
    else:  # a later client moves only messages that its consumer holds
        moved = await queen.ack(message, "dlq")
    assert moved["success"] is True
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


@pytest.mark.parametrize("client_version", [INSTALLED], indirect=True)
async def test_calls_that_only_the_older_client_has_are_answered(queen: Queen) -> None:
    admin = queen.admin
    assert (await admin.get_maintenance_mode())["maintenanceMode"] is False
    assert (await admin.set_maintenance_mode(False))["maintenanceMode"] is False
    assert (await admin.get_pop_maintenance_mode())["popMaintenanceMode"] is False
    for switch_on in (admin.set_maintenance_mode, admin.set_pop_maintenance_mode):
        with pytest.raises(httpx.HTTPStatusError, match="no maintenance mode"):
            await switch_on(True)
    assert (await admin.get_postgres_stats())["tableSizes"]
