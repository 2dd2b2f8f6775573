"""Read the evidence for the causes of incidents that open, in a fixed number of calls per environment."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import msgspec
from redis.exceptions import RedisError

from penstock.alerts.incidents.cause import (
    CONSUMER_WINDOW_MINUTES,
    HORIZON_HELD_S,
    BlockedPartition,
    PlatformEvidence,
    QueueEvidence,
)
from penstock.durable.alerts.evaluation_store import CauseFacts, EvaluationStore
from penstock.errors import RedisUnavailable
from penstock.model import Scope
from penstock.runqueue.queue import RunQueues
from penstock.runqueue.task_model import EnvironmentState, QueueState
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.matrix.matrix_queries import MatrixReader
from penstock.warehouse.tiers import FINE, MINUTE

HOUR_S = 3600
WEEK_S = 7 * 24 * HOUR_S


class StoredBlockedPartition(msgspec.Struct, rename="camel"):
    """The JSON of a blocked partition."""

    partition: str
    group: str
    offset: int
    attempts: int
    message_id: str | None


class StoredError(msgspec.Struct):
    """The JSON of an error group."""

    pattern: str
    messages: int


@dataclass(frozen=True, slots=True)
class FlowCounts:
    """How many messages came in and went out of each queue."""

    enqueued_hour: Mapping[str, int]
    enqueued_hour_last_week: Mapping[str, int]
    dequeued: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CauseEvidenceReader:
    """Reads the evidence of one environment."""

    store: EvaluationStore
    run_queues: RunQueues
    warehouse: Warehouse

    async def read(
        self, environment_id: int, scope: Scope, queues: Sequence[str], end_s: int, pipeline_lag_s: float
    ) -> tuple[dict[str, QueueEvidence], PlatformEvidence]:
        """Return the evidence of the queues that exist, and of the platform. Raises PenstockError."""
        facts = await self.store.cause_facts(environment_id, queues, end_s + pipeline_lag_s)
        platform = await self.store.platform_facts(timedelta(seconds=HORIZON_HELD_S))
        states, environment = await self._read_run_queues(scope)
        flow = await asyncio.to_thread(read_flow, self.warehouse, scope, queues, end_s)
        evidence = {
            state.queue: _run_queue_evidence(state, flow) for state in states if state.queue in queues
        } | {fact.queue: _durable_evidence(fact, flow) for fact in facts}
        return evidence, PlatformEvidence(
            pipeline_lag_s,
            platform.pending_operations,
            platform.oldest_operation_s,
            platform.horizon_holder,
            platform.horizon_held_s or 0.0,
            environment.running,
            None if environment.limit is None else environment.limit * environment.burst,
        )

    async def _read_run_queues(self, scope: Scope) -> tuple[list[QueueState], EnvironmentState]:
        try:
            return await self.run_queues.list_queues(scope), await self.run_queues.get_environment(scope)
        except RedisError as error:
            raise RedisUnavailable(f"Redis does not answer: {error}") from error


def read_flow(warehouse: Warehouse, scope: Scope, queues: Sequence[str], end_s: int) -> FlowCounts:
    """Count what came in during the last hour and the same hour last week, and what was taken lately."""
    reader = MatrixReader(warehouse, scope, queues=queues)
    minute_end_s = end_s // MINUTE.width_s * MINUTE.width_s

    def count(name: str, until_s: int, length_s: int) -> dict[str, int]:
        tier = FINE if length_s < HOUR_S else MINUTE
        matrix = reader.read(tier, until_s, length_s, 1)
        return {subject.queue: int(matrix.sums[name][row, 0]) for row, subject in enumerate(matrix.subjects)}

    return FlowCounts(
        count("enqueued", minute_end_s, HOUR_S),
        count("enqueued", minute_end_s - WEEK_S, HOUR_S),
        count("dequeued", end_s, CONSUMER_WINDOW_MINUTES * 60),
    )


def _run_queue_evidence(state: QueueState, flow: FlowCounts) -> QueueEvidence:
    return QueueEvidence(
        state.queue,
        state.paused,
        state.eligible,
        state.running,
        state.limit,
        dequeued=flow.dequeued.get(state.queue, 0),
        enqueued_hour=flow.enqueued_hour.get(state.queue, 0),
        enqueued_hour_last_week=flow.enqueued_hour_last_week.get(state.queue, 0),
    )


def _durable_evidence(facts: CauseFacts, flow: FlowCounts) -> QueueEvidence:
    errors = msgspec.json.decode(facts.errors, type=list[StoredError])
    return QueueEvidence(
        facts.queue,
        facts.paused,
        facts.depth,
        facts.running,
        groups=facts.groups,
        dequeued=flow.dequeued.get(facts.queue, 0),
        enqueued_hour=flow.enqueued_hour.get(facts.queue, 0),
        enqueued_hour_last_week=flow.enqueued_hour_last_week.get(facts.queue, 0),
        blocked=_decode_blocked(facts.blocked),
        errors=[(error.pattern, error.messages) for error in errors],
    )


def _decode_blocked(text: str | None) -> BlockedPartition | None:
    if text is None:
        return None
    stored = msgspec.json.decode(text, type=StoredBlockedPartition)
    return BlockedPartition(stored.partition, stored.group, stored.offset, stored.attempts, stored.message_id)
