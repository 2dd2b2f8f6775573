"""The whole pipeline on a Redis Cluster of six nodes, from run queues to the tiers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.definitions import QUEUE
from penstock.model import Scope
from penstock.redis_clients import connect_redis
from penstock.runqueue.queue import RunQueues
from penstock.runqueue.task_model import NewTask
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.schema import tier_table
from penstock.warehouse.tiers import HOUR
from tests.integration.pipeline.events import add, event, fill, totals
from tests.integration.pipeline.running_pipeline import StartPipeline, wait_for_events, wait_for_progress
from tests.valkey_cluster import ValkeyCluster, running_cluster

ENVIRONMENTS, TASKS = 8, 5
"""The environments are spread over the shards, and so over both streams."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ValkeyCluster]:
    with running_cluster(tmp_path) as started:
        yield started


async def move_tasks(url: str) -> int:
    """Enqueue, dequeue and ack tasks one by one; return the number of events, one per call and queue."""
    queues = RunQueues(url, shards=4)
    for scope in [Scope(f"tenant {n}") for n in range(ENVIRONMENTS)]:
        for _ in range(TASKS):
            await queues.enqueue(scope, "mail", [NewTask()])
            [task] = await queues.dequeue(scope, "mail")
            await queues.ack(scope, task.lease)
    await queues.stop()
    return 3 * ENVIRONMENTS * TASKS


def test_every_event_of_a_cluster_is_counted_once(
    pipeline: StartPipeline, cluster: ValkeyCluster, warehouse: Warehouse
) -> None:
    """Both streams move to other nodes while the pipeline runs, and it restarts from its checkpoint."""
    redis = connect_redis(cluster.url)
    events = asyncio.run(move_tasks(cluster.url))
    enqueued = ENVIRONMENTS * TASKS + fill(redis, 100)
    events += 100
    with pipeline(cluster.url, warehouse.url):
        wait_for_events(warehouse, events)
        for key in QUEUE.stream_keys:
            owner = cluster.owner_of(key)
            cluster.move_slot(key, next(node for node in cluster.nodes[:3] if node is not owner))
            enqueued += fill(redis, 100, start=events)
            events += 100
        add(redis, 0, event(eq="not a number"))
        wait_for_events(warehouse, events)
        wait_for_progress(
            cluster.url,
            lambda p: p["rejected"] == 1 and p["lost"] == 0 and set(p["lag"].values()) == {0},
            "the report says that everything is counted and one entry was set aside",
        )
    events += asyncio.run(move_tasks(cluster.url))
    enqueued += ENVIRONMENTS * TASKS + fill(redis, 100, start=events)
    events += 100
    with pipeline(cluster.url, warehouse.url):
        wait_for_events(warehouse, events)
    assert [tier[:2] for tier in totals(warehouse)] == [(events, enqueued)] * 3
    table = tier_table(QUEUE, HOUR)
    [row] = warehouse.query(f"SELECT sum(dequeued) AS dequeued, sum(acked) AS acked FROM {table}")
    assert row == {"dequeued": 2 * ENVIRONMENTS * TASKS, "acked": 2 * ENVIRONMENTS * TASKS}
    redis.close()
