"""Samples of alerts for `GET /metrics`: the evaluator of the cluster, open incidents, and notices."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from penstock import telemetry
from penstock.api.exporter.process_samples import SampleTable
from penstock.api.services import Services
from penstock.errors import PenstockError
from penstock.model import Scope

TIMEOUT_S = 2.0

METRIC_OF_FIGURE = {
    "lag": telemetry.ALERT_EVALUATION_LAG,
    "duration": telemetry.ALERT_EVALUATION_DURATION,
    "evaluations": telemetry.ALERT_EVALUATIONS,
    "failures": telemetry.ALERT_EVALUATION_FAILURES,
    "incidents": telemetry.INCIDENTS,
    "notices": telemetry.ALERT_NOTICES,
}


async def alert_samples(services: Services, environments: Sequence[Scope]) -> SampleTable:
    """Read the samples in one call per environment; none while PostgreSQL is unreachable or slow."""
    samples: SampleTable = {metric: {} for metric in METRIC_OF_FIGURE.values()}
    for environment in environments:
        try:
            figures = await asyncio.wait_for(services.alert_incidents.read_figures(environment), TIMEOUT_S)
        except (TimeoutError, PenstockError):
            break  # /health reports it
        for figure in figures:
            metric = METRIC_OF_FIGURE[figure.figure]
            labels = (*environment, *figure.labels) if metric.is_of_environment else tuple(figure.labels)
            samples[metric][labels] = figure.value
    return samples
