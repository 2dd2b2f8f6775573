"""Read the work of a queue: depth, running work and what limits it, from the server that holds it."""

from __future__ import annotations

from typing import NamedTuple

from penstock.api.scaling.wanted_workers import QueueWork
from penstock.api.services import Services
from penstock.errors import InvalidRequest, UnknownQueue
from penstock.model import QUEUE_MODE, Scope
from penstock.runqueue.task_model import EnvironmentState, QueueState


class ScaledQueue(NamedTuple):
    """A queue of either kind, and the consumer group that its workers belong to; '' for a run queue."""

    kind: str
    group: str
    work: QueueWork
    messages_per_worker: float
    """How many messages a busy worker holds at once: consumers of a durable queue may take batches."""
    does_group_exist: bool = True


async def read_scaled_queue(services: Services, scope: Scope, queue: str, group: str | None) -> ScaledQueue:
    """Return the work of a queue for one group. Raises UnknownQueue, and errors of the queue's server.

    A group that does not exist yet has the messages of the queue ahead of it: its first worker creates it.
    """
    holdings = await services.broker.store.catalog.list_holdings(scope, queue=queue)
    if not holdings:
        if not await services.run_queues.has_queue(scope, queue):
            raise UnknownQueue.of_any_kind(queue)
        if group is not None:
            raise InvalidRequest(f"{queue!r} is a run queue, which has no groups. Omit group.", field="group")
        return await _read_run_queue(services, scope, queue)
    name = group or QUEUE_MODE
    paused = holdings[0].paused
    summaries = await services.broker.store.consumer_groups.list_groups(scope, group=name, queue=queue)
    if not summaries:
        work = QueueWork(backlog=holdings[0].kept, running=0, busy_workers=0, paused=paused, partitions=1)
        return ScaledQueue("durable", name, work, 1.0, does_group_exist=False)
    [summary] = summaries
    work = QueueWork(
        backlog=summary.depth,
        running=summary.running,
        busy_workers=summary.leases,
        paused=paused,
        partitions=max(summary.behind, summary.leases),
    )
    return ScaledQueue("durable", name, work, max(1.0, summary.running / max(summary.leases, 1)))


async def _read_run_queue(services: Services, scope: Scope, queue: str) -> ScaledQueue:
    state = await services.run_queues.get_queue(scope, queue)
    environment = await services.run_queues.get_environment(scope)
    work = QueueWork(
        backlog=state.eligible,
        running=state.running,
        busy_workers=state.running,
        paused=state.paused,
        concurrency=_concurrency(state, environment),
    )
    return ScaledQueue("run", "", work, 1.0)


def _concurrency(state: QueueState, environment: EnvironmentState) -> int | None:
    """Return how many tasks of the queue may run at once: its own limit, or what its environment leaves."""
    limits = [] if state.limit is None else [state.limit]
    if environment.limit is not None:
        together = int(environment.limit * environment.burst)
        left_by_others = together - (environment.running - state.running)
        limits += [environment.limit, max(left_by_others, state.running)]
    return min(limits, default=None)
