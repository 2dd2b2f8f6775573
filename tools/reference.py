"""Write the reference pages, the tables of fault runs and the Grafana dashboard. `make reference` runs it."""

from __future__ import annotations

import runpy
from pathlib import Path

from penstock.config import PREFIX, Settings, group_settings
from penstock.definitions import DEFINITIONS, MetricDefinition
from penstock.telemetry import EXPORTED_METRICS, ExportedMetric, WorkerAggregation

AGGREGATION_TEXT = {
    WorkerAggregation.SHARED: "same value in all",
    WorkerAggregation.SUM: "sum",
    WorkerAggregation.MAX: "maximum",
    WorkerAggregation.WORKER: "one sample each",
}

DOCS = Path(__file__).parents[1] / "docs"


def settings_page() -> str:
    lines = [
        "# Settings",
        "",
        "Each setting is an environment variable or a key in the TOML file of `PENSTOCK_CONFIG`.",
        "A variable overrides the file. Penstock refuses an unknown key and suggests a similar one.",
        "`penstock config` prints the settings in force and the source of each value; it masks secrets.",
        "`penstock config journal` prints the settings with that text in the name, group or meaning.",
        "If a platform runs on the home, they are the settings of that platform.",
        "",
    ]
    for group, names in group_settings().items():
        lines += [f"## {group}", "", "| Variable | TOML key | Default | Meaning |", "|---|---|---|---|"]
        lines += [*map(_setting_row, names), ""]
    return "\n".join(lines)


def _setting_row(name: str) -> str:
    field = Settings.model_fields[name]
    default = field.default
    if default == "":
        default_text = "empty"
    else:
        default_text = f"`{str(default).lower() if default in (True, False) else default}`"
    return f"| `{PREFIX}{name.upper()}` | `{name}` | {default_text} | {field.description} |"


def metrics_page() -> str:
    lines = [
        "# Metrics",
        "",
        "`penstock/definitions.py` declares these metrics. The tables keep the sum of a counter, the maximum",
        "and the last value of a gauge, and the sum, count, maximum and T-Digest of samples. There are three",
        "tiers: 5 seconds for 2 days, 1 minute for 31 days, 1 hour for 400 days.",
        "",
    ]
    for definition in DEFINITIONS:
        lines += _definition_section(definition)
    lines += [
        "## Prometheus metrics: `GET /metrics`",
        "",
        "The format is OpenMetrics. Every broker process behind a port responds for all of them; the last",
        "column says how it aggregates their values. The sample of a counter ends in `_total`.",
        "",
        "| Metric | Type | Labels | Meaning | Processes |",
        "|---|---|---|---|---|",
        *map(_exported_metric_row, EXPORTED_METRICS),
        "",
    ]
    return "\n".join(lines)


def _exported_metric_row(metric: ExportedMetric) -> str:
    labels = ", ".join(metric.all_labels) or "–"
    aggregation = AGGREGATION_TEXT[metric.aggregation]
    return f"| `{metric.name}` | {metric.type} | {labels} | {metric.help} | {aggregation} |"


def _definition_section(definition: MetricDefinition) -> list[str]:
    kinds = {
        "dimension": definition.dimensions,
        "counter": definition.counters,
        "gauge": definition.gauges,
        "samples": definition.samples,
    }
    return [
        f"## `{definition.name}`",
        "",
        f"Streams `{definition.stream_keys[0]}` to `{definition.stream_keys[-1]}`, "
        f"at most about {definition.max_stream_length:,} entries each; "
        f"{definition.bucket_ms // 1000}-second buckets.",
        "",
        "| Kind | Name | Wire name | Meaning |",
        "|---|---|---|---|",
        *(
            f"| {kind} | `{measure.name}` | `{measure.wire}` | {measure.help} |"
            for kind, measures in kinds.items()
            for measure in measures
        ),
        "",
    ]


CLI_PAGE = runpy.run_path(str(Path(__file__).parent / "cli_reference.py"))
CLIENT_PAGE = runpy.run_path(str(Path(__file__).parent / "client_reference.py"))
RELIABILITY_PAGE = runpy.run_path(str(Path(__file__).parent / "reliability_tables.py"))
PAGES = {
    "reference/settings.md": settings_page,
    "reference/metrics.md": metrics_page,
    "reference/cli.md": CLI_PAGE["cli_page"],
    "reference/client.md": CLIENT_PAGE["client_page"],
    "reliability.md": RELIABILITY_PAGE["reliability_page"],
}
DASHBOARD = Path(__file__).parents[1] / "deploy" / "grafana" / "penstock.json"

if __name__ == "__main__":
    for file_name, page in PAGES.items():
        (DOCS / file_name).write_text(page())
        print(f"wrote docs/{file_name}")
    DASHBOARD.write_text(runpy.run_path(str(Path(__file__).parent / "grafana.py"))["dashboard_page"]())
    print("wrote deploy/grafana/penstock.json")
