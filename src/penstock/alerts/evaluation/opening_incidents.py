"""Add the cause and a chart to incidents that an evaluation opens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace

from penstock.alerts.evaluation.descriptions import format_value
from penstock.alerts.evaluation.rule_evaluation import RuleOutcome
from penstock.alerts.evaluation.value_history import has_history, read_history
from penstock.alerts.incidents.cause import find_cause
from penstock.alerts.incidents.cause_evidence import CauseEvidenceReader
from penstock.alerts.incidents.chart import Chart, draw_chart
from penstock.alerts.rules.rule_types import Unit
from penstock.durable.alerts.evaluation_store import RuleRow
from penstock.errors import PenstockError
from penstock.model import Scope
from penstock.warehouse.clickhouse_client import Warehouse

logger = logging.getLogger(__name__)

QUEUES_PER_INCIDENT = 3
"""The first queues of an incident, which its cause is derived from."""
MAX_CHARTS = 5
"""Charts per environment and evaluation."""
MAX_QUEUES = 30
"""Queues per environment and evaluation; incidents beyond have a cause without figures of their queues."""


async def explain_openings(
    outcomes: Sequence[RuleOutcome],
    reader: CauseEvidenceReader,
    environment: RuleRow,
    end_s: int,
    pipeline_lag_s: float,
) -> list[RuleOutcome]:
    """Return the outcomes, with a cause in each incident that opens. Without evidence there is none."""
    opening = {outcome.rule.id: _first_queues(outcome) for outcome in outcomes if _opens(outcome)}
    if not opening:
        return list(outcomes)
    names = list(dict.fromkeys(queue for queues in opening.values() for queue in queues))[:MAX_QUEUES]
    try:
        queues, platform = await reader.read(
            environment.environment_id, environment.scope, names, end_s, pipeline_lag_s
        )
    except PenstockError as error:
        logger.warning("Incidents open without a cause: %s", error.detail)
        return list(outcomes)
    return [
        _with_cause(
            outcome,
            find_cause([queues[name] for name in opening[outcome.rule.id] if name in queues], platform),
        )
        if outcome.rule.id in opening
        else outcome
        for outcome in outcomes
    ]


def _opens(outcome: RuleOutcome) -> bool:
    return outcome.incident is not None and outcome.incident.incident.is_new


def _first_queues(outcome: RuleOutcome) -> list[str]:
    assert outcome.incident is not None
    names = sorted(queue.queue for queue in outcome.incident.incident.firing_queues)
    return [name for name in names if name][:QUEUES_PER_INCIDENT]


def _with_cause(outcome: RuleOutcome, cause: dict[str, object]) -> RuleOutcome:
    update = outcome.incident
    assert update is not None
    return replace(outcome, incident=replace(update, incident=replace(update.incident, cause=cause)))


async def draw_openings(
    outcomes: Sequence[RuleOutcome], warehouse: Warehouse, scope: Scope, end_s: int
) -> list[RuleOutcome]:
    """Return the outcomes, with a chart in the first incidents that open and have values to draw."""
    drawn: list[RuleOutcome] = []
    charts = 0
    for outcome in outcomes:
        if charts < MAX_CHARTS and _opens(outcome) and has_history(outcome.rule.rule):
            charts += 1
            outcome = await _with_chart(outcome, warehouse, scope, end_s)
        drawn.append(outcome)
    return drawn


async def _with_chart(outcome: RuleOutcome, warehouse: Warehouse, scope: Scope, end_s: int) -> RuleOutcome:
    update, rule = outcome.incident, outcome.rule.rule
    assert update is not None
    queue = update.incident.queues[_first_queues(outcome)[0]]

    def draw() -> bytes | None:
        history = read_history(warehouse, scope, rule, queue.queue, end_s)
        if history is None:
            return None
        return draw_chart(
            Chart(
                f"{rule.rule.name}: {queue.queue}",
                queue.summary,
                history.times_s,
                history.values,
                rule.threshold,
                lambda value: format_value(rule.unit, value),
                is_duration=rule.unit is Unit.MILLISECONDS,
            )
        )

    try:
        chart = await asyncio.to_thread(draw)
    except PenstockError as error:
        logger.warning("An incident opens without a chart: %s", error.detail)
        return outcome
    return replace(outcome, incident=replace(update, incident=replace(update.incident, chart=chart)))
