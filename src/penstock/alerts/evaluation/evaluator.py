"""Evaluate all alert rules every 30 seconds, in one process of the cluster at a time.

The process that holds the advisory lock evaluates on the same connection; when it dies, another one takes
over. States, incidents and notices of an evaluation are stored in one transaction, so a process that dies
between decision and delivery loses nothing and sends nothing twice.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec
from redis.asyncio import Redis
from redis.exceptions import RedisError

from penstock.alerts.evaluation.evaluation_records import (
    EvaluationDocuments,
    incident_from_row,
    state_from_row,
)
from penstock.alerts.evaluation.live_state import LiveStateReader
from penstock.alerts.evaluation.lost_events import WindowLosses, read_window_losses
from penstock.alerts.evaluation.measurements import EnvironmentMeter, Measurements
from penstock.alerts.evaluation.opening_incidents import draw_openings, explain_openings
from penstock.alerts.evaluation.rule_evaluation import RuleOutcome, RuleQueueState, StoredRule, evaluate_rule
from penstock.alerts.evaluation.state_limit import StateLimit
from penstock.alerts.incidents.cause_evidence import CauseEvidenceReader
from penstock.alerts.incidents.incident_model import Incident
from penstock.alerts.incidents.incident_tracker import NoticePolicy
from penstock.alerts.incidents.silences import Silence, is_active, silence_check
from penstock.alerts.rules.alert_rule import AlertRule, is_platform_rule
from penstock.alerts.rules.rule_types import CompleteRule, complete_rule
from penstock.background import BackgroundTask
from penstock.clock import Clock, iso, system_clock, to_utc
from penstock.definitions import QUEUE
from penstock.durable.alerts.evaluation_store import (
    EvaluationStore,
    IncidentRow,
    RuleRow,
    SilenceRow,
    StateRow,
)
from penstock.durable.cluster_lock import ALERTS_KEY, ClusterLock
from penstock.errors import PenstockError
from penstock.model import Scope
from penstock.runqueue.queue import RunQueues
from penstock.streams.watermark import read_clock_lead_s, read_watermark
from penstock.warehouse.clickhouse_client import Warehouse

logger = logging.getLogger(__name__)

STALE_S = 120.0
"""Metrics that are further behind make every state unknown."""

MAX_CLOCK_LEAD_S = 10.0
"""Events that are dated further in the future do so too: until then a window has no newest value."""

BUCKET_S = 5


@dataclass(slots=True)
class AlertTables:
    """Rules, states, open incidents and silences of all environments, as they were before an evaluation."""

    rules: Sequence[RuleRow]
    states: Mapping[uuid.UUID, Mapping[str, RuleQueueState]]
    incidents: Mapping[uuid.UUID | None, list[IncidentRow]]
    silences: Mapping[int, list[Silence]]
    """Those that apply now, by environment."""

    @classmethod
    async def read(cls, store: EvaluationStore, now_s: float) -> AlertTables:
        rules, states, incidents, silences = (
            await store.enabled_rules(),
            await store.states(),
            await store.open_incidents(),
            await store.silences(now_s),
        )
        return cls(
            rules, _group_states(states), _group_incidents(incidents), _active_silences(silences, now_s)
        )


class Evaluator(BackgroundTask):
    """Evaluate alert rules until `stop`."""

    task_name = "alert evaluator"

    def __init__(
        self,
        postgres_url: str,
        redis: Redis,
        warehouse: Warehouse,
        run_queues: RunQueues,
        *,
        interval_s: float = 30.0,
        clock: Clock = system_clock,
    ) -> None:
        self._postgres_url = postgres_url
        self._redis = redis
        self._warehouse = warehouse
        self._run_queues = run_queues
        self._interval_s = interval_s
        self._clock = clock
        self._lock: ClusterLock | None = None
        self._meters: dict[Scope, EnvironmentMeter] = {}
        self._live_states: dict[Scope, LiveStateReader] = {}
        self._watermark_s: float | None = None
        self._clock_lead_s = 0.0
        self._losses = WindowLosses(0)
        self.evaluations = 0

    @property
    def is_leader(self) -> bool:
        return self._lock is not None

    async def stop(self) -> None:
        await super().stop()
        await self._release_lock()

    async def close(self) -> None:
        """Close the connections that the evaluator was created with."""
        await self._run_queues.stop()
        await self._redis.aclose()

    async def run_round(self) -> bool:
        """Evaluate once if this process holds or gets the lock; return whether it did."""
        if self._lock is None or self._lock.is_closed:
            self._lock = await ClusterLock.acquire(self._postgres_url, ALERTS_KEY)
            self._meters.clear()
            self._live_states.clear()
        if self._lock is None:
            return False
        await self._evaluate(EvaluationStore(self._lock))
        self.evaluations += 1
        return True

    async def _run(self) -> None:
        while True:
            started = time.monotonic()
            try:
                await self.run_round()
            except PenstockError as error:
                logger.warning("The evaluation of alerts waits: %s", error.detail)
                await self._record_failure(error.detail)
            except Exception as error:
                logger.exception("An evaluation of alerts failed")
                await self._record_failure(f"{type(error).__name__}: {error}")
            await asyncio.sleep(max(0.0, self._interval_s - (time.monotonic() - started)))

    async def _record_failure(self, error: str) -> None:
        lock = self._lock
        if lock is None or lock.is_closed:
            await self._release_lock()
            return
        try:
            await EvaluationStore(lock).record_failure(error)
        except PenstockError as unreachable:
            logger.warning("PostgreSQL does not record the failure: %s", unreachable.detail)
            await self._release_lock()

    async def _release_lock(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            await lock.close()

    async def _evaluate(self, store: EvaluationStore) -> None:
        started = time.monotonic()
        now_s = self._clock()
        tables = await AlertTables.read(store, now_s)
        lag_s = await self._read_lag_s(now_s)
        self._losses = await self._read_losses(tables.rules, lag_s)
        documents = EvaluationDocuments()
        for rows in _by_environment(tables.rules):
            outcomes = await self._evaluate_environment(store, rows, tables, now_s, lag_s)
            documents.add_outcomes(rows[0], outcomes, now_s)
        enabled = {row.rule_id for row in tables.rules}
        for rule_id, incidents in tables.incidents.items():
            if rule_id not in enabled:
                for row in incidents:
                    documents.resolve_orphan(row, now_s)
        await store.record(
            states=documents.states,
            status=documents.status,
            incidents=documents.incidents,
            notices=documents.notices,
            evaluated_to_s=self._watermark_s,
            duration_s=time.monotonic() - started,
        )

    async def _read_lag_s(self, now_s: float) -> float | None:
        """Return how far the metrics are behind; None if nothing was ever counted."""
        try:
            self._watermark_s = await read_watermark(self._redis, QUEUE, self._clock)
            self._clock_lead_s = await read_clock_lead_s(self._redis, QUEUE, self._clock)
        except (RedisError, OSError) as error:
            # The last watermark stays: the metrics are behind by as much as they were, and by the time since.
            logger.warning("The watermark of the metrics is unknown: Redis does not answer: %s", error)
        return None if self._watermark_s is None else max(0.0, now_s - self._watermark_s)

    async def _read_losses(self, rows: Sequence[RuleRow], lag_s: float | None) -> WindowLosses:
        """Return the losses of all windows; none while every state is unknown anyway."""
        if lag_s is None or lag_s > STALE_S:
            return WindowLosses(self._end_s)
        rules = [_stored_rule(row).rule for row in rows]
        return await asyncio.to_thread(read_window_losses, self._warehouse, rules, self._end_s)

    @property
    def _end_s(self) -> int:
        """The end of every window: the watermark, at the end of a bucket."""
        return int((self._watermark_s or 0.0) // BUCKET_S * BUCKET_S)

    async def _evaluate_environment(
        self,
        store: EvaluationStore,
        rows: Sequence[RuleRow],
        tables: AlertTables,
        now_s: float,
        lag_s: float | None,
    ) -> list[RuleOutcome]:
        rules = [_stored_rule(row) for row in rows]
        measurements, no_measurements = await self._measure(store, rows[0], rules, lag_s)
        silences = tables.silences.get(rows[0].environment_id, [])
        state_limit = StateLimit.of_states([tables.states.get(rule.id, {}) for rule in rules])
        outcomes: list[RuleOutcome] = []
        # Incidents of the platform come first: they hold back those of queues.
        for rule in sorted(rules, key=lambda rule: not is_platform_rule(rule.rule.rule)):
            is_platform = is_platform_rule(rule.rule.rule)
            unknown_reason = no_measurements or self._losses.unknown_reason(rule.rule)
            if is_platform and lag_s is not None:
                unknown_reason = None
            states = tables.states.get(rule.id, {})
            incident = _open_incident(tables.incidents.get(rule.id, []))
            policy = _policy(
                rule,
                states,
                incident,
                silence_check(silences, rule.rule.rule),
                None if is_platform else inhibiting_incident(outcomes),
            )
            outcome = evaluate_rule(
                rule,
                measurements.measure(rule.rule) if unknown_reason is None else None,
                states,
                incident,
                now_s,
                policy,
                unknown_reason,
                state_limit.max_new_queues(states),
            )
            state_limit.count_new(states, outcome.states)
            outcomes.append(outcome)
        reader = CauseEvidenceReader(store, self._run_queues, self._warehouse)
        explained = await explain_openings(outcomes, reader, rows[0], measurements.end_s, lag_s or 0.0)
        return await draw_openings(explained, self._warehouse, rows[0].scope, measurements.end_s)

    async def _measure(
        self, store: EvaluationStore, environment: RuleRow, rules: Sequence[StoredRule], lag_s: float | None
    ) -> tuple[Measurements, str | None]:
        """Return the measurements, and why they are unknown if they are."""
        empty = Measurements(self._end_s, lag_s or 0.0, {}, {})
        if lag_s is None:
            return empty, "no metrics were counted yet"
        if lag_s > STALE_S:
            return empty, f"metrics are behind since {iso(to_utc(self._watermark_s or 0.0))}"
        if self._clock_lead_s > MAX_CLOCK_LEAD_S:
            return empty, "events are dated in the future: check the clocks of Redis and of this host"
        meter = self._meters.setdefault(
            environment.scope, EnvironmentMeter(self._warehouse, environment.scope)
        )
        live_state = self._live_states.setdefault(
            environment.scope, LiveStateReader(environment, self._run_queues)
        )
        try:
            complete = [rule.rule for rule in rules]
            live_queues = await live_state.read(store, complete, self._clock())
            return await asyncio.to_thread(meter.read, complete, self._end_s, lag_s, live_queues), None
        except PenstockError as error:
            return empty, error.detail


def _stored_rule(row: RuleRow) -> StoredRule:
    return StoredRule(row.rule_id, _parse_rule(row.rule))


@lru_cache(maxsize=10_000)
def _parse_rule(text: str) -> CompleteRule:
    return complete_rule(msgspec.json.decode(text, type=AlertRule))


def _policy(
    rule: StoredRule,
    states: Mapping[str, RuleQueueState],
    incident: Incident | None,
    is_silenced: Callable[[str], bool],
    inhibited_by: uuid.UUID | None,
) -> NoticePolicy:
    settings = rule.rule.rule
    repeats = settings.repeat_minutes is not None and not (incident and incident.is_acknowledged)
    return NoticePolicy(
        settings.cooldown_minutes * 60,
        {queue: state.notified_s for queue, state in states.items() if state.notified_s is not None},
        is_silenced=is_silenced,
        inhibited_by=inhibited_by,
        repeat_s=(settings.repeat_minutes or 0.0) * 60 if repeats else None,
    )


def inhibiting_incident(outcomes: Iterable[RuleOutcome]) -> uuid.UUID | None:
    """Return the open incident of the platform that explains incidents of queues; None if there is none.

    The outcomes of platform rules are the first ones.
    """
    for outcome in outcomes:
        if not is_platform_rule(outcome.rule.rule.rule):
            return None
        update = outcome.incident
        if update is not None and update.incident.resolved_s is None:
            return update.incident.id
    return None


def _open_incident(rows: Sequence[IncidentRow]) -> Incident | None:
    return incident_from_row(rows[0]) if rows else None


def _active_silences(rows: Iterable[SilenceRow], now_s: float) -> dict[int, list[Silence]]:
    groups: dict[int, list[Silence]] = defaultdict(list)
    for row in rows:
        silence = msgspec.json.decode(row.silence, type=Silence)
        if is_active(silence, now_s):
            groups[row.environment_id].append(silence)
    return groups


def _by_environment(rows: Iterable[RuleRow]) -> list[list[RuleRow]]:
    groups: dict[int, list[RuleRow]] = defaultdict(list)
    for row in rows:
        groups[row.environment_id].append(row)
    return list(groups.values())


def _group_states(rows: Iterable[StateRow]) -> dict[uuid.UUID, dict[str, RuleQueueState]]:
    groups: dict[uuid.UUID, dict[str, RuleQueueState]] = defaultdict(dict)
    for row in rows:
        groups[row.rule_id][row.queue] = state_from_row(row)
    return groups


def _group_incidents(rows: Iterable[IncidentRow]) -> dict[uuid.UUID | None, list[IncidentRow]]:
    groups: dict[uuid.UUID | None, list[IncidentRow]] = defaultdict(list)
    for row in rows:
        groups[row.rule_id].append(row)
    return groups
