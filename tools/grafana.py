"""Build the Grafana dashboard in `deploy/grafana` from the table of exported metrics.

`make reference` writes it. A panel's description repeats the help texts of its metrics, so the dashboard and
the reference page agree.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from penstock.telemetry import EXPORTED_METRICS, ExportedMetric, MetricType

SOURCE = {"type": "prometheus", "uid": "${source}"}
WIDTH, HEIGHT = 8, 8
INSTANCE = 'instance=~"$instance"'


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart. `queries` are pairs of a PromQL expression and a legend; `unit` is a Grafana unit name."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]


def rate(name: str, by: str, matchers: str = "") -> str:
    """The rate of a counter, summed over the brokers."""
    return f"sum by ({by}) (rate({name}{{{INSTANCE}{matchers}}}[$__rate_interval]))"


def shared(name: str, by: str, matchers: str = "") -> str:
    """A gauge for which every broker reports the same value."""
    return f"max by ({by}) ({name}{{{INSTANCE}{matchers}}})"


def shared_rate(name: str, by: str, matchers: str = "") -> str:
    """The rate of a counter for which every broker reports the same value."""
    return f"max by ({by}) (rate({name}{{{INSTANCE}{matchers}}}[$__rate_interval]))"


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
            "Average wait before pop",
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
            "Paused queues",
            "short",
            ((shared("penstock_queue_paused", "queue"), "{{queue}}"),),
        ),
        Panel(
            "Tasks delayed",
            "short",
            ((shared("penstock_queue_delayed", "queue"), "{{queue}}"),),
        ),
        Panel(
            "In flight and concurrency limit",
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
            "Event loop lag",
            "s",
            ((f"penstock_event_loop_late_seconds{{{INSTANCE}}}", "{{instance}} worker {{worker}}"),),
        ),
        Panel(
            "Load",
            "short",
            ((f"penstock_load{{{INSTANCE}}}", "{{operation}}, {{instance}} worker {{worker}}"),),
        ),
        Panel(
            "Deferred and refused requests",
            "reqps",
            (
                (
                    rate("penstock_load_decisions_total", "operation, decision", ',decision!="execute"'),
                    "{{operation}} {{decision}}",
                ),
            ),
        ),
        Panel(
            "Deferred operations and journal",
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
            "Memory and CPU",
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
            "Pipeline lag",
            "short",
            ((shared("penstock_pipeline_lag_entries", "stream"), "{{stream}}"),),
        ),
        Panel(
            "Dropped, lost and rejected events",
            "short",
            (
                (
                    rate("penstock_metric_events_dropped_total", "instance"),
                    "dropped by {{instance}} per second",
                ),
                (shared("penstock_pipeline_lost_events", "metric"), "{{metric}} trimmed from a stream"),
                (shared("penstock_pipeline_rejected_events", "metric"), "{{metric}} rejected"),
            ),
        ),
    ),
    "Alerts": (
        Panel(
            "Incidents",
            "short",
            ((shared("penstock_incidents", "severity, state"), "{{severity}} {{state}}"),),
        ),
        Panel(
            "Evaluation of alert rules",
            "s",
            (
                (shared("penstock_alert_evaluation_lag_seconds", ""), "age of the evaluated metrics"),
                (shared("penstock_alert_evaluation_duration_seconds", ""), "duration"),
            ),
        ),
        Panel(
            "Notices of the last day",
            "short",
            ((shared("penstock_alert_notices", "state"), "{{state}}"),),
        ),
    ),
}


def metrics_in(expression: str) -> set[str]:
    """The names of Penstock samples in a PromQL expression."""
    return set(re.findall(r"\bpenstock_[a-z0-9_]+", expression))


def metrics_by_sample() -> dict[str, ExportedMetric]:
    """The metric of every sample name in the exposition."""
    suffixes = {
        MetricType.COUNTER: ("_total",),
        MetricType.GAUGE: ("",),
        MetricType.SUMMARY: ("_sum", "_count"),
    }
    return {
        f"{metric.name}{suffix}": metric for metric in EXPORTED_METRICS for suffix in suffixes[metric.type]
    }


def dashboard() -> dict[str, Any]:
    """The dashboard as a JSON document."""
    panels: list[dict[str, Any]] = []
    y = 0
    metric_of_sample = metrics_by_sample()
    for row, charts in ROWS.items():
        panels.append(
            {"type": "row", "title": row, "gridPos": {"h": 1, "w": 24, "x": 0, "y": y}, "panels": []}
        )
        y += 1
        for position, chart in enumerate(charts):
            metrics = dict.fromkeys(
                metric_of_sample[name] for query, _ in chart.queries for name in sorted(metrics_in(query))
            )
            panels.append(
                {
                    "type": "timeseries",
                    "title": chart.title,
                    "description": "\n".join(f"{metric.name}: {metric.help}" for metric in metrics),
                    "datasource": SOURCE,
                    "gridPos": {
                        "h": HEIGHT,
                        "w": WIDTH,
                        "x": position % 3 * WIDTH,
                        "y": y + position // 3 * HEIGHT,
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
    """The text of `deploy/grafana/penstock.json`."""
    return json.dumps(dashboard(), indent=1) + "\n"
