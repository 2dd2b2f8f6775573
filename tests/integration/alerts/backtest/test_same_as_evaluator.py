"""A backtest finds the incidents that the evaluator opened, minute by minute, over the same metrics."""

from __future__ import annotations

import json
import random
import uuid
from typing import Any

import pytest

from penstock.alerts.backtest.history_reader import HistoryReader
from penstock.alerts.backtest.simulation import SimulatedIncident, simulate
from penstock.alerts.rules.rule_check import parse_rule
from penstock.alerts.rules.rule_types import complete_rule
from penstock.definitions import EMIT_DELAY_S
from penstock.model import Scope
from tests.integration.alerts.conftest import AlertPlatform
from tests.integration.alerts.test_unknown_windows import lose_events
from tests.integration.warehouse.landing_rows import insert_rows, landing_row

MINUTES = 45
QUEUES = ("orders", "mails", "idle")

RULES: tuple[dict[str, Any], ...] = (
    {"type": "BACKLOG", "threshold": 40, "windowMinutes": 2},
    {"type": "BACKLOG", "threshold": 60, "clearThreshold": 20, "windowMinutes": 1, "statistic": "last"},
    {"type": "BACKLOG", "threshold": 30, "windowMinutes": 3, "forMinutes": 2, "keepFiringForMinutes": 3},
    {"type": "BACKLOG", "threshold": 50, "windowMinutes": 2, "statistic": "avg", "cooldownMinutes": 1},
    {"type": "BACKLOG", "threshold": 50, "windowMinutes": 2, "minObservedPoints": 2, "repeatMinutes": 5},
    {"type": "BACKLOG", "threshold": 5, "operator": "LESS_THAN", "windowMinutes": 2, "queue": "m*"},
    {"type": "LATENCY", "threshold": 4_000, "windowMinutes": 3},
    {"type": "LATENCY", "threshold": 6_000, "statistic": "p95", "windowMinutes": 3},
    {"type": "ERROR_RATE", "threshold": 0.5, "windowMinutes": 3},
    {"type": "OLDEST_AGE", "threshold": 20_000, "queue": "orders"},
    {"type": "DEAD_LETTERS", "threshold": 3, "windowMinutes": 5},
    {"type": "SATURATION", "threshold": 0.9, "windowMinutes": 2},
    {"type": "CAPACITY_LOSS", "threshold": 0.3, "windowMinutes": 2},
    {"type": "TIME_TO_DRAIN", "threshold": 600_000, "windowMinutes": 5},
    {"type": "STALLED", "windowMinutes": 3},
    {"type": "SLO", "objective": 0.9, "withinSeconds": 5, "minSamples": 10},
)


def _random_minutes(platform: AlertPlatform, seed: int) -> list[dict[str, Any]]:
    """Random metrics of 3 queues: calm and bad phases, idle minutes, and a queue that is rarely observed."""
    generator = random.Random(seed)
    rows = []
    for queue in QUEUES:
        is_bad = False
        for second in range(0, (MINUTES + 10) * 60, 20):
            is_bad = is_bad if generator.random() < 0.9 else not is_bad
            if generator.random() < (0.95 if queue == "idle" else 0.2):
                continue
            finished = generator.randint(0, 6)
            failed = generator.randint(0, finished) if is_bad else 0
            wait_ms = 9_000 if is_bad else 500
            rows.append(
                landing_row(
                    platform.now_s - EMIT_DELAY_S - 600 + second + 3,
                    queue=queue,
                    environment=platform.environment,
                    depth=generator.randint(40, 100) if is_bad else generator.randint(0, 45),
                    running=generator.randint(0, 10),
                    limit=10,
                    oldest_age_ms=generator.randint(0, 40_000),
                    acked=finished - failed,
                    nacked=failed,
                    dead=failed // 3,
                    dequeued=finished,
                    wait_ms=(wait_ms,) * finished,
                )
            )
    return rows


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_backtest_finds_the_incidents_of_the_evaluator(platform: AlertPlatform, seed: int) -> None:
    start_s = platform.now_s
    # The evaluator measures up to the watermark, which is behind the clock.
    platform.now_s += EMIT_DELAY_S
    insert_rows(platform.warehouse, *_random_minutes(platform, seed))
    lose_events(platform, "dropped", seconds_ago=-20 * 60 - 10, lasting_s=30)
    for queue in QUEUES:
        await platform.add_queue(queue)
    rule_ids = [await platform.add_rule(**rule) for rule in RULES]
    for minute in range(MINUTES):
        await platform.evaluate(after_s=60 if minute else 0)

    scope = Scope("default", "default", platform.environment)
    reader = HistoryReader(platform.warehouse, scope, QUEUES)
    fired = 0
    for rule_id, fields in zip(rule_ids, RULES, strict=True):
        rule = complete_rule(parse_rule({"name": "tested", **fields}))
        history = reader.read(rule, int(start_s), int(start_s) + (MINUTES - 1) * 60, start_s)
        expected = await _read_incidents(platform, rule_id)
        assert [_describe(incident) for incident in simulate(rule, history)] == expected, fields
        fired += len(expected)
    assert fired > len(RULES)


def _describe(incident: SimulatedIncident) -> tuple[object, ...]:
    return (incident.opened_s, incident.resolved_s, incident.notices, sorted(incident.peaks))


async def _read_incidents(platform: AlertPlatform, rule_id: uuid.UUID) -> list[tuple[object, ...]]:
    rows = await platform.connection.fetch(
        "SELECT extract(epoch FROM opened_at)::float AS opened, "
        "extract(epoch FROM resolved_at)::float AS resolved, "
        'notice_count, (SELECT json_agg(queue ORDER BY queue COLLATE "C") FROM alert_incident_queues q '
        "WHERE q.incident_id = i.id) AS queues FROM alert_incidents i WHERE rule_id = $1 ORDER BY opened_at",
        rule_id,
    )
    return [
        (
            row["opened"] - EMIT_DELAY_S,
            None if row["resolved"] is None else row["resolved"] - EMIT_DELAY_S,
            row["notice_count"],
            json.loads(row["queues"]),
        )
        for row in rows
    ]
