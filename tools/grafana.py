"""The Grafana dashboard in `deploy/grafana`, made from the table of metrics. `make reference` writes it.

A panel's description is what the table says of its metrics, so the dashboard and the reference agree.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from penstock.telemetry import EXPORTED, Exported, Kind

SOURCE = {"type": "prometheus", "uid": "${source}"}
WIDTH, HEIGHT = 8, 8
INSTANCE = 'instance=~"$instance"'


@dataclass(frozen=True, slots=True)
class Panel:
    """A chart of queries, each with the legend of its lines; `unit` as Grafana names units."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]


def rate(name: str, by: str, more: str = "") -> str:
    return f"sum by ({by}) (rate({name}{{{INSTANCE}{more}}}[$__rate_interval]))"


def shared(name: str, by: str, more: str = "") -> str:
    """What every broker tells alike."""
    return f"max by ({by}) ({name}{{{INSTANCE}{more}}})"


def shared_rate(name: str, by: str, more: str = "") -> str:
    """The rate of a counter that every broker tells alike."""
    return f"max by ({by}) (rate({name}{{{INSTANCE}{more}}}[$__rate_interval]))"


ROWS: dict[str, tuple[Panel, ...]] = {
    "Queues": (
        Panel(
            "Messages waiting",
            "short",
            ((shared("penstock_queue_depth", "queue", ',group=""'), "{{queue}}"),),
        ),
        Panel(
            "Oldest message",
            "s",
            ((shared("penstock_queue_oldest_age_seconds", "queue", ',group=""'), "{{queue}}"),),
        ),
        Panel(
            "Average wait until popped",
            "s",
            (
                (
                    f"{rate('penstock_queue_wait_seconds_sum', 'queue')} / "
                    f"{rate('penstock_queue_wait_seconds_count', 'queue')}",
                    "{{queue}}",
                ),
            ),
        ),
        Panel(
            "Pushed and popped",
            "cps",
            (
                (rate("penstock_queue_messages_total", "queue", ',event="pushed"'), "{{queue}} pushed"),
                (rate("penstock_queue_messages_total", "queue", ',event="popped"'), "{{queue}} popped"),
            ),
        ),
        Panel(
            "Tasks enqueued and acked",
            "cps",
            (
                (
                    shared_rate("penstock_queue_tasks_total", "queue", ',event="enqueued"'),
                    "{{queue}} enqueued",
                ),
                (shared_rate("penstock_queue_tasks_total", "queue", ',event="acked"'), "{{queue}} acked"),
            ),
        ),
        Panel(
            "Tasks delayed",
            "short",
            ((shared("penstock_queue_delayed", "queue"), "{{queue}}"),),
        ),
        Panel(
            "Being worked on, and the limit",
            "short",
            (
                (shared("penstock_queue_inflight", "queue", ',group=""'), "{{queue}}"),
                (shared("penstock_queue_concurrency_limit", "queue"), "{{queue}} limit"),
            ),
        ),
        Panel(
            "Dead letters",
            "short",
            ((shared("penstock_dlq_messages", "queue, group"), "{{queue}} {{group}}"),),
        ),
    ),
    "Brokers": (
        Panel(
            "Requests answered", "reqps", ((rate("penstock_requests_total", "operation"), "{{operation}}"),)
        ),
        Panel(
            "Messages per database call",
            "short",
            (
                (
                    f"{rate('penstock_operation_items_total', 'operation')} / "
                    f"{rate('penstock_operation_batches_total', 'operation')}",
                    "{{operation}}",
                ),
            ),
        ),
        Panel(
            "Time per database call",
            "s",
            (
                (
                    f"{rate('penstock_operation_seconds_total', 'operation')} / "
                    f"{rate('penstock_operation_batches_total', 'operation')}",
                    "{{operation}}",
                ),
            ),
        ),
        Panel(
            "Event loop late",
            "s",
            ((f"penstock_event_loop_late_seconds{{{INSTANCE}}}", "{{instance}} worker {{worker}}"),),
        ),
        Panel(
            "Load",
            "short",
            ((f"penstock_load{{{INSTANCE}}}", "{{operation}}, {{instance}} worker {{worker}}"),),
        ),
        Panel(
            "Spilled and refused",
            "reqps",
            (
                (
                    rate("penstock_load_decisions_total", "operation, decision", ',decision!="execute"'),
                    "{{operation}} {{decision}}",
                ),
            ),
        ),
        Panel(
            "Operations waiting, and the journal",
            "short",
            (
                (shared("penstock_operations_waiting", "operation"), "{{operation}}"),
                (f"penstock_journal_records{{{INSTANCE}}}", "journal {{instance}}"),
            ),
        ),
        Panel(
            "Database connections",
            "short",
            ((f"sum by (state) (penstock_database_connections{{{INSTANCE}}})", "{{state}}"),),
        ),
        Panel(
            "Memory and processor",
            "short",
            (
                (
                    f"penstock_worker_resident_memory_bytes{{{INSTANCE}}} / 1048576",
                    "MiB {{instance}} {{worker}}",
                ),
                (rate("penstock_worker_cpu_seconds_total", "instance"), "cores {{instance}}"),
            ),
        ),
    ),
    "Metrics": (
        Panel(
            "Age of the newest event in ClickHouse",
            "s",
            ((shared("penstock_pipeline_freshness_age_seconds", "metric"), "{{metric}}"),),
        ),
        Panel(
            "Entries not counted yet",
            "short",
            ((shared("penstock_pipeline_lag_entries", "stream"), "{{stream}}"),),
        ),
        Panel(
            "Lost and rejected",
            "short",
            (
                (
                    rate("penstock_metric_events_dropped_total", "instance"),
                    "dropped by {{instance}} per second",
                ),
                (shared("penstock_pipeline_lost_events", "metric"), "{{metric}} cut from a stream"),
                (shared("penstock_pipeline_rejected_events", "metric"), "{{metric}} rejected"),
            ),
        ),
    ),
}


def metrics_in(expression: str) -> set[str]:
    """The names of Penstock's samples that an expression reads."""
    return set(re.findall(r"\bpenstock_[a-z0-9_]+", expression))


def samples() -> dict[str, Exported]:
    """Every name a sample can have, and its metric."""
    ends = {Kind.COUNTER: ("_total",), Kind.GAUGE: ("",), Kind.SUMMARY: ("_sum", "_count")}
    return {f"{exported.name}{end}": exported for exported in EXPORTED for end in ends[exported.kind]}


def dashboard() -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    y = 0
    known = samples()
    for row, charts in ROWS.items():
        panels.append(
            {"type": "row", "title": row, "gridPos": {"h": 1, "w": 24, "x": 0, "y": y}, "panels": []}
        )
        y += 1
        for place, chart in enumerate(charts):
            named = dict.fromkeys(
                known[name].name for query, _ in chart.queries for name in sorted(metrics_in(query))
            )
            helps = {exported.name: exported.help for exported in EXPORTED}
            panels.append(
                {
                    "type": "timeseries",
                    "title": chart.title,
                    "description": "\n".join(f"{name}: {helps[name]}" for name in named),
                    "datasource": SOURCE,
                    "gridPos": {
                        "h": HEIGHT,
                        "w": WIDTH,
                        "x": place % 3 * WIDTH,
                        "y": y + place // 3 * HEIGHT,
                    },
                    "fieldConfig": {
                        "defaults": {"unit": chart.unit, "min": 0, "custom": {"spanNulls": False}},
                        "overrides": [],
                    },
                    "options": {"tooltip": {"mode": "multi"}, "legend": {"displayMode": "list"}},
                    "targets": [
                        {
                            "refId": chr(65 + number),
                            "expr": query,
                            "legendFormat": legend,
                            "datasource": SOURCE,
                        }
                        for number, (query, legend) in enumerate(chart.queries)
                    ],
                }
            )
        y += -(-len(charts) // 3) * HEIGHT
    for number, panel in enumerate(panels, 1):
        panel["id"] = number
    return {
        "title": "Penstock",
        "uid": "penstock",
        "tags": ["penstock"],
        "schemaVersion": 39,
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "15s",
        "templating": {
            "list": [
                {"name": "source", "label": "Source", "type": "datasource", "query": "prometheus"},
                {
                    "name": "instance",
                    "label": "Broker",
                    "type": "query",
                    "datasource": SOURCE,
                    "query": "label_values(penstock_workers, instance)",
                    "refresh": 2,
                    "multi": True,
                    "includeAll": True,
                    "allValue": ".*",
                },
            ]
        },
        "panels": panels,
    }


def dashboard_page() -> str:
    return json.dumps(dashboard(), indent=1) + "\n"
